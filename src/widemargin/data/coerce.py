"""What people have as a Dataset: tensors, NumPy arrays, pandas or polars frames, a TensorDataset or a DataLoader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from widemargin.data.checks import UNLABELLED, check_points
from widemargin.data.dataset import Dataset, Examples, Splits, Subset
from widemargin.shapes import Labels, Points

_BATCH = 500


def as_examples(data: Any) -> Examples:
    """Inputs and their labels, from any of the forms that hold both."""
    if isinstance(data, Dataset | Subset):
        return data
    inputs, labels = _inputs_and_labels(data)
    if labels is None:
        raise ValueError(f"there must be labels, got a {_name(data)} of inputs alone: give a pair, (x, y)")
    if isinstance(labels, str):
        inputs, labels = _without_column(inputs, labels)
    _check_order(inputs, labels)
    points = as_points(inputs)
    return Dataset(points.detach(), as_labels(labels, len(points)))


def as_points(inputs: Any) -> Points:
    """Inputs [rows, features...] as floating-point numbers: of data with labels, its inputs alone."""
    if isinstance(inputs, Dataset):
        return inputs.points
    if isinstance(inputs, Subset):
        return inputs[slice(None)][0]
    if _holds_both(inputs):
        return as_points(_inputs_and_labels(inputs)[0])
    frame = hasattr(inputs, "columns")
    tensor = _tensor(inputs, "points")
    if frame and not tensor.is_floating_point():
        # A table of whole numbers or truths; images are no frames.
        tensor = tensor.to(torch.get_default_dtype())
    if tensor.dtype == torch.uint8:
        raise ValueError(
            "points must be floating-point numbers, got bytes (torch.uint8): scale them, x.float() / 255, or give "
            "x.float() and the box wm.Box(0, 255)"
        )
    check_points(tensor)
    return tensor


def as_labels(labels: Any, rows: int) -> Labels:
    """Whole numbers of any width as the int64 that torch counts classes with."""
    tensor = _tensor(labels, "labels")
    if tensor.ndim == 2 and len(tensor) == rows and tensor.shape[1] > 1:
        raise ValueError(f"labels must be class numbers, got one-hot rows {list(tensor.shape)}: give y.argmax(1)")
    if tensor.ndim == 2 and tensor.shape[1] == 1:
        raise ValueError(f"labels must have shape [{rows}], got a column {list(tensor.shape)}: give y.squeeze(1)")
    if tensor.is_floating_point() or tensor.is_complex():
        raise ValueError(f"labels must be whole numbers, got {tensor.dtype}: give y.long() if these are class numbers")
    if tensor.shape != (rows,):
        raise ValueError(f"labels must have shape [{rows}], one for every point, got {list(tensor.shape)}")
    return tensor.long()


def placed(examples: Examples, device: torch.device, dtype: torch.dtype) -> Examples:
    """Where a model is, in the precision in which it computes."""
    if isinstance(examples, Subset):
        moved = None if examples.moved is None else examples.moved.to(device, dtype)
        return Subset(placed(examples.of, device, dtype), examples.rows, moved)
    stored = examples.stored
    wanted = dtype if stored.is_floating_point() else stored.dtype
    if (stored.device, stored.dtype, examples.labels.device) == (device, wanted, device):
        return examples
    return replace(examples, stored=stored.to(device, wanted), labels=examples.labels.to(device))


def whole(examples: Examples) -> Dataset:
    """A subset as a dataset of its own."""
    if isinstance(examples, Dataset):
        return examples
    taken = whole(examples.of).take(examples.rows)
    return taken if examples.moved is None else replace(taken, stored=examples.moved, white=1)


def no_labels(inputs: Points) -> Labels:
    """As many as there are points, all unknown."""
    return torch.full((len(inputs),), UNLABELLED, device=inputs.device)


def _inputs_and_labels(data: Any) -> tuple[Any, Any]:
    if isinstance(data, Splits):
        raise ValueError("give one split, such as splits.test, got all three")
    if isinstance(data, TensorDataset):
        return _pair(data.tensors)
    if isinstance(data, TorchDataset):
        data = DataLoader(data, batch_size=_BATCH)
    if isinstance(data, DataLoader):
        return _joined(data)
    if _holds_both(data):
        return _pair(tuple(data))
    if hasattr(data, "columns"):
        raise ValueError('a frame must come with its labels: give (frame, y), or (frame, "name of the label column")')
    return data, None


def _holds_both(data: Any) -> bool:
    """Or might: a list of numbers is an array, one of arrays is what a DataLoader makes of a pair."""
    arrays = isinstance(data, list) and len(data) > 0 and hasattr(data[0], "shape") and not _are_samples(data)
    return arrays or isinstance(data, tuple | TorchDataset | DataLoader | Splits)


def _are_samples(values: Any) -> bool:
    """A list of arrays of one shape; those of a pair differ, since inputs have features."""
    shapes = [tuple(getattr(value, "shape", ())) for value in values] if isinstance(values, list) else []
    return len(shapes) > 1 and len(shapes[0]) > 0 and len(set(shapes)) == 1


def _pair(entries: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(entries) not in (1, 2):
        raise ValueError(f"data must be a pair of inputs and labels, (x, y), got {len(entries)} entries")
    return entries[0], entries[1] if len(entries) == 2 else None


def _joined(loader: DataLoader[Any]) -> tuple[Any, Any]:
    """All batches of one pass, in the order in which they come."""
    batches = [
        (batch, None) if isinstance(batch, Tensor) else _pair(tuple(batch)) if isinstance(batch, tuple | list) else None
        for batch in loader
    ]
    if not batches:
        raise ValueError("a DataLoader must have at least one batch, got none")
    if None in batches:
        raise ValueError("batches must be pairs of inputs and labels, got others: let the dataset return (x, y)")
    inputs, labels = zip(*(batch for batch in batches if batch is not None), strict=True)
    return torch.cat(inputs), None if labels[0] is None else torch.cat(labels)


def _without_column(frame: Any, name: str) -> tuple[Any, Any]:
    """Inputs and labels of a frame; `drop` takes names in other ways in pandas and polars."""
    columns = list(getattr(frame, "columns", ()))
    if name not in columns:
        raise ValueError(f"labels must be whole numbers or name a column of a frame, got {name!r} of {columns}")
    return frame[[column for column in columns if column != name]], frame[name]


def _tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    if _are_samples(values):
        return torch.stack([_tensor(value, what) for value in values])
    if hasattr(values, "columns"):
        # Column by column: of mixed types a frame makes an array of objects.
        columns = [_array(values[name], f"the column {name!r}") for name in values.columns]
        return torch.from_numpy(np.column_stack(columns))
    return torch.from_numpy(_array(values, what))


def _array(values: Any, what: str) -> NDArray[Any]:
    convert = getattr(values, "to_numpy", None)
    array = convert() if callable(convert) else values
    if not isinstance(array, np.ndarray | list | np.generic):
        raise ValueError(f"{what} must be a tensor, an array or a frame, got {_name(values)}")
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        numbered = "number the classes from 0, in the model's order, such as numpy.unique(y, return_inverse=True)[1]"
        todo = numbered if what == "labels" else "encode it as numbers first"
        raise ValueError(f"{what} must be numbers, got {_name(values)} of {array.dtype}: {todo}")
    # torch has no unsigned whole numbers beyond bytes, shares no memory that is read-only, and reads native bytes.
    kind = array.dtype.newbyteorder("=") if array.dtype.kind != "u" or array.itemsize == 1 else np.dtype(np.int64)
    return array.astype(kind)


def _check_order(inputs: Any, labels: Any) -> None:
    """(y, x) instead of (x, y)."""
    dimensions = [getattr(values, "ndim", None) for values in (inputs, labels)]
    if dimensions[0] == 1 and (dimensions[1] or 0) >= 2:
        raise ValueError("data must be inputs and then labels, got them the other way round: give (x, y)")


def _name(values: object) -> str:
    return type(values).__name__
