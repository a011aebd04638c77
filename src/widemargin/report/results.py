"""Results that are kept: one small JSON file for each study, from which pages are made again, word for word."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from widemargin.files import Damaged, read_json, write_json
from widemargin.report.document import Report, versions
from widemargin.report.tables import Table
from widemargin.report.verdicts import Outcome


def keep(report: Report, name: str, folder: Path) -> Path:
    """What a study's report says, what it ran on, and the commands that repeat it; figures are not kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    write_json(path, to_dict(report, name))
    return path


def to_dict(report: Report, name: str) -> dict[str, Any]:
    return {
        "study": name,
        "commands": [f"widemargin study run {name}", f"widemargin study report {name}"],
        "hardware": report.facts.get("hardware", hardware()),
        "versions": versions(),
        "facts": {name: value for name, value in report.facts.items() if name != "hardware"},
        "title": report.title,
        "summary": report.summary,
        "settings": report.settings,
        "verdicts": [{"claim": v.claim, "word": v.word, "evidence": v.evidence} for v in report.verdicts],
        "tables": [table.to_dict() for table in report.tables],
    }


def section(name: str, folder: Path) -> str:
    """A kept result as a part of a Markdown page: nothing but what was kept."""
    content = _read(name, folder)
    verdicts = [f"- **{v['word']}**: {v['claim']}  \n  {v['evidence']}" for v in content["verdicts"]]
    tables = [_table(table).markdown() for table in content["tables"]]
    repeat = "; ".join(f"`{command}`" for command in content["commands"])
    parts = [
        f"## {content['title']} (`{name}`)",
        content["summary"],
        "\n".join(verdicts),
        *tables,
        content["settings"],
        f"{repeat}. {content['hardware']}; {content['versions']}",
    ]
    return "\n\n".join(part for part in parts if part)


def _read(name: str, folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / f"{name}.json")
    except FileNotFoundError:
        raise ValueError(
            f"there is no result of {name} in {folder}: `widemargin study report {name} --keep {folder}`"
        ) from None
    except Damaged as problem:
        raise ValueError(f"{problem}: report the study again, or take the file from version control") from None


def page(introduction: str, names: Sequence[str], folder: Path) -> str:
    """The introduction, how many claims held, every result that is kept, and which are not."""
    kept = [name for name in names if (folder / f"{name}.json").exists()]
    missing = [f"`{name}`" for name in names if name not in kept]
    parts = [introduction.strip(), *([_overview(kept, folder).markdown()] if kept else [])]
    parts += [section(name, folder) for name in kept]
    parts += [f"No results are kept of {', '.join(missing)}."] if missing else []
    return "\n\n".join(parts) + "\n"


def _overview(names: Sequence[str], folder: Path) -> Table:
    outcomes, rows, note = get_args(Outcome), [], ""
    for name in names:
        content = _read(name, folder)
        words = [verdict["word"].split(" (")[0] for verdict in content["verdicts"]]
        counts = [str(words.count(outcome)) for outcome in outcomes]
        if "facts" not in content:
            counts, note = ["-"] * len(outcomes), "-: measured before a verdict could be undecided; to be run again."
        rows.append((f"`{name}`", *counts))
    return Table("Claims", ("study", *outcomes), tuple(rows), note)


def hardware() -> str:
    """This machine, in a few words."""
    return f"{os.cpu_count()} cores of {_processor()}, {platform.system()}"


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _table(content: Mapping[str, Any]) -> Table:
    return Table(
        content["title"],
        tuple(content["columns"]),
        tuple(tuple(row) for row in content["rows"]),
        content["note"],
        frozenset((row, column) for row, column in content["bold"]),
    )
