"""The README's first training beside a busy process: as the command chooses its threads, against one thread.

Wall-clock time, since waiting is what is measured; the two in turns in one run, beside the same busy process."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

COMMAND = "train --data digits --network lenet --method udpr --eps .3 --alpha .03 --steps 10 --weight 1"
BUSY = "while True: pass"
LIMIT = 1.5
"""Times the time of one thread."""


def seconds(epochs: int, **environment: str) -> float:
    """Of the whole command, as a user waits for it."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }
    with tempfile.TemporaryDirectory() as folder:
        words = [*COMMAND.split(), "--epochs", str(epochs), "--out", f"{folder}/run"]
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "widemargin.cli", *words],
            env={**inherited, **environment},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - start


def main(epochs: int, rounds: int) -> None:
    print(
        f"\nwidemargin {COMMAND} --epochs {epochs}, beside one busy process on {os.cpu_count()} cores, {rounds} rounds"
    )
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        times = [(seconds(epochs, OMP_NUM_THREADS="1"), seconds(epochs)) for _ in range(rounds)]
    finally:
        busy.kill()
        busy.wait()
    one, chosen = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"  one thread {one:.1f} s, as chosen {chosen:.1f} s: {chosen / one:.2f} times, at most {LIMIT} allowed")
    sys.exit(chosen > LIMIT * one)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    main(**vars(parser.parse_args()))
