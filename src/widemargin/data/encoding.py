"""The encoding of a table's rows: standardised numbers, one feature for each category, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class RowEncoder(nn.Module):
    """Raw rows [B, columns] to features, in operators that every exported format has.

    A raw row has the number of a category in its place, and NaN where nothing is known.  Features are the numbers,
    shifted and scaled; then for each category 1 or 0; then for columns with missing values whether theirs is missing.
    """

    number_places: Tensor
    shift: Tensor
    scale: Tensor
    fill: Tensor
    category_places: Tensor
    categories: Tensor
    missing_places: Tensor

    def __init__(
        self,
        columns: int,
        numbers: Sequence[tuple[int, float, float, float | None]],
        categories: Sequence[tuple[int, int]],
        missing: Sequence[int],
    ) -> None:
        """Numbers by place, shift, scale and what stands for a missing one; categories by place and number."""
        super().__init__()
        places, shifts, scales, fills = zip(*numbers, strict=True) if numbers else ((), (), (), ())
        self.all_numbers = list(places) == list(range(columns))
        self.some_missing = any(fill is not None for fill in fills)
        self.register_buffer("number_places", torch.tensor(places, dtype=torch.int64))
        self.register_buffer("shift", torch.tensor(shifts, dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(scales, dtype=torch.float32))
        self.register_buffer("fill", torch.tensor([fill or 0.0 for fill in fills], dtype=torch.float32))
        self.register_buffer("category_places", torch.tensor([place for place, _ in categories], dtype=torch.int64))
        self.register_buffer("categories", torch.tensor([number for _, number in categories], dtype=torch.float32))
        self.register_buffer("missing_places", torch.tensor(list(missing), dtype=torch.int64))

    def forward(self, rows: Tensor) -> Tensor:
        features = []
        if len(self.number_places):
            features.append(self._standardised(rows))
        if len(self.category_places):
            features.append((rows.index_select(1, self.category_places) == self.categories).to(rows.dtype))
        if len(self.missing_places):
            features.append(rows.index_select(1, self.missing_places).isnan().to(rows.dtype))
        return features[0] if len(features) == 1 else torch.cat(features, 1)

    def _standardised(self, rows: Tensor) -> Tensor:
        numbers = rows if self.all_numbers else rows.index_select(1, self.number_places)
        if self.some_missing:
            numbers = torch.where(numbers.isnan(), self.fill, numbers)
        return (numbers - self.shift) / self.scale
