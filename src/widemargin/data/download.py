"""Downloads of published files: resumed after an interruption, verified by checksum."""

from __future__ import annotations

import http.client
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

from widemargin.data.optional import import_optional

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Remote:
    """An official address, and the MD5 of what it sends."""

    address: str
    md5: str

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]


def download(remotes: tuple[Remote, ...], folder: Path, terms: str, done: Callable[[], bool]) -> None:
    """Fetch every file into `folder`; of an archive, the files in its folder of that name."""
    logger = import_optional("pooch", "pooch", "a download").get_logger()
    folder.mkdir(parents=True, exist_ok=True)
    # Several workers may need the same data at once: one fetches it, the others wait.
    with FileLock(f"{folder}.lock"):
        if done():
            return
        if terms:
            logger.info(terms)
        for remote in remotes:
            stored = _retrieved(remote, folder)
            if stored.name.endswith(".tar.gz"):
                _unpack(stored, folder)
                stored.unlink()


def _retrieved(remote: Remote, target: Path) -> Path:
    retrieve = import_optional("pooch", "pooch", "a download").retrieve

    def resume(address: str, output: str, _: object) -> None:
        _resume(address, target / f"{remote.name}.part", Path(output))

    try:
        return Path(retrieve(remote.address, f"md5:{remote.md5}", fname=remote.name, path=target, downloader=resume))
    except ValueError as problem:
        # The first sentence names both checksums.
        raise ValueError(f"{remote.address}: {str(problem).split('. ')[0]}; what came was deleted") from None
    except (OSError, http.client.HTTPException) as problem:
        raise OSError(f"{remote.address}: {problem}") from None


def _resume(address: str, part: Path, output: Path) -> None:
    """Partial content stays in `part`, so that the next attempt requests only the rest."""
    here = part.stat().st_size if part.exists() else 0
    try:
        answer = urlopen(Request(address, headers={"Range": f"bytes={here}-"} if here else {}), timeout=30)
    except HTTPError as refusal:
        refusal.close()
        if refusal.code != 416:
            raise
        # Nothing is left to send: the checksum decides about the content.
        part.replace(output)
        return
    with answer:
        # A server without range requests sends the whole file, with status 200.
        here = here if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = here + int(length) if length else None
        with part.open("ab" if here else "wb") as sink, _progress() as progress:
            bar = progress.add_task(part.stem, total=total, completed=here)
            while chunk := answer.read(_CHUNK):
                sink.write(chunk)
                progress.advance(bar, len(chunk))
    if total is not None and part.stat().st_size < total:
        raise OSError(
            f"the connection ended after {part.stat().st_size:,} of {total:,} bytes; a new attempt continues there"
        )
    part.replace(output)


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def _unpack(archive: Path, folder: Path) -> None:
    """Only plain files of this one folder, each written under its own last name: no path in an archive is trusted."""
    with tarfile.open(archive) as packed:
        for member in packed:
            inside, _, name = member.name.rpartition("/")
            content = packed.extractfile(member) if member.isfile() and inside == folder.name else None
            if content is None:
                continue
            partial = folder / f"{name}.partial"
            with content, partial.open("wb") as sink:
                shutil.copyfileobj(content, sink)
            os.replace(partial, folder / name)
