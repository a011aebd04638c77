import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from golden.study_keys import FILE, keys_of
from pixel_studies import filled
from widemargin.report import study
from widemargin.report.store import Store
from widemargin_studies import tab3


def test_every_declared_study_is_complete_and_finds_what_it_stored() -> None:
    keys = json.loads(FILE.read_text())
    assert set(study.names()) == keys.keys()
    for name in study.names():
        found = study.load(name)
        assert found.TITLE
        assert keys_of(found) == keys[name], f"{name} no longer finds its results: see golden/study_keys.py"
        assert callable(found.run)
        assert callable(found.report)
        # Its jobs, which may be methods, are sent to other processes.
        assert keys_of(pickle.loads(pickle.dumps(found))) == keys[name]


def test_what_is_stored_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert study.stored(tab3.SMALL, store) == (0, 3)
    filled(store, replace(tab3.SMALL, cells=tab3.SMALL.cells[:2]))
    assert study.stored(tab3.SMALL, store) == (2, 3)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match="there is no study named 'figg3': did you mean fig3"):
        study.load("figg3")
    with pytest.raises(ValueError, match="`widemargin study list` shows all"):
        study.load("0000000000")
