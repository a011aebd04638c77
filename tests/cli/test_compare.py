import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from command import refused, widemargin


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, three_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(three_runs, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)


def audit(folder: str, accuracy: float, norm: str = "linf", **other: object) -> None:
    ball = {"norm": norm, "eps": 0.05, "accuracy": accuracy, "n": 50, "low": 0, "high": 1, "attacks": ["apgd-ce"]}
    content = {"n": 50, "clean": 0.5, "robust": [ball], "data": "digits", "box": "UNIT", "seed": 0, **other}
    (Path("runs") / folder / ("audit.json" if norm == "linf" else f"audit-{norm}.json")).write_text(json.dumps(content))


def test_compare_prints(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("compare runs")
    whole = capsys.readouterr().out
    assert "PGD linf 0.1" in whole
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in whole.splitlines() if line.startswith("│")]
    assert rows == [["fgsm", "2"], ["standard", "1"]]
    widemargin("compare runs/fgsm-0 runs/fgsm-1 runs/standard runs")
    assert capsys.readouterr().out == whole


def test_compare_takes_audits(capsys: pytest.CaptureFixture[str]) -> None:
    audit("fgsm-0", 0.25)
    audit("fgsm-1", 0.25)
    widemargin("compare runs --to partly.md")
    assert "Without an audit: runs/standard:" in Path("partly.md").read_text()
    audit("standard", 0.125)
    widemargin("compare runs --to table.md")
    text = Path("table.md").read_text()
    assert "| fgsm | 2 | **50.0 ± 0.0** | **25.0 ± 0.0** | **37.5 ± 0.0** |" in text
    assert "| standard | 1 | **50.0** | 12.5 | 31.2 |" in text
    assert "PGD" not in text
    Path("runs/standard/audit.json").write_text("{}")
    assert "audit.json is damaged" in refused("compare runs/standard", capsys)


MANY = f"Box(low={(0.0,) * 99}, high={(1.0,) * 99})"


@pytest.mark.parametrize("other", [{"data": "others.npz"}, {"box": "OPEN"}, {"box": MANY}, {"seed": 1}])
def test_audits_on_other_examples_are_not_averaged(other: dict[str, object]) -> None:
    audit("fgsm-0", 0.25)
    audit("fgsm-1", 0.75, **other)
    widemargin("compare runs/fgsm-0 runs/fgsm-1 --to table.md")
    text = Path("table.md").read_text()
    assert "PGD linf 0.1" in text
    assert "no ball in common that met the same attacks on the same examples in the same box (data digits" in text
    assert MANY not in text, "it would fill the page"


def test_norms_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("fgsm-0", "fgsm-1", "standard"):
        audit(folder, 0.25)
        audit(folder, 0.375, "l2")
    widemargin("compare runs --to table.md")
    text = Path("table.md").read_text()
    assert "| run | seeds | clean | linf 0.05 | l2 0.05 | trade-off linf 0.05 | trade-off l2 0.05 |" in text
    assert "| **25.0** | **37.5** |" in text
    audit("standard", 0.375, "l2", seed=1)
    widemargin("compare runs --to table.md")
    text = Path("table.md").read_text()
    assert "| run | seeds | clean | linf 0.05 | trade-off |" in text
    assert "Left out: runs/standard/audit-l2.json, which is of other examples (data digits, n 50, seed 1)." in text
    assert "Left out, since not all were audited there alike: l2 0.05 (runs/fgsm-0)" in text


def test_a_norm_in_which_all_are_audited_alike_is_chosen() -> None:
    for folder in ("fgsm-0", "fgsm-1", "standard"):
        audit(folder, 0.25, seed=int(folder == "standard"))
        audit(folder, 0.375, "l2")
    widemargin("compare runs --to table.md")
    text = Path("table.md").read_text()
    assert "| run | seeds | clean | l2 0.05 | trade-off |" in text
    assert "Left out: runs/standard/audit.json, which is of other examples (data digits, n 50, seed 1)." in text


def test_compare_writes_latex_and_a_page() -> None:
    for name in ("table.tex", "table.html"):
        widemargin(f"compare runs --to {name}")
    assert r"\end{table}" in Path("table.tex").read_text()
    page = Path("table.html").read_text(encoding="utf-8")
    HTMLParser().feed(page)
    assert "<b>" in page
    assert {path.name for path in Path().iterdir()} == {"runs", "table.tex", "table.html"}


def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no folder nowhere" in refused("compare nowhere", capsys)
    assert "--to must end in .md, .tex, .html" in refused("compare runs --to table.doc", capsys)
    assert "--to must be in a folder" in refused("compare runs --to no/table.md", capsys)
    Path("empty").mkdir()
    assert "empty is no run" in refused("compare runs empty", capsys)
    shutil.copytree("runs/standard", "runs/again")
    assert "hold the same run" in refused("compare runs", capsys)
    Path("runs/again/figures.json").unlink()
    assert "runs/again is not done" in refused("compare runs", capsys)
    Path("runs/again/figures.json").write_text("{}")
    assert "no test split" in refused("compare runs", capsys)
    Path("runs/again/figures.json").write_text('{"clean": 0.5}')
    Path("runs/again/run.yaml").write_text(yaml.safe_dump({"key": "k", "run": {}}))
    assert "runs/again is damaged" in refused("compare runs/again", capsys)
    widemargin("compare runs --to left.md")
    assert "Left out: runs/again is damaged" in Path("left.md").read_text()


def model_audit(folder: str, accuracy: float, **other: object) -> None:
    Path("audits", folder).mkdir(parents=True)
    ball = {"norm": "linf", "eps": 0.05, "accuracy": accuracy, "n": 50, "low": 0, "high": 1, "attacks": ["apgd-ce"]}
    content = {"n": 50, "clean": 0.75, "robust": [ball], "data": "digits", "box": "UNIT", "seed": 0, "model": folder}
    (Path("audits") / folder / "audit.json").write_text(json.dumps({**content, "test_digest": "1a", **other}))


def test_audits_of_model_files_stand_beside_runs() -> None:
    audit("standard", 0.25, test_digest="1a")
    model_audit("first.onnx", 0.5)
    model_audit("there/second.pt2", 0.375)
    widemargin("compare runs/standard first.onnx audits/there/second.pt2 --to table.md")
    text = Path("table.md").read_text()
    assert "**digits: accuracy in percent**" in text
    assert "| standard | 1 | 50.0 | 25.0 | 37.5 |" in text
    assert "| first.onnx |  | **75.0** | **50.0** | **62.5** |" in text
    assert "| there/second.pt2 |  | **75.0** | 37.5 | 56.2 |" in text
    widemargin("compare audits runs/standard audits/first.onnx/audit.json --to again.md")
    assert sorted(Path("again.md").read_text().splitlines()) == sorted(text.splitlines())
    widemargin("compare audits --to table.html")
    assert "there/second.pt2" in Path("table.html").read_text()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"test_digest": "2b"}, "audits of models can be compared if they are of the same test examples, got audits/a"),
        ({"seed": 1}, "can be compared at radii that all have, under the same attacks, got audits/a"),
        (
            {"robust": []},
            "can be compared at radii that all have, under the same attacks, got audits/a",
        ),
    ],
)
def test_audits_of_unequal_data_or_radii_are_refused(
    other: dict[str, object], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model_audit("a", 0.5)
    model_audit("b", 0.25, **other)
    assert sentence in refused("compare audits", capsys)


def test_a_model_or_run_without_an_audit_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    model_audit("a", 0.5)
    assert "runs/standard must have an audit to be compared" in refused("compare audits/a runs/standard", capsys)
    Path("model.onnx").write_bytes(b"")
    assert "model.onnx has no audit in audits/model.onnx" in refused("compare model.onnx", capsys)
    Path("audits/a/audit.json").write_text("{}")
    assert "audit.json is damaged" in refused("compare audits/a", capsys)


def test_a_model_is_found_with_the_weights_it_was_audited_with(capsys: pytest.CaptureFixture[str]) -> None:
    model_audit("mine-Net-there/first.pt", 0.5, model="mine.py:Net")
    model_audit("mine-Net-second.pt", 0.25, model="mine.py:Net")
    widemargin("compare mine.py:Net --to table.md")
    text = Path("table.md").read_text()
    assert "audits/mine-Net-there/first.pt" in text
    assert "audits/mine-Net-second.pt" in text
    assert "mine.py:Other has no audit in audits/mine-Other" in refused("compare mine.py:Other", capsys)


def test_a_model_may_be_named_as_audits_on_other_data_are() -> None:
    model_audit("on-device.onnx", 0.5)
    model_audit("on-device.onnx/on-other", 0.25, data="other", model="elsewhere")
    model_audit("plain.onnx", 0.375)
    widemargin("compare audits --to table.md")
    text = Path("table.md").read_text()
    assert "| on-device.onnx |" in text
    assert "| plain.onnx |" in text
    assert "elsewhere" not in text
