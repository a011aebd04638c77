"""Networks of others that do not behave: what can be made good is, everything else is one sentence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from command import refused
from widemargin import Dataset, Linf
from widemargin.io.load import check_gradients, load_model
from widemargin.measure.certified import certified_radius
from widemargin.rng import Rng
from widemargin.runs.user_network import UserNetwork
from widemargin.uncertainty.as_logits import AsLogits
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

OWN = """
from types import SimpleNamespace

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.tensor([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))

    def forward(self, points):
        return points @ self.weight.T


class Raises(Net):
    def forward(self, points):
        raise ZeroDivisionError("in the\\nmiddle")


class Two(Net):
    def forward(self, points):
        return super().forward(points), points


class Named(Net):
    def forward(self, points):
        return {"answer": super().forward(points)}


class Nothing(Net):
    def forward(self, points):
        return None


class Detached(Net):
    def forward(self, points):
        return super().forward(points.detach())


class Numpy(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3))

    def forward(self, points):
        return torch.from_numpy(points.detach().numpy()) @ self.weight.T


class Viewing(Net):
    def forward(self, points):
        return super().forward(points.view(len(points), -1))


class Doubling(Net):
    def forward(self, points):
        points *= 2
        return super().forward(points)


class Object(Net):
    def forward(self, points):
        return SimpleNamespace(logits=super().forward(points))


class One(Net):
    def forward(self, points):
        return (super().forward(points),)


class Without(nn.Module):
    def forward(self, points):
        return 3 * points[:, :2]


def scripted():
    return torch.jit.trace(Net(), torch.zeros(2, 3))


def compiled():
    return torch.compile(Net())


def no_module():
    return lambda points: points


def lazy():
    return nn.Sequential(nn.LazyLinear(2))
"""


POINTS = torch.tensor([[0.2, 0.8, 0.5], [0.9, 0.1, 0.4], [0.3, 0.4, 0.0]])


LOGITS = 3 * POINTS[:, :2]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    np.savez(tmp_path / "two.npz", x=np.random.default_rng(0).random((80, 3), np.float32), y=np.arange(80) % 2)
    monkeypatch.chdir(tmp_path)


CANNOT = "the network must take points of shape [3], as those of two.npz are, but it raised an error ("


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Raises", f"{CANNOT}ZeroDivisionError: in the"),
        ("Named", f"{CANNOT}Named must return logits as one tensor, got a dict"),
        ("Nothing", f"{CANNOT}Nothing must return logits as one tensor, got a NoneType"),
        ("Detached", "gradients must reach the network's inputs, but its outputs are cut off from them: remove"),
        ("Numpy", "gradients must reach the network's inputs, but its outputs are cut off from them: remove"),
        ("no_module", "no_module() of"),
        ("lazy", "lazy() of"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence(name: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(f"audit own.py:{name} --data two.npz --eps .1", capsys).startswith(sentence)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    "name", ["Net", "Viewing", "Doubling", "Object", "One", "Two", "Without", "scripted", "compiled"]
)
def test_what_can_is_asked_for_logits_and_keeps_its_inputs(name: str) -> None:
    network, points = load_model(f"own.py:{name}").network, POINTS.clone()
    wanted = 2 * LOGITS if name == "Doubling" else LOGITS
    for _ in range(2):
        torch.testing.assert_close(network.logits(network.encode(points))[0], wanted)
    check_gradients(network, points)
    none = POINTS[:0].clone().requires_grad_()
    answer = network.logits(network.encode(none))
    assert answer.shape == (1, 0, 2)
    assert torch.autograd.grad(answer.sum(), none)[0].shape == (0, 3)
    assert torch.equal(points, POINTS)


def test_a_network_of_others_has_the_certificates_of_its_own() -> None:
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    cloud = Dataset(POINTS, layers(POINTS).argmax(1))
    wanted = certified_radius(Single(at_input(layers)), cloud, Linf(0.5))
    found = certified_radius(Single(at_input(AsLogits(layers, "layers"))), cloud, Linf(0.5))
    assert (wanted > 0).all()
    torch.testing.assert_close(found, wanted)


def test_weights_of_a_compiled_network_fit_it(tmp_path: Path) -> None:
    torch.save({"_orig_mod.weight": torch.zeros(2, 3)}, tmp_path / "w.pt")
    assert not load_model("own.py:Net", tmp_path / "w.pt").network(POINTS).softmax(-1).sub(0.5).any()


DRAWN = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))

def needs(width): return nn.Linear(width, 2)
def thing(): return 3
"""


def test_a_network_of_ones_own_file_follows_the_seed_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(DRAWN)
    shape = UserNetwork.at(f"{path}:Net")

    def weight(seed: int) -> Tensor:
        return shape.build(Rng.seeded(seed).generators[0])[1].weight

    before = torch.get_rng_state()
    assert torch.equal(weight(0), weight(0))
    assert not torch.equal(weight(0), weight(1))
    assert torch.equal(torch.get_rng_state(), before)
    for place, sentence in {
        "Nothing": "must have a class or function Nothing, got nn, Net, needs, thing",
        "needs": "must make a network without arguments, got TypeError",
        "thing": "must be a torch.nn.Module, got a int",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            UserNetwork.at(f"{path}:{place}").build(Rng.seeded(0).generators[0])
    path.write_text(DRAWN + "\n")
    with pytest.raises(ValueError, match="must be as it was when the run began, but it has changed"):
        weight(0)
    path.write_text("import nothing_of_this_name")
    with pytest.raises(ValueError, match="must be a Python file that can be imported, got ModuleNotFoundError"):
        UserNetwork.at(f"{path}:Net").build(Rng.seeded(0).generators[0])
    for place, sentence in {
        "own:Net": "must be given as my_file.py:MyNet",
        "none.py:Net": "none.py does not exist",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            UserNetwork.at(place)
