from dataclasses import asdict

from small_audits import CONFIG, target
from widemargin.auditing.certificates import Uncertified, uncertifiable


def test_proofs_that_take_too_long_are_left_out() -> None:
    assert uncertifiable(target(), CONFIG.balls[0]) == Uncertified()
    slow = uncertifiable(target(), CONFIG.balls[0], longest=0.0)
    assert asdict(slow) == {"reasons": ("No certified bounds: one proof takes more than 0 s.",), "failed": {}}


def test_a_proof_that_would_take_far_too_long_is_not_begun() -> None:
    (reason,) = uncertifiable(target(), CONFIG.balls[0], longest=1e-9).reasons
    assert reason.startswith("No certified bounds: one proof would take about ")
