"""How much faster is one way than its twin?  Both are timed in turns in the same run; the ratio of medians counts."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch


def ratio(slow: Callable[[], object], fast: Callable[[], object], rounds: int = 15) -> tuple[float, float, float]:
    """Median process time of each in milliseconds, and slow / fast."""
    for warm_up in (slow, fast):
        warm_up()
    times: dict[str, list[float]] = {"slow": [], "fast": []}
    for _ in range(rounds):
        for name, work in (("slow", slow), ("fast", fast)):
            start = time.process_time()
            work()
            times[name].append(1000 * (time.process_time() - start))
    a, b = (statistics.median(times[name]) for name in ("slow", "fast"))
    return a, b, a / b


def header(title: str) -> None:
    torch.set_num_threads(1)
    print(f"\n{title}\n  {_processor()}, 1 thread, torch {torch.__version__}, Python {platform.python_version()}")


def show(name: str, slow: float, fast: float, times: float) -> None:
    print(f"  {name:<66} {slow:8.2f} ms -> {fast:8.2f} ms   {times:5.2f} x")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
