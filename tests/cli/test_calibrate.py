import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import widemargin as wm
from command import refused, widemargin
from widemargin.data.images import ImageSet
from widemargin.data.local import LocalData
from widemargin.data.local_files import Npz
from widemargin.data.resize import resize
from widemargin.io.load import load_model
from widemargin.measure.calibration import UNCERTAINTIES, calibration, ood_detection

pytest.importorskip("sklearn")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    # Images of another size and in colour, which nothing was trained on.
    pixels = rng.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    np.savez("noise.npz", x=pixels, y=np.arange(60) % 2)


def test_calibrate_tells_and_writes(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("train --data digits --fraction .2 --method standard --epochs 2 --members 2 --out here")
    capsys.readouterr()
    widemargin("calibrate here --outside noise.npz")
    told = " ".join(capsys.readouterr().out.split())
    assert "OOD detection, noise.npz" in told
    written = json.loads(Path("here/calibration.json").read_text())
    network, tests = load_model("here").network, ImageSet("digits").draw().test
    expected = calibration(network, tests)
    assert (written["n"], written["members"], written["accuracy"]) == (360, 2, expected.accuracy)
    assert written["nll"] == pytest.approx(expected.nll)
    assert sum(written["bins"]["count"]) == 360
    assert list(written["auroc"]) == list(UNCERTAINTIES)
    foreign = resize(LocalData(Npz("noise.npz")).draw().test, (1, 8, 8))
    by_information = ood_detection(network, tests, foreign, UNCERTAINTIES["mutual information"])
    found = written["auroc"]["mutual information"]["noise.npz from inside"]
    assert found == {"auroc": pytest.approx(by_information.auroc), "suspects": 12, "others": 360}
    assert written["notes"] == ["noise.npz was 16 x 16 in colour and is scaled (bilinear) to 8 x 8."]
    page = Path("here/calibration.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page


def test_calibrate_some_points_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("train --data digits --fraction .2 --method standard --epochs 1 --out here")
    widemargin("export here --to model.pt2")
    widemargin("calibrate model.pt2 --data digits --points 50")
    written = json.loads(Path("calibrations/model.pt2/calibration.json").read_text())
    assert (written["n"], written["members"]) == (50, 1)
    assert list(written["auroc"]) == ["entropy", "variation ratio", "gap"]
    capsys.readouterr()
    widemargin("calibrate model.pt2 --data digits --points 50 --json")
    told = capsys.readouterr()
    assert json.loads(told.out) == {name: value for name, value in written.items() if name != "checksum"}
    assert "calibration.json" in told.err
    assert "needs --data" in refused("calibrate model.pt2", capsys)
    assert "--points must be at least 1, got 0" in refused("calibrate here --points 0", capsys)
    assert "--outside must name other examples than --data" in refused("calibrate here --outside digits", capsys)
    Path("table.csv").write_text("a,b,label\n" + "1,2,x\n3,4,y\n" * 20)
    message = "--outside table.csv: examples must have the shape [1, 8, 8], or both must be images"
    assert message in refused("calibrate here --outside table.csv", capsys)
    assert "--outside must be one of" in refused("calibrate here --outside nowhere", capsys)


def test_other_data_do_not_replace_the_runs_own_calibration() -> None:
    widemargin("train --data digits --fraction .2 --method standard --epochs 1 --out here")
    widemargin("calibrate here")
    own = Path("here/calibration.json").read_bytes()
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez("other.npz", x=pixels, y=np.arange(60) % 10)
    widemargin("calibrate here --data other.npz")
    assert Path("here/calibration.json").read_bytes() == own
    assert json.loads(Path("here/on-other.npz/calibration.json").read_text())["data"] == "other.npz"


@pytest.mark.parametrize("members", [1, 2])
def test_a_fitted_temperature_is_kept_with_the_run_and_in_its_exports(
    members: int, capsys: pytest.CaptureFixture[str]
) -> None:
    of = f"--members {members}" if members > 1 else ""
    widemargin(f"train --data digits --fraction .2 --method standard --epochs 2 --out here {of}")
    tests = ImageSet("digits").draw().test
    plain, before = load_model("here"), wm.load("here")(tests.points).log_softmax(-1).detach()
    widemargin("calibrate here")
    unscaled = json.loads(Path("here/calibration.json").read_text())
    capsys.readouterr()
    widemargin("calibrate here --fit temperature --csv scores.csv")
    page = Path("here/calibration.html").read_text()
    assert "predictions, audits and exports are scaled from now on" in page
    kept, written = (json.loads(Path(f"here/{name}.json").read_text()) for name in ("scaling", "calibration"))
    assert kept["nll_after"] < kept["nll_before"]
    assert written["accuracy"] == unscaled["accuracy"]
    assert written["unscaled"] == {name: unscaled[name] for name in ("ece", "nll", "brier")}
    assert (unscaled["scaling"], written["members"]) == (None, members)
    after = wm.load("here")(tests.points).log_softmax(-1).detach()
    torch.testing.assert_close(after, (kept["weight"][0] * before).log_softmax(-1))
    torch.testing.assert_close(wm.predict(wm.load("here"), tests.points).log_probabilities, after)
    scaled = load_model("here")
    assert calibration(scaled.network, tests).nll == pytest.approx(written["nll"], rel=1e-4)
    assert scaled.digest != plain.digest
    assert f"its logits are scaled (temperature {1 / kept['weight'][0]:.4g})" in scaled.notes
    if members == 2:
        widemargin("export here --to model.pt2")
        torch.testing.assert_close(load_model("model.pt2").network(tests.points), after, atol=1e-5, rtol=1e-5)
    widemargin("export here --to weights.safetensors")
    with safe_open("weights.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["scaling"])["weight"] == kept["weight"]
    rows = list(csv.DictReader(Path("scores.csv").read_text().splitlines()))
    assert len(rows) == 360
    assert sum(int(row["correct"]) for row in rows) / 360 == pytest.approx(written["accuracy"])
    assert float(rows[7]["confidence"]) == pytest.approx(float(after[7].exp().max()), rel=1e-4)
    assert all((row["mutual_information"] == "") == (members == 1) for row in rows)
    Path("here/scaling.json").write_text("{")
    assert "--fit temperature` fits it again; or delete it" in refused("calibrate here", capsys)
    widemargin("calibrate here --fit vector")
    assert json.loads(Path("here/scaling.json").read_text())["nll_before"] == kept["nll_before"], "not upon the other"


def test_scores_are_of_the_rows_that_were_drawn_and_a_file_gets_no_scaling(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("train --data digits --fraction .2 --method standard --epochs 1 --out here")
    widemargin("export here --to model.pt2")
    widemargin("calibrate model.pt2 --data digits --points 50 --fit temperature --csv scores.csv")
    assert Path("calibrations/model.pt2/scaling.json").exists()
    notes = json.loads(Path("calibrations/model.pt2/calibration.json").read_text())["notes"]
    assert notes[-1].endswith("it is not applied to the model.")
    tests = ImageSet("digits").draw().test
    for row in csv.DictReader(Path("scores.csv").read_text().splitlines()):
        assert row["label"] == str(tests.labels[int(row["row"]) - 1].item())
    assert "--csv must be in a folder that exists" in refused("calibrate here --csv nowhere/x.csv", capsys)
