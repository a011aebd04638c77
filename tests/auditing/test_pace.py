from torch import nn, zeros

from widemargin.auditing.pace import Pace, listening


def test_points_under_way_count_by_their_share_and_are_never_all_done() -> None:
    told: list[int] = []
    pace = Pace(lambda done, of: told.append(done), of=30, expected=4)
    with pace.piece(done=10, points=10) as heard:
        for _ in range(100):
            heard(1)
    assert told == [11, 12, 13, 14, 15, 16, 17, 18, 19], "each once, and the last not before it is there"
    assert pace.expected == 10, "of the next ones"
    told.clear()
    with pace.piece(done=20, points=10) as heard:
        heard(49)
    assert told == [24]


def test_whatever_a_network_is_asked_is_heard_of_once() -> None:
    heard: list[int] = []
    network = nn.Linear(2, 2)
    with listening(heard.append, network, network):
        network(zeros(3, 2))
    network(zeros(5, 2))
    assert heard == [3]
