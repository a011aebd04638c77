"""A scikit-learn classifier for tables: `WideMarginClassifier`.

Columns are standardised inside, so that radii and margins are in standard deviations of the training rows.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.model_selection import train_test_split
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError:
    raise ImportError(
        "WideMarginClassifier needs scikit-learn 1.6 or newer, which is not installed: pip install "
        "'widemargin[sklearn]'"
    ) from None

from widemargin import api, recipes
from widemargin.audit_report import AuditReport
from widemargin.data.dataset import Dataset
from widemargin.measure.categories import changed_distances
from widemargin.measure.distance import distances
from widemargin.measure.separation import auto_radius
from widemargin.method import Method, with_category_changes
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.perturb.balls import OPEN, Ball, Box, norm_named
from widemargin.perturb.categories import CategoryChanges
from widemargin.rng import Rng
from widemargin.training.loop import Training, continue_training
from widemargin.training.plan import Adam, Cosine, Epochs, Plan
from widemargin.uncertainty.estimators import AtInput, DeepKernelSpec, EnsembleSpec, Estimator, SingleSpec
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.prediction import Prediction

Array = NDArray[Any]
_UPDATES = 600
"""That there are, about, where no number of epochs is given."""
_KNOWN = ("ball", "alpha", "steps", "weight", "measure")
"""What a recipe may ask for; `measure` has a default."""
_MEASURES = ("entropy", "mutual_information", "expected_entropy", "variation_ratio")


def default_epochs(updates_per_epoch: int) -> int:
    """What epochs=None amounts to."""
    return max(1, round(_UPDATES / updates_per_epoch))


class WideMarginClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron that is trained to keep a wide margin.

    Parameters
    ----------
    method : a recipe's name, such as "udp", "udpr", "udp-projected", "pgd", "trades" or "standard".
    eps : radius of the ball in which rows are moved, in standard deviations; "auto" follows from how far the classes
        are apart (`widemargin.measure.separation.auto_radius`).
    norm : of the ball: "l2", "linf" or "l1".
    alpha : length of a step of the search; None for a quarter of eps.
    steps : of the search; for the udp methods the most that are drawn.
    weight : of the regulariser, for recipes that have one.
    estimator : "single", "ensemble" (of `members` networks) or "deep-kernel" (needs 'widemargin[gp]').
    members : of an ensemble.
    hidden : widths of the hidden layers, or one width; a deep kernel has four residual blocks of the first width.
    epochs : passes over the rows; None for as many as make about 600 updates.
    lr : peak learning rate of Adam, which goes to 0 along a cosine.
    batch_size : rows in an update; None for a fortieth of them, 16 to 256.
    early_stopping : keep the weights of the best accuracy on a held-out part (of equals, those of the least log-loss),
        and stop after `n_iter_no_change` epochs without a better one.
    validation_fraction : of the rows that early stopping holds out.
    class_weight : "balanced", a dictionary by class, or None.
    one_hot : for each column that was one-hot encoded before the numbers or names of the columns that it became, such
        as [[3, 4, 5], ["red", "blue"]].  They are not standardised, and no search moves them.
    category_changes : how many of those categories of a row the searches in training, margins and audits may change at
        once, each to another of its columns; counted apart from eps.
    random_state : decides the first weights, the order of rows and all that is drawn.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    mean_, scale_ : what columns are standardised by.
    eps_, norm_ : the radius and the norm of the ball that was used.
    loss_curve_ : mean loss of each epoch.  validation_scores_ : accuracies, with early stopping.
    weights_ : of the network, arrays by name.
    """

    def __init__(
        self,
        method: str = "udp",
        eps: float | str = "auto",
        *,
        norm: str = "l2",
        alpha: float | None = None,
        steps: int = 5,
        weight: float = 1.0,
        estimator: str = "single",
        members: int = 5,
        hidden: int | Sequence[int] = (64, 64),
        epochs: int | None = None,
        lr: float = 0.005,
        batch_size: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: Mapping[Any, float] | str | None = None,
        one_hot: Sequence[Sequence[int | str]] | None = None,
        category_changes: int = 0,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.eps = eps
        self.norm = norm
        self.alpha = alpha
        self.steps = steps
        self.weight = weight
        self.estimator = estimator
        self.members = members
        self.hidden = hidden
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.one_hot = one_hot
        self.category_changes = category_changes
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> WideMarginClassifier:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least 2 classes, got 1 class: {self.classes_[0]!r}")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weights = weights * compute_sample_weight(self.class_weight, y)
        used = weights > 0
        if not used.any():
            raise ValueError("at least one sample must have a weight above 0, got none")
        X, labels, weights = X[used], labels[used], weights[used]
        if len(np.unique(labels)) < 2:
            raise ValueError("y must have at least 2 classes among samples of a weight above 0, got 1 class")
        # Other purposes of the same seed are independent streams.
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.mean_ = np.average(X, axis=0, weights=weights)
        spread = np.sqrt(np.average((X - self.mean_) ** 2, axis=0, weights=weights))
        # A column that is constant up to rounding.
        self.scale_ = np.where(spread > 1e-12 * np.abs(X).max(0, initial=0.0), spread, 1.0)
        self._groups_, self._changes_ = self._one_hot_groups(), self.category_changes
        held = list(self._box().fixed)
        self.mean_[held], self.scale_[held] = 0.0, 1.0
        self._check_one_hot(X)
        self._train(self._standardised(X), labels, weights, seed)
        return self

    def predict_proba(self, X: Any) -> Array:
        return np.asarray(self._predicted(X).probabilities.double().numpy())

    def predict(self, X: Any) -> Array:
        predicted = self._predicted(X).classes.numpy()
        return np.asarray(self.classes_[predicted])

    def uncertainty(self, X: Any, measure: str = "entropy") -> Array:
        """In nats: "entropy" (the whole), "mutual_information" (what members disagree about), "expected_entropy" or
        "variation_ratio" (1 - the probability of the predicted class)."""
        if measure not in _MEASURES:
            raise ValueError(f"measure must be one of {', '.join(_MEASURES)}, got {measure!r}")
        return np.asarray(getattr(self._predicted(X), measure).double().numpy())

    def margin(self, X: Any, norm: str | None = None) -> Array:
        """How far each row is from the decision boundary, in standard deviations: the nearest place of another class
        that minimum-norm attacks found, an upper bound.  With `category_changes`, how far the numbers must go."""
        points = self._points(X)
        predicted = api.predict(self._network(), points).classes
        # All classes are named, so that a class that is never predicted is one to move to.
        dataset = Dataset(points, predicted, tuple(range(len(self.classes_))))
        chosen, changes = norm_named(self.norm_ if norm is None else norm), self._changes()
        if changes is None:
            nearest = distances(self._network(), dataset, chosen, self._box())
        else:
            nearest = changed_distances(self._network(), dataset, chosen, self._box(), changes)
        return np.asarray(nearest.distance.double().numpy())

    def audit(self, X: Any, y: Any, eps: float | Sequence[float] | None = None, norm: str | None = None) -> AuditReport:
        """AutoAttack, margins, certificates and findings, at radii in standard deviations.  [the radius of training]"""
        dataset = self._labelled(X, y)
        return api.audit(
            self._network(),
            dataset,
            self.eps_ if eps is None else eps,
            self.norm_ if norm is None else norm,
            self._box(),
            points=len(dataset),
            categories=self._changes(),
        )

    def _labelled(self, X: Any, y: Any) -> Dataset:
        points, known = self._points(X), np.asarray(y)
        labels = np.searchsorted(self.classes_, known).clip(max=len(self.classes_) - 1)
        if known.shape != (len(points),) or (self.classes_[labels] != known).any():
            raise ValueError(f"y must have one of the classes {self.classes_.tolist()} for each of {len(points)} rows")
        # Truth values are no names of classes.
        names = (str(name) if isinstance(name, bool) else name for name in self.classes_.tolist())
        return Dataset(points, torch.from_numpy(labels), tuple(names))

    def __getstate__(self) -> dict[str, Any]:
        """Arrays and numbers alone: networks are made again from them."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_made"}

    def _train(self, X: Array, labels: Array, weights: Array, seed: int) -> None:
        points, held = torch.from_numpy(X), None
        known, counts = torch.from_numpy(labels), torch.from_numpy(weights).float()
        if self.early_stopping:
            rows, out = train_test_split(
                np.arange(len(X)), test_size=self.validation_fraction, stratify=labels, random_state=seed
            )
            held = (points[out], known[out])
            points, known, counts = points[rows], known[rows], counts[rows]
        dataset = Dataset(points, known, tuple(range(len(self.classes_))))
        self.n_samples_fit_ = len(dataset)
        self.eps_, self.norm_ = self._radius(dataset), self.norm
        method = with_category_changes(self._recipe(norm_named(self.norm)(self.eps_, self._box())), self._changes())
        if self.batch_size is not None and not self.batch_size >= 1:
            raise ValueError(f"batch_size must be at least 1, or None, got {self.batch_size!r}")
        batch = min(len(dataset), min(256, max(16, len(dataset) // 40)) if self.batch_size is None else self.batch_size)
        # Parameters may be set to others later, which must not change what was fitted.
        self._fitted_as_ = (self.estimator, self.members, tuple(int(width) for width in np.atleast_1d(self.hidden)))
        per_epoch = Plan(Epochs(1), Adam(self.lr), batch).updates(len(dataset))
        epochs = default_epochs(per_epoch) if self.epochs is None else self.epochs
        plan = Plan(Epochs(epochs), Adam(self.lr, Cosine()), batch)
        self._made = self._built(seed, dataset)
        training = Training.begin(self._made, plan)
        self.loss_curve_: list[float] = []
        self.validation_scores_: list[float] = []
        best, since, losses = (-1.0, -math.inf), 0, list[float]()
        best_weights: dict[str, Array] | None = None
        for record in continue_training(training, dataset, method, plan, (seed,), sample_weights=counts):
            losses.append(record.loss)
            if record.update % per_epoch:
                continue
            self.loss_curve_.append(float(np.mean(losses)))
            losses = []
            if held is None:
                continue
            merit = _merit(api.predict(self._made, held[0]), held[1])
            self.validation_scores_.append(merit[0])
            since += 1
            if merit > best:
                best, best_weights, since = merit, _copied(self._made), 0
            if since >= self.n_iter_no_change:
                break
        self.n_iter_ = len(self.loss_curve_)
        self.weights_ = best_weights or _copied(self._made)
        self._made = self._rebuilt()

    def _one_hot_groups(self) -> tuple[tuple[int, ...], ...]:
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        if self.category_changes and not self.one_hot:
            raise ValueError(f"category_changes={self.category_changes!r} needs one_hot, the columns of each category")
        if not isinstance(self.category_changes, int) or self.category_changes < 0:
            raise ValueError(f"category_changes must be a whole number of at least 0, got {self.category_changes!r}")
        groups = []
        for group in self.one_hot or ():
            known = [names.index(one) if isinstance(one, str) and one in names else one for one in group]
            strange = [one for one in known if isinstance(one, str) or not 0 <= one < self.n_features_in_]
            if strange:
                raise ValueError(
                    f"one_hot must have names of columns or numbers from 0 to {self.n_features_in_ - 1}, got "
                    f"{strange[0]!r}"
                )
            groups.append(tuple(int(one) for one in known))
        if sum(map(len, groups)) >= self.n_features_in_:
            raise ValueError("one_hot must leave a column of numbers, got all columns")
        return tuple(groups)

    def _box(self) -> Box:
        return OPEN.holding(tuple(sorted({place for group in self._groups_ for place in group})))

    def _changes(self) -> CategoryChanges | None:
        if not self._changes_:
            return None
        return CategoryChanges(self._groups_, min(self._changes_, len(self._groups_)))

    def _check_one_hot(self, X: Array) -> None:
        if self._groups_:
            CategoryChanges(self._groups_).codes(torch.from_numpy(X))

    def _radius(self, dataset: Dataset) -> float:
        if self.eps == "auto":
            free = [place for place in range(self.n_features_in_) if place not in self._box().fixed]
            numbers = dataset if not self._groups_ else Dataset(dataset.points[:, free], dataset.labels, dataset.names)
            return auto_radius(self.method, numbers, self.norm)
        if not isinstance(self.eps, Real) or not 0 <= self.eps < math.inf:
            raise ValueError(f"eps must be a number of at least 0, or 'auto', got {self.eps!r}")
        return float(self.eps)

    def _recipe(self, ball: Ball) -> Method:
        known = _offered()
        if self.method.replace("-", "_") not in known:
            raise ValueError(
                f"method must be one of {', '.join(name.replace('_', '-') for name in known)}, got {self.method!r}"
            )
        recipe = getattr(recipes, self.method.replace("-", "_"))
        asked = inspect.signature(recipe).parameters
        if self.alpha is not None and not self.alpha > 0:
            raise ValueError(f"alpha must be a number above 0, or None for a quarter of eps, got {self.alpha!r}")
        if self.eps == "auto" and ball.radius == 0 and "ball" in asked:
            warnings.warn(
                "eps='auto' is 0 here, so that no row is moved in training: too many rows have the same features as "
                "a row of another class; give eps as a number, or remove the rows that contradict each other",
                stacklevel=4,
            )
        # In a ball without a radius no step goes anywhere, but it must have a length.
        alpha = (ball.radius / 4 or 1.0) if self.alpha is None else self.alpha
        given = {"ball": ball, "alpha": alpha, "steps": self.steps, "weight": self.weight}
        method: Method = recipe(**{name: given[name] for name in asked if name in given})
        return method

    def _spec(self) -> Estimator:
        estimator, members, _ = self._fitted_as_
        if estimator == "ensemble":
            return EnsembleSpec(members)
        if estimator == "deep-kernel":
            return DeepKernelSpec(inducing=min(DeepKernelSpec.inducing, self.n_samples_fit_))
        if estimator != "single":
            raise ValueError(f"estimator must be 'single', 'ensemble' or 'deep-kernel', got {estimator!r}")
        return SingleSpec()

    def _built(self, seed: int, dataset: Dataset | None) -> Network:
        """Without a dataset only its shapes are right, for weights to be loaded."""
        features, classes = self.n_features_in_, len(self.classes_)
        estimator, _, hidden = self._fitted_as_

        def build(member: int) -> nn.Module:
            rng = Rng.seeded(seed, purpose=f"weights of member {member}").generators[0]
            if estimator == "deep-kernel":
                return ResidualMLPSpec(features, classes, *hidden[:1]).build(rng)
            return MLPSpec((features, *hidden, classes)).build(rng)

        return self._spec().network(build, AtInput(), dataset)

    def _rebuilt(self) -> Network:
        network = self._built(0, None)
        network.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in self.weights_.items()})
        return network.eval()

    def _network(self) -> Network:
        check_is_fitted(self)
        if not hasattr(self, "_made"):
            self._made = self._rebuilt()
        return self._made

    def _standardised(self, X: Array) -> Array:
        return np.ascontiguousarray((X - self.mean_) / self.scale_, dtype=np.float32)

    def _points(self, X: Any) -> torch.Tensor:
        check_is_fitted(self)
        return torch.from_numpy(self._standardised(validate_data(self, X, dtype=np.float64, reset=False)))

    def _predicted(self, X: Any) -> Prediction:
        points = self._points(X)
        return api.predict(self._network(), points)


def _offered() -> list[str]:
    """Recipes that need nothing else than what the classifier has."""
    return [
        name
        for name, value in vars(recipes).items()
        if inspect.isfunction(value)
        and value.__module__ == recipes.__name__
        and not name.startswith("_")
        and set(inspect.signature(value).parameters) <= set(_KNOWN)
    ]


def _merit(prediction: Prediction, labels: torch.Tensor) -> tuple[float, float]:
    """Accuracy, and for equals the mean log-likelihood."""
    likelihood = prediction.log_probabilities.gather(1, labels[:, None]).mean()
    return float((prediction.classes == labels).double().mean()), float(likelihood)


def _copied(network: Network) -> dict[str, Array]:
    return {name: value.detach().cpu().numpy().copy() for name, value in network.state_dict().items()}
