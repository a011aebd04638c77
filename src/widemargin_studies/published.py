"""The paper's own numbers, as printed in its tables, in percent.  Never ours: reports set them beside ours."""

from __future__ import annotations

from typing import NamedTuple

from widemargin.report.verdicts import Estimate, reported

SEEDS, TESTS = 3, 10_000
"""Over so many seeds, on at most so many test images."""


class Printed(NamedTuple):
    mean: float
    spread: float | None = None

    def estimate(self, tests: int = TESTS) -> Estimate:
        """As a share, with the bounds that ours have."""
        return reported(self.mean / 100, None if self.spread is None else self.spread / 100, SEEDS, tests)

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.spread is None else f"{self.mean:.1f} ± {self.spread:.1f}"


def row(text: str) -> tuple[Printed, ...]:
    """From "61.8±0.8 31.0": means, with spreads where they are printed."""
    return tuple(Printed(*map(float, cell.split("±"))) for cell in text.split())


TAB1_CIFAR_ROBUST = {
    ("TRADES", 0.03): row("61.8±0.8 31.0±0.3 46.9±1.2 18.3±0.7"),
    ("PGD", 0.02): row("62.7±0.5 31.2±0.3 47.4±0.6 17.9±0.5"),
    ("UDPR", 0.05): row("64.9±0.4 31.1±0.3 50.2±0.5 19.1±0.4"),
    ("UDP-PGD", 0.06): row("64.2±0.4 33.4±0.3 50.1±1.8 19.5±1.4"),
}
TAB1_CIFAR_TRADEOFF = {
    ("TRADES", 0.02): row("71.3±0.4 54.9±0.4 63.4±0.8 47.6±0.2"),
    ("PGD", 0.01): row("72.7±0.4 52.6±0.2 64.4±0.3 47.7±0.4"),
    ("UDPR", 0.05): row("72.3±0.4 55.4±0.2 65.0±0.1 49.4±0.3"),
    ("UDP-PGD", 0.04): row("73.1±0.6 55.7±0.8 65.8±0.3 48.9±0.3"),
}
TAB1_SVHN_ROBUST = {
    ("TRADES", 0.05): row("72.9±1.5 44.6±1.6 37.7±2.5 6.7±0.8"),
    ("PGD", 0.04): row("75.7±0.2 43.3±0.4 30.5±1.0 5.5±0.1"),
    ("UDPR", 0.05): row("79.7±0.1 40.3±1.4 34.4±1.5 6.1±0.8"),
    ("UDP-PGD", 0.04): row("79.3±0.1 39.7±0.7 33.4±0.6 5.8±0.6"),
}
TAB1_SVHN_TRADEOFF = {
    ("TRADES", 0.05): row("79.4±1.2 65.2±0.3 61.8±0.8 46.3±0.1"),
    ("PGD", 0.02): row("85.6±0.3 64.6±0.3 61.9±0.2 48.9±0.1"),
    ("UDPR", 0.05): row("86.4±0.0 67.1±0.4 63.8±0.7 49.6±0.2"),
    ("UDP-PGD", 0.04): row("86.5±0.1 66.7±0.4 63.6±0.2 49.8±0.2"),
}
# Clean accuracy first.
TAB2_ROBUST = {
    ("PGD", 0.2): row("78.9 73.9 69.3 58.3 2.8"),
    ("TRADES", 0.2): row("82.1 77.1 70.6 55.1 5.6"),
    ("UDPR", 0.5): row("84.8 72.5 60.9 40.0 34.1"),
    ("UDP-PGD", 0.5): row("82.3 74.9 66.8 49.6 27.5"),
}
TAB2_TRADEOFF = {
    ("PGD", 0.2): row("78.9 75.5 73.5 67.9 40.2"),
    ("TRADES", 0.2): row("82.1 79.7 76.5 68.7 44.0"),
    ("UDPR", 0.5): row("84.8 78.6 72.8 62.3 59.4"),
    ("UDP-PGD", 0.3): row("84.2 80.2 75.6 65.4 53.7"),
}
TAB3 = {
    ("PGD", 0.03): row("83.8 72.9 47.6 58.5 25.5"),
    ("UDPR", 0.05): row("83.4 74.1 45.3 58.5 25.5"),
    ("UDP-PGD", 0.08): row("87.5 76.9 37.1 59.5 21.4"),
}
TAB4 = {
    ("standard", 0.0): row("42.5±0.3"),
    ("TRADES", 0.03): row("42.7±0.1"),
    ("PGD", 0.02): row("42.6±0.1"),
    ("UDP-PGD", 0.06): row("45.3±0.3"),
    ("TRADES", 0.02): row("43.1±0.3"),
    ("PGD", 0.01): row("43.3±1.2"),
    ("UDP-PGD", 0.04): row("45.7±0.6"),
}
TAB5 = {
    ("standard", 0.0): row("48.2±0.9"),
    ("PGD", 2.0): row("37.3±0.3"),
    ("TRADES", 2.0): row("46.9±0.3"),
    ("UDPR", 2.0): row("53.1±0.9"),
    ("UDP-PGD", 2.0): row("52.5±0.3"),
}
