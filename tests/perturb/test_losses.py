import pytest
import torch

from widemargin.perturb import objectives
from widemargin.perturb.losses import likeliest_others, margin, targeted_dlr
from widemargin.perturb.objectives import (
    Objective,
    Pair,
    dlr_loss,
    height,
    margin_loss,
    perturbed_loss,
    target_margin,
    targeted_dlr_loss,
)

LOGITS = torch.tensor([[5.0, 3.0, 2.0, 1.0], [0.0, 4.0, 1.0, 2.0]])
LABELS, TARGETS = torch.tensor([0, 0]), torch.tensor([1, 3])


def test_known_values() -> None:
    assert torch.allclose(margin(LOGITS, LABELS), torch.tensor([2.0, -4.0]))
    assert torch.allclose(height(margin_loss, LOGITS, LABELS), torch.tensor([-2.0, 4.0]))
    assert torch.allclose(height(dlr_loss, LOGITS, LABELS), torch.tensor([-2 / 3, 4 / 3]))
    assert torch.allclose(targeted_dlr(LOGITS, LABELS, TARGETS), torch.tensor([-2 / 3.5, 2 / 3.5]))
    assert torch.equal(height(targeted_dlr_loss, LOGITS, LABELS, TARGETS), targeted_dlr(LOGITS, LABELS, TARGETS))
    assert height(target_margin, LOGITS, LABELS, TARGETS).tolist() == [-2.0, 2.0]
    assert likeliest_others(LOGITS, LABELS, 2).tolist() == [[1, 2], [1, 3]]


def test_cross_entropy_is_that_of_torch_to_the_last_bit() -> None:
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 7
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    assert torch.equal(height(perturbed_loss, logits, labels), expected)


@pytest.mark.parametrize("loss", [margin_loss, dlr_loss, perturbed_loss], ids=repr)
def test_log_probabilities_will_do_and_a_repr_is_the_name(loss: Objective) -> None:
    assert torch.allclose(height(loss, LOGITS.log_softmax(1), LABELS), height(loss, LOGITS, LABELS), atol=1e-5)
    assert getattr(objectives, repr(loss)) == loss


def test_of_several_members_the_mean_counts() -> None:
    members = torch.stack([LOGITS, LOGITS.flip(1)])
    mean = members.softmax(-1).mean(0).log()
    pair = Pair(LABELS, lambda: members, lambda: members)
    assert torch.allclose(margin_loss(pair), height(margin_loss, mean, LABELS), atol=1e-5)


def test_errors_are_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"^the DLR loss needs at least 3 classes, got 2: climb margin_loss$"):
        height(dlr_loss, LOGITS[:, :2], LABELS)
    with pytest.raises(ValueError, match=r"^a targeted objective needs a target for every sample, got none"):
        height(target_margin, LOGITS, LABELS)
    with pytest.raises(ValueError, match=r"^an attack climbs objectives of perturbed points alone"):
        height(objectives.divergence, LOGITS, LABELS)
