"""The pages of docs/ that say what reproduces, made from the results that are kept: `make results`."""

from __future__ import annotations

import sys
from pathlib import Path

from widemargin.report.results import page

PLANE = (
    "fig1",
    "app-three-cases",
    "fig3",
    "app-max-margin",
    "app-two-distances",
    "app-corridor-sweep",
    "theorem",
    "near-points",
    "corrections",
    "fig2",
)
IMAGES = (
    "tab1-small",
    "tab2-small",
    "tab3-small",
    "tab4-small",
    "tab5-small",
    "fig4-small",
    "fig5-small",
    "app-clean-accuracy-small",
    "app-overfitting-fashion-small",
    "app-overfitting-cifar-small",
    "app-long-walk-small",
)
PAGES = {"reproducing": PLANE, "reproducing-images": IMAGES}


def written(results: Path, docs: Path) -> list[Path]:
    """Every page, from its introduction and its studies' results in `results`."""
    paths = []
    for name, studies in PAGES.items():
        path = docs / f"{name}.md"
        path.write_text(page((results / f"{name}.md").read_text(), studies, results))
        paths.append(path)
    return paths


if __name__ == "__main__":
    for path in written(Path(sys.argv[1]), Path(sys.argv[2])):
        print(path)
