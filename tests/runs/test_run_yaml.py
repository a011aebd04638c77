from pathlib import Path

import pytest

from widemargin import Adam, Epochs, Linf, Plan, udp
from widemargin.data.images import ImageSet
from widemargin.networks.named import LeNetSpec
from widemargin.runs.run import Run
from widemargin.runs.run_yaml import read_run, written
from widemargin.runs.serialize import to_dict

TRIAL = Run(ImageSet("digits"), LeNetSpec(side=8), udp(Linf(0.1), 0.03, 4), Plan(Epochs(2), Adam(0.001), 32))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "must be the YAML file of a run, got a NoneType"),
        ("- 1", "must be the YAML file of a run, got a list"),
        ("a: [", "must be the YAML file of a run, got while parsing"),
        ("run: !!python/object/apply:os.system ['true']", "must be the YAML file of a run, got could not determine"),
        ("run: {Run: {}}", "Run cannot be made of {}"),
        ("run: {Popen: {args: true}}", "'Popen' is no part of widemargin"),
        ("run: {Adam: {lr: 1, speed: 2}}", "Adam has no field 'speed': it has lr, schedule"),
        ("run: {Adam: {lr: -1}}", r"Adam.lr must be in \(0, inf\), got -1"),
        ("run: {Adam: {lr: fast}}", "Adam cannot be made of"),
        ("run: {Adam: 3}", "Adam must have fields, got 3"),
        ("run: {Adam: {lr: 1.0}}", "must describe a run, got Adam"),
        ("run: {Objective: [[1.0, exec]]}", "'exec' is no term of an objective"),
        ("run: {Objective: 7}", "an Objective must be a list of weights and names"),
        ("run: {Objective: []}", "an Objective must have at least one term"),
        ("run: {a: 1, b: 2}", "a part must be one name with its fields, got a, b"),
        ("a: &a [x, x]\nb: [*a, *a]\n", "run.yaml must be the YAML file of a run, got an alias, which no run needs"),
        ("run: &a {Run: *a}", "an alias, which no run needs"),
        ("run: " + "[" * 100_000, "lists and mappings more than 64 deep"),
        ("run: 2020-99-99", "must be the YAML file of a run, got month must be in 1..12"),
        ("run: {Objective: [[1.0, [a]]]}", r"\['a'\] is no term of an objective"),
        ("fitted: {}", "is of a network or data that Python made"),
    ],
)
def test_what_is_no_run_is_one_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(content)
    with pytest.raises(ValueError, match=sentence) as raised:
        read_run(tmp_path / "run.yaml")
    assert "\n" not in str(raised.value)


def test_a_run_from_before_there_were_members_has_one_network(tmp_path: Path) -> None:
    content = to_dict(TRIAL)
    del content["Run"]["estimator"]
    del content["Run"]["network"]["LeNetSpec"]["dropout"]
    (tmp_path / "run.yaml").write_text(written({"run": content}))
    assert read_run(tmp_path / "run.yaml") == TRIAL
    assert read_run(tmp_path / "run.yaml").key == TRIAL.key


def test_no_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run"):
        read_run(tmp_path / "run.yaml")
