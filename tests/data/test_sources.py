from dataclasses import replace
from pathlib import Path

import pytest

from made_files import IDX_NAMES, write_idx
from widemargin.data.download import Remote
from widemargin.data.formats import File, idx_pair
from widemargin.data.images import FASHION_MNIST
from widemargin.data.sources import Source

DIFFERS = "differs from the published"


@pytest.fixture(autouse=True)
def empty_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the files or the cache of the machine it runs on."""
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def fashion(tmp_path: Path) -> Source:
    """With a system folder of its own, and at an address where there is no server."""
    nowhere = (Remote("http://127.0.0.1:9/images.gz", "0" * 32),)
    return replace(FASHION_MNIST, system=str(tmp_path / "system"), remotes=nowhere)


@pytest.mark.filterwarnings(f"ignore:.*{DIFFERS}")
def test_places_in_their_order(fashion: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [tmp_path / "data/fashion-mnist", tmp_path / "cache/widemargin/fashion-mnist", tmp_path / "system"]
    for place in reversed(places):
        write_idx(place)
        assert fashion.read(idx_pair, tuple(range(10)))[0].origin.place == str(place)
    (places[0] / "t10k-labels-idx1-ubyte.gz").unlink()
    assert fashion.local_folder() == places[1]
    monkeypatch.delenv("WIDEMARGIN_DATA")
    assert fashion.local_folder() == places[1]


def test_the_right_checksum_is_official_and_silent(tmp_path: Path) -> None:
    folder = tmp_path / "data/made"
    write_idx(folder)
    files = [(name, File.read(folder / f"{name}.gz").md5) for name in IDX_NAMES]
    made = Source("Made", ("made",), tuple(files[:2]), tuple(files[2:]), ())
    train, test = made.read(idx_pair, tuple(range(10)))
    assert train.origin.official is test.origin.official is True
    assert train.digest != test.digest


def test_missing_data_is_one_sentence(fashion: Source, tmp_path: Path) -> None:
    write_idx(tmp_path / "data/fashion-mnist")
    (tmp_path / "data/fashion-mnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match="Fashion-MNIST is neither in") as refusal:
        fashion.locate()
    said = str(refusal.value)
    assert f"{tmp_path}/data/fashion-mnist (lacks t10k-labels-idx1-ubyte), " in said
    assert f"{tmp_path}/cache/widemargin/fashion-mnist, " in said
    assert "(http://127.0.0.1:9/images.gz: " in said
    assert "Connection refused>): put train-images-idx3-ubyte, " in said
    assert "apt-get install dataset-fashion-mnist" in said
    assert "\n" not in said
