import copy
from itertools import islice

import pytest
import torch
from torch import Tensor, nn

from widemargin import OPEN, Adam, Linf, Plan, Single, Updates, at_input
from widemargin.data.toy import LMS5
from widemargin.method import Method
from widemargin.recipes import standard, udp, udpr
from widemargin.rng import Rng
from widemargin.training.averaging import averaged_network
from widemargin.training.loop import Diverged, Training, continue_training
from widemargin.training.plan import EMA, SGD, SWA, Average, NoAverage
from widemargin.uncertainty.network import Network

CLOUD = LMS5(count=24).draw()


def fresh() -> Network:
    with Rng.seeded(3).as_global():
        return Single(
            at_input(nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2)))
        )


def weights(network: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def trained(average: Average, method: Method, updates: int = 8) -> tuple[Training, list[Tensor], Plan]:
    plan = Plan(Updates(updates), Adam(0.01), batch=6, average=average)
    training = Training.begin(fresh(), plan)
    seen = [weights(training.network).clone() for _ in continue_training(training, CLOUD, method, plan)]
    return training, seen, plan


def test_averaging_does_not_change_what_is_trained() -> None:
    method = udp(Linf(0.3, OPEN), 0.1, 3)
    plain, ema, swa = (weights(trained(average, method)[0].network) for average in (NoAverage(), EMA(0.9), SWA()))
    assert torch.equal(plain, ema)
    assert torch.equal(plain, swa)


def test_ema_is_the_exponential_average() -> None:
    training, (expected, *rest), plan = trained(EMA(0.7), standard())
    for later in rest:
        expected = 0.7 * expected + 0.3 * later
    torch.testing.assert_close(weights(averaged_network(training, CLOUD, plan)), expected)


def test_swa_is_the_mean_from_its_start_on() -> None:
    training, seen, plan = trained(SWA(0.5), standard())
    torch.testing.assert_close(weights(averaged_network(training, CLOUD, plan)), torch.stack(seen[4:]).mean(0))


def test_swa_has_batch_norm_statistics_of_its_own() -> None:
    training, _, plan = trained(SWA(0.5), standard())
    network = averaged_network(training, CLOUD, plan)
    first, norm = network.head[0], network.head[1]
    hidden = torch.stack([first(points) for points in CLOUD.points.split(6)])
    torch.testing.assert_close(norm.running_mean, hidden.mean((0, 1)))
    torch.testing.assert_close(norm.running_var, hidden.var(1).mean(0))
    assert norm.momentum == 0.1
    before = torch.get_rng_state()
    again = copy.deepcopy(averaged_network(training, CLOUD, plan).state_dict())
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in again.items())


def test_before_an_average_begins_the_network_itself_answers() -> None:
    plan = Plan(Updates(8), Adam(0.01), average=SWA(0.5))
    training = Training.begin(fresh(), plan)
    list(islice(continue_training(training, CLOUD, standard(), plan), 3))
    assert averaged_network(training, CLOUD, plan) is training.network


@pytest.mark.parametrize("bad", [lambda: EMA(1.0), lambda: SWA(1.0)])
def test_bad_averages_are_refused(bad: type) -> None:
    with pytest.raises(ValueError, match=r"must be in"):
        bad()


def test_mixed_training_leaves_every_other_batch_clean() -> None:
    class Counting:
        def __init__(self) -> None:
            self.method, self.calls = udpr(Linf(0.3, OPEN), 0.1, 3, weight=1.0), 0

        def __call__(self, network: Network, inputs: Tensor, labels: Tensor, rng: Rng) -> object:
            self.calls += 1
            return self.method.perturb(network, inputs, labels, rng)

    counting = Counting()
    plan = Plan(Updates(5), Adam(0.01), mixed=True)
    network = Single(at_input(nn.Linear(2, 2)))
    training = Training.begin(network, plan)
    records = continue_training(training, CLOUD, Method(counting, counting.method.criterion), plan)
    next(records)
    expected = nn.functional.cross_entropy(network(CLOUD.points), CLOUD.labels).item()
    assert next(records).loss == pytest.approx(expected)
    assert [record.update for record in records] == [3, 4, 5]
    assert counting.calls == 3


def test_a_loss_that_is_no_number_stops_before_it_spoils_the_weights() -> None:
    with Rng.seeded(0).as_global():
        network = Single(at_input(nn.Linear(2, 2)))
    plan = Plan(Updates(50), SGD(1e38, weight_decay=0.0), batch=24)
    training = Training.begin(network, plan)
    sentence = r"^the loss must be finite, got (nan|inf) at update (\d+) \(epoch \2\) with learning rate 1e\+38: try"
    with pytest.raises(Diverged, match=sentence) as stopped:
        list(continue_training(training, CLOUD, standard(), plan))
    assert f"at update {training.update + 1} " in str(stopped.value)
    assert training.update > 0
    assert weights(network).isfinite().all()
