from widemargin.cli.validation import ValidationAttack, figures_text, validation_attack
from widemargin.data.toy import NarrowCorridor
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.balls import L2, OPEN, Linf
from widemargin.perturb.categories import CategoryChanges, WithCategoryChanges
from widemargin.perturb.pgd import pgd_search
from widemargin.recipes import standard
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run, Validation
from widemargin.training.plan import Adam, Epochs, Plan


def described(validation: Validation) -> ValidationAttack | str | None:
    plan = Plan(Epochs(1), Adam(0.01), batch=8)
    run = Run(NarrowCorridor(), MLPSpec((2, 4, 2)), standard(), plan, validation=validation)
    return validation_attack(prepare(run).description["run"])


def test_a_description_names_the_attack() -> None:
    attack = described(Validation(attack=pgd_search(L2(0.5, OPEN), 0.125, 10)))
    assert attack == ValidationAttack("PGD", "l2", 0.5, 10, 0.125)
    assert str(attack) == "PGD-10 l2 0.5"
    assert attack.options == "--eps 0.5 --norm l2"  # type: ignore[union-attr]
    assert attack.effort == "10 steps of 0.125"  # type: ignore[union-attr]
    fraction = described(Validation(attack=pgd_search(Linf(8 / 255, OPEN), 0.01, 20)))
    assert str(fraction) == "PGD-20 linf 8/255"
    assert fraction.options == "--eps 8/255"  # type: ignore[union-attr]
    assert described(Validation()) is None


def test_a_robust_figure_says_its_attack() -> None:
    attack = ValidationAttack("PGD", "linf", 0.1, 10, 0.025)
    assert figures_text({"clean": 0.9, "robust": 0.5}, attack) == "clean 90.00 %, robust 50.00 % (PGD-10 linf 0.1)"
    assert figures_text({"clean": 0.9}, None) == "clean 90.00 %"
    assert figures_text({}, attack) == ""


def test_changes_of_category_are_named() -> None:
    attack = WithCategoryChanges(pgd_search(Linf(0.1, OPEN.holding((0, 1))), 0.025, 10), CategoryChanges(((0, 1),)))
    found = described(Validation(attack=attack))
    assert str(found) == "PGD-10 linf 0.1, 1 category change"
    # A figure under another attack is no figure to compare with.
    assert found.effort == "10 steps of 0.025, 1 category change in features 0 to 1"  # type: ignore[union-attr]
    two = ValidationAttack("PGD", "linf", 0.1, 10, 0.025, 2)
    assert str(two) == "PGD-10 linf 0.1, 2 category changes"
