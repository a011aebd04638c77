import json

import pytest

from widemargin.data.optional import import_optional


def test_a_package_is_imported_or_named() -> None:
    assert import_optional("json", "json", "reading") is json
    with pytest.raises(ValueError, match=r"^reading needs 'a\[b\]', which is not installed: pip install 'a\[b\]'$"):
        import_optional("no_such_module", "'a[b]'", "reading")
