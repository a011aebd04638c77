"""Tables that compare runs: seeds become a mean and a deviation, settings that differ become names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath
from typing import Any

import numpy as np

from widemargin.report.tables import Table, mean_std, radius_text

Settings = dict[str, Any]
"""A run's description, flat: `method.perturb.ball` is "Linf", `method.perturb.ball.radius` 0.2."""
_LABELS = {"ball.radius": "eps", "steps.most": "steps", "step.size": "alpha", "perturb.objective": "measure"}


@dataclass(frozen=True)
class Attack:
    """A column: figures stand in one only if the same attacks were led on the same examples in the same box."""

    norm: str
    eps: float
    n: int
    attacks: tuple[str, ...]
    on: str = ""
    """Which examples, and what values their features may take."""

    @property
    def ball(self) -> str:
        return f"{self.norm} {radius_text(self.eps)}"


@dataclass(frozen=True)
class Measured:
    """Accuracies in [0, 1]."""

    clean: float
    n: int
    robust: Mapping[Attack, float]
    test: str = ""
    """Which test examples an audit is of."""


@dataclass(frozen=True)
class Entry:
    """One run: where it is, what run.yaml says of it, and what came out.  Or the audit of another model."""

    place: str
    title: str
    run: Mapping[str, Any]
    """Empty if there is an audit only."""
    data: Mapping[str, Any]
    tested: Measured
    audit: Measured | None = None


@dataclass(frozen=True)
class _Row:
    """Runs that differ in nothing but their seed."""

    entries: tuple[Entry, ...]
    settings: Settings

    @property
    def method(self) -> str:
        if not self.settings:
            return self.entries[0].title
        named, on, _ = self.entries[0].title.partition(" on ")
        if on:
            return named
        # Python gives no name: say what it does.
        terms = [path.rpartition(".")[2] for path in self.settings if path.startswith("method.criterion.")]
        return "descend " + " + ".join(terms)


def compare(entries: Sequence[Entry]) -> tuple[Table, ...]:
    """One table for each data set: accuracies under different data have nothing to say to each other."""
    audits_only = any(not entry.run for entry in entries)
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(_audited(entry) if audits_only else _examples(entry), []).append(entry)
    if audits_only and len(groups) > 1:
        of = "; ".join(f"{', '.join(entry.place for entry in group)}: {test}" for test, group in groups.items())
        raise ValueError(
            f"audits of models can be compared if they are of the same test examples, got {of}: audit them with the "
            "same --data"
        )
    ends = _ends({path for entry in entries for path in [_path(settings_of(entry.run))] if path})
    return tuple(_table(group, _data_name(group[0], ends)) for group in groups.values())


def settings_of(run: Mapping[str, Any]) -> Settings:
    settings = dict(_flat(run.get("Run", run), ""))
    settings.pop("seed", None)
    if "data.test" not in settings:
        # Published images come with a test part: their seed only decides who is held out to choose by.
        settings.pop("data.seed", None)
    return settings


def best(columns: Sequence[Sequence[Sequence[float]]]) -> frozenset[tuple[int, int]]:
    """(row, column) of the highest mean of every column, and of all within one deviation of it; [column][row][seed]."""
    cells = set()
    for j, rows in enumerate(columns):
        means = [float(np.mean(values)) for values in rows]
        top = int(np.argmax(means))
        spread = float(np.std(rows[top], ddof=1)) if len(rows[top]) > 1 else 0.0
        # Equal means may differ in the last bit.
        cells |= {(i, j) for i, mean in enumerate(means) if len(means) > 1 and mean >= means[top] - spread - 1e-9}
    return frozenset(cells)


def _table(entries: Sequence[Entry], data: str) -> Table:
    rows = _rows(entries)
    measured, attacks, note = _chosen(entries)
    titles = ["clean", *(attack.ball for attack in attacks)]
    titles += ["trade-off" if len(attacks) == 1 else f"trade-off {attack.ball}" for attack in attacks]
    values: list[list[list[float]]] = [[[] for _ in rows] for _ in titles]
    for i, row in enumerate(rows):
        for entry in row.entries:
            figures = measured[entry.place]
            robust = [figures.robust[attack] for attack in attacks]
            shares = [figures.clean, *robust, *((figures.clean + share) / 2 for share in robust)]
            for column, share in zip(values, shares, strict=True):
                column[i].append(100 * share)
    cells = [
        (name, str(len(row.entries)) if row.settings else "", *(_cell(column[i]) for column in values))
        for i, (name, row) in enumerate(zip(_names(rows), rows, strict=True))
    ]
    bold = frozenset((i, j + 2) for i, j in best(values))
    title = f"{data}: accuracy in percent"
    return Table(title, ("run", "seeds", *titles), tuple(cells), note, bold)


def _chosen(entries: Sequence[Entry]) -> tuple[dict[str, Measured], list[Attack], str]:
    """Audits if all have them with a ball in common, else the attack of the validation; and the note that says so."""
    statistics = "Mean ± standard deviation over seeds; bold: the best and all within one deviation of it. "
    audits = {entry.place: entry.audit for entry in entries if entry.audit is not None}
    without = [entry.place for entry in entries if entry.audit is None]
    alike = len({audit.n for audit in audits.values()}) == 1
    common = _common(list(audits.values())) if alike and not without else []
    if common:
        led = {
            attack.ball: f"{', '.join(attack.attacks)} on {attack.n:,} test examples{attack.on and f' ({attack.on})'}"
            for attack in common
        }
        same = set(led.values())
        said = same.pop() if len(same) == 1 else "; ".join(f"{ball}: {what}" for ball, what in led.items())
        return audits, common, f"{statistics}Robust accuracy as audited: {said}.{_not_in_all(audits, common)}"
    if any(not entry.run for entry in entries):
        radii = "; ".join(f"{place}: {_balls(audit)}" for place, audit in audits.items())
        unlike = _unlike_attacks(list(audits.values()))
        raise ValueError(
            f"audits of models can be compared at radii that all have, under the same attacks, got {radii}: audit them "
            "with the same --norm, --eps, --points, --seed and --box"
            + ("; AutoAttack has other attacks for models of another number of outputs" if unlike else "")
        )
    if not audits:
        why = "No run is audited"
    elif without:
        why = f"Without an audit: {', '.join(without)}"
    else:
        why = "The audits have no ball in common that met the same attacks on the same examples in the same box"
        ons = dict.fromkeys(attack.on for audit in audits.values() for attack in audit.robust)
        why += f" ({' / '.join(ons)})" if len(ons) > 1 else ""
        why += "".join(f" ({said})" for said in _unlike_attacks(list(audits.values())))
    tested = {entry.place: entry.tested for entry in entries}
    common = _common(list(tested.values()))
    if not common:
        return tested, [], f"{statistics}{why}, and no attack of the validation is common to all runs."
    led_by = "; ".join(f"{attack.ball}: {', '.join(attack.attacks)}" for attack in common)
    return (
        tested,
        common,
        f"{statistics}{why}: robust accuracy is under PGD alone ({led_by}), which is an optimistic estimate.",
    )


def _not_in_all(audits: Mapping[str, Measured], common: Sequence[Attack]) -> str:
    """A sentence on the balls that are no column, if there are any."""
    balls = {
        place: ", ".join(dict.fromkeys(attack.ball for attack in audit.robust if attack not in common))
        for place, audit in audits.items()
    }
    listed = "; ".join(f"{ball} ({place})" for place, ball in balls.items() if ball)
    return f" Left out, since not all were audited there alike: {listed}." if listed else ""


def _balls(audit: Measured) -> str:
    balls_of: dict[tuple[str, ...], list[str]] = {}
    for attack in audit.robust:
        balls_of.setdefault(attack.attacks, []).append(attack.ball)
    balls = " and ".join(f"{', '.join(balls)} under {', '.join(attacks)}" for attacks, balls in balls_of.items())
    on = ", ".join(dict.fromkeys(attack.on for attack in audit.robust))
    return f"{balls or 'no radius'} on {audit.n:,} points{on and f' ({on})'}"


def _unlike_attacks(measured: Sequence[Measured]) -> list[str]:
    """Of each ball that met different ones, in words."""
    led: dict[str, dict[str, None]] = {}
    for attack in (attack for one in measured for attack in one.robust):
        led.setdefault(attack.ball, {})[", ".join(attack.attacks)] = None
    return [f"{ball}: {' / '.join(attacks)}" for ball, attacks in led.items() if len(attacks) > 1]


def _common(measured: Sequence[Measured]) -> list[Attack]:
    return [attack for attack in measured[0].robust if all(attack in other.robust for other in measured)]


def _rows(entries: Sequence[Entry]) -> list[_Row]:
    groups: dict[str, list[Entry]] = {}
    seeds: dict[tuple[str, Any], str] = {}
    for entry in entries:
        identity = repr(sorted(settings_of(entry.run).items())) if entry.run else entry.place
        seed = entry.run.get("Run", entry.run).get("seed")
        first = seeds.setdefault((identity, seed), entry.place)
        if first != entry.place:
            raise ValueError(f"{first} and {entry.place} hold the same run, which would count twice: name one of them")
        groups.setdefault(identity, []).append(entry)
    return [_Row(tuple(group), settings_of(group[0].run)) for group in groups.values()]


def _names(rows: Sequence[_Row]) -> list[str]:
    paths = list(dict.fromkeys(path for row in rows for path in row.settings))
    # What a method is made of comes first.
    paths.sort(key=lambda path: (not path.startswith("method."), not path.endswith("ball.radius")))
    said = [path for path in paths if _tells_apart(path, rows)]
    ends = _ends({value for row in rows for path, value in row.settings.items() if path.endswith(".path")})
    names = [
        ", ".join([row.method, *(_said(path, row.settings, ends) for path in said if path in row.settings)])
        for row in rows
    ]
    return [
        name if names.count(name) == 1 else f"{name} ({row.entries[0].place})"
        for name, row in zip(names, rows, strict=True)
    ]


def _ends(paths: Collection[str]) -> dict[str, str]:
    """As little of each path as tells them apart: files in different folders may have one name."""
    for length in count(1):
        ends = {path: str(PurePath(*PurePath(path).parts[-length:])) for path in paths}
        if len(set(ends.values())) == len(ends):
            return ends
    raise AssertionError("whole paths differ")


def _tells_apart(path: str, rows: Sequence[_Row]) -> bool:
    """Does it differ between rows that agree on the parts around it?  Where these differ already, they are said.

    So is a file's path, before its digest.  The radius is said wherever two differ; other settings of a method only
    between rows of that method.
    """
    having = [row for row in rows if path in row.settings]
    if path.startswith("method.") and path.endswith("ball.radius"):
        return len({row.settings[path] for row in having}) > 1
    if path.startswith("method.") and all(row.settings[path] == _radius(row.settings) for row in having):
        # A step as long as the radius follows from it.
        return False
    beside = f"{path.removesuffix('digest')}path"
    values_of: dict[Any, set[Any]] = {}
    for row in having:
        around = tuple(
            value for other, value in row.settings.items() if path.startswith(f"{other}.") or other == beside
        )
        values_of.setdefault((row.method if path.startswith("method.") else "", around), set()).add(row.settings[path])
    return any(len(values) > 1 for values in values_of.values())


def _radius(settings: Settings) -> Any:
    return next(
        (v for path, v in settings.items() if path.startswith("method.") and path.endswith("ball.radius")), None
    )


_ESTIMATORS = {
    "SingleSpec": "one network",
    "EnsembleSpec": "ensemble",
    "MCDropoutSpec": "dropout draws",
    "DeepKernelSpec": "deep kernel",
}


def _said(path: str, settings: Settings, ends: Mapping[str, str]) -> str:
    value, last = settings[path], path.rpartition(".")[2]
    if path == "validation.attack":
        return f"chosen by {'clean' if value is None else 'robust'} accuracy"
    if path == "estimator":
        return _ESTIMATORS.get(str(value), str(value))
    if path.startswith("method.criterion."):
        return f"weight {abs(value):g}"
    if path == "plan.length.count":
        return f"{value:g} {str(settings['plan.length']).lower()}"
    label = next((said for end, said in _LABELS.items() if path.endswith(end)), last.replace("_", " "))
    if path.startswith("validation."):
        label = f"validation {label}"
    if isinstance(value, bool):
        return label if value else f"not {label}"
    if isinstance(value, int | float):
        return f"{label} {value:g}"
    if any(other.startswith(f"{path}.") for other in settings) or path in {"network", "place", "estimator"}:
        return str(value).removesuffix("Spec")
    return f"{label} {ends[value] if last == 'path' else value}"


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        ((name, inner),) = value.items() if len(value) == 1 else ((None, value),)
        if name == "Objective":
            yield from _terms(inner, path)
            return
        # A part is one name with its fields; names of fields are small.
        part = name is not None and str(name)[:1].isupper()
        if part:
            yield path, name
        for field, content in (inner if part else value).items():
            yield from _flat(content, f"{path}.{field}" if path else str(field))
    else:
        yield path, repr(value) if isinstance(value, list) else value


def _terms(terms: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What is descended has weights that are chosen; what is climbed is one thing."""
    if path.endswith("criterion"):
        yield from ((f"{path}.{term}", weight) for weight, term in terms)
    else:
        text = " + ".join(str(term) if abs(weight) == 1 else f"{weight:g} {term}" for weight, term in terms)
        yield path, re.sub(r"perturbed_(log_)?", "", text).replace("_", "-")


def _audited(entry: Entry) -> str:
    """Which test examples an audit is of, where model files are compared, which have nothing but an audit."""
    if entry.audit is None:
        raise ValueError(
            f"{entry.place} must have an audit to be compared with those of model files: `widemargin audit "
            f"{entry.place} --eps ...` makes one"
        )
    return entry.audit.test


def _examples(entry: Entry) -> str:
    """What decides which examples a run was tested on; the share of training images does not."""
    settings = settings_of(entry.run)
    drawn = [value for path, value in settings.items() if path in {"data.seed", "data.most_tests", "data.test"}]
    rows = entry.data.get("rows")
    return repr(
        (entry.data.get("digest"), entry.data.get("shape"), rows[-1] if isinstance(rows, list) else rows, drawn)
    )


def _data_name(entry: Entry, ends: Mapping[str, str]) -> str:
    settings = settings_of(entry.run)
    named = settings.get("data.name") or _path(settings) or settings.get("data") or entry.data.get("name")
    return ends.get(str(named), str(named)) if named else f"data {entry.data.get('digest')}"


def _path(settings: Settings) -> Any:
    """Of the user's own data, if it is that: a file, or the one of several that is trained on."""
    return settings.get("data.file.path") or settings.get("data.train.path")


def _cell(values: Sequence[float]) -> str:
    return mean_std(values, 1) if len(values) > 1 else f"{values[0]:.1f}"
