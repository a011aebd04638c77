import sys

import pytest

from command import refused


def test_without_ray_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = refused("study run demo --engine ray", capsys)
    assert said == "--engine ray needs 'widemargin[sweeps]', which is not installed: pip install 'widemargin[sweeps]'\n"


def test_an_address_needs_ray(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("study run demo --address auto", capsys)
    assert said == "--address is for --engine ray: leave it out, or give both\n"
