"""The page of an audit: what its numbers mean, in words; no network is run."""

from __future__ import annotations

from collections.abc import Mapping

from widemargin.auditing.result import Audit, turn_of
from widemargin.data.limits import listed
from widemargin.measure.diagnostics import Finding
from widemargin.report.advice import Words, advice_on, advice_on_time
from widemargin.report.audit_pictures import curve, pictures
from widemargin.report.audit_tables import autoattack_of, tables
from widemargin.report.document import Remark, Report, Tone
from widemargin.report.tables import percent, radius_text

_TONES: dict[str, Tone] = {"fine": "good", "suspicious": "doubtful", "wrong": "bad"}
DEFINITIONS: Mapping[str, str] = {
    "linf": "the largest change of any single feature or pixel.",
    "l2": "the root of the sum of the squared changes of all features or pixels.",
    "l1": "the sum of the sizes of the changes of all features or pixels.",
    "AutoAttack": "the standard suite of attacks (Croce and Hein 2020): a point counts as robust if none succeeds, so "
    "robust accuracy is an upper bound.",
    "Robust accuracy": "the fraction of points that are classified correctly and that no attack breaks within eps.",
    "Clean accuracy": "without a perturbation.",
    "eps": "the largest norm that a perturbation may have.",
    "certified": "proven by bounds of every layer: no perturbation within eps changes the class. A lower bound.",
    "certified radius": "up to this norm no perturbation changes the class, by bounds of every layer.",
    "95 % interval": "of the fraction among all possible test examples, given these (Wilson).",
    "margin": "the norm of the smallest perturbation that changes the class; 0 for misclassified points.",
    "median margin": "half of the points of the class have a smaller margin, half a larger one.",
    "smallest perturbation found": "by any of the attacks, at any norm: an upper bound of the margin.",
    "clean": "without a perturbation.",
    "minimum-norm": "attacks that search for the smallest adversarial perturbation, without an eps: DDN, FMN, FAB and "
    "APGD in shrinking balls.",
    "change of category": "the category of a column becomes another of that column, as often as allowed; no number "
    "changes.",
    "apgd-ce": "projected gradient ascent of cross-entropy with its own step sizes (Croce and Hein 2020).",
    "apgd-dlr": "the same of the difference-of-logits ratio (Croce and Hein 2020).",
    "apgd-margin": "the same of the difference of the two logits, where there are only two classes.",
    "apgd-t": "projected gradient ascent towards each of several other classes (Croce and Hein 2020).",
    "fab-t": "steps to the nearest linearised boundary, class by class (Croce and Hein 2020b).",
    "square": "random square or window changes, without gradients (Andriushchenko et al. 2020).",
    "transfer from a surrogate": "adversarial examples of a small network that is fitted to the predictions.",
    "inputs in box": "do all test points lie within the values that count as valid?",
    "modes": "is a layer in train mode, such as dropout or batch-norm?",
    "probabilities": "does the network return probabilities instead of logits?",
    "randomness": "do two passes over the same points give the same logits?",
    "gradients": "are gradients zero or lost in rounding (gradient masking)?",
    "rising": "does robust accuracy rise with the radius, which cannot be?",
    "loss surface": "does the loss rise along its own gradient?",
    "more steps": "do ten times the steps break more points?",
    "random noise": "does noise break points that gradient attacks do not?",
    "black box": "does an attack without gradients break points that gradient attacks do not?",
    "transfer": "do adversarial examples of another network break points that no other attack does?",
    "large radius": "is any point robust in a ball that contains the examples of all classes?",
}


def page(audit: Audit, words: Words | None = None) -> Report:
    """`words` are those of the command that made the audit: advice then comes with a command."""
    remarks = _remarks(audit, words or {})
    if not audit.attacks:
        return _unattacked(audit, remarks)
    settings = (
        f"Attacks, in this order, each on the points that are not broken yet: {', '.join(_in_turn(audit))}. Margins: "
        f"the smallest perturbation that any of them found. Box {_box(audit)}; seed {audit.config.seed}; points drawn "
        f"at random from the test split; 95 % Wilson intervals; {audit.seconds:,.0f} s. "
        f"{' '.join((*_drawn(audit), *audit.notes))}"
    )
    return Report(
        f"Audit of {audit.name}",
        f"{_answer(audit)} {_warnings(audit)}",
        settings.strip(),
        remarks,
        tables(audit),
        pictures(audit),
        lead=curve(audit),
        definitions=DEFINITIONS,
    )


def _answer(audit: Audit) -> str:
    """At the largest radius: robust accuracy under which attacks, and how far it is from the true one."""
    largest, robust = audit.config.balls[-1], audit.robust[-1]
    left = "" if audit.n == audit.asked else f" (the {audit.n:,} of {audit.asked:,} for which there was time)"
    return (
        f"Robust accuracy at eps = {radius_text(largest.radius)} in {audit.norm}{_changeable(audit)} is "
        f"{percent(robust.fraction)} [{100 * robust.low:.1f}, {100 * robust.high:.1f}] on {audit.n:,} test examples of "
        f"{audit.data}{left}, under {autoattack_of(audit)} (attacks: {', '.join(_in_turn(audit))}). Clean accuracy is "
        f"{percent(audit.clean.fraction)}. {_known(audit)}"
    )


def _changeable(audit: Audit) -> str:
    changes = audit.config.categories
    if changes is None:
        return ""
    names = listed(name for name, _ in audit.categories)
    return (
        f" with changes of up to {changes.most} of the categories {names}"
        if len(audit.categories) > 1
        else f" with changes of {names}"
    )


def _known(audit: Audit) -> str:
    """Attacks give an upper bound of the true robust accuracy, certificates a lower one."""
    robust = audit.robust[-1].count
    if audit.clean.count == 0:
        return "No example is classified correctly, so none is robust."
    if robust == 0:
        return "No example is robust at this eps: the attacks broke every one that is classified correctly."
    if audit.certified is None:
        return "There are no certificates: true robust accuracy may be lower."
    certified = audit.certified[-1]
    if certified.count == robust:
        return "Robust accuracy is exact on these examples: each one that no attack broke is certified."
    return f"Certified accuracy is {percent(certified.fraction)}: true robust accuracy lies between the two."


def _in_turn(audit: Audit) -> list[str]:
    """The attacks that were run, in their order."""
    return sorted(audit.led, key=turn_of)


def _unattacked(audit: Audit, remarks: tuple[Remark, ...]) -> Report:
    """What is left where attacks would make no sense."""
    summary = (
        f"{audit.too_short} Clean accuracy of {audit.name} is {percent(audit.clean.fraction)} on {audit.n:,} test "
        f"examples of {audit.data}. No attack was run, so nothing is known of its robustness."
    ).lstrip()
    return Report(f"Audit of {audit.name}", summary, " ".join(audit.notes), remarks, definitions=DEFINITIONS)


def _drawn(audit: Audit) -> tuple[str, ...]:
    if audit.draws is None:
        return ()
    return (
        f"The network is stochastic: attacks use the mean over {audit.draws.attack} draws (EoT), and a point counts as "
        f"misclassified by the mean prediction over {audit.draws.verification} other draws, the same for all points.",
    )


def _warnings(audit: Audit) -> str:
    warnings = [finding.name for finding in audit.findings if finding.verdict != "fine"]
    if warnings:
        return f"Before you trust these numbers, read the findings on {', '.join(warnings)}."
    made, of = _diagnoses(audit)
    some = f"All {made} diagnoses" if made == of else f"The {made} diagnoses, of {of}, for which there was time"
    return f"{some} are fine."


def _diagnoses(audit: Audit) -> tuple[int, int]:
    """How many were run, and of how many."""
    return len(audit.findings), len(audit.findings) + len(audit.left_out)


def _remarks(audit: Audit, words: Words) -> tuple[Remark, ...]:
    worst_first = sorted(audit.findings, key=lambda finding: list(_TONES).index(finding.verdict), reverse=True)
    remarks = tuple(_remark(audit, finding, words) for finding in worst_first)
    if not audit.left_out:
        return remarks
    made, of = _diagnoses(audit)
    evidence = f"the budget ran out; not run: {', '.join(audit.left_out)}"
    advice = advice_on_time(audit.left_out)
    claim = f"only {made} of {of} diagnoses were run"
    first = Remark(claim, "incomplete", "doubtful", evidence, advice.text, advice.command(words))
    return (first, *remarks)


def _remark(audit: Audit, finding: Finding, words: Words) -> Remark:
    advice = advice_on(audit, finding)
    evidence = finding.evidence.replace(repr(audit.config.balls[0].box), _box(audit))
    tone = _TONES[finding.verdict]
    return Remark(finding.name, finding.verdict, tone, evidence, advice.text, advice.command(words))


def _box(audit: Audit) -> str:
    """A page has no room for an interval of every feature."""
    box, changes = audit.config.balls[0].box, audit.config.categories
    changing = set() if changes is None else {place for column in changes.columns for place in column}
    fixed = [name for name, place in zip(audit.fixed, box.fixed, strict=True) if place not in changing]
    held = f", with {listed(fixed)} held fixed" if fixed else ""
    if changes is not None:
        held += f", changes of category ({listed(name for name, _ in audit.categories)}) counted apart"
    return f"{box.interval}{held}"
