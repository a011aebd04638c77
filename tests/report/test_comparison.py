from typing import Any

import pytest

from widemargin.report.comparison import Attack, Entry, Measured, best, compare, settings_of

PGD = Attack("PGD linf", 0.1, 360, ("10 steps of 0.025",))
LINF = Attack("linf", 0.05, 1000, ("apgd-ce", "square"))
L2 = Attack("l2", 0.5, 1000, ("apgd-ce", "square"))


def run(seed: int = 0, eps: float | None = 0.2, fraction: float = 1.0, rate: float = 0.1, steps: int = 3) -> Any:
    ascent = {"steps": {"Fixed": {"most": steps}}, "step": {"Steepest": {"size": eps}}}
    ball = {"Linf": {"radius": eps, "box": {"Box": {"low": 0.0, "high": 1.0}}}}
    search = {"objective": {"Objective": [[1.0, "perturbed_log_entropy"]]}, "ball": ball, "ascent": {"Ascent": ascent}}
    perturb = {"Unperturbed": {}} if eps is None else {"Search": search}
    return {
        "Run": {
            "data": {"ImageSet": {"name": "digits", "fraction": fraction}},
            "network": {"LeNetSpec": {"classes": 10}},
            "method": {"Method": {"perturb": perturb, "criterion": {"Objective": [[1.0, "perturbed_loss"]]}}},
            "plan": {"Plan": {"length": {"Epochs": {"count": 3}}, "descent": {"Adam": {"lr": rate}}}},
            "seed": seed,
        }
    }


def entry(
    place: str,
    what: Any,
    clean: float = 0.9,
    robust: float = 0.5,
    audit: Measured | None = None,
    method: str = "udp",
    digest: str = "d",
) -> Entry:
    data = {"rows": [10, 5, 360], "shape": [1, 8, 8], "digest": digest}
    return Entry(place, f"{method} on digits, lenet", what, data, Measured(clean, 360, {PGD: robust}), audit)


def audited(clean: float, **robust: float) -> Measured:
    return Measured(clean, 1000, {{"linf": LINF, "l2": L2}[name]: share for name, share in robust.items()})


def test_seeds_are_one_row_with_mean_and_deviation() -> None:
    (table,) = compare([entry("a", run(0), 0.8, 0.4), entry("b", run(1), 0.9, 0.6)])
    assert table.columns == ("run", "seeds", "clean", "PGD linf 0.1", "trade-off")
    assert table.rows == (("udp", "2", "85.0 ± 7.1", "50.0 ± 14.1", "67.5 ± 10.6"),)
    assert "No run is audited" in table.note
    assert "an optimistic estimate" in table.note
    assert not table.bold


def test_names_say_what_differs_and_nothing_else() -> None:
    def names(*entries: Entry) -> list[str]:
        return [row[0] for row in compare(entries)[0].rows]

    plain = entry("c", run(eps=None), method="standard")
    assert names(entry("a", run()), plain) == ["udp", "standard"]
    assert names(entry("a", run()), entry("b", run(eps=0.3)), plain) == ["udp, eps 0.2", "udp, eps 0.3", "standard"]
    assert names(entry("a", run()), entry("b", run(steps=9))) == ["udp, steps 3", "udp, steps 9"]
    # Steps are part of what a method is: they tell rows of one method apart, and no others.
    assert names(entry("a", run()), entry("b", run(steps=9), method="pgd")) == ["udp", "pgd"]
    assert names(entry("a", run()), entry("b", run(fraction=0.5, rate=0.2))) == [
        "udp, fraction 1, lr 0.1",
        "udp, fraction 0.5, lr 0.2",
    ]


def test_files_of_one_name_are_told_by_their_folders() -> None:
    def own(path: str, digest: str) -> Any:
        made = run()
        made["Run"]["network"] = {"UserNetwork": {"path": path, "name": "Net", "digest": digest}}
        return made

    def names(*made: Any) -> list[str]:
        return [row[0] for row in compare([entry(str(i), one) for i, one in enumerate(made)])[0].rows]

    first = own("/work/a/my.py", "d1")
    assert names(first, own("/work/b/my.py", "d2")) == ["udp, path a/my.py", "udp, path b/my.py"]
    assert names(first, own("/work/other.py", "d2")) == ["udp, path my.py", "udp, path other.py"]
    assert names(first, own("/work/a/my.py", "d2")) == ["udp, digest d1", "udp, digest d2"]


def test_data_of_one_name_is_told_by_its_folder() -> None:
    def on(path: str) -> Any:
        made = run()
        made["Run"]["data"] = {"LocalData": {"file": {"Npz": {"path": path}}}}
        return made

    tables = compare([entry("r", on("/a/two.npz")), entry("s", on("/b/two.npz"), digest="other")])
    assert [table.title.partition(":")[0] for table in tables] == ["a/two.npz", "b/two.npz"]
    assert compare([entry("r", on("/a/two.npz"))])[0].title.startswith("two.npz:")
    table = run()
    table["Run"]["data"] = {"TableData": {"train": {"Table": {"path": "/a/my.csv"}}}}
    assert compare([entry("r", table)])[0].title.startswith("my.csv:")


def test_no_two_rows_have_one_name() -> None:
    extra = run()
    extra["Run"]["estimator"] = {"SingleSpec": {}}
    (table,) = compare([entry("a", run()), entry("b", extra)])
    assert len({row[0] for row in table.rows}) == 2


def test_the_best_and_all_within_its_deviation_are_bold() -> None:
    # Mean 3 ± 1.41; 1.7 is within it, 1.5 is not.
    assert best([[[2.0, 4.0], [1.7], [1.5]]]) == {(0, 0), (1, 0)}
    assert best([[[2.0], [3.0]], [[1.0], [1.0]]]) == {(1, 0), (0, 1), (1, 1)}
    assert not best([[[2.0]]])


def test_audits_are_taken_where_all_have_them_and_only_common_balls() -> None:
    one, two = audited(0.8, linf=0.4, l2=0.3), audited(0.6, linf=0.5)
    (table,) = compare([entry("a", run(), audit=one), entry("b", run(eps=0.3), audit=two)])
    assert table.columns[2:] == ("clean", "linf 0.05", "trade-off")
    assert [row[2:] for row in table.rows] == [("80.0", "40.0", "60.0"), ("60.0", "50.0", "55.0")]
    assert table.bold == {(0, 2), (1, 3), (0, 4)}
    assert "apgd-ce, square on 1,000 test examples" in table.note


def test_audits_and_pgd_are_never_mixed() -> None:
    (table,) = compare([entry("a", run(), audit=audited(0.1, linf=0.1)), entry("there/b", run(eps=0.3))])
    assert table.columns[3] == "PGD linf 0.1"
    assert {row[2] for row in table.rows} == {"90.0"}
    assert "Without an audit: there/b" in table.note
    weaker = Measured(0.9, 1000, {Attack("linf", 0.05, 1000, ("pgd",)): 0.9})
    (table,) = compare([entry("a", run(), audit=audited(0.1, linf=0.1)), entry("b", run(eps=0.3), audit=weaker)])
    assert table.columns[3] == "PGD linf 0.1"
    assert "no ball in common" in table.note


def test_other_attacks_at_the_same_radius_are_said() -> None:
    def under(*attacks: str) -> Measured:
        return Measured(0.9, 1000, {Attack("linf", 0.05, 1000, attacks): 0.5})

    two, three = under("apgd-ce", "apgd-margin"), under("apgd-ce", "apgd-dlr")
    (table,) = compare([entry("a", run(), audit=two), entry("b", run(eps=0.3), audit=three)])
    assert "in the same box (linf 0.05: apgd-ce, apgd-margin / apgd-ce, apgd-dlr)" in table.note
    models = [Entry(place, place, {}, {}, audit, audit) for place, audit in (("a", two), ("b", three))]
    with pytest.raises(ValueError, match=r"a: linf 0\.05 under apgd-ce, apgd-margin on .* models of another number"):
        compare(models)
    other = Measured(0.9, 1000, {Attack("linf", 0.1, 1000, ("apgd-ce", "apgd-dlr")): 0.5})
    with pytest.raises(ValueError, match=r"--seed and --box$"):
        compare([models[0], Entry("c", "c", {}, {}, other, other)])


def test_every_data_set_has_its_table() -> None:
    assert len(compare([entry("a", run()), entry("b", run(1), digest="other")])) == 2


def test_a_run_counts_once() -> None:
    with pytest.raises(ValueError, match="a and b hold the same run"):
        compare([entry("a", run()), entry("b", run())])


def test_settings_are_flat() -> None:
    found = settings_of(run())
    assert "seed" not in found
    assert found["method.perturb.ball"] == "Linf"
    assert found["method.perturb.ball.radius"] == 0.2
    assert found["method.perturb.objective"] == "entropy"
    assert found["method.criterion.perturbed_loss"] == 1.0
