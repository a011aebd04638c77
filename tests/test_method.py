import pytest
import torch

import widemargin as wm
from widemargin import BoundaryWeights, SelfScaledBoundaryWeights, UniformWeights
from widemargin.method import Weight, climbing_entropy
from widemargin.perturb.attack import Perturbed

WAYS = torch.tensor([[0.1, 0.2, 0.4, 0.9], [3.0, 1.0, 2.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize("weight", [UniformWeights(), BoundaryWeights(0.3), SelfScaledBoundaryWeights()], ids=repr)
def test_each_network_weighs_its_own_samples(weight: Weight) -> None:
    shares = weight(WAYS)
    torch.testing.assert_close(shares.sum(1), torch.ones(2).double())
    torch.testing.assert_close(shares[1:], weight(WAYS[1:]))


def test_nearer_samples_count_more_by_the_exponential_of_their_way() -> None:
    shares = BoundaryWeights(0.3)(WAYS)
    torch.testing.assert_close(shares[0, 0] / shares[0, 2], torch.tensor(1.0).double().exp())


def test_a_scale_of_its_own_does_not_care_about_units() -> None:
    torch.testing.assert_close(SelfScaledBoundaryWeights()(WAYS), SelfScaledBoundaryWeights()(1000 * WAYS))
    shares = SelfScaledBoundaryWeights(times=2.0, nearest=0.0)(WAYS)
    torch.testing.assert_close(shares[0, 0] / shares[0, 2], torch.tensor(1.5).double().exp())


def test_samples_on_the_boundary_do_not_break_the_scale() -> None:
    shares = SelfScaledBoundaryWeights()(torch.tensor([[0.0, 0.0, 1.0]]))
    torch.testing.assert_close(shares, torch.tensor([[0.5, 0.5, 0.0]]))


@pytest.mark.parametrize("weight", [UniformWeights(), BoundaryWeights(0.3), SelfScaledBoundaryWeights()], ids=repr)
def test_parts_of_a_batch_with_their_weights_in_it_make_up_its_loss(weight: Weight) -> None:
    network = wm.Single(wm.at_input(wm.MLP(2, 4, 2).double()))
    inputs, labels, moved = torch.randn(5, 2).double(), torch.tensor([0, 1, 1, 0, 1]), torch.randn(5, 2).double()
    method = wm.Method(wm.standard().perturb, wm.perturbed_loss, weight)
    way = moved.norm(dim=1)
    weights = method.weights(way)
    parts = [
        method.loss(
            network,
            inputs[rows],
            labels[rows],
            Perturbed((inputs + moved)[rows], moved[rows], way[rows]),
            weights[rows],
        )
        for rows in (slice(0, 2), slice(2, 5))
    ]
    torch.testing.assert_close(sum(parts), method.loss(network, inputs, labels, Perturbed(inputs + moved, moved, way)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BoundaryWeights(0.0), r"^BoundaryWeights.scale must be in \(0, inf\), got 0.0$"),
        (
            lambda: SelfScaledBoundaryWeights(times=-1.0),
            r"^SelfScaledBoundaryWeights.times must be in \(0, inf\), got -1.0$",
        ),
        (
            lambda: SelfScaledBoundaryWeights(nearest=1.5),
            r"^SelfScaledBoundaryWeights.nearest must be in \[0, 1\], got 1.5$",
        ),
    ],
    ids=["scale", "times", "nearest"],
)
def test_bad_scales_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_recipes_take_measures_by_their_plain_names() -> None:
    method = wm.udp(wm.Linf(0.1), 0.1, 3, measure=wm.mutual_information)
    assert method == wm.udp(wm.Linf(0.1), 0.1, 3, measure=wm.CLIMBED["mutual information"])
    with pytest.raises(ValueError, match="grows with uncertainty"):
        wm.udp(wm.Linf(0.1), 0.1, 3, measure=wm.perturbed_gap)


def test_a_search_as_published_is_in_train_mode_and_climbs_the_entropy() -> None:
    ours = wm.udpr(wm.Linf(0.3), 0.1, 3, weight=1.0)
    theirs = wm.as_published(ours)
    assert theirs.criterion == ours.criterion
    assert theirs.perturb == wm.InTrainMode(
        wm.Search(wm.perturbed_entropy, wm.Linf(0.3), wm.Ascent(wm.Uniform(1, 3), wm.Steepest(0.1)))
    )
    for same in (wm.pgd(wm.Linf(0.3), 0.1, 3), wm.trades_cross_entropy(wm.Linf(0.3), 0.1, 3, weight=1.0)):
        assert wm.as_published(same).perturb == wm.InTrainMode(same.perturb)


def test_what_was_not_published_is_refused() -> None:
    with pytest.raises(ValueError, match="TRADES as published is the recipe trades_cross_entropy, got a search of div"):
        wm.as_published(wm.trades(wm.Linf(0.3), 0.1, 3, weight=1.0))
    with pytest.raises(ValueError, match=r"must perturb by one Search, got Unperturbed\(\)"):
        wm.as_published(wm.standard())


def test_the_entropy_itself_leaves_confident_points_where_they_are() -> None:
    network, points = wm.Single(wm.at_input(wm.MLP(2, 3, 2))), torch.tensor([[1.0, 0.0]])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.0)
        network.head.layers[0].weight[0, 0] = 1.0
        network.head.layers[1].weight[1, 0] = 200.0
    ours = wm.udp(wm.Linf(0.3, wm.OPEN), 0.1, 3)
    for method, moves in ((ours, True), (climbing_entropy(ours), False)):
        delta = method.perturb(network, points, torch.tensor([1]), wm.Rng.seeded(0)).delta
        assert bool((delta != 0).any()) == moves
