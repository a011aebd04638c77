"""Models in and out of files: load, export, .onnx, .pt2, the zoo.  Nothing of a file is ever executed."""
