"""Published datasets: in the user's folder, in the cache, in a system folder, or downloaded."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from widemargin.data.checks import ClassName
from widemargin.data.dataset import Dataset, Origin
from widemargin.data.download import Remote, download
from widemargin.data.formats import Classes, File, Pixels
from widemargin.data.optional import import_optional

VARIABLE = "WIDEMARGIN_DATA"
Decode = Callable[..., tuple[Pixels, Classes]]


@dataclass(frozen=True)
class Source:
    """A published dataset: its files with the MD5 of their unzipped content, and their possible folders.

    `folders` are looked for in `$WIDEMARGIN_DATA` and in the cache; the first is where a download goes.
    """

    title: str
    folders: tuple[str, ...]
    train: tuple[tuple[str, str], ...]
    test: tuple[tuple[str, str], ...]
    remotes: tuple[Remote, ...]
    system: str = ""
    advice: str = ""
    terms: str = ""

    def read(self, decode: Decode, names: tuple[ClassName, ...]) -> tuple[Dataset, Dataset]:
        """The whole training and test files; a warning if they are not the published ones."""
        folder = self.locate()
        parts = [_read(folder, files, decode, names) for files in (self.train, self.test)]
        if not all(part.origin.official for part in parts):
            warnings.warn(
                f"{folder} differs from the published {self.title}: it is used as it is, and the run records that "
                "(delete it to have the official files downloaded)",
                # Points at the caller of ImageSet.draw.
                stacklevel=4,
            )
        return parts[0], parts[1]

    def locate(self) -> Path:
        """The first folder that holds every file, after a download if there is none."""
        folder = self.local_folder()
        return folder if folder is not None else self._downloaded()

    def local_folder(self) -> Path | None:
        """The first folder of this machine that holds every file."""
        return next((place for place in self._places() if not self._lacking(place)), None)

    def _downloaded(self) -> Path:
        target = cache_folder() / self.folders[0]
        try:
            download(self.remotes, target, self.terms, done=lambda: not self._lacking(target))
        except (OSError, ValueError) as problem:
            raise ValueError(self._missing(problem)) from None
        return target

    def _places(self) -> list[Path]:
        chosen = os.environ.get(VARIABLE)
        roots = [Path(chosen).expanduser()] if chosen else []
        system = [Path(self.system)] if self.system else []
        local = [root / folder for root in [*roots, cache_folder()] for folder in self.folders]
        return local + system

    def _lacking(self, folder: Path) -> list[str]:
        return [name for name, _ in self.train + self.test if _stored(folder, name) is None]

    def _missing(self, problem: Exception) -> str:
        looked = ", ".join(self._looked(place) for place in self._places())
        names = ", ".join(name for name, _ in self.train + self.test)
        return (
            f"{self.title} is neither in {looked} nor could it be downloaded ({problem}): put {names} into "
            f"a folder {self.folders[0]} and let ${VARIABLE} name the folder around it{self.advice}"
        )

    def _looked(self, place: Path) -> str:
        lacking = self._lacking(place)
        some_are_there = len(lacking) < len(self.train + self.test)
        return f"{place} (lacks {', '.join(lacking)})" if some_are_there else str(place)


def cache_folder() -> Path:
    return Path(import_optional("pooch", "pooch", "looking for published data sets").os_cache("widemargin"))


def _stored(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read(folder: Path, files: tuple[tuple[str, str], ...], decode: Decode, names: tuple[ClassName, ...]) -> Dataset:
    contents = [File.read(path) for name, _ in files if (path := _stored(folder, name)) is not None]
    pixels, classes = decode(*contents)
    checksums = [file.md5 for file in contents]
    digest = hashlib.sha256(" ".join(checksums).encode()).hexdigest()[:16]
    origin = Origin(str(folder), digest, official=checksums == [checksum for _, checksum in files])
    try:
        return Dataset(torch.from_numpy(pixels), torch.from_numpy(classes), names, origin, white=255)
    except ValueError as problem:
        raise ValueError(f"{folder}: {problem}") from None
