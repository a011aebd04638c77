"""Files that were exported for batches of one size, and those of the older ONNX exporter: any points may be asked."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor, nn

from widemargin import Dataset, Linf
from widemargin.io.graph import Graph, Step
from widemargin.io.load import load_model
from widemargin.measure.certified import certified_radius
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

pytest.importorskip("onnx")


pytest.importorskip("onnxscript")


class Viewing(nn.Module):
    """Asks for its batch in one of the ways of views."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.conv, self.linear, self.whole = nn.Conv2d(1, 2, 3), nn.Linear(72, 3), whole

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.conv(inputs).relu()
        rows, channels, height, width = found.shape
        return self.linear(found.reshape(rows, channels * height * width) if self.whole else found.view(rows, -1))


def drawn(rows: int) -> Tensor:
    return torch.rand(rows, 1, 8, 8, generator=Generator().manual_seed(0))


def write(network: nn.Module, path: Path, rows: int, dynamic: bool = False) -> None:
    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(network, (drawn(rows),)), path)
        return
    with warnings.catch_warnings():
        # What the older exporter says of itself.
        warnings.simplefilter("ignore")
        axes = {"dynamic_axes": {"x": {0: "rows"}, "y": {0: "rows"}}} if dynamic else {}
        names = {"input_names": ["x"], "output_names": ["y"]}
        torch.onnx.export(network, (drawn(rows),), path, dynamo=False, **names, **axes)


def check_same(path: Path, network: nn.Module) -> tuple[str, ...]:
    model = load_model(str(path))
    assert model.network.logits(drawn(0)).shape == (1, 0, 3)
    for rows in (1, 3, 7):
        points, same = (drawn(rows).requires_grad_() for _ in range(2))
        found, wanted = model.network.logits(model.network.encode(points))[0], network(same)
        torch.testing.assert_close(found, wanted)
        weights = torch.arange(found.numel()).reshape(found.shape)
        gradients = [torch.autograd.grad((a * weights).sum(), b)[0] for a, b in ((found, points), (wanted, same))]
        torch.testing.assert_close(*gradients)
    return model.notes


@pytest.mark.parametrize("whole", [False, True])
def test_the_older_exporter_with_any_batch(whole: bool, tmp_path: Path) -> None:
    network = Viewing(whole).eval()
    write(network, tmp_path / "m.onnx", 2, dynamic=True)
    assert check_same(tmp_path / "m.onnx", network) == ()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_a_batch_of_one_size_is_filled_up_or_split(suffix: str, rows: int, tmp_path: Path) -> None:
    network, path = Viewing(True).eval(), tmp_path / f"m{suffix}"
    write(network, path, rows)
    assert f"exactly {rows} points" in check_same(path, network)[0]
    cloud = Dataset(drawn(2), network(drawn(2)).argmax(1))
    wanted = certified_radius(
        Single(at_input(nn.Sequential(network.conv, nn.ReLU(), nn.Flatten(), network.linear))), cloud, Linf(0.1)
    )
    assert (wanted > 0).all()
    torch.testing.assert_close(
        certified_radius(load_model(str(path)).network, cloud, Linf(0.1)), wanted, atol=1e-4, rtol=0
    )


def test_a_batch_of_one_that_takes_its_mean_has_no_certificate() -> None:
    mean = Step("mean", lambda x: [torch.mean(x, 0, keepdim=True)], ("x",), ("y",))
    network = Single(at_input(Graph({}, [mean], "x", "y", [1, 3])))
    points = torch.tensor([[0.1, 0.5, 0.9], [0.9, 0.5, 0.1]])
    torch.testing.assert_close(network.logits(points)[0], points)
    with pytest.raises(ValueError, match="'mean', which mixes the points of a batch"):
        certified_radius(network, Dataset(points, torch.tensor([2, 0])), Linf(0.1))
