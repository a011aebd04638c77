from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases import METHODS
from front_door import public_names
from widemargin import OPEN, SGD, Adam, Epochs, Linf, Method, Plan, Updates, pgd, udp
from widemargin.data.augment import CropFlip
from widemargin.data.columns import Columns
from widemargin.data.image_folder import ImageFolder
from widemargin.data.images import ImageSet
from widemargin.data.local import LocalData, SplitData, TableData
from widemargin.data.local_files import Npz, Table
from widemargin.networks.mlp import FlatMLPSpec, MLPSpec
from widemargin.networks.named import DropoutResNetSpec, LeNetSpec, ResNetSpec
from widemargin.networks.normalized import NormalizedSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.parts import PARTS
from widemargin.perturb.balls import UNIT
from widemargin.perturb.objectives import Pair, clean_loss, objective, perturbed_loss
from widemargin.perturb.search import Search
from widemargin.runs.keys import key_of
from widemargin.runs.run import Run, Validation
from widemargin.runs.run_yaml import read_run, written
from widemargin.runs.serialize import from_dict, to_dict
from widemargin.runs.user_network import UserNetwork
from widemargin.shapes import PerSample
from widemargin.training.plan import EMA, SWA, Multistep, Triangle
from widemargin.uncertainty.drawn import PerStep
from widemargin.uncertainty.dropout import LastDropout
from widemargin.uncertainty.estimators import AtModule, BeforeHead, DeepKernelSpec, EnsembleSpec, MCDropoutSpec

TRIAL = Run(ImageSet("digits"), LeNetSpec(side=8), udp(Linf(0.1), 0.03, 4), Plan(Epochs(2), Adam(0.001), 32))


PLANS = [
    Plan(Epochs(2), SGD(0.15, Triangle(0.3)), 256, CropFlip(3), EMA(0.99), True),
    Plan(Updates(9), Adam(1e-5, Multistep((0.25, 0.5), 0.3)), None, average=SWA(0.9)),
]


OTHERS = [
    replace(TRIAL, data=LocalData(Table("a.csv", "kind"), 0.2, 0.3, 4), network=MLPSpec((3, 8, 2))),
    replace(TRIAL, data=LocalData(ImageFolder("a", "L", (8, 9))), network=ResNetSpec(width=8), place=BeforeHead()),
    replace(TRIAL, data=LocalData(Npz("a.npz")), network=DropoutResNetSpec(), place=AtModule("encoder.stage1")),
    replace(
        TRIAL, data=TableData(Table("a.csv"), Columns(("id",), units=(("a", 2.0),), fixed=("b",)), 0.1, Table("b"))
    ),
    replace(TRIAL, data=SplitData(Npz("a.npz"), test=Npz("a.npz", "x_test", "y_test")), network=FlatMLPSpec((4, 2))),
    replace(TRIAL, network=NormalizedSpec(LeNetSpec(side=8), (0.5,), (0.25,))),
    replace(TRIAL, method=replace(udp(Linf(0.1, UNIT.holding((0, 3))), 0.03, 4), class_weights=(1.0, 2.5))),
    replace(TRIAL, estimator=EnsembleSpec(3)),
    replace(TRIAL, network=LeNetSpec(side=8, dropout=0.1), estimator=MCDropoutSpec(3, PerStep(), LastDropout())),
    replace(TRIAL, network=ResidualMLPSpec(3, 2), estimator=DeepKernelSpec(7, 3, 0.9)),
    replace(TRIAL, network=UserNetwork("a.py", "Net", "0123"), validation=Validation(3, udp(Linf(1), 1, 1).perturb)),
]


def again(part: Any) -> Any:
    return from_dict(yaml.safe_load(written({"run": to_dict(part)}))["run"])


@pytest.mark.parametrize("part", [TRIAL, *OTHERS, *PLANS, *METHODS], ids=repr)
def test_what_is_written_is_read_back(part: Any) -> None:
    found = again(part)
    assert found == part
    assert repr(found) == repr(part)


def test_fields_that_came_later_are_left_out_while_they_say_nothing() -> None:
    assert to_dict(UNIT) == {"Box": {"low": 0.0, "high": 1.0}}
    assert to_dict(UNIT.holding((2,))) == {"Box": {"low": 0.0, "high": 1.0, "fixed": [2]}}
    assert "class_weights" not in to_dict(TRIAL.method)["Method"]
    assert not {"category_changes", "perturbed"} & set(to_dict(Columns())["Columns"])
    changing = Columns(category_changes=2, perturbed=("colour",))
    assert to_dict(changing)["Columns"]["perturbed"] == ["colour"]
    assert again(changing) == changing
    # Keys as they were before.
    assert key_of(TableData(Table("/own.csv", "kind"))) == "7f51aa1df36341fd"
    assert key_of(LocalData(Table("/own.csv"))) == "a7525cf70fd3e8a3"
    assert to_dict(Table("/own.csv", decimal=",")) == {"Table": {"path": "/own.csv", "label": "label", "decimal": ","}}


def test_every_public_part_can_be_written() -> None:
    parts = {n for n, v in public_names().items() if isinstance(v, type) and hasattr(v, "__dataclass_params__")}
    no_parts_of_a_run = {
        "Bins",
        "Calibration",
        "Dataset",
        "UncertaintyScores",
        "UncertaintyReport",
        "Margins",
        "Objective",
        "Pair",
        "Record",
        "Rng",
        "Separation",
        "Training",
        "Ball",
        "Outcome",
        "RowRng",
        "Term",
        "Splits",
    }
    assert parts - no_parts_of_a_run - PARTS.keys() == set()


@objective
def my_own(pair: Pair) -> PerSample:
    return pair.perturbed()[0, :, 0]


@pytest.mark.parametrize("mine", [my_own, perturbed_loss + 0.5 * my_own])
def test_an_objective_of_ones_own_cannot_be_read_back(mine: Any, tmp_path: Path) -> None:
    search = TRIAL.method.perturb
    assert isinstance(search, Search)
    trial = replace(TRIAL, method=Method(replace(search, objective=mine), clean_loss))
    (tmp_path / "run.yaml").write_text(written({"run": to_dict(trial)}))
    with pytest.raises(ValueError, match=r"run.yaml: my_own is your own and cannot be read from a file: resume by"):
        read_run(tmp_path / "run.yaml")


def test_a_name_that_is_taken_by_ones_own_is_not_mistaken() -> None:
    def perturbed_loss(pair: Pair) -> PerSample:
        return pair.perturbed()[0, :, 0]

    with pytest.raises(ValueError, match="is your own"):
        again(Method(udp(Linf(1), 1, 1).perturb, objective(perturbed_loss)))


def test_version_2_as_it_was_first_written() -> None:
    """Fields that came or were renamed since change neither what files say nor keys: those of the first version 2."""
    methods = (udp(Linf(0.5), alpha=0.025, steps=20), pgd(Linf(0.1, OPEN), alpha=0.01, steps=5))
    assert [key_of(method) for method in methods] == ["390dc3472fa32bbc", "5d3ce0dbc6e3be78"]
    text = yaml.safe_dump(to_dict(methods[0]))
    assert "share" in text
    assert "fraction" not in text
    assert from_dict(yaml.safe_load(text)) == methods[0]
