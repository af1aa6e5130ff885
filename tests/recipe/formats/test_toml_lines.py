"""The line index of a TOML text, held against the standard library's parser."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.recipe.formats.toml_lines import Path, Repeated, index_of_keys

TEXT = '''\
# comment [not] = "a table"
a = "x # [y] = { z = 1 }"   # c
"quoted key" = 'lit"eral'
b.c . d = """multi
e = 1 ["{
"quoted" ""two"" \\""" still
"""
f = [ # list
  { g = 1, h = [ {i = 2} ] },
  "]",
]

[t]
j = \'\'\'
k = 1
\'\'\'
[t . u]
l = { m.n = 1, o = "}", }
[[v]]
w = 1
[[v]]
w = 2
'''


def test_every_key_has_its_line() -> None:
    index = index_of_keys(TEXT, 16)
    assert index.lines == {
        ("a",): 2,
        ("quoted key",): 3,
        ("b",): 4,
        ("b", "c"): 4,
        ("b", "c", "d"): 4,
        ("f",): 8,
        ("f", "g"): 9,
        ("f", "h"): 9,
        ("f", "h", "i"): 9,
        ("t",): 13,
        ("t", "j"): 14,
        ("t", "u"): 17,
        ("t", "u", "l"): 18,
        ("t", "u", "l", "m"): 18,
        ("t", "u", "l", "m", "n"): 18,
        ("t", "u", "l", "o"): 18,
        ("v",): 19,
        ("v", "w"): 20,
    }
    assert index.repeated == []
    assert index.line("t", "u", "absent") == 17
    assert index.line("absent") == 0


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        ("a = 1\na = 2", [Repeated(("a",), 2, 1)]),
        ("a = 1\n'a' = 2\n\"\\u0061\" = 3", [Repeated(("a",), 2, 1), Repeated(("a",), 3, 1)]),
        ("[t]\n[t]", [Repeated(("t",), 2, 1)]),
        ("a.b = 1\na.b = 2\na.c = 3", [Repeated(("a", "b"), 2, 1)]),
        ("[a]\nb = 1\n[c]\nb = 1", []),
        ("a = { b = 1, b = 2 }", [Repeated(("a", "b"), 1, 1)]),
        ("[[a]]\nb = 1\n[[a]]\nb = 1\nb = 2", [Repeated(("a", "b"), 5, 4)]),
        ("a = [{ b = 1 }, { b = 2 }, [{ b = 3, b = 4 }]]", [Repeated(("a", "b"), 1, 1)]),
        ("a = [{ b = 1 },\n{ c = 1,\nc = 2 }]", [Repeated(("a", "c"), 3, 2)]),
        ('a = """\nb = 1\nb = 2\n"""', []),
    ],
)
def test_keys_that_stand_twice_are_found_with_both_lines(text: str, repeated: list[Repeated]) -> None:
    assert index_of_keys(text, 16).repeated == repeated


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = " + "[" * 16 + "]" * 16, 0),
        ("\na = " + "[" * 17 + "]" * 17, 2),
        ("a = [[\n" + "{b = [" * 16, 2),
        (".".join("a" * 16) + " = 1", 0),
        ("x = 1\n" + ".".join("a" * 17) + " = 1", 2),
        ('a = "' + "[" * 100 + '"', 0),
        ("# " + "[" * 100, 0),
    ],
)
def test_nesting_is_measured_before_anything_recurses(text: str, line: int) -> None:
    assert index_of_keys(text, 16).too_deep_line == line


KEYS = st.sampled_from(["a", "b", "c", '"q k"', "'l'", "x-y"])
VALUES = st.recursive(
    st.sampled_from(["1", "2e-4", '"s # ["', "'l }'", '"""\nm = 1\n"""', "true", "1979-05-27 07:32:00", "'''[[\n'''"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + " ,\n".join(items) + "]")
        | st.dictionaries(KEYS, inner, max_size=3).map(lambda table: "{" + ", ".join(f"{k} = {v}" for k, v in table.items()) + "}")
    ),
    max_leaves=5,
)
STATEMENTS = st.tuples(KEYS, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}") | KEYS.map(lambda key: f"[{key}]") | st.just("# c [x] = 1")


def paths(value: Any, prefix: Path = ()) -> set[Path]:
    """Every key of parsed TOML by path, lists looked through as the index does."""
    if isinstance(value, list):
        return set().union(*(paths(item, prefix) for item in value)) if value else set()
    if isinstance(value, dict):
        return {(*prefix, key) for key in value} | set().union(*(paths(inner, (*prefix, key)) for key, inner in value.items()), set())
    return set()


@given(st.lists(STATEMENTS, max_size=6))
def test_the_index_knows_exactly_the_keys_that_the_parser_finds(statements: list[str]) -> None:
    text = "\n".join(statements)
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # The statements are sound one by one, so only repetition can break them: the index must have seen it.
        assert index_of_keys(text, 16).repeated or _table_over_value(statements)
        return
    index = index_of_keys(text, 16)
    assert set(index.lines) == paths(parsed)
    lines = text.split("\n")
    assert all(path[-1][0] in lines[line - 1] for path, line in index.lines.items())


def _table_over_value(statements: list[str]) -> bool:
    """Whether a key is given a value in one place and is a table's name in another: the parser's business alone."""
    headers = {one.strip("[]") for one in statements if one.startswith("[")}
    return any(one.split(" = ")[0] in headers for one in statements)


@given(st.text(alphabet="ab=[]{}\"'\\#.,\n \t1", max_size=60))
def test_no_text_makes_the_scan_raise(text: str) -> None:
    index = index_of_keys(text, 4)
    assert all(1 <= line <= text.count("\n") + 1 for line in index.lines.values())


def test_a_quarter_megabyte_of_anything_is_scanned_in_a_moment() -> None:
    for piece in ("a = 1\n", "[a]\n", '"', "'''", "a.b.c.d = 1\n", "a = [1, 2,\n", "x = {y = 1}\n", "\\", "= ", "#\n", "a b "):
        index_of_keys(piece * (2**18 // len(piece)), 16)
