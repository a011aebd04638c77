"""The user's own files: from the words of the command line to their description."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from widemargin.cli.verbs.numbers import number
from widemargin.cli.verbs.train import Train
from widemargin.data.columns import Columns
from widemargin.data.image_folder import ImageFolder
from widemargin.data.limits import listed
from widemargin.data.local import LocalData, SplitData, TableData
from widemargin.data.local_files import LocalFile, Npz, Table, TableFile
from widemargin.data.npz import npz_names
from widemargin.data.numerals import Decimal

File = TypeVar("File", bound=LocalFile)
OwnData = LocalData | SplitData | TableData
_OF_TABLES = (
    "drop",
    "only",
    "categories",
    "fixed",
    "perturb_categories",
    "category_changes",
    "eps_column",
    "standardize",
    "no_standardize",
)
_VALIDATION = ("val", "valid", "validation")
_ARRAYS = (("x", "y"), ("X", "y"), ("data", "target"), ("images", "labels"))
"""Names of examples and labels; those of the parts end in _train, _val and _test."""


def own_data(words: Train, path: Path) -> OwnData:
    """A table, arrays or a folder of images, in the parts that are there or that the options name."""
    if path.suffix != ".npz" and not path.is_dir():
        return _table_data(words, path)
    if words.decimal is not None:
        raise ValueError("--decimal is for tables of text, .csv and .tsv: leave it out")
    # --perturb-categories without names is given, too.
    given = [word for word in _OF_TABLES if getattr(words, word) not in (None, False, getattr(Train, word))]
    if given and path.suffix == ".npz":
        arrays = _with_named(words, _npz_parts(path, words.unlabelled), lambda other: _npz_parts(other, None))
        # Numbers that a program has stored are taken as they are unless that is said.
        columns = replace(_columns(words), standardize=words.standardize)
        return _table_parts(arrays, columns)
    if given:
        raise ValueError(f"--{given[0].replace('_', '-')} is for tables: leave it out")
    if path.suffix == ".npz":
        return _in_parts(words, _npz_parts(path, words.unlabelled), lambda other: _npz_parts(other, None))
    if words.unlabelled is not None:
        raise ValueError(
            "--unlabelled is for .npz files: in a table leave the cell empty, of images make a folder `unlabelled`"
        )
    return _in_parts(words, _folder_parts(path, words.size), lambda other: _folder_parts(other, words.size))


def table_file(path: Path, label: str, decimal: Decimal | None) -> TableFile:
    """A table, or an array that is taken for one."""
    return _part(_npz_parts(path, None), "test") if path.suffix == ".npz" else Table(str(path), label, decimal)


def file_of(path: Path, label: str, decimal: Decimal | None, size: tuple[int, int] | None) -> LocalFile:
    """One file or folder: its part for tests, if it has parts, or all of it."""
    if path.is_dir():
        return _part(_folder_parts(path, size), "test")
    if path.suffix == ".npz":
        return _part(_npz_parts(path, None), "test")
    return Table(str(path), label, decimal)


def _part(parts: Mapping[str, File], name: str) -> File:
    """Of a file or folder that has parts that one, else all of it."""
    return parts.get(name, parts["train"])


def existing(option: str, word: str) -> Path:
    path = Path(word).expanduser()
    if not path.exists():
        raise ValueError(f"{option} must be a file or folder, got {word}: name what exists")
    return path.resolve()


def _in_parts(
    words: Train, parts: Mapping[str, LocalFile], parts_of: Callable[[Path], Mapping[str, LocalFile]]
) -> LocalData | SplitData:
    parts = _with_named(words, parts, parts_of)
    if len(parts) == 1:
        return LocalData(parts["train"])
    held, last = parts.get("validation", SplitData.validation), parts.get("test", SplitData.test)
    return SplitData(parts["train"], held, last)


def _with_named(
    words: Train, parts: Mapping[str, File], parts_of: Callable[[Path], Mapping[str, File]]
) -> dict[str, File]:
    """The parts of the file or folder; those that options name come first."""
    named = {
        name: _part(parts_of(existing(f"--{name}", word)), name)
        for name in ("validation", "test")
        if (word := getattr(words, name)) is not None
    }
    return {**parts, **named}


def _table_parts(files: Mapping[str, TableFile], columns: Columns) -> TableData:
    held, last = files.get("validation", TableData.validation), files.get("test", TableData.test)
    return TableData(files["train"], columns, held, last)


def _npz_parts(path: Path, unlabelled: int | None) -> dict[str, Npz]:
    names = npz_names(path)

    def pair(*suffixes: str) -> tuple[str, str] | None:
        pairs = [(f"{x}{suffix}", f"{y}{suffix}") for suffix in suffixes for x, y in _ARRAYS]
        return next((one for one in pairs if one[0] in names and one[1] in names), None)

    train = pair("_train") or pair("") or pair("_test")
    # Without any, the reader says what it needs.
    x, y = train or _ARRAYS[0]
    parts = {"train": Npz(str(path), x, y, unlabelled)}
    if x.endswith("_train"):
        others = {"validation": pair(*(f"_{name}" for name in _VALIDATION)), "test": pair("_test")}
        parts |= {name: Npz(str(path), *found) for name, found in others.items() if found is not None}
    return parts


def _folder_parts(path: Path, size: tuple[int, int] | None) -> dict[str, LocalFile]:
    """`train/ val/ test/` with a folder for each class in them, or such folders at once."""
    there = path.iterdir() if path.is_dir() else ()
    inside = {one.name for one in there if one.is_dir() and not one.name.startswith(".")}
    if "train" not in inside or not inside <= {"train", "test", *_VALIDATION}:
        return {"train": ImageFolder(str(path), size=size)}
    held = next((name for name in _VALIDATION if name in inside), None)
    names = {"train": "train", "validation": held, "test": "test" if "test" in inside else None}
    return {part: ImageFolder(str(path / name), size=size) for part, name in names.items() if name is not None}


def _table_data(words: Train, path: Path) -> TableData:
    if words.unlabelled is not None:
        raise ValueError(
            "--unlabelled is for .npz files: in a table leave the cell empty, of images make a folder `unlabelled`"
        )
    files = {"train": Table(str(path), words.label, words.decimal)}
    for name in ("validation", "test"):
        word = getattr(words, name)
        if word is not None:
            files[name] = Table(str(existing(f"--{name}", word)), words.label, words.decimal)
    return _table_parts(files, _columns(words))


def _columns(words: Train) -> Columns:
    if words.standardize and words.no_standardize:
        raise ValueError("--standardize and --no-standardize say the opposite: give one of them")
    if words.drop and words.only:
        raise ValueError("--drop and --only choose the columns in two ways: give one of them")
    return Columns(
        _names(words.drop),
        _names(words.only),
        _names(words.categories),
        words.missing,
        not words.no_standardize,
        _units(words),
        _names(words.fixed),
        changes_asked(words.perturb_categories, words.category_changes) or 0,
        names_asked(words.perturb_categories),
    )


def changes_asked(perturbed: tuple[str, ...] | None, changes: int | None) -> int | None:
    """How many categories may change at once, by both options; None if neither is given."""
    if changes is not None and changes < 0:
        raise ValueError(f"--category-changes must be a whole number of at least 0, got {changes}")
    if perturbed and changes == 0:
        raise ValueError("--perturb-categories and --category-changes 0 say the opposite: give one of them")
    return changes if changes is not None or perturbed is None else 1


def names_asked(perturbed: tuple[str, ...] | None) -> tuple[str, ...]:
    """Apart by commas, as in --fixed, or by blanks."""
    return tuple(name for word in perturbed or () for name in _names(word))


def _names(words: str | None) -> tuple[str, ...]:
    """Separated by commas, as in a .csv file: a name that has one is in quotes."""
    try:
        names = next(csv.reader([words or ""], skipinitialspace=True))
    except csv.Error:
        raise ValueError(f"names of columns must be separated by commas, on one line, got {words!r}") from None
    return tuple(name.strip() for name in names if name.strip())


def _units(words: Train) -> tuple[tuple[str, float], ...]:
    """A radius of its own is another scale: eps in the features is then that radius in the column."""
    if words.eps_column and not words.eps:
        raise ValueError("--eps-column says how much --eps is in a column: give --eps too")
    units = []
    for word in words.eps_column:
        name, equals, text = word.rpartition("=")
        try:
            radius = number(text) if equals else 0.0
        except ValueError:
            radius = 0.0
        if not name or not radius > 0:
            raise ValueError(f"--eps-column must be COLUMN=RADIUS with a radius above 0, such as price=50, got {word}")
        assert isinstance(words.eps, float | int)
        units.append((name, radius / words.eps))
    if len({name for name, _ in units}) < len(units):
        raise ValueError(f"--eps-column must name each column once, got {listed(name for name, _ in units)}")
    return tuple(units)
