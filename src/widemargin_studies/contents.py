"""Writes contents.json, from which `widemargin study list` reads: `python -m widemargin_studies.contents`."""

from __future__ import annotations

from pathlib import Path

from widemargin.report import study
from widemargin.report.contents import FILE, Listed, to_json
from widemargin.report.results import hardware
from widemargin.report.store import Store

_NOTHING = Store(Path("nowhere"))


def listed(name: str) -> Listed:
    """Timed on this computer where a study has no time of its own."""
    work = study.load(name)
    left = study.left(work, _NOTHING)
    return Listed(work.TITLE, left.of, float(f"{left.core_minutes:.2g}"))


if __name__ == "__main__":
    path = Path(__file__).parent / FILE
    path.write_text(to_json({name: listed(name) for name in study.names()}, hardware()))
    print(path)
