"""What a sweep came to: its best trials, how accuracy depends on each parameter, and how fast it got better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes

from widemargin.report.document import Picture, Report
from widemargin.report.figures import BEST, COLOURS, panels
from widemargin.report.tables import Table
from widemargin.runs.sweep import Range, SweepTrial, best_first

_SHOWN = 10


@dataclass(frozen=True)
class Swept:
    title: str
    attack: str
    """By which all trials are judged."""
    ranges: Mapping[str, Range]
    trials: tuple[SweepTrial, ...]
    """All that are over, in the order in which they began."""
    validated: int
    """How many validation examples judged them."""
    tested: Mapping[str, Any] | None
    """Accuracies of the chosen trial on the test part; None if it was trained on another computer."""

    def summary(self) -> dict[str, Any]:
        """For programs."""
        return {
            "title": self.title,
            "attack": self.attack,
            "searched": {name: asdict(within) for name, within in self.ranges.items()},
            "trials": [asdict(trial) for trial in self.trials],
            "chosen": next((trial.number for trial in best_first(self.trials)), None),
            "validated": self.validated,
            "test": None if self.tested is None else dict(self.tested),
        }


def page(swept: Swept) -> Report:
    counts = {state: sum(trial.state == state for trial in swept.trials) for state in ("pruned", "diverged")}
    over = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none stopped early"
    summary = f"{len(swept.trials)} trials, {over}. {_chosen(swept)}"
    searched = ", ".join(map(_range_text, swept.ranges.items()))
    settings = f"Judge, the same for all: validation accuracy under {swept.attack}. Searched: {searched}."
    return Report(f"Sweep: {swept.title}", summary, settings, (), (_table(swept),), (_picture(swept),))


def _chosen(swept: Swept) -> str:
    best = best_first(swept.trials)
    if not best:
        return "None was trained to the end, so none is chosen."
    share = best[0].robust or 0.0
    within = 2 * (share * (1 - share) / swept.validated) ** 0.5
    said = (
        f"Chosen on the validation split: trial {best[0].number}, robust {_percent(share)} ({swept.attack}); what is "
        f"less than {100 * within:.1f} points below it is within two standard errors ({swept.validated:,} examples). "
    )
    if not swept.tested:
        return said + "Its folder is not here, so it was not tested: do that where it was trained."
    robust, clean = (_percent(swept.tested[name]) for name in ("robust", "clean"))
    return said + f"On the test split it has robust {robust} ({swept.attack}), clean {clean}."


def _table(swept: Swept) -> Table:
    rows = [
        (
            str(trial.number),
            _percent(trial.robust),
            _percent(trial.clean),
            *(f"{trial.parameters[name]:g}" for name in swept.ranges),
        )
        for trial in best_first(swept.trials)[:_SHOWN]
    ]
    note = f"On the validation split, of the best checkpoint; robust: under {swept.attack}."
    return Table("Best trials", ("trial", "robust", "clean", *swept.ranges), tuple(rows), note)


def _picture(swept: Swept) -> Picture:
    figure, grid = panels(1, len(swept.ranges) + 1)
    *by_parameter, over_time = grid[0]
    for axes, (name, within) in zip(by_parameter, swept.ranges.items(), strict=True):
        axes.set_xlabel(name)
        axes.set_xscale("log" if within.log else "linear")
        axes.set_xlim(within.low, within.high)
        if within.log:
            axes.set_xticks([within.low, within.high], [f"{within.low:g}", f"{within.high:g}"])
            axes.minorticks_off()
        _draw(axes, swept, {trial.number: trial.parameters[name] for trial in swept.trials})
    _draw(over_time, swept, {trial.number: trial.number for trial in swept.trials})
    complete = [trial for trial in swept.trials if trial.state == "complete"]
    so_far = list(accumulate((100 * (trial.robust or 0.0) for trial in complete), max))
    over_time.step([trial.number for trial in complete], so_far, where="post", color=BEST, linewidth=1.0)
    over_time.set_xlabel("trial; line: best so far")
    grid[0][0].set_ylabel(f"validation accuracy under {swept.attack}, %")
    caption = "Robust validation accuracy of each trial: dots were trained to the end, crosses were stopped early."
    return Picture("sweep", figure, caption)


def _draw(axes: Axes, swept: Swept, at: Mapping[int, float]) -> None:
    for is_complete, marker, colour in ((True, "o", COLOURS[0]), (False, "x", COLOURS[1])):
        drawn = [t for t in swept.trials if (t.state == "complete") == is_complete and t.robust is not None]
        # At the ends of a range they are not to be cut in half.
        style: dict[str, Any] = {"s": 16, "marker": marker, "color": colour, "clip_on": False}
        axes.scatter([at[t.number] for t in drawn], [100 * (t.robust or 0.0) for t in drawn], **style)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _range_text(searched: tuple[str, Range]) -> str:
    name, within = searched
    return f"{name} from {within.low:g} to {within.high:g}{' on a log scale' if within.log else ''}"
