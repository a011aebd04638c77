"""The search: samples that have finished leave the batch; the log-entropy has its gradient in closed form."""

import torch
from timing import header, ratio, show

import widemargin as wm
from widemargin.networks.lenet import LeNet
from widemargin.uncertainty.predictive import log_entropy, log_entropy_by_autograd, log_mean_prob


def compact_against_masked(
    network: wm.uncertainty.Network, inputs: torch.Tensor, labels: torch.Tensor, steps: int
) -> None:
    network.eval()
    search = wm.udp(wm.Linf(0.3), 0.3 / steps, steps).perturb
    assert isinstance(search, wm.perturb.Search)
    # In eval mode already, InTrainMode is the masked loop and nothing else.
    masked = wm.perturb.InTrainMode(search)
    one, two = (kind(network, inputs, labels, wm.rng.Rng.seeded(0)).delta for kind in (search, masked))
    close = (one - two).abs().flatten(1).amax(1) < 1e-5
    result = ratio(
        lambda: masked(network, inputs, labels, wm.rng.Rng.seeded(0)),
        lambda: search(network, inputs, labels, wm.rng.Rng.seeded(0)),
        rounds=7,
    )
    show(f"UDP, 1..{steps} steps, batch {len(inputs)}: masked -> compact ({close.float().mean():.3f} agree)", *result)


def closed_form_against_autograd(members: int, classes: int) -> None:
    logits = torch.randn(members, 256, classes, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def work(closed: bool) -> None:
        for _ in range(50):
            value = log_entropy(logits) if closed else log_entropy_by_autograd(log_mean_prob(logits))
            torch.autograd.grad(value.sum(), logits)

    result = ratio(lambda: work(False), lambda: work(True))
    show(f"log-entropy and gradient x 50, {members} members, {classes} classes: autograd -> closed", *result)


if __name__ == "__main__":
    header("Search")
    rng = torch.Generator().manual_seed(0)
    images, labels = torch.rand(256, 1, 28, 28, generator=rng), torch.arange(256) % 10
    torch.manual_seed(0)
    compact_against_masked(wm.Single(wm.at_input(LeNet())), images, labels, 20)
    compact_against_masked(wm.Single(wm.at_input(wm.networks.MLP(784, 256, 10))), images.flatten(1), labels, 20)
    for members, classes in ((1, 2), (1, 10), (5, 10)):
        closed_form_against_autograd(members, classes)
