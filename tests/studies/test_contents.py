from widemargin.report import study
from widemargin_studies.contents import listed


def test_what_is_listed_of_a_study_is_what_it_says() -> None:
    own, work = listed("fig1"), study.load("fig1")
    assert (own.title, own.core_minutes) == (work.TITLE, work.CORE_MINUTES)
    assert own.parts > 0
