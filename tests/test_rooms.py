"""Rooms as lazy attributes, and sentences for names that are not at the top."""

import pytest

import widemargin as wm
from widemargin import rooms
from widemargin.perturb.search import Search
from widemargin.training.plan import Triangle


def test_a_room_finds_what_its_files_define() -> None:
    assert wm.perturb.Search is Search
    assert wm.training.Triangle is Triangle
    assert wm.perturb.search.Search is Search
    assert "Search" in dir(wm.perturb)
    with pytest.raises(AttributeError, match=r"^module 'widemargin.perturb' has no attribute 'Serach'$"):
        _ = wm.perturb.Serach


def test_every_name_of_a_room_can_be_imported() -> None:
    for room in (wm.data, wm.networks, wm.perturb, wm.uncertainty, wm.training, wm.measure):
        for name in dir(room):
            assert getattr(room, name) is not None


def test_a_name_that_two_files_define_is_not_guessed() -> None:
    twice = {name: modules for name, modules in rooms.homes("widemargin").items() if len(modules) > 1}
    name, modules = next(iter(twice.items()))
    with pytest.raises(AttributeError, match=f"{name} is defined in {modules[0]} and in .*: import it"):
        rooms.find("widemargin", name)


def test_a_name_that_is_not_at_the_top_says_where_it_is() -> None:
    with pytest.raises(
        AttributeError,
        match=r"^WithBoundaryDistance is not at the top of widemargin but in a room: "
        r"from widemargin.perturb.boundary_distance import WithBoundaryDistance$",
    ):
        getattr(wm, "WithBoundaryDistance")  # noqa: B009
    with pytest.raises(AttributeError, match=r"^module 'widemargin' has no attribute 'nothing_like_it'$"):
        getattr(wm, "nothing_like_it")  # noqa: B009
    assert not hasattr(wm, "_private")
