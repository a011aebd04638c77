"""Separators: those that spreadsheets write, told from the first lines alone."""

from pathlib import Path

import pytest

from widemargin.data.separators import separator_of, text_rows


@pytest.mark.parametrize(
    ("text", "rows", "mark"),
    [
        ("a,b\n1,2\n", [["a", "b"], ["1", "2"]], ","),
        ("a;b\n1,5;2\n", [["a", "b"], ["1,5", "2"]], ";"),
        ("a\tb\n1\t2\n", [["a", "b"], ["1", "2"]], "\t"),
        ("a|b\n1|2\n", [["a", "b"], ["1", "2"]], "|"),
        ("\ufeffsep=;\r\na;b\r\n1,5;2\r\n", [["a", "b"], ["1,5", "2"]], ";"),
        ("sep=,\na,b;c\n1,2\n", [["a", "b;c"], ["1", "2"]], ","),
        ('a,b\n"x;y;z",2\n', [["a", "b"], ["x;y;z", "2"]], ","),
        ('a,b\n"one\nline",2\n', [["a", "b"], ["one\nline", "2"]], ","),
        ("a\n\n1\n", [["a"], ["1"]], ","),
        ("", [], ","),
    ],
)
def test_rows(tmp_path: Path, text: str, rows: list[list[str]], mark: str) -> None:
    (tmp_path / "own.csv").write_text(text, newline="")
    with text_rows(tmp_path / "own.csv") as (read, separator):
        assert list(read) == rows
    assert separator == mark


def test_a_tsv_file_has_tabs(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("a,b\tc\n1\t2\n")
    with text_rows(tmp_path / "own.tsv") as (read, _):
        assert list(read) == [["a,b", "c"], ["1", "2"]]


def test_the_names_decide_where_rows_differ_in_length() -> None:
    assert separator_of(["a;b;c,d\n", "1;2;3\n", "1;2\n"]) == ";"
    assert separator_of(["a,b;c\n", "1,2\n", "1,2\n"]) == ","
