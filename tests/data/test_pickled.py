import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from widemargin.data.formats import File, cifar10


class Command:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('executed')",)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Command(), r"builtins\.exec"),
        (Path("x"), r"pathlib\."),
        (np.array([1.5]), r"numpy\.dtype"),
        (np.array([None]), r"numpy\.dtype"),
        (np.ma.array([1]), r"numpy\.ma"),
        (print, r"builtins\.print"),
    ],
)
def test_cifar_refuses_all_but_arrays_of_bytes(value: object, wanted: str) -> None:
    content = pickle.dumps({"data": value, "labels": [1]}, protocol=4)
    with pytest.raises(ValueError, match=rf"some/file asks to run {wanted}.*official file$"):
        cifar10(_file(content))


@pytest.mark.parametrize(
    "target", [b"cos\nsystem\n", b"cnumpy\nload\n", b"cnumpy.core.multiarray\nset_string_function\n"]
)
def test_cifar_refuses_what_is_only_named(target: bytes) -> None:
    with pytest.raises(ValueError, match="asks to run"):
        cifar10(_file(b"\x80\x02" + target + b"."))


@pytest.mark.parametrize("build", [b"cnumpy\nndarray\n}b.", b"cnumpy\ndtype\n}b."])
def test_cifar_cannot_change_the_stand_ins(build: bytes) -> None:
    with pytest.raises(ValueError, match="must hold a CIFAR batch"):
        cifar10(_file(b"\x80\x02" + build))


@pytest.mark.parametrize("content", [b"\x80\x02}r\xff\xff\xff\xff.", b"\x80\x04\x8e\0\0\0\0\0\1\0\0."])
def test_a_claim_of_a_pickle_takes_no_memory(content: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="must hold a CIFAR batch"):
        cifar10(_file(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


def test_shared_lists_are_no_labels() -> None:
    labels: list[object] = [0, 1]
    for _ in range(40):
        labels = [labels, labels]
    content = pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": labels}, protocol=4)
    with pytest.raises(ValueError, match="labels that are no list of whole numbers"):
        cifar10(_file(content))


def _file(content: bytes) -> File:
    return File(Path("some/file"), content)
