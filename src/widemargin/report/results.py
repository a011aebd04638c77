"""Results that are kept: one small JSON file for each study, from which pages are made again, word for word."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from widemargin.files import Damaged, read_json, write_json
from widemargin.report.document import Report, versions
from widemargin.report.tables import Table


def keep(report: Report, name: str, folder: Path) -> Path:
    """What a study's report says, what it ran on, and the commands that repeat it; figures are not kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    content = {
        "study": name,
        "commands": [f"widemargin study run {name}", f"widemargin study report {name}"],
        "hardware": report.facts.get("hardware", hardware()),
        "versions": versions(),
        "facts": {name: value for name, value in report.facts.items() if name != "hardware"},
        "title": report.title,
        "summary": report.summary,
        "settings": report.settings,
        "verdicts": [{"claim": v.claim, "word": v.word, "evidence": v.evidence} for v in report.verdicts],
        "tables": [_plain(table) for table in report.tables],
    }
    write_json(path, content)
    return path


def section(name: str, folder: Path) -> str:
    """A kept result as a part of a Markdown page, with a remark if there is one beside it."""
    try:
        content = read_json(folder / f"{name}.json")
    except FileNotFoundError:
        raise ValueError(
            f"there is no result of {name} in {folder}: `widemargin study report {name} --keep {folder}`"
        ) from None
    except Damaged as problem:
        raise ValueError(f"{problem}: report the study again, or take the file from version control") from None
    verdicts = [f"- **{v['word']}**: {v['claim']}  \n  {v['evidence']}" for v in content["verdicts"]]
    tables = [_table(table).markdown() for table in content["tables"]]
    remark = folder / f"{name}.md"
    repeat = "; ".join(f"`{command}`" for command in content["commands"])
    parts = [
        f"## {content['title']} (`{name}`)",
        content["summary"],
        "\n".join(verdicts),
        *tables,
        content["settings"],
        remark.read_text().strip() if remark.is_file() else "",
        f"{repeat}. {content['hardware']}; {content['versions']}",
    ]
    return "\n\n".join(part for part in parts if part)


def page(introduction: str, names: Sequence[str], folder: Path) -> str:
    return "\n\n".join([introduction.strip(), *(section(name, folder) for name in names)]) + "\n"


def hardware() -> str:
    """This machine, in a few words."""
    return f"{os.cpu_count()} cores of {_processor()}, {platform.system()}"


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _plain(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": list(table.columns),
        "rows": [list(row) for row in table.rows],
        "note": table.note,
        "bold": sorted(map(list, table.bold)),
    }


def _table(content: Mapping[str, Any]) -> Table:
    return Table(
        content["title"],
        tuple(content["columns"]),
        tuple(tuple(row) for row in content["rows"]),
        content["note"],
        frozenset((row, column) for row, column in content["bold"]),
    )
