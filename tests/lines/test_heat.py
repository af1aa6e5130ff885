"""The map of a change as characters and as a picture: everything told, nothing obeyed, and it fits."""

import xml.etree.ElementTree as ET
from contextlib import AbstractContextManager
from typing import Final

import pytest

from countermark.lines import heat_svg as picture
from countermark.lines import heat_text as text
from countermark.lines.heat_svg import COLUMNS_MAX, ROWS_MAX, heat_svg
from countermark.lines.heat_text import ASCII, BLOCKS, Alphabet, columns_for, heat_lines
from countermark.weights.heat import HeatMap, heat_map
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE
from tests.weights.test_heat import row

SVG: Final = "{http://www.w3.org/2000/svg}"
EVERY: Final = heat_map(
    [
        *(row(f"h.{layer}.q.weight", "changed", 0.5 * 10.0**-layer) for layer in range(4)),
        row("h.0.k.weight"), row("h.1.k.weight"), row("h.2.k.weight", "changed", 0.01, 3), row("h.3.k.weight", "only_a"),
        row("h.1.v.weight", "only_b"), row("h.2.v.weight", "reshaped"), row("norm"),
    ],
    frozenset({"h.1.k.weight"}), 99, 99,
)  # fmt: skip


def told(heat: HeatMap, width: int = 80, alphabet: Alphabet = BLOCKS) -> list[str]:
    return ["".join(part for part, _ in line).rstrip() for line in heat_lines(heat, width, alphabet)]


def every_cell_is_a_dot() -> AbstractContextManager[object]:
    """Whatever it is."""
    return planted(text, "_drawn", lambda *_: ("·", ""))()


@proven_by(every_cell_is_a_dot)
def test_each_cell_is_a_character_and_the_legend_says_those_that_occur() -> None:
    assert told(EVERY) == [
        "h       0",
        "  k     ·╱!−",
        "  q     █▆▃▁",
        "  v      +◆",
        "in no layer",
        "  norm  ·",
        "▁▂▃▄▅▆▇█ relative change from 0.0005 to 0.5   ! became NaN or infinite",
        "· unchanged   ╱ expected to change, unchanged   ◆ changed, without a norm",
        "− only in A   + only in B",
    ]
    calm = told(heat_map([row("w")], frozenset(), 9, 9))
    assert calm == ["in no layer", "  w  ·", "· unchanged"]


def test_without_block_characters_all_is_ascii() -> None:
    lines = told(EVERY, alphabet=ASCII)
    assert lines[1:4] == ["  k     ./!-", "  q     8631", "  v      +#"]
    assert all(line.isascii() for line in told(heat_map([row("größe" * 20), row("x")], frozenset(), 9, 9), 40, ASCII))


@pytest.mark.parametrize("width", [20, 60, 100])
def test_no_line_is_wider_than_the_terminal_and_no_name_moves_it(width: int) -> None:
    names = ["层" * 60, HOSTILE, "m." + "very_long_module_name" * 9, "a\tb"]
    rows = [row(f"{stack}.{layer}.{name}", "changed", 0.1) for stack in ("h", HOSTILE) for layer in range(200) for name in names]
    found = heat_map([*rows, row(HOSTILE)], frozenset(), columns_for(width), 60)
    lines = told(found, width)
    assert [line for line in lines if text._wide(line) > max(width, 30)] == []
    assert [line for line in lines if not line.isprintable()] == []
    assert f"{-(-200 // columns_for(width))} layers a column" in "\n".join(lines)


def unescaped() -> AbstractContextManager[object]:
    """Names go into the picture as they are."""
    return planted(picture, "escape", lambda each: each)()


def parsed(svg: str) -> ET.Element:
    try:
        return ET.fromstring(svg)
    except ET.ParseError as error:
        raise AssertionError(f"this is no XML: {error}") from error


@proven_by(unescaped)
def test_a_picture_says_each_cell_in_words_and_no_name_leaves_its_place() -> None:
    name = HOSTILE + "</title><script>x</script>\ufffe\x00&<\"'"
    rows = [row(name, "changed", 0.1), row(f"h.0.{name}", "only_a"), row("h.1.w"), row(f"{name} that stayed")]
    heat = heat_map(rows, frozenset(), 9, 9)
    svg = heat_svg(heat, name, "<b>", "1 of 2 & more")
    root = parsed(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {"svg", "defs", "pattern", "rect", "circle", "text", "path", "title"}
    assert [each for each in svg if not each.isprintable() and each != "\n"] == []
    titles = [each.text or "" for each in root.iter(f"{SVG}title")]
    assert any("relative change 0.100" in each for each in titles)
    assert any(each.endswith("only in A") for each in titles)
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert "1 of 2 & more" in words
    assert [each for each in root.iter() for key in each.attrib if key.endswith("href") or key.startswith("on")] == []


def fills(svg: str) -> dict[str, list[str]]:
    """The words of each cell with what it is filled with."""
    return {
        str(each.findtext(f"{SVG}title")): [str(each.get("fill"))]
        for each in parsed(svg).iter()
        if each.find(f"{SVG}title") is not None and each.get("fill")
    }


@proven_by(planted(picture, "_FILLS", dict.fromkeys(picture._FILLS, "#dfe2e6")))
def test_grey_is_unchanged_hatched_is_missed_and_a_ring_marks_what_became_non_finite() -> None:
    svg = heat_svg(EVERY, "a", "b", "")
    found = fills(svg)
    assert found["h.1.k.weight, expected to change, unchanged"] == ["url(#hatch)"]
    assert found["k: unchanged"] == found["norm: unchanged"] == ["#dfe2e6"]
    assert found["h.3.k.weight, only in A"] != found["h.1.v.weight, only in B"] != ["#dfe2e6"]
    assert found["h.0.q.weight, changed, relative change 0.500"] == ["#7a0126"]
    assert found["h.3.q.weight, changed, relative change 5e-4"] == ["#ffeda0"]
    marked = [each.findtext(f"{SVG}title") for each in parsed(svg).iter(f"{SVG}g")]
    assert marked == ["h.2.k.weight, changed, relative change 0.0100, 3 values became NaN or infinite"]
    words = [each.text for each in parsed(svg).iter(f"{SVG}text")]
    assert {"0.0005", "0.01", "0.5", "unchanged", "only in A", "values became NaN or infinite"} <= set(words)


def test_thousands_of_tensors_stay_a_picture() -> None:
    names = [f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight" for layer in range(60) for expert in range(64) for part in "gud"]
    odd = [f"t{at}.weight" for at in range(3000)]
    rows = [row(name, "changed" if at % 3 else "equal", 1e-3 * (at % 50 + 1)) for at, name in enumerate([*names, *odd])]
    found = heat_map(rows, frozenset(), COLUMNS_MAX, ROWS_MAX)
    svg = heat_svg(found, "a", "b", "")
    root = parsed(svg)
    assert len(svg) < 300_000
    assert float(root.get("height", 0)) < 16 * (ROWS_MAX + 20)
    assert float(root.get("width", 0)) < 1800
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert [section.folded > 0 for section in found.sections] == [f"… {section.folded:,} more rows, of no greater change" in words
        for section in found.sections]  # fmt: skip
    assert sum(section.folded for section in found.sections) == 3 + 3000 - ROWS_MAX
