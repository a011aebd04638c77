from widemargin.recipes import standard
from widemargin_studies import due
from widemargin_studies.due import DUE, Due


def test_a_network_is_trained_to_the_end_of_its_plan_and_left_in_eval_mode(tiny_due: Due) -> None:
    small = tiny_due.run_of(standard(), seed=1)
    updates: list[int] = []
    network = due.trained(small, updates.append)
    assert updates[-1] == 2
    assert not network.training
    assert network(small.data.draw().points).shape == (12, 2)


def test_the_settings_name_seeds_and_radius() -> None:
    assert f"Seeds {DUE.seeds[0]}" in DUE.settings()
    assert f"l-inf radius {due.BALL.radius:g}" in DUE.settings()
