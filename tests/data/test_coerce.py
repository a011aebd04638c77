import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from widemargin.data.coerce import as_examples, as_labels, as_points, no_labels, placed
from widemargin.data.dataset import Dataset, Splits, Subset

X = torch.tensor([[0.0, 0.5], [1.0, 0.25], [0.5, 0.0]])


Y = torch.tensor([0, 2, 1])


COLUMNS = {"a": X[:, 0].tolist(), "b": X[:, 1].tolist()}


class Rows(TorchDataset[tuple[Tensor, int]]):
    """A dataset of the user's own, row by row."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if row >= len(X):
            raise IndexError
        return X[row], int(Y[row])


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X, Y],
        (X, Y.int()),
        (X, Y.to(torch.uint8)),
        (X.numpy(), Y.numpy()),
        (list(X.numpy()), list(Y.numpy())),
        (list(X), Y),
        (X.numpy(), Y.numpy().astype(np.uint32)),
        (X.numpy().astype(">f4"), Y.tolist()),
        (pd.DataFrame(COLUMNS), pd.Series(Y.numpy())),
        (pd.DataFrame({"class": Y.numpy(), **COLUMNS}), "class"),
        (pl.DataFrame(COLUMNS), pl.Series(Y.numpy())),
        (pl.DataFrame({"class": Y.numpy(), **COLUMNS}), "class"),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=2),
        Rows(),
        Dataset(X, Y),
        Subset(Dataset(X, Y), torch.arange(3)),
    ],
    ids=lambda data: type(data).__name__,
)
def test_whatever_holds_inputs_and_labels_is_a_dataset(data: object) -> None:
    examples = as_examples(data)
    inputs, labels = examples[torch.arange(3)]
    torch.testing.assert_close(inputs.float(), X)
    assert torch.equal(labels, Y)
    torch.testing.assert_close(as_points(data if not isinstance(data, tuple) else data[:1]).float()[:, -2:], X)


def test_a_table_of_whole_numbers_is_one_of_numbers() -> None:
    assert as_points(pd.DataFrame({"a": [1, 2], "b": [True, False]})).tolist() == [[1.0, 1.0], [2.0, 0.0]]


def test_read_only_arrays_are_taken() -> None:
    array = X.numpy().copy()
    array.setflags(write=False)
    assert torch.equal(as_points(array), X)


def test_gradients_stay_where_a_loss_needs_them_and_nowhere_else() -> None:
    x = X.clone().requires_grad_()
    assert as_points(x) is x
    assert not as_examples((x, Y))[slice(None)][0].requires_grad


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ((Y, X), r"inputs and then labels, got them the other way round: give \(x, y\)"),
        ((X, torch.eye(3)), r"got one-hot rows \[3, 3\]: give y.argmax\(1\)"),
        ((X, Y[:, None]), r"got a column \[3, 1\]: give y.squeeze\(1\)"),
        ((X, Y.float()), r"whole numbers, got torch.float32: give y.long\(\)"),
        ((X, Y[:2]), r"must have shape \[3\], one for every point, got \[2\]"),
        ((X, np.array(["cat", "dog", "cat"])), "must be numbers, got ndarray of <U3: number the classes from 0"),
        (
            (pd.DataFrame({"a": ["x", "y"]}), Y[:2]),
            "the column 'a' must be numbers, got Series of .*: encode it",
        ),
        ((pd.DataFrame(COLUMNS), "class"), r"name a column of a frame, got 'class' of \['a', 'b'\]"),
        (pd.DataFrame(COLUMNS), r"give \(frame, y\), or \(frame, \"name of the label column\"\)"),
        (((255 * X).to(torch.uint8), Y), r"got bytes \(torch.uint8\): scale them, x.float\(\) / 255"),
        ((X.long(), Y), r"floating-point numbers, got torch.int64: call points.float\(\)"),
        (X, r"there must be labels, got a Tensor of inputs alone: give a pair, \(x, y\)"),
        (TensorDataset(X), "there must be labels, got a TensorDataset"),
        ((X, Y, Y), r"a pair of inputs and labels, \(x, y\), got 3 entries"),
        (Splits(*[Dataset(X, Y)] * 3), r"give one split, such as splits.test"),
        (("text", Y), "points must be a tensor, an array or a frame, got str"),
        (DataLoader([{"x": X[0]}], batch_size=1), r"let the dataset return \(x, y\)"),
    ],
)
def test_wrong_guesses_get_the_right_call(data: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        as_examples(data)


def test_examples_go_where_the_model_is() -> None:
    dataset = Dataset(X, Y)
    assert placed(dataset, torch.device("cpu"), torch.float32) is dataset
    assert placed(dataset, torch.device("cpu"), torch.float64).stored.dtype == torch.float64
    subset = placed(Subset(dataset, torch.tensor([2])), torch.device("cpu"), torch.float64)
    assert isinstance(subset, Subset)
    assert subset[slice(None)][0].dtype == torch.float64
    # Pixels stay bytes.
    pixels = Dataset(X, Y).stored
    assert placed(Dataset(pixels, Y), torch.device("cpu"), torch.float32).stored is pixels


def test_labels_that_nobody_has_are_unknown() -> None:
    assert no_labels(X).tolist() == [-1, -1, -1]
    assert as_labels([1, 2], 2).dtype == torch.int64
