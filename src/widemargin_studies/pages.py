"""The pages of docs/ that say what was measured, made from the results that are kept: `make results`."""

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
_ON_IMAGES = (
    "tab1",
    "tab2",
    "tab3",
    "tab4",
    "tab5",
    "fig4",
    "fig5",
    "app-clean-accuracy",
    "selection",
    "app-overfitting-fashion",
    "app-overfitting-cifar",
    "app-long-walk",
)
_FOR_ONE_SEED = ("tab2", "app-clean-accuracy", "selection")
IMAGES = tuple(
    f"{name}{scale}"
    for name in _ON_IMAGES
    for scale in ("", "-one-seed", "-small")
    if scale != "-one-seed" or name in _FOR_ONE_SEED
)
"""Every study at every scale; those of which no result is kept are named at the end."""
PAGES = {"reproducing": PLANE, "reproducing-images": IMAGES, "tables": ("tables",), "zoo": ("zoo",)}


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
