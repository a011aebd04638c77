from pathlib import Path

import pytest

TRAIN = "train --data digits --fraction .1 --epochs 1 --method"


@pytest.fixture(scope="session")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two seeds of one method and one of another."""
    from command import widemargin

    folder = tmp_path_factory.mktemp("trained") / "runs"
    widemargin(f"{TRAIN} standard --out {folder}/standard")
    widemargin(f"{TRAIN} fgsm --eps .1 --out {folder}/fgsm-0")
    widemargin(f"{TRAIN} fgsm --eps .1 --seed 1 --out {folder}/fgsm-1")
    return folder
