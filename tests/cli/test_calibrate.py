import json
from pathlib import Path

import numpy as np
import pytest

from command import refused, widemargin
from widemargin.data.images import ImageSet
from widemargin.data.local import LocalData, Npz
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
    assert "noise.npz from digits" in told
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
