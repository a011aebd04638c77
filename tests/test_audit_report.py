import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import widemargin as wm
from largest_feature import data, linear, linear_margin


@pytest.mark.usefixtures("untyped")
def test_an_audit_is_values_and_a_page_and_is_not_made_twice(tmp_path: Path) -> None:
    model, (x, y) = linear(), data(rows=8)
    y[3] = (y[3] + 1) % 3
    # Proofs and the first attack settle all: at 2 everything breaks.
    eps = [2.0, 0.05]
    report = wm.audit(model, (x, y), eps=eps, out=tmp_path)
    margin = linear_margin(x).double()
    margin[3] = 0
    assert list(report.robust) == [0.05, 2.0]
    assert report.clean.count == 7
    assert [one.count for one in report.robust.values()] == [int((margin > eps).sum()) for eps in report.robust]
    assert report.certified[0.05].count == report.robust[0.05].count
    assert report.rows.tolist() == list(range(8))
    torch.testing.assert_close(torch.from_numpy(report.margins), margin, rtol=1e-3, atol=1e-5)
    assert (model(report.adversarial).argmax(1) != y).all()
    assert {"inputs in box", "gradients"} <= {finding.name for finding in report.findings}
    assert "on 8 test examples" in str(report)
    assert "Clean accuracy is 87.5 %." in str(report)

    assert "<html" in report.save(tmp_path / "pages" / "audit.html").read_text()
    saved = json.loads(report.save(tmp_path / "audit.json").read_text())
    assert [row["eps"] for row in saved["robust"]] == [0.05, 2.0]
    with np.load(report.save(tmp_path / "adversarial.npz")) as examples:
        assert np.array_equal(examples["adversarial"], report.adversarial[examples["rows"]])
        assert examples["rows"].tolist() == [0, 1, 2, 4, 5, 6, 7]
    with pytest.raises(ValueError, match=r"saved as .html or .json, its adversarial examples as .npz, got audit.pdf"):
        report.save("audit.pdf")

    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert stamps
    assert wm.audit(model, (x, y), eps=eps, out=tmp_path).margins.tolist() == report.margins.tolist()
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}


def test_an_audit_of_points_outside_their_box_has_no_adversarial_points() -> None:
    x, y = data(rows=4)
    report = wm.audit(linear(), (255 * x, y), eps=0.1, box=wm.Box(0.0, 1.0))
    assert (report.robust, report.certified) == ({}, {})
    with pytest.raises(ValueError, match="nothing was attacked"):
        _ = report.adversarial


def test_inputs_of_0_to_255_are_not_attacked_and_the_report_says_why() -> None:
    images = torch.arange(64.0).view(4, 1, 4, 4) * 4
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    report = wm.audit(model, (images, model(images).argmax(1)), eps=8.0)
    assert "No attack was run" in str(report)
    assert "values from 0 to 252, 100.0% of 4 points outside the box [0, 1]" in str(report)
    assert "box=wm.Box(0, 255)" in str(report)
    assert "The reason" not in str(wm.audit(model, (images, model(images).argmax(1)), 8.0, box=wm.Box(0, 255)))
