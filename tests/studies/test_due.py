from dataclasses import replace

from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.recipes import standard
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.uncertainty.estimators import DeepKernelSpec
from widemargin_studies import due


def test_a_network_is_trained_to_the_end_of_its_plan_and_left_in_eval_mode() -> None:
    small = replace(
        due.run_of(standard(), seed=1),
        data=replace(due.DATA, count=12),
        network=ResidualMLPSpec(2, 2, 8, 1),
        estimator=DeepKernelSpec(inducing=4, draws=4),
        plan=Plan(Updates(2), Adam(0.03)),
    )
    updates: list[int] = []
    network = due.trained(small, updates.append)
    assert updates[-1] == 2
    assert not network.training
    assert network(small.data.draw().points).shape == (12, 2)


def test_the_settings_name_seeds_and_radius() -> None:
    assert f"Seeds {due.SEEDS[0]}" in due.settings()
    assert f"l-inf radius {due.BALL.radius:g}" in due.settings()
