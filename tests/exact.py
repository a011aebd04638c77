"""The same quantities with a hundred digits: slow, and right for any logits."""

from collections.abc import Callable

import mpmath as mp

Logits = list[list[float]]
mp.mp.dps = 100


def _softmax(row: list[mp.mpf]) -> list[mp.mpf]:
    top = max(row)
    parts = [mp.exp(x - top) for x in row]
    return [part / mp.fsum(parts) for part in parts]


def _surprises(probabilities: list[mp.mpf]) -> list[mp.mpf]:
    """-log p, of the likeliest from what is left to the others: 1 - p may need thousands of digits."""
    others = [mp.fsum(probabilities[:c] + probabilities[c + 1 :]) for c in range(len(probabilities))]
    return [-mp.log(p) if p < q else -mp.log1p(-q) for p, q in zip(probabilities, others, strict=True)]


def _entropy_of(probabilities: list[mp.mpf]) -> mp.mpf:
    return mp.fsum(p * s for p, s in zip(probabilities, _surprises(probabilities), strict=True))


def _members(logits: Logits) -> list[list[mp.mpf]]:
    return [_softmax([mp.mpf(x) for x in row]) for row in logits]


def _mean(members: list[list[mp.mpf]]) -> list[mp.mpf]:
    return [mp.fsum(column) / len(members) for column in zip(*members, strict=True)]


def log_mean_prob(logits: Logits) -> list[mp.mpf]:
    return [-surprise for surprise in _surprises(_mean(_members(logits)))]


def entropy(logits: Logits) -> mp.mpf:
    return _entropy_of(_mean(_members(logits)))


def expected_entropy(logits: Logits) -> mp.mpf:
    return mp.fsum(map(_entropy_of, _members(logits))) / len(logits)


def variation_ratio(logits: Logits) -> mp.mpf:
    return mp.fsum(sorted(_mean(_members(logits)))[:-1])


def gap(logits: Logits) -> mp.mpf:
    second, first = sorted(_mean(_members(logits)))[-2:]
    return mp.log(first) - mp.log(second)


def mutual_information(logits: Logits) -> mp.mpf:
    """As a mean of divergences; the difference of the entropies cancels even here."""
    members = _members(logits)
    surprises = _surprises(_mean(members))
    terms = [
        p * (s - own) for member in members for p, s, own in zip(member, surprises, _surprises(member), strict=True)
    ]
    return mp.fsum(terms) / len(members)


def gradient_of_log(value: Callable[[Logits], mp.mpf], logits: Logits) -> list[list[mp.mpf]]:
    """By central differences: with a hundred digits and steps of 1e-30, right to fifty."""
    step = mp.mpf(10) ** -30

    def moved(m: int, c: int, by: mp.mpf) -> mp.mpf:
        there = [[mp.mpf(x) for x in row] for row in logits]
        there[m][c] += by
        return mp.log(value(there))

    return [
        [(moved(m, c, step) - moved(m, c, -step)) / (2 * step) for c in range(len(logits[0]))]
        for m in range(len(logits))
    ]
