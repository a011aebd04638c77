import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widemargin.networks.named import DropoutResNetSpec, ResNetSpec
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18

THIN = [ResNetSpec(width=4), ResNetSpec(width=4, he_normal=True), DropoutResNetSpec(width=4)]


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def build(shape: ResNetSpec | DropoutResNetSpec) -> nn.Module:
    return shape.build(torch.Generator().manual_seed(0))


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_preactivation_has_as_many_parameters_as_by_hand():
    stem = 3 * 64 * 9
    # Two 3 x 3 convolutions and two normalisations (a scale and a shift per filter) in each block.
    plain = sum(2 * (2 * w * w * 9 + 2 * 2 * w) for w in (64, 128, 256, 512))
    # A stage's first block sees half the filters in its first convolution and normalisation, and has a 1 x 1 bypass.
    entry = sum(-w * (w // 2) * 9 - 2 * (w // 2) + w * (w // 2) for w in (128, 256, 512))
    head = 512 * 10 + 10
    with torch.device("meta"):
        assert count(PreActResNet18()) == stem + plain + entry + head == 11_171_146


def test_dropout_network_has_as_many_parameters_as_by_hand():
    stem = 3 * 64 * 9 + 2 * 64
    plain = sum(2 * (2 * w * w * 9 + 2 * 2 * w) for w in (64, 128, 256, 512))
    # Here the bypass is normalised, and every normalisation follows a convolution, so none sees half the filters.
    entry = sum(-w * (w // 2) * 9 + w * (w // 2) + 2 * w for w in (128, 256, 512))
    with torch.device("meta"):
        assert count(DropoutResNet18()) == stem + plain + entry + 512 * 10 + 10 == 11_173_962


@pytest.mark.parametrize("shape", THIN, ids=repr)
def test_gradients_reach_all_parameters(shape):
    network = build(shape)
    network(noise(4, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in network.parameters())


@pytest.mark.parametrize("shape", [ResNetSpec(3, 1, 8), DropoutResNetSpec(3, 1, 8)], ids=repr)
@pytest.mark.parametrize("side", [8, 28, 32])
def test_classes_channels_and_width_are_free(shape, side):
    network = build(shape).eval()
    images = noise(2, 1, side, side)
    assert network(images).shape == (2, 3)
    assert network.encoder(images).shape == (2, 64, -(-side // 8), -(-side // 8))


def conv_of(state: dict[str, Tensor], name: str, images: Tensor, stride: int = 1) -> Tensor:
    weight = state[f"{name}.weight"]
    return F.conv2d(images, weight, stride=stride, padding=weight.shape[-1] // 2)


def norm_of(state: dict[str, Tensor], name: str, images: Tensor) -> Tensor:
    mean, var, weight, bias = (state[f"{name}.{k}"] for k in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(images, mean, var, weight, bias)


def blocks() -> list[tuple[str, int, bool]]:
    """Name, stride, and whether the bypass is a convolution."""
    return [
        (f"encoder.stage{s}.{b}", 2 if s > 1 and b == 0 else 1, s > 1 and b == 0) for s in range(1, 5) for b in (0, 1)
    ]


def with_lively_norms(network: nn.Module) -> dict[str, Tensor]:
    for _ in range(3):
        network.train()(noise(4, 3, 16, 16).to(network.head.linear.weight))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" in name or "bypass.1" in name:
                parameter.add_(noise(*parameter.shape).to(parameter) - 0.3)
    network.eval()
    return dict(network.state_dict())


def test_preactivation_computes_the_published_architecture():
    network = build(ResNetSpec(width=4)).double()
    state, images = with_lively_norms(network), noise(2, 3, 32, 32).double()
    z = conv_of(state, "encoder.stem", images)
    for name, stride, projected in blocks():
        bypass = conv_of(state, f"{name}.bypass", z, stride) if projected else z
        active = norm_of(state, f"{name}.norm1", z).relu()
        inner = norm_of(state, f"{name}.norm2", conv_of(state, f"{name}.conv1", active, stride)).relu()
        z = conv_of(state, f"{name}.conv2", inner) + bypass
    torch.testing.assert_close(network.encoder(images), z)
    expected = F.linear(F.avg_pool2d(z, 4).flatten(1), state["head.linear.weight"], state["head.linear.bias"])
    torch.testing.assert_close(network(images), expected)
    torch.testing.assert_close(network.requires_grad_(False)(images), expected)
    # Two in each of eight blocks, and none behind them.
    assert sum(isinstance(module, nn.BatchNorm2d) for module in network.modules()) == 16


def test_dropout_network_computes_the_papers_table():
    network = build(DropoutResNetSpec(width=4))
    state, images = with_lively_norms(network), noise(2, 3, 32, 32)
    z = norm_of(state, "encoder.norm", conv_of(state, "encoder.stem", images)).relu()
    for name, stride, projected in blocks():
        bypass = norm_of(state, f"{name}.bypass.1", conv_of(state, f"{name}.bypass.0", z, stride)) if projected else z
        inner = norm_of(state, f"{name}.norm1", conv_of(state, f"{name}.conv1", z, stride)).relu()
        z = (norm_of(state, f"{name}.norm2", conv_of(state, f"{name}.conv2", inner)) + bypass).relu()
    expected = F.linear(F.avg_pool2d(z, 4).flatten(1), state["head.linear.weight"], state["head.linear.bias"])
    torch.testing.assert_close(network(images), expected)


def test_there_is_a_dropout_after_every_relu():
    drops = [m for m in build(DropoutResNetSpec(width=2, dropout=0.3)).modules() if isinstance(m, nn.Dropout)]
    # The stem, two in each of eight blocks.
    assert len(drops) == 1 + 2 * 8
    assert {drop.p for drop in drops} == {0.3}


def test_dropout_draws_in_train_mode_only():
    network, images = build(DropoutResNetSpec(width=4)), noise(2, 3, 8, 8)
    with torch.random.fork_rng():
        assert not torch.equal(network(images), network(images))
    network.eval()
    assert torch.equal(network(images), network(images))


@pytest.mark.parametrize("make", [PreActResNet18, DropoutResNet18, ResNetSpec, DropoutResNetSpec])
def test_refuses_sizes_that_cannot_work(make):
    for wrong in ({"classes": 1}, {"channels": 0}, {"width": 0}):
        with pytest.raises(ValueError, match="needs classes >= 2, channels >= 1 and width >= 1, got"):
            make(**wrong)


@pytest.mark.parametrize("make", [DropoutResNet18, DropoutResNetSpec])
@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_refuses_a_dropout_that_is_no_probability(make, dropout):
    with pytest.raises(ValueError, match=r"must be in \[0, 1\), got"):
        make(dropout=dropout)
