import pickle

import pytest

from small_audits import BALLS, CONFIG, Weak, config, target
from widemargin.auditing.config import AuditConfig

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("wrong", [{"balls": ()}, {"points": 0}, {"chunk": 0}, {"seed": 2**70}])
def test_something_must_be_measured(wrong: dict[str, object]) -> None:
    with pytest.raises(
        ValueError,
        match=r"an audit needs at least 1|must be at least 1, got 0|the seed must be .* got 1180591620717411303424",
    ):
        AuditConfig(**{"balls": CONFIG.balls, **wrong})  # type: ignore[arg-type]


def test_suites_and_diagnoses_are_part_of_what_is_measured_and_the_usual_ones_go_without_saying() -> None:
    usual, weak = AuditConfig(BALLS[:1]), config(BALLS[:1], standard=Weak())
    assert repr(usual) == "AuditConfig(balls=(L2(radius=0.2, box=OPEN),), points=1000, seed=0, chunk=100)"
    assert repr(weak).endswith(
        "chunk=100, standard=Weak(), shortest=OnlyFMN(), diagnoses=('modes',), surrogate_updates=100)"
    )
    assert len({target().key(one) for one in (usual, weak, config(BALLS[:1]), config(BALLS[:1], diagnoses=()))}) == 4


def test_it_can_be_sent_to_another_process() -> None:
    usual = AuditConfig(BALLS[:1])
    assert pickle.loads(pickle.dumps(usual)) == usual
