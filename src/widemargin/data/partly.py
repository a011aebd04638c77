"""What if only some rows have a label?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin.data.checks import UNLABELLED, check_known_labels, check_label_type, check_points
from widemargin.data.examples import Examples
from widemargin.shapes import Labels, Points


@dataclass(frozen=True, eq=False)
class PartlyLabelled:
    """Points whose label is a class or UNLABELLED: for methods such as `vat` and `udp_consistency` to train on.

    There is nothing to measure on it: what is wrong cannot be told of a row without a label.
    """

    points: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        check_points(self.points)
        check_label_type(self.labels)
        if not bool((self.labels != UNLABELLED).any()):
            raise ValueError("at least one row must have a label, got none: nothing would say what the classes are")
        check_known_labels(self.labels, len(self.points), int(self.labels.max()) + 1)

    @classmethod
    def hiding(cls, examples: Examples, known: Tensor) -> PartlyLabelled:
        """All examples, with the labels of the rows `known` alone: to try how far few labels go."""
        points, labels = examples.batch(torch.arange(len(examples)))
        hidden = torch.full_like(labels, UNLABELLED)
        hidden[known] = labels[known]
        return cls(points, hidden)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Tensor) -> tuple[Points, Labels]:
        return self.points[rows], self.labels[rows]
