import numpy as np
import pytest
from sklearn.datasets import load_iris

from widemargin.sklearn import WideMarginClassifier


@pytest.mark.slow
def test_an_audit_of_all_classes() -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    fitted = WideMarginClassifier(epochs=12, hidden=(16,), random_state=0).fit(x, names)
    report = fitted.audit(x[::10], names[::10], eps=[0.1, 0.2])
    assert list(report.robust) == [0.1, 0.2]
    assert report.clean.n == 15
    assert report.clean.fraction == fitted.score(x[::10], names[::10])
