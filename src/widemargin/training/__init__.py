"""From a run to a trained network."""
