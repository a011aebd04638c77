from dataclasses import replace

from pixel_studies import CELLS
from widemargin_studies import published


def test_printed_numbers_are_read_as_printed() -> None:
    assert [str(cell) for cell in published.row("61.8±0.8 31.0")] == ["61.8 ± 0.8", "31.0"]
    assert replace(CELLS[0]).label == "PGD (eps 0.1)"
