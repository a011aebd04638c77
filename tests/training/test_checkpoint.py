import json
import random
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from widemargin import SGD, Adam, Cosine, Plan, Single, Updates, at_input
from widemargin.data.toy import LMS5
from widemargin.files import read_tensors as read
from widemargin.files import write_tensors as write
from widemargin.networks.named import ResNetSpec
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.training.checkpoint import load_training, load_weights, save_training, save_weights
from widemargin.training.loop import Training, continue_training
from widemargin.training.plan import EMA, SWA, Average, Descent, NoAverage
from widemargin.uncertainty.cuts import before_head
from widemargin.uncertainty.network import Network

CLOUD = LMS5(count=24).draw()


def fresh(width: int = 8) -> Network:
    with Rng.seeded(3).as_global():
        layers = [nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(), nn.Linear(width, 2)]
        return Single(at_input(nn.Sequential(*layers)))


def begun(plan: Plan, updates: int) -> Training:
    training = Training.begin(fresh(), plan)
    list(islice(continue_training(training, CLOUD, standard(), plan), updates))
    return training


@pytest.mark.parametrize("descent", [Adam(0.01, Cosine()), SGD(0.1), SGD(0.1, momentum=0.0)], ids=repr)
@pytest.mark.parametrize("average", [NoAverage(), EMA(0.9), SWA(0.2)], ids=repr)
def test_a_training_goes_on_from_its_file_as_if_nothing_had_happened(
    descent: Descent, average: Average, tmp_path: Path
) -> None:
    plan = Plan(Updates(10), descent, batch=7, average=average)
    undisturbed = begun(plan, 10)
    for stop in (0, 1, 6):
        save_training(tmp_path / "a", begun(plan, stop), "key", {"best": 0.1})
        again = Training.begin(fresh(), plan)
        assert load_training(tmp_path / "a", again, "key") == {"best": 0.1}
        assert again.update == stop
        list(continue_training(again, CLOUD, standard(), plan))
        for name in ("network", "average"):
            one, other = getattr(again, name), getattr(undisturbed, name)
            if other is not None:
                assert all(torch.equal(v, other.state_dict()[k]) for k, v in one.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_layouts_of_memory_survive(tmp_path: Path) -> None:
    def build() -> Network:
        with Rng.seeded(3).as_global():
            layers = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(64, 2))
            return Single(at_input(layers.to(memory_format=torch.channels_last)))

    images, labels = Rng.seeded(0).uniform(torch.empty(8, 3, 4, 4)), torch.arange(8) % 2
    plan = Plan(Updates(6), Adam(0.01))
    cloud = type(CLOUD)(images, labels)
    undisturbed = Training.begin(build(), plan)
    list(continue_training(undisturbed, cloud, standard(), plan))
    first = Training.begin(build(), plan)
    list(islice(continue_training(first, cloud, standard(), plan), 3))
    save_training(tmp_path / "a", first, "key", {})
    again = Training.begin(build(), plan)
    load_training(tmp_path / "a", again, "key")
    list(continue_training(again, cloud, standard(), plan))
    for a, b in zip(again.network.parameters(), undisturbed.network.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


def test_what_is_no_whole_file_of_this_run_is_one_sentence(tmp_path: Path) -> None:
    plan, path = Plan(Updates(10), Adam(0.01)), tmp_path / "a"
    save_training(path, begun(plan, 2), "key", {})
    whole = path.read_bytes()

    def refused(content: bytes, sentence: str, key: str = "key", width: int = 8) -> None:
        path.write_bytes(content)
        training = Training.begin(fresh(width), plan)
        with pytest.raises(ValueError, match=sentence) as raised:
            load_training(path, training, key)
        assert "\n" not in str(raised.value)
        assert training.update == 0

    refused(b"", "is damaged or not a widemargin file")
    refused(b"not a file of weights at all", "is damaged or not a widemargin file")
    refused(whole[:-5], "is damaged or not a widemargin file")
    refused(whole[:-5] + b"12345", r"is damaged \(its checksum differs\)")
    refused(whole, "must be of run other, got key: choose another folder", key="other")
    refused(whole, r"does not fit this training \(its network 'head.0.bias' must be", width=4)
    write(path, {}, {"key": "key"})
    refused(path.read_bytes(), "does not fit this training")
    path.unlink()
    with pytest.raises(ValueError, match="a is missing"):
        read(path)


def test_no_bit_of_a_checkpoint_can_change_unseen(tmp_path: Path) -> None:
    plan, path = Plan(Updates(10), Adam(0.01)), tmp_path / "a"
    save_training(path, begun(plan, 2), "key", {"best": 0.1, "losses": torch.tensor([0.5, 0.25])})
    whole = path.read_bytes()
    # All of the head, where the update, the key and the dtypes are, and some of the values.
    head = int.from_bytes(whole[:8], "little") + 8
    chance = random.Random(0)
    for place in [
        *chance.sample(range(head), 120),
        whole.index(b"update"),
        *chance.sample(range(head, len(whole)), 20),
    ]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        training = Training.begin(fresh(), plan)
        try:
            more = load_training(path, training, "key")
        except ValueError:
            assert training.update == 0
        else:
            assert (training.update, more["best"], more["losses"].tolist()) == (2, 0.1, [0.5, 0.25])


def test_weights_are_kept_with_a_note(tmp_path: Path) -> None:
    one, other = fresh(), fresh()
    with torch.no_grad():
        next(one.parameters()).zero_()
    save_weights(tmp_path / "a", one, {"robust": 0.25})
    assert load_weights(tmp_path / "a", other) == {"robust": 0.25}
    assert all(torch.equal(value, one.state_dict()[name]) for name, value in other.state_dict().items())
    with pytest.raises(ValueError, match="does not fit this network"):
        load_weights(tmp_path / "a", fresh(4))
    assert json.dumps(read(tmp_path / "a")[1]) == '{"robust": 0.25}'


def test_weights_of_the_resnet_with_a_last_normalisation_are_refused(tmp_path: Path) -> None:
    network = Single(before_head(ResNetSpec(width=2).build(torch.Generator().manual_seed(0))))
    older = network.state_dict() | {f"head.norm.{name}": torch.ones(16) for name in ("weight", "bias")}
    write(tmp_path / "best.safetensors", older, {})
    with pytest.raises(ValueError, match=r"'head.norm.bias' must be None, got .* or train again if an older version"):
        load_weights(tmp_path / "best.safetensors", network)
