"""Downloads, from a server on this machine: whole, resumed, refused."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from made_files import IDX_NAMES, cifar_bytes, classes, pictures, write_idx
from widemargin.data.download import Remote
from widemargin.data.formats import File, cifar100, idx_pair
from widemargin.data.sources import Source


class Server(ThreadingHTTPServer):
    """Gives `files`; breaks the connection after `patience` bytes; may or may not go on in the middle."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.patience: int | None = None
        self.resumes = True
        self.asked: list[tuple[str, str | None]] = []

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, wanted = self.path[1:], self.headers["Range"]
        self.server.asked.append((name, wanted))
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.resumes else 0
        if first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first:][: self.server.patience])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("WIDEMARGIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def made(server: Server, tmp_path: Path) -> Source:
    write_idx(tmp_path / "published")
    files = [(name, File.read(tmp_path / "published" / f"{name}.gz").md5) for name in IDX_NAMES]
    for name in IDX_NAMES:
        server.files[f"{name}.gz"] = (tmp_path / "published" / f"{name}.gz").read_bytes()
    remotes = tuple(Remote(server.address(name), _md5(content)) for name, content in server.files.items())
    return Source("Made", ("made",), tuple(files[:2]), tuple(files[2:]), remotes)


def test_a_download_is_official_and_happens_once(made: Source, server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        train, test = made.read(idx_pair, tuple(range(10)))
        assert train.origin.official is test.origin.official is True
    assert train.origin.place == str(tmp_path / "cache/widemargin/made")
    assert len(server.asked) == 4
    assert sorted(path.name for path in (tmp_path / "cache/widemargin/made").iterdir()) == sorted(
        f"{n}.gz" for n in IDX_NAMES
    )


def test_several_at_once_download_once(made: Source, server: Server) -> None:
    threads = [threading.Thread(target=made.locate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.asked) == 4


@pytest.mark.parametrize("resumes", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(made: Source, server: Server, resumes: bool) -> None:
    server.patience, server.resumes = 100_000, resumes
    with pytest.raises(
        ValueError, match=r"the connection ended after 100,000 of [\d,]+ bytes; a new attempt continues there"
    ):
        made.locate()
    server.patience = None
    made.locate()
    assert server.asked[:2] == [("train-images-idx3-ubyte.gz", None), ("train-images-idx3-ubyte.gz", "bytes=100000-")]
    assert made.read(idx_pair, tuple(range(10)))[0].origin.official


def test_a_part_that_is_already_whole_is_used(made: Source, server: Server, tmp_path: Path) -> None:
    part = tmp_path / "cache/widemargin/made/train-images-idx3-ubyte.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(server.files["train-images-idx3-ubyte.gz"])
    assert made.read(idx_pair, tuple(range(10)))[0].origin.official
    assert not part.exists()


def test_a_wrong_checksum_is_an_error_and_nothing_stays(made: Source, server: Server, tmp_path: Path) -> None:
    right = server.files["train-images-idx3-ubyte.gz"]
    server.files["train-images-idx3-ubyte.gz"] = right[:-1] + b"?"
    with pytest.raises(
        ValueError, match=r"Made is neither in .* does not match the known hash.*was deleted"
    ) as refusal:
        made.locate()
    assert "\n" not in str(refusal.value)
    assert list((tmp_path / "cache/widemargin/made").iterdir()) == []
    server.files["train-images-idx3-ubyte.gz"] = right
    assert made.locate() == tmp_path / "cache/widemargin/made"


def test_an_address_that_is_gone_is_one_sentence(made: Source, server: Server) -> None:
    server.files.clear()
    with pytest.raises(
        ValueError, match=r"downloaded \(http://127.*: HTTP Error 404: Not Found\): put train-images"
    ) as refusal:
        made.locate()
    assert "\n" not in str(refusal.value)


def test_an_archive_gives_its_own_files_only(server: Server, tmp_path: Path) -> None:
    batch = cifar_bytes(pictures(20, 3, 32), classes(20).tolist(), "fine_labels")
    members = {
        "made/train": batch,
        "made/test": batch,
        "made/deep/train": b"x",
        "../outside": b"x",
        "made/../../o": b"x",
    }
    server.files["made.tar.gz"] = _archive(members, link="made/link")
    remote = Remote(server.address("made.tar.gz"), _md5(server.files["made.tar.gz"]))
    files = [((name, _md5(batch)),) for name in ("train", "test")]
    source = Source("Made", ("made",), files[0], files[1], (remote,), terms="Free for all.")
    train, _ = source.read(cifar100, tuple(range(10)))
    assert train.origin.official
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert [name for name in left if not name.endswith(".lock")] == [
        "cache/widemargin/made/test",
        "cache/widemargin/made/train",
    ]


def _archive(members: dict[str, bytes], link: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        entry = tarfile.TarInfo(link)
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    return packed.getvalue()


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
