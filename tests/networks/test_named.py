import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, nn

from widemargin.networks.lenet import LeNet
from widemargin.networks.named import DropoutResNetSpec, LeNetSpec, ResNetSpec, drawn, named
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.parts import choices

SMALL = [
    LeNetSpec(side=8),
    LeNetSpec(classes=3, channels=2, capacity=2),
    ResNetSpec(width=4),
    ResNetSpec(classes=100, channels=1, width=2, he_normal=True),
    DropoutResNetSpec(width=4, dropout=0.5),
]


@pytest.mark.parametrize("shape", [*SMALL, *(named(name) for name in choices("network"))], ids=repr)
def test_repr_is_the_code_that_makes_it(shape):
    assert eval(repr(shape)) == shape


@pytest.mark.parametrize("shape", SMALL, ids=repr)
def test_weights_come_from_the_generator_and_nothing_else(shape):
    before = torch.get_rng_state()
    one, same, other = (shape.build(Generator().manual_seed(seed)).state_dict() for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)
    assert all(value.isfinite().all() and not value.is_meta for value in one.values())


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        (LeNetSpec(), LeNet),
        (ResNetSpec(width=4), lambda: PreActResNet18(width=4)),
        (DropoutResNetSpec(width=4), lambda: DropoutResNet18(width=4)),
    ],
    ids=["LeNet", "ResNet", "DropoutResNet"],
)
def test_weights_are_those_that_torch_itself_would_draw(shape, make):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = make()
    built = shape.build(Generator().manual_seed(5))
    assert type(built) is type(expected)
    state = built.state_dict()
    assert all(torch.equal(state[key], value) for key, value in expected.state_dict().items())
    assert built.training
    assert all(parameter.requires_grad for parameter in built.parameters())


def test_he_normal_keeps_the_variance_of_gradients():
    network = ResNetSpec(width=16, he_normal=True).build(Generator().manual_seed(0))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * math.prod(module.kernel_size)
            tolerance = 5 / math.sqrt(2 * module.weight.numel())
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=tolerance)
            # Normal, not uniform: a uniform distribution has kurtosis 1.8.
            if module.weight.numel() > 2000:
                kurtosis = (module.weight / module.weight.std()).pow(4).mean().item()
                assert kurtosis == pytest.approx(3, abs=0.6)
    linear = network.head.linear
    # Nothing but the classes follows a linear layer: there the variance of the features counts.
    tolerance = 5 / math.sqrt(2 * linear.weight.numel())
    assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / linear.in_features), rel=tolerance)
    assert not linear.bias.any()


def test_names_stand_for_the_papers_networks():
    assert named("lenet") == LeNetSpec()
    assert named("resnet18-he") == replace(named("resnet18"), he_normal=True)
    assert named("resnet18-dropout") == DropoutResNetSpec(dropout=0.2)
    with pytest.raises(ValueError, match=r"must be one of lenet, resnet18, .*, got 'alexnet'"):
        named("alexnet")


def test_a_layer_without_a_rule_is_not_left_undrawn():
    with pytest.raises(AssertionError, match="no rule to draw the weights"):
        drawn(lambda: nn.GroupNorm(1, 2), Generator())
