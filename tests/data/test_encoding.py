"""The encoding of rows: numbers, categories and what is missing, one after the other."""

import torch

from widemargin.data.encoding import RowEncoder

NAN = torch.nan


def test_numbers_then_categories_then_what_is_missing() -> None:
    # Columns: a number with a median, a category of three, a number that never lacks.
    encoder = RowEncoder(3, [(0, 10.0, 2.0, 13.0), (2, 0.0, 1.0, None)], [(1, 0), (1, 1), (1, 2)], [0, 1])
    rows = torch.tensor([[12.0, 2.0, 5.0], [NAN, 0.0, -1.0], [10.0, NAN, 0.0]])
    assert encoder(rows).tolist() == [
        [1.0, 5.0, 0, 0, 1, 0, 0],
        [1.5, -1.0, 1, 0, 0, 1, 0],
        [0.0, 0.0, 0, 0, 0, 0, 1],
    ]


def test_numbers_alone_are_an_affine_map() -> None:
    encoder = RowEncoder(2, [(0, 1.0, 2.0, None), (1, -1.0, 0.5, None)], [], [])
    assert encoder(torch.tensor([[3.0, 0.0]])).tolist() == [[1.0, 2.0]]
    # A number that no training row lacked stays unknown.
    assert bool(encoder(torch.tensor([[NAN, 0.0]])).isnan()[0, 0])


def test_categories_alone() -> None:
    assert RowEncoder(1, [], [(0, 0), (0, 1)], [])(torch.tensor([[1.0], [7.0]])).tolist() == [[0, 1], [0, 0]]
