"""Under which keys every study stores its results, so that what is stored is found again.

If they move on purpose: `PYTHONPATH=tests python tests/golden/study_keys.py`, and studies are run again."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from widemargin.report import study
from widemargin.report.store import Parts, Store
from widemargin.runs.keys import key_of

FILE = Path(__file__).with_name("study_keys.json")


@dataclass(frozen=True)
class Recording(Store):
    """Has nothing, and notes what it should have."""

    root: Path = Path("nowhere")
    keys: set[str] = field(default_factory=set)

    def __contains__(self, parts: Parts) -> bool:
        self.keys.add(key_of(*parts))
        return False


def keys_of(work: study.Study) -> str:
    """How many there are, and their checksum."""
    store = Recording()
    work.missing(store)
    return f"{len(store.keys)} {hashlib.sha256(' '.join(sorted(store.keys)).encode()).hexdigest()[:16]}"


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: keys_of(study.load(name)) for name in study.names()}, indent=1) + "\n")
