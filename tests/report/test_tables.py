import io
import re
from html.parser import HTMLParser

import pytest
import rich.console

from widemargin.report.tables import Table, radius_text

HARD = r"a_b & 5% #1 {x} $y$ ~^ \z <i> | [0] *"


def table() -> Table:
    rows = ((HARD, "0.83 ± 0.05"), ("udp", "0.9"))
    return Table("Title & 100%", ("method", "worst_case"), rows, "A note_here.", frozenset({(0, 1)}))


class Cells(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.bold: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "b" in self.open:
            self.bold.append(data)


def test_latex_is_balanced_and_escaped() -> None:
    text = table().latex()
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert begun == ended[::-1] == ["table", "tabular"]
    assert r"\textbf{0.83 $\pm$ 0.05} \\" in text
    assert r"\caption{Title \& 100\%}" in text
    bare = re.sub(r"\\[&%$#_{}]", "", text)
    assert bare.count("{") == bare.count("}")
    body = re.sub(r"\\[&%$#_{}]|\$\\(pm|times)\$", "", text)
    assert not set(body) & set("%#_$~^<>|±")
    assert [line.count("&") for line in body.splitlines() if line.endswith(r"\\")] == [1, 1, 1]
    assert not any(line.startswith(("[", "*")) for line in text.splitlines())


def test_html_is_closed_escaped_and_bold() -> None:
    found = Cells(table().html())
    assert not found.open
    assert found.bold == ["0.83 ± 0.05"]
    assert HARD in found.text


def test_markdown_is_bold_and_has_as_many_cells_as_columns() -> None:
    lines = table().markdown().splitlines()
    assert "**0.83 ± 0.05**" in lines[4]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines[2:6]} == {3}


def test_terminal_is_bold() -> None:
    out = io.StringIO()
    table().print(rich.console.Console(file=out, width=200, force_terminal=True, color_system="standard"))
    assert re.search(r"\x1b\[1m0\.83 ± 0\.05", out.getvalue())
    assert "\x1b[1m0.9" not in out.getvalue()


def test_bold_must_be_inside() -> None:
    with pytest.raises(AssertionError, match="bold must name cells"):
        Table("", ("a",), (("1",),), bold=frozenset({(1, 0)}))


def printed(table: Table, width: int) -> list[str]:
    out = io.StringIO()
    table.print(rich.console.Console(file=out, width=width, force_terminal=True, color_system=None))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("count", [1, 3, 8, 20])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_number_is_cut_and_no_line_is_too_long(count: int, width: int) -> None:
    numbers = [f"{i}{i}.{i}{i} ± 0.{i}5 %" for i in range(10, 10 + count)]
    columns = ("a name of some words", *(f"measured under linf {i / 10:g}" for i in range(count)))
    row = ("trained with a rather long-winded method, eps 0.1, seed 3", *numbers)
    lines = printed(Table("A title", columns, (row,), "A note."), width)
    assert max(map(len, lines)) <= width
    assert all(any(number in line for line in lines) for number in numbers)
    assert [line for line in lines if "A title" in line] == lines[:1]
    assert "A note." in lines[-1]


def test_parts_keep_what_stands_out() -> None:
    wide = Table("t", ("run", *"abcdef"), (("x", *(f"{i}" * 20 for i in range(6))),), "n", frozenset({(0, 0), (0, 6)}))
    parts = wide.parts(80)
    assert [part.columns for part in parts] == [("run", "a", "b", "c"), ("run", "d", "e", "f")]
    assert [part.bold for part in parts] == [{(0, 0)}, {(0, 0), (0, 3)}]
    assert wide.parts(300) == [wide]


def test_a_pipe_has_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = io.StringIO()
    Table("t", tuple("abc"), (("x" * 90, "1" * 60, "2" * 60),)).print(rich.console.Console(file=out))
    assert any("x" * 90 in line and "2" * 60 in line for line in out.getvalue().splitlines())


def test_a_radius_is_said_as_it_was_meant() -> None:
    said = [radius_text(radius) for radius in (0.1, 0.2, 1.0, 8 / 255, 2 / 255, 1 / 7)]
    assert said == ["0.1", "0.2", "1", "8/255", "2/255", "0.142857"]


def test_a_page_wraps_sentences_and_no_numbers_and_cuts_no_title() -> None:
    html = Table("A title", ("name", "n", "why"), (("a", "1,234", "because " * 8), ("b", "2", "so"))).html()
    assert html.startswith("<p class='title'>A title</p><div class='scroll'")
    assert "<th class='text'>why</th>" in html
    assert html.count("<td class='text'>") == 2
    assert "<td>1,234</td>" in html
