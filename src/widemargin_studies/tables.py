"""Real tables: accuracy, margin, robust accuracy, calibration and time of our methods beside the usual classifiers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widemargin.data.dataset import Dataset
from widemargin.measure.separation import separation
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import Estimate, Outcome, greater, most_of, smaller, student
from widemargin.workers import Job, OnProgress, Workers

TEST = 0.3
"""Of all rows, drawn class by class for each seed."""
BINS = 10
Array = NDArray[Any]
Predict = Callable[[Array], Array]


@dataclass(frozen=True)
class Attack:
    """Decision-based, so that it is the same for networks, kernels and trees (after Brendel et al. 2018): from the
    nearest training rows that the model gives to another class, bisect the way, then walk along the boundary."""

    starts: int = 10
    halvings: int = 12
    rounds: int = 60
    proposals: int = 8


ATTACK = Attack()
STANDARD, UDP, ENSEMBLE = "standard MLP", "UDP", "UDP, ensemble of 5"
PGD, TRADES = "PGD", "TRADES"
LOGISTIC, SVM, TREES = "logistic regression", "SVM (RBF)", "gradient boosting"
_OURS: Mapping[str, Mapping[str, Any]] = {
    STANDARD: {"method": "standard"},
    UDP: {"method": "udp"},
    ENSEMBLE: {"method": "udp", "estimator": "ensemble", "members": 5},
    PGD: {"method": "pgd"},
    TRADES: {"method": "trades", "weight": 6.0},
}
_FACTORS = (0.5, 2.0)
"""Of the radius of --eps auto."""


def _at(name: str, factor: float) -> str:
    return f"{name}, {factor:g} x eps"


MODELS = (LOGISTIC, SVM, TREES, *_OURS, *(_at(name, factor) for name in (UDP, PGD) for factor in _FACTORS))


@dataclass(frozen=True)
class Tables:
    TITLE: str = "Real tables: our methods beside the usual classifiers"
    CORE_MINUTES: float = 18.0
    sets: tuple[str, ...] = ("iris", "wine", "breast cancer", "digits")
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    measured: int = 100
    """The most test rows whose margin is measured."""
    attack: Attack = ATTACK
    gradient: tuple[str, ...] = (STANDARD, UDP, PGD, TRADES)
    """Models whose margin minimum-norm attacks measure, too."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the classifier, beside its defaults."""

    def parts(self, data: str, model: str, seed: int) -> Parts:
        return (
            "tables",
            data,
            model,
            dict(self.settings),
            self.attack.starts,
            self.attack.halvings,
            self.attack.rounds,
            self.attack.proposals,
            seed,
        )

    def _cells(self) -> list[tuple[str, str, int]]:
        return [(data, model, seed) for data in self.sets for model in MODELS for seed in self.seeds]

    def run(self, store: Store, workers: Workers) -> None:
        todo = [cell for cell in self._cells() if self.parts(*cell) not in store]
        workers.do(
            [
                Job(f"{data}, {model}, split {seed}", 1, self.fit, (data, model, seed, store))
                for data, model, seed in todo
            ],
            self.TITLE,
        )

    def missing(self, store: Store) -> int:
        return sum(self.parts(*cell) not in store for cell in self._cells())

    def fit(self, data: str, model: str, seed: int, store: Store, on_progress: OnProgress) -> None:
        x, y, test_x, test_y = split(data, seed)
        shift, scale = x.mean(0), x.std(0)
        # Everything is in standard deviations of the training rows, for every model.
        scale = np.where(scale > 0, scale, 1.0)
        x, test_x = (x - shift) / scale, (test_x - shift) / scale
        classifier = self.made(model, seed)
        began = time.process_time()
        classifier.fit(x, y)
        seconds = time.process_time() - began
        probabilities = classifier.predict_proba(test_x)
        rows = np.random.default_rng(seed).permutation(len(test_x))[: self.measured]
        margins = decision_margins(classifier.predict, test_x[rows], test_y[rows], x, self.attack, seed)
        dataset = Dataset(torch.tensor(x), torch.tensor(y))
        radius = separation(dataset, "l2").radius(0.5)
        numbers: dict[str, Any] = {
            "accuracy": float((probabilities.argmax(1) == test_y).mean()),
            "ece": ece(probabilities, test_y),
            "margin": float(np.median(margins)),
            "robust": float((margins > radius / 2).mean()),
            "radius": radius / 2,
            "seconds": seconds,
            "n": len(test_y),
            "train": len(y),
        }
        if hasattr(classifier, "eps_"):
            numbers["eps"] = classifier.eps_
        if model in self.gradient:
            wrong = classifier.predict(test_x[rows]) != test_y[rows]
            nearest = np.where(wrong, 0.0, classifier.margin(test_x[rows], "l2"))
            numbers |= {
                "gradient margin": float(np.median(nearest)),
                "gradient robust": float((nearest > radius / 2).mean()),
            }
        store.save(self.parts(data, model, seed), numbers, {"margins": margins}, {})
        on_progress(1)

    def made(self, model: str, seed: int) -> Any:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import SVC

        from widemargin.sklearn import WideMarginClassifier

        usual: dict[str, Callable[[], Any]] = {
            LOGISTIC: lambda: LogisticRegression(max_iter=2_000),
            # Its probabilities are Platt's.
            SVM: lambda: CalibratedClassifierCV(SVC(), ensemble=False, cv=3),
            TREES: lambda: HistGradientBoostingClassifier(random_state=seed),
        }
        if model in usual:
            return usual[model]()
        name, _, more = model.partition(", ")
        if model in _OURS:
            return WideMarginClassifier(**_OURS[model], **self.settings, random_state=seed)
        return _Scaled(float(more.split()[0]), WideMarginClassifier(**_OURS[name], **self.settings, random_state=seed))

    def report(self, store: Store) -> Report:
        found: Found = {
            data: {
                model: [store.load(self.parts(data, model, seed)).numbers for seed in self.seeds] for model in MODELS
            }
            for data in self.sets
        }
        return Report(
            self.TITLE,
            "What do accuracy, margin, robustness and calibration cost and gain on small real tables?",
            f"scikit-learn's embedded sets; {len(self.seeds)} stratified splits, {100 * TEST:g} % to test; columns "
            "standardised on the training rows, distances in standard deviations (l2). Margins of at most "
            f"{self.measured} test rows by {self.attack}: an upper bound, the same attack for every model. Radius of "
            "robust accuracy: a quarter of the median distance of training rows to another class. Our classifiers with "
            f"the defaults of WideMarginClassifier{f' and {dict(self.settings)}' if self.settings else ''}, eps auto; "
            "others with scikit-learn's. Splits overlap, so bounds are those of Nadeau and Bengio (2003). "
            "Seconds of one core to fit.",
            verdicts(found),
            tuple(_table(data, found[data]) for data in self.sets),
            (_picture(found),),
        )


STUDY = Tables()


@cache
def table(data: str) -> tuple[Array, Array]:
    from sklearn import datasets

    load = {
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
        "breast cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
    }[data]
    x, y = load(return_X_y=True)
    return x.astype(np.float64), y.astype(np.int64)


def split(data: str, seed: int) -> tuple[Array, Array, Array, Array]:
    """Rows and classes to train on and to test on."""
    from sklearn.model_selection import train_test_split

    x, y = table(data)
    train, test = train_test_split(np.arange(len(y)), test_size=TEST, stratify=y, random_state=seed)
    return x[train], y[train], x[test], y[test]


@dataclass
class _Scaled:
    """A classifier with so many times the radius of eps="auto"."""

    factor: float
    classifier: Any

    def fit(self, x: Array, y: Array) -> _Scaled:
        from widemargin.measure.separation import auto_radius

        dataset = Dataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
        self.classifier.eps = self.factor * auto_radius(self.classifier.method, dataset, self.classifier.norm)
        self.classifier.fit(x, y)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.classifier, name)


def ece(probabilities: Array, labels: Array) -> float:
    """Expected calibration error in bins of equal width."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(float(right[places == b].mean() - confidence[places == b].mean())) for b in np.unique(places)]
    shares = [float((places == b).mean()) for b in np.unique(places)]
    return float(np.dot(gaps, shares))


def decision_margins(predict: Predict, x: Array, y: Array, others: Array, attack: Attack, seed: int) -> Array:
    """The l2 distance to the nearest place that is classified otherwise; 0 for rows that are misclassified, infinite
    where no row is given to another class.  All rows at once: trees take long for a call, and little for a row."""
    given = predict(others)
    margins = np.where(predict(x) == y, np.inf, 0.0)
    rows = np.array([row for row in np.flatnonzero(margins) if (given != y[row]).any()], dtype=int)
    if len(rows):
        far = np.stack([_nearest(x[row], others[given != y[row]], attack.starts) for row in rows])
        ways = _bisected(predict, x[rows], y[rows], far, attack.halvings)
        margins[rows] = _walked(predict, x[rows], y[rows], ways, attack, np.random.default_rng(seed))
    return margins


def _nearest(point: Array, others: Array, count: int) -> Array:
    """So many of them; the nearest again where there are fewer."""
    order = np.argsort(np.linalg.norm(others - point, axis=1), kind="stable")
    return np.asarray(others[np.resize(order, count) if len(order) < count else order[:count]])


def _wrong(predict: Predict, places: Array, y: Array) -> Array:
    """Of places [rows, places, features] those that are not given to the class of their row."""
    flat = predict(places.reshape(-1, places.shape[-1]))
    return np.asarray(flat.reshape(places.shape[:2]) != y[:, None])


def _bisected(predict: Predict, x: Array, y: Array, far: Array, halvings: int) -> Array:
    """From each row the shortest way to a boundary on the lines to the far places."""
    low, high = np.zeros(far.shape[:2]), np.ones(far.shape[:2])
    for _ in range(halvings):
        middle = (low + high) / 2
        wrong = _wrong(predict, x[:, None] + middle[..., None] * (far - x[:, None]), y)
        low, high = np.where(wrong, low, middle), np.where(wrong, middle, high)
    return _shortest(high[..., None] * (far - x[:, None]))


def _walked(predict: Predict, x: Array, y: Array, ways: Array, attack: Attack, rng: np.random.Generator) -> Array:
    """Lengths of the ways after steps along the boundary, each shorter than the one before."""
    steps = np.full(len(x), 0.3)
    for _ in range(attack.rounds):
        lengths = np.linalg.norm(ways, axis=1)
        noise = rng.normal(size=(len(x), attack.proposals, x.shape[1])) / np.sqrt(x.shape[1])
        turned = ways[:, None] + (steps * lengths)[:, None, None] * noise
        shorter = (1 - steps[:, None] * rng.random((len(x), attack.proposals)) / 2) * lengths[:, None]
        turned *= (shorter / np.maximum(np.linalg.norm(turned, axis=2), 1e-300))[..., None]
        wrong = _wrong(predict, x[:, None] + turned, y)
        # Those that are right again are no ways to anywhere.
        turned[~wrong] = np.inf
        better = wrong.any(1)
        ways[better] = _shortest(turned[better])
        steps[~better] *= 0.7
    return np.asarray(np.linalg.norm(ways, axis=1))


def _shortest(ways: Array) -> Array:
    """Of ways [rows, ways, features] one for each row."""
    best = np.linalg.norm(ways, axis=2).argmin(1)
    return np.asarray(ways[np.arange(len(ways)), best])


Found = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""Numbers by set, model and split."""


def _table(data: str, models: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    first = models[LOGISTIC][0]
    return Table(
        f"{data}: {first['train']} rows to train, {first['n']} to test",
        (
            "model",
            "accuracy %",
            "median margin",
            "robust %",
            "robust %, gradient attacks",
            "ECE %",
            "seconds",
        ),
        tuple(
            (
                model,
                _shown(numbers, "accuracy", 100, 1),
                _shown(numbers, "margin", 1, 2),
                _shown(numbers, "robust", 100, 1),
                _shown(numbers, "gradient robust", 100, 1) if "gradient robust" in numbers[0] else "",
                _shown(numbers, "ece", 100, 1),
                f"{fmean(one['seconds'] for one in numbers):.2g}",
            )
            for model, numbers in models.items()
        ),
        f"Mean and standard deviation over {len(models[LOGISTIC])} splits. Robust at a distance of "
        f"{fmean(one['radius'] for one in models[LOGISTIC]):.2g} in the mean; gradient attacks (minimum-norm) are for "
        "networks: trees have no gradient, and those of the SVM and of logistic regression are not used.",
    )


def _shown(numbers: Sequence[Mapping[str, Any]], name: str, factor: float, digits: int) -> str:
    return mean_std([factor * one[name] for one in numbers], digits)


def of_splits(values: Sequence[float], test_over_train: float) -> Estimate:
    """The mean over splits of the same rows, with the bounds of Nadeau and Bengio (2003): training rows are shared."""
    middle = fmean(values)
    if len(values) == 1:
        return Estimate(middle, -np.inf, np.inf)
    half = student(len(values)) * stdev(values) * (1 / len(values) + test_over_train) ** 0.5
    return Estimate(middle, middle - half, middle + half)


def verdicts(found: Found) -> tuple[Verdict, ...]:
    return (
        *(
            _compared(f"{UDP} has a wider margin than {_the(other)}, on most sets.", found, UDP, other, "margin")
            for other in (STANDARD, LOGISTIC, SVM, TREES, PGD)
        ),
        *(
            _compared(
                f"{UDP} has a higher robust accuracy than {_the(other)}, on most sets.", found, UDP, other, "robust"
            )
            for other in (STANDARD, SVM, TREES, PGD)
        ),
        _compared(
            f"{UDP} loses less than 1 point of accuracy to {_the(STANDARD)}, on most sets.",
            found,
            UDP,
            STANDARD,
            "accuracy",
            beyond=-0.01,
        ),
        _compared(
            f"{ENSEMBLE}, has a smaller calibration error than one network with UDP, on most sets.",
            found,
            ENSEMBLE,
            UDP,
            "ece",
            less=True,
        ),
        *(
            _compared(
                f"{name} with eps auto has a higher mean of accuracy and robust accuracy than with {factor:g} x eps, "
                "on most sets.",
                found,
                name,
                _at(name, factor),
                "both",
            )
            for name in (UDP, PGD)
            for factor in _FACTORS
        ),
    )


def _the(model: str) -> str:
    return model if model in (PGD, TREES) or model == LOGISTIC else f"the {model}"


def _compared(
    claim: str, found: Found, model: str, other: str, name: str, beyond: float = 0.0, less: bool = False
) -> Verdict:
    outcomes: list[Outcome] = []
    evidence = []
    for data, models in found.items():
        pairs = zip(models[model], models[other], strict=True)
        gains = [_value(one, name) - _value(two, name) for one, two in pairs]
        first = models[model][0]
        gain = of_splits(gains, first["n"] / first["train"])
        outcomes.append(smaller(gain, beyond) if less else greater(gain, beyond))
        shown = gain if name == "margin" else Estimate(*(100 * bound for bound in (gain.value, gain.low, gain.high)))
        evidence.append(f"{data} {shown.value:+.2f} [{shown.low:+.2f}, {shown.high:+.2f}], {outcomes[-1]}")
    unit = "standard deviations" if name == "margin" else "points"
    return Verdict(claim, most_of(outcomes), f"difference in {unit}: {'; '.join(evidence)}")


def _value(numbers: Mapping[str, Any], name: str) -> float:
    return float((numbers["accuracy"] + numbers["robust"]) / 2 if name == "both" else numbers[name])


def _picture(found: Found) -> Picture:
    """A line for each model, the same in all panels."""
    models = [model for model in MODELS if " x eps" not in model]
    places = list(range(len(models)))[::-1]
    figure, (line,) = panels(1, len(found), size=3.2)
    for panel, (data, by_model) in zip(line, found.items(), strict=True):
        for colour, name in zip(COLOURS, ("accuracy", "robust"), strict=False):
            values = [100 * fmean(one[name] for one in by_model[model]) for model in models]
            panel.scatter(values, places, color=colour, s=22, label=name)
        panel.set_yticks(places, models if panel is line[0] else [""] * len(models), fontsize=8)
        panel.grid(axis="y", linewidth=0.4)
        panel.set_title(data, fontsize=10)
        panel.set_xlabel("%")
    figure.legend(*line[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return Picture(
        "tables", figure, "Accuracy on test rows and robust accuracy (decision-based attack), means over splits."
    )
