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
    "AutoAttack": "the standard suite of attacks (Croce and Hein 2020): what none of them breaks counts as robust, "
    "which is an upper bound.",
    "attacks tried": "each searches for a change within the radius that makes the class wrong; a point is not robust "
    "if any of them succeeds.",
    "proven": "by bounds of every layer: no change within the radius can alter the class. A lower bound.",
    "proven lower bound": "the distance up to which no change can alter the class, by bounds of every layer.",
    "certified": "proven by bounds of every layer: no change within the radius can alter the class.",
    "95 % interval": "where the share among all possible test examples lies, given these (Wilson).",
    "margin": "the distance from a point to the nearest place of another class; 0 for misclassified points.",
    "median margin": "half of the points of the class have a smaller margin, half a larger one.",
    "smallest known distance": "to a place of another class that some attack found: an upper bound of the margin.",
    "clean": "without any change.",
    "minimum-norm": "attacks that search for the nearest place of another class at any distance: DDN, FMN, FAB and "
    "APGD in shrinking balls.",
    "change of category": "the category of a column becomes another of that column, as often as allowed; no number "
    "changes.",
    "apgd-ce": "projected gradient ascent of cross-entropy with its own step sizes (Croce and Hein 2020).",
    "apgd-dlr": "the same of the difference-of-logits ratio (Croce and Hein 2020).",
    "apgd-margin": "the same of the difference of the two logits, where there are only two classes.",
    "apgd-t": "projected gradient ascent towards each of several other classes (Croce and Hein 2020).",
    "fab-t": "steps to the nearest linearised boundary, class by class (Croce and Hein 2020b).",
    "square": "random square or window changes, without gradients (Andriushchenko et al. 2020).",
    "transfer from a surrogate": "a small network is fitted to the predictions and attacked instead; what fools it is "
    "tried on this one.",
    "inputs in box": "do all test points lie within the values that count as valid?",
    "modes": "is a layer in train mode, whose answer would change?",
    "probabilities": "does the network return probabilities instead of logits?",
    "randomness": "do two passes over the same points give the same answer?",
    "gradients": "do gradients lead anywhere, or are they zero or lost in rounding?",
    "rising": "does robust accuracy rise with the radius, which cannot be?",
    "loss surface": "does the loss rise along its own gradient?",
    "more steps": "do ten times the steps break more points?",
    "random noise": "does noise break points that gradients leave?",
    "black box": "does an attack without gradients break points that those with gradients leave?",
    "transfer": "do changes that fool another network break points that all attacks leave?",
    "large radius": "does any point survive where everything is within reach?",
}


def page(audit: Audit, words: Words | None = None) -> Report:
    """`words` are those of the command that made the audit: advice then comes with a command."""
    remarks = _remarks(audit, words or {})
    if not audit.attacks:
        return _unattacked(audit, remarks)
    settings = (
        f"Attacks: {', '.join(_in_turn(audit))}, in turn, each on the points that stand; margins by minimum-norm "
        f"attacks and by those; box {_box(audit)}; seed {audit.config.seed}; points drawn at random from the test "
        f"part; 95 % Wilson intervals; {audit.seconds:,.0f} s. {' '.join((*_drawn(audit), *audit.notes))}"
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
    """At the largest radius: what holds, by which attacks, and how much of it is proven."""
    largest, robust = audit.config.balls[-1], audit.robust[-1]
    left = "" if audit.n == audit.asked else f" (the {audit.n:,} of {audit.asked:,} points for which there was time)"
    return (
        f"Of {audit.n:,} test examples of {audit.data}{left}, {percent(robust.fraction)} "
        f"[{100 * robust.low:.1f}, {100 * robust.high:.1f}] are still classified correctly however they are changed by "
        f"up to {radius_text(largest.radius)} in {audit.norm}{_changeable(audit)}, {_known(audit)}. Unchanged, "
        f"{percent(audit.clean.fraction)} are."
    )


def _changeable(audit: Audit) -> str:
    changes = audit.config.categories
    if changes is None:
        return ""
    names = listed(name for name, _ in audit.categories)
    return (
        f" and in up to {changes.most} of the categories {names}" if len(audit.categories) > 1 else f" and in {names}"
    )


def _known(audit: Audit) -> str:
    """Attacks show too much at worst, certificates too little."""
    tried = f"under {autoattack_of(audit)} (attacks tried: {', '.join(_in_turn(audit))})"
    if audit.certified is None:
        return f"{tried}; nothing is proven"
    proven = audit.certified[-1]
    if proven.count == audit.robust[-1].count:
        return "which is proven" + (f"; {tried} the others are not" if proven.fraction < 1 else "")
    return f"{tried}; proven for {percent(proven.fraction)}"


def _in_turn(audit: Audit) -> list[str]:
    """The attacks that were led, in their order."""
    return sorted(audit.led, key=turn_of)


def _unattacked(audit: Audit, remarks: tuple[Remark, ...]) -> Report:
    """What is left where attacks would make no sense."""
    summary = (
        f"{audit.too_short} {audit.name} on {audit.data}: {percent(audit.clean.fraction)} of {audit.n:,} test points "
        "are classified correctly. Nothing was attacked, so nothing is known of its robustness."
    ).lstrip()
    return Report(f"Audit of {audit.name}", summary, " ".join(audit.notes), remarks, definitions=DEFINITIONS)


def _drawn(audit: Audit) -> tuple[str, ...]:
    if audit.draws is None:
        return ()
    return (
        f"The answers are drawn: attacks climb the mean over {audit.draws.attack} draws, and a point is "
        f"misclassified only by the mean prediction over {audit.draws.verification} other draws, the same for all.",
    )


def _warnings(audit: Audit) -> str:
    warnings = [finding.name for finding in audit.findings if finding.verdict != "fine"]
    if warnings:
        return f"Before you trust these numbers, read the findings on {', '.join(warnings)}."
    made, of = _diagnoses(audit)
    some = f"{made} diagnoses" if made == of else f"the {made} diagnoses, of {of}, for which there was time"
    return f"None of {some} gives a reason to doubt these numbers."


def _diagnoses(audit: Audit) -> tuple[int, int]:
    """How many were made, and of how many."""
    return len(audit.findings), len(audit.findings) + len(audit.left_out)


def _remarks(audit: Audit, words: Words) -> tuple[Remark, ...]:
    worst_first = sorted(audit.findings, key=lambda finding: list(_TONES).index(finding.verdict), reverse=True)
    remarks = tuple(_remark(audit, finding, words) for finding in worst_first)
    if not audit.left_out:
        return remarks
    made, of = _diagnoses(audit)
    evidence = f"the time was up; nothing is known of: {', '.join(audit.left_out)}"
    advice = advice_on_time(audit.left_out)
    claim = f"only {made} of {of} diagnoses were made"
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
    if isinstance(box.low, tuple):
        return f"of {len(box.low)} intervals, as in audit.json{held}"
    return f"{box.holding(())!r}{held}"
