import pickle
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
import joblib
import pandas
import polars
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, make_classification
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import widemargin as wm
from widemargin.measure.separation import separation
from widemargin.sklearn import WideMarginClassifier, default_epochs

pytestmark = pytest.mark.usefixtures("untyped")
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


def classifier(**changed: Any) -> WideMarginClassifier:
    given: dict[str, Any] = {"epochs": 12, "lr": 0.03, "hidden": (16,), "steps": 2, "batch_size": 64, "random_state": 0}
    return WideMarginClassifier(**{**given, **changed})


def expected_to_fail(estimator: object) -> dict[str, str]:
    return {
        "check_sample_weight_equivalence_on_dense_data": "what is drawn for a row depends on its place in a batch, so "
        "that a row of weight 2 and two rows of weight 1 agree only on average"
    }


# Fewer updates than these learn too little for its checks of accuracy.
@parametrize_with_checks([classifier(epochs=8, steps=1)], expected_failed_checks=expected_to_fail)
def test_it_keeps_to_scikit_learn_s_rules(estimator: Any, check: Any) -> None:
    check(estimator)


def test_it_learns_and_says_what_it_used() -> None:
    fitted = classifier().fit(X, NAMES)
    assert fitted.score(X, NAMES) > 0.9
    assert fitted.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(fitted.scale_, X.std(0))
    standardised = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    assert fitted.eps_ == separation(wm.data.Dataset(*map(_tensor, (standardised, Y))), "l2").radius(0.5)
    assert (fitted.n_iter_, len(fitted.loss_curve_)) == (12, 12)
    assert classifier().fit(X, NAMES).loss_curve_ == fitted.loss_curve_


def _tensor(values: Any) -> Any:
    import torch

    return torch.from_numpy(values)


def test_radii_do_not_depend_on_units() -> None:
    units = (1, 10, 1_000, 0.001)
    scaled, plain = classifier(epochs=3).fit(X * units, Y), classifier(epochs=3).fit(X, Y)
    assert scaled.eps_ == pytest.approx(plain.eps_, rel=1e-5)
    np.testing.assert_allclose(scaled.predict_proba(X * units), plain.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("estimator", ["single", "ensemble", "deep-kernel"])
def test_every_estimator_is_stored_and_is_the_same_after_it(estimator: str, tmp_path: Any) -> None:
    if estimator == "deep-kernel":
        pytest.importorskip("gpytorch")
    fitted = classifier(estimator=estimator, members=2, epochs=3).fit(X, NAMES)
    joblib.dump(fitted, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    # Arrays and numbers alone, which any format can hold.
    assert all(isinstance(values, np.ndarray) for values in fitted.__getstate__()["weights_"].values())
    assert "_made" not in fitted.__getstate__()
    entropy, information = fitted.uncertainty(X), fitted.uncertainty(X, "mutual_information")
    assert entropy.shape == (150,)
    assert (information.max() > 0) == (estimator != "single")


@pytest.mark.parametrize("estimator", ["single", "ensemble", "deep-kernel"])
def test_skops_stores_it_and_needs_to_trust_nothing_but_it(estimator: str) -> None:
    skops = pytest.importorskip("skops.io")
    if estimator == "deep-kernel":
        pytest.importorskip("gpytorch")
    fitted = classifier(estimator=estimator, members=2, epochs=1).fit(X, NAMES)
    content = skops.dumps(fitted)
    assert skops.get_untrusted_types(data=content) == ["widemargin.sklearn.WideMarginClassifier"]
    again = skops.loads(content, trusted=["widemargin.sklearn.WideMarginClassifier"])
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_margin_and_audit() -> None:
    fitted = classifier(epochs=3).fit(X, NAMES)
    margins = fitted.margin(X[::30])
    assert margins.shape == (5,)
    assert (margins > 0).all()
    with pytest.raises(ValueError, match="measure must be one of entropy"):
        fitted.uncertainty(X, "doubt")
    with pytest.raises(ValueError, match="y must have one of the classes"):
        fitted.audit(X[::10], np.full(15, "tulip"))


def test_an_audit_names_the_classes_and_is_that_of_training_unless_another_is_given() -> None:
    fitted = classifier(method="standard", eps=0.5, norm="linf", epochs=1)
    names = [("setosa", "versicolor", "virginica"), ("False", "True"), (3, 4, 5)]
    for labels, expected in zip((NAMES, Y == 1, Y + 3), names, strict=True):
        assert fitted.fit(X, labels)._labelled(X[:60], labels[:60]).names == expected
    # Of a row that is misclassified already, which no attack need break.
    wrong = fitted.classes_[(fitted.predict(X[:1]) - 2) % 3]
    result = fitted.set_params(norm="l2").audit(X[:1], wrong).result
    assert result.classes == ("3", "4", "5")
    assert [repr(ball) for ball in result.config.balls] == ["Linf(radius=0.5, box=OPEN)"]


def test_a_margin_is_in_the_norm_of_training_unless_another_is_given() -> None:
    fitted = classifier(method="standard", norm="linf", epochs=1).fit(X, Y).set_params(norm="l2")
    usual, linf, l2 = (fitted.margin(X[:1], norm) for norm in (None, "linf", "l2"))
    assert usual == linf < l2


def test_parameters_that_are_set_later_do_not_change_what_is_fitted() -> None:
    fitted = classifier(estimator="ensemble", members=2, hidden=8, epochs=1, eps=0.5).fit(X, Y)
    expected = fitted.predict_proba(X)
    fitted.set_params(estimator="single", members=3, hidden=(4, 4))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), expected)
    assert len([name for name in fitted.fit(X, Y).weights_ if name.endswith("weight")]) == 3


def test_rows_that_contradict_each_other_leave_no_automatic_radius() -> None:
    x, y = np.concatenate([X, X]), np.concatenate([Y, (Y + 1) % 3])
    with pytest.warns(UserWarning, match="eps='auto' is 0 here, so that no row is moved in training"):
        assert classifier(epochs=1).fit(x, y).eps_ == 0
    # Nothing is moved anyway.
    classifier(epochs=1, method="standard").fit(x, y)


def test_frames_of_pandas_and_polars() -> None:
    names = ["a", "b", "c", "d"]
    expected = classifier(epochs=2).fit(X, Y).predict_proba(X)
    for frame in (pandas.DataFrame(X, columns=names), polars.DataFrame(X, schema=names)):
        fitted = classifier(epochs=2).fit(frame, Y)
        np.testing.assert_array_equal(fitted.predict_proba(frame), expected)
        assert fitted.feature_names_in_.tolist() == names


def test_pipelines_searches_and_scores() -> None:
    frame = pandas.DataFrame({"kind": np.where(X[:, 0] > 5.5, "long", "short"), "b": X[:, 1], "c": X[:, 2]})
    columns = ColumnTransformer([("kind", OneHotEncoder(), ["kind"]), ("rest", StandardScaler(), ["b", "c"])])
    pipeline = make_pipeline(columns, classifier(epochs=6))
    assert pipeline.fit(frame, NAMES).score(frame, NAMES) > 0.7
    assert cross_val_score(classifier(epochs=6), X, NAMES, cv=2).min() > 0.7
    search = GridSearchCV(classifier(epochs=2), {"method": ["standard", "pgd"]}, cv=2).fit(X, Y)
    assert set(search.best_params_) == {"method"}


def test_weights_of_classes_and_samples() -> None:
    x, y = make_classification(200, 4, n_redundant=0, weights=[0.9], flip_y=0.1, random_state=0)
    plain = classifier(method="standard").fit(x, y)
    balanced = classifier(method="standard", class_weight="balanced").fit(x, y)
    by_hand = classifier(method="standard").fit(x, y, np.where(y == 1, (y == 0).sum(), (y == 1).sum()))
    assert balanced.predict(x).sum() > plain.predict(x).sum()
    np.testing.assert_allclose(balanced.predict_proba(x), by_hand.predict_proba(x), atol=1e-4)
    # A sample of weight 0 is not there.
    kept = np.arange(200) % 4 > 0
    left_out = classifier().fit(x, y, kept.astype(float)).predict_proba(x)
    np.testing.assert_array_equal(left_out, classifier().fit(x[kept], y[kept]).predict_proba(x))


def test_early_stopping_keeps_the_best() -> None:
    fitted = classifier(early_stopping=True, epochs=60, n_iter_no_change=3, validation_fraction=0.2).fit(X, Y)
    assert fitted.n_iter_ < 60
    assert len(fitted.validation_scores_) == fitted.n_iter_
    assert fitted.score(X, Y) > 0.85


def test_without_a_number_of_epochs_there_are_about_as_many_updates_for_every_table() -> None:
    assert [default_epochs(per_epoch) for per_epoch in (1, 5, 15, 400, 401, 10_000)] == [600, 120, 40, 2, 1, 1]
    assert classifier(method="standard", epochs=None, batch_size=10).fit(X, Y).n_iter_ == 40


def test_what_it_cannot_take_is_refused() -> None:
    for changed, message in [
        ({"method": "udpp"}, r"method must be one of standard, .* got 'udpp'"),
        ({"method": "udp-near"}, "method must be one of"),
        ({"estimator": "both"}, "estimator must be 'single', 'ensemble' or 'deep-kernel', got 'both'"),
        ({"norm": "l3"}, "norm must be one of"),
        ({"eps": "large"}, "eps must be a number of at least 0, or 'auto', got 'large'"),
        ({"eps": [0.1]}, r"eps must be a number of at least 0, or 'auto', got \[0.1\]"),
        ({"eps": -1.0}, "eps must be a number of at least 0"),
        ({"eps": None}, "eps must be a number of at least 0, or 'auto', got None"),
        ({"eps": 1.0, "alpha": 0}, "alpha must be a number above 0, or None for a quarter of eps, got 0"),
        ({"eps": 1.0, "batch_size": 0}, "batch_size must be at least 1, or None, got 0"),
        ({"category_changes": 1}, "category_changes=1 needs one_hot"),
        ({"category_changes": -1, "one_hot": [[0]]}, "category_changes must be a whole number of at least 0, got -1"),
        ({"one_hot": [[0, 9]]}, "one_hot must have names of columns or numbers from 0 to 3, got 9"),
        ({"one_hot": [["colour"]]}, "one_hot must have names of columns or numbers from 0 to 3, got 'colour'"),
        ({"one_hot": [[0, 1], [2, 3]]}, "one_hot must leave a column of numbers"),
        ({"one_hot": [[0, 1]]}, "must be 1 for a row's category and 0 for the others"),
    ]:
        with pytest.raises(ValueError, match=message):
            classifier(**changed).fit(X, Y)


def test_a_sentence_where_scikit_learn_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "widemargin.sklearn")
    with pytest.raises(ImportError, match=r"needs scikit-learn 1.6 or newer, which is not installed: pip install"):
        __import__("widemargin.sklearn")


def test_categories_are_held_or_changed_to_others() -> None:
    draws = np.random.default_rng(0)
    colour = draws.integers(3, size=90)
    table = pandas.DataFrame({"size": draws.normal(size=90), **{f"is {k}": 1.0 * (colour == k) for k in range(3)}})
    # The category decides, and the number hardly.
    labels = (colour == 1).astype(int)
    one_hot = [["is 0", "is 1", "is 2"]]
    given: dict[str, Any] = {"method": "pgd", "eps": 0.1, "norm": "linf", "one_hot": one_hot, "epochs": 40}
    held, changing = (classifier(**given, category_changes=n).fit(table, labels) for n in (0, 1))
    assert held.score(table, labels) == 1
    np.testing.assert_array_equal(held.mean_[1:], 0)
    assert held.scale_[0] == pytest.approx(float(table["size"].std(ddof=0)))
    # With one change any row is any other, so that nothing can be learned.
    assert changing.score(table, labels) < 1
    assert (held.margin(table[:2]) > 0.1).all()
    again = pickle.loads(pickle.dumps(held)).set_params(category_changes=1)
    np.testing.assert_array_equal(again.margin(table[:2]), held.margin(table[:2]))
    fragile = classifier(**given, category_changes=1).set_params(method="standard").fit(table, labels)
    np.testing.assert_array_equal(fragile.margin(table[:2]), 0)
    with pytest.raises(ValueError, match="must be 1 for a row's category"):
        fragile.margin(table[:2] * 2)
    assert classifier(**{**given, "eps": "auto"}).fit(table, labels).eps_ < 0.1
