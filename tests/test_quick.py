"""Help, versions and the front door do without what takes long to import."""

import subprocess
import sys
from types import ModuleType

import pytest

import widemargin as wm
from widemargin.cli import main

SLOW = ("torch", "numpy", "matplotlib", "scipy", "ray", "optuna", "sklearn")
VERBS = (
    "",
    "demo",
    "train",
    "sweep",
    "resume",
    "runs",
    "audit",
    "calibrate",
    "compare",
    "export",
    "zoo",
    "study",
    "study run",
)


def imported(program: str) -> set[str]:
    """Of what is slow, what a program has imported at its end, in a process of its own."""
    told = (
        f"import atexit, sys\natexit.register(lambda: print('|', *(n for n in {SLOW} if n in sys.modules)))\n{program}"
    )
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(run.stdout.rpartition("|")[2].split())


def test_the_front_door_imports_nothing_until_it_is_used() -> None:
    assert imported("import widemargin; print(widemargin.__version__)") == set()
    assert "torch" in imported("import widemargin; widemargin.Linf")


def test_help_of_every_verb_needs_nothing_slow() -> None:
    calls = "\n".join(
        f"try: main({[*verb.split(), '--help']!r})\nexcept SystemExit as end: assert end.code == 0" for verb in VERBS
    )
    assert imported(f"from widemargin.cli import main\n{calls}\nmain(['version'])") == set()


@pytest.mark.parametrize("words", [["study", "list"], ["study", "list", "--json"], ["--tyro-print-completion", "bash"]])
def test_lists_and_completion_need_no_torch(words: list[str]) -> None:
    program = f"from widemargin.cli import main\ntry: main({words!r})\nexcept SystemExit as end: assert not end.code"
    assert imported(program) <= {"numpy"}


def test_every_public_name_is_there() -> None:
    values = {name: getattr(wm, name) for name in wm.__all__}
    # About 45 to learn; parts are in rooms.
    assert 40 <= len([name for name, value in values.items() if not isinstance(value, ModuleType)]) <= 50
    # Not the room of the same name.
    assert callable(wm.train)


def test_waiting_threads_do_not_spin() -> None:
    told = "import os; os.environ.pop('OMP_WAIT_POLICY', None); import widemargin.cli; "
    assert imported(told + "assert os.environ['OMP_WAIT_POLICY'] == 'PASSIVE'") == set()
    own = "import os; os.environ['OMP_WAIT_POLICY'] = 'ACTIVE'; import widemargin.cli; "
    assert imported(own + "assert os.environ['OMP_WAIT_POLICY'] == 'ACTIVE'") == set()


def test_an_unknown_verb_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["juggle"])
    assert end.value.code == 2
    assert "juggle" in capsys.readouterr().err
