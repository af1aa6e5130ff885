"""Arms and their comparison as tables, lines, documents and a picture: everything told, nothing obeyed, nothing called equal."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any, Final

import pytest

from countermark.experiments.comparison import Comparison, Given, compare
from countermark.experiments.samples import Sample, Scored
from countermark.experiments.sides import Side
from countermark.experiments.specs import Range
from countermark.experiments.stamps import Stamp
from countermark.experiments.warnings import WARNING_CODES, code_of
from countermark.lines import experiments as lines
from countermark.lines import interval_svg as picture
from countermark.lines.experiments import (
    FLIP_COLUMNS,
    METRIC_COLUMNS,
    SIDE_COLUMNS,
    comparison_document,
    conclusion_line,
    flip_rows,
    given_line,
    join_line,
    metric_rows,
    metrics_table,
    side_rows,
)
from countermark.lines.interval_svg import ROWS_MAX, interval_svg
from countermark.lines.of_experiments import warning_document, warning_sentence
from countermark.values import CompositionDigest, NonEmpty
from tests.experiments.arms import ROOT_B, forty, scored, side, without_stamp
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE, sample

SVG: Final = "{http://www.w3.org/2000/svg}"


def compared(a: Side, b: Side, *more: Side, given: Given | None = None) -> Comparison:
    found = compare(a, NonEmpty(b, more), None, given)
    assert isinstance(found, Comparison)
    return found


def test_sides_show_their_stamp_and_how_well_it_is_known() -> None:
    a, b = forty()
    rows = side_rows((a, replace(without_stamp(b), dataset=None, grader=None, decoding=None, seed_used=None, cache_uncounted=True)))
    assert all(len(row) == len(SIDE_COLUMNS) for row in rows)
    assert rows == (
        ("expbase:base", "wr1:aaaaaaaaaaaa", "measured before and after the run", "unknown", "dddddddd", "eeeeeeee", '{"temperature":0}',
         "7", "1", "40", "40", "0", "0", "0", "0"),
        ("expedited:edited", "none", "-", "-", "-", "-", "-", "7 (given)", "1", "40", "40", "0", "0", "0", "some"),
    )  # fmt: skip


@proven_by(planted(lines, "shown_number", lambda value: "0.000"))
def test_the_rows_of_a_comparison() -> None:
    a, b = forty()
    pair = compared(replace(a, ranges={"acc": Range(0.0, 1.0)}), b).pairs.first
    (row,) = metric_rows(pair)
    assert dict(zip(METRIC_COLUMNS, row, strict=True)) == {
        "metric": "acc", "better": "higher", "n": "40", "A": "0.525", "B": "0.750", "B − A": "0.225", "95 % interval": "[0.037, 0.391]",
        "p": "0.035", "p (Holm)": "0.035", "family": "1", "test": "McNemar exact, Newcombe", "p (signs)": "0.035", "won": "12", "lost": "3",
        "tied": "25", "detects": "0.262", "unscored A": "0", "unscored B": "0", "bounds A": "[0.525, 0.525]", "bounds B": "[0.750, 0.750]",
    }  # fmt: skip
    assert join_line(pair.join, pair) == "joined by id: 40 paired, 0 only in A, 0 only in B"
    flips = tuple(flip_rows(pair))
    assert len(flips) == 15 and all(len(flip) == len(FLIP_COLUMNS) for flip in flips)
    assert flips[0] == ("acc", "q18", "1.000", "0.000", "loses")


def test_what_is_said_of_a_metric() -> None:
    a, b = forty()
    (found,) = compared(a, b).pairs.first.metrics
    (back,) = compared(b, a).pairs.first.metrics
    (none,) = compared(a, replace(b, came=a.came)).pairs.first.metrics
    assert conclusion_line(found) == "acc: B is better, 0.225 [0.037, 0.391], p 0.035 of 1 test"
    assert conclusion_line(back) == "acc: B is worse, -0.225 [-0.391, -0.037], p 0.035 of 1 test"
    assert conclusion_line(none) == "acc: 0.000, not resolved: this n (40) can detect ≥ 0.150"
    one = compared(side("base", scored([1.0]), 1), side("edited", scored([0.0]), 1)).pairs.first
    assert conclusion_line(one.metrics[0]) == "acc: -1.000, not resolved: this n (1) can detect nothing"
    assert metric_rows(one)[0][5:9] == ("-1.000", "-", "-", "-")
    apart = compared(a, replace(b, asked=())).pairs.first.metrics[0]
    assert conclusion_line(apart) == "acc: no pair has it on both sides"


def test_a_given_line_shows_the_stamps_and_both_counts() -> None:
    a, b = (
        replace(each, came=replace(each.came, samples=tuple(
            Sample(found.id, 0, Scored({"acc": 1.0, "ok": float(at % 4 > 0)})) for at, found in enumerate(each.came.samples)
        )))
        for each in forty()
    )  # fmt: skip
    pair = compared(a, b, given=Given("ok")).pairs.first
    assert given_line(pair) == "given ok = 1.000 on both sides: 30 of 40 pairs (A wr1:aaaaaaaaaaaa, B wr1:bbbbbbbbbbbb)"
    assert given_line(compared(a, b).pairs.first) is None


@proven_by(planted(lines, "shown_number", lambda value: "-" if value is None else f"{value:.2f}"))
def test_nearly_all_is_not_shown_as_all_and_what_was_not_measured_not_as_none() -> None:
    nearly = side("base", scored([1.0] * 1812 + [0.0] * 4), 1816)
    numbers = side("edited", (), 0, repeats=2, metrics=[{"gain_per_weight": 0.0001}, {"gain_per_weight": 0.0003}])
    heads, rows = metrics_table((nearly, numbers))
    assert heads == ("metric", "expbase:base", "expedited:edited")
    assert rows == (
        ("stamp", "wr1:aaaaaaaaaaaa (measured before and after the run)", "wr1:bbbbbbbbbbbb (measured before and after the run)"),
        ("acc", "0.998 (4 failing)", "-"),
        ("gain_per_weight", "-", "0.00020"),
    )


def test_the_document_of_a_comparison() -> None:
    a, b = forty()
    stamped = replace(b, stamp=Stamp(ROOT_B, "computed_in_arm", "derived", CompositionDigest("c" * 64)), seed_used=None)
    document: Any = json.loads(json.dumps(comparison_document(compared(a, stamped, replace(b, arm="third")), flips=True)))
    assert list(document) == ["sides", "join", "given", "metrics", "flips", "others", "confidence", "warnings"]
    assert [each["arm"] for each in document["sides"]] == ["base", "edited", "third"]
    assert document["sides"][1]["stamp"] == {
        "sha256": "b" * 64, "kind": "wr1", "ran": "computed_in_arm", "origin": "derived", "composition": "mc1:" + "c" * 64,
    }  # fmt: skip
    assert document["join"] == {"by": "id", "paired": 40, "onlyA": 0, "onlyB": 0, "changed": 0}
    (metric,) = document["metrics"]
    assert (metric["name"], metric["test"], metric["wins"], metric["losses"], metric["ties"]) == ("acc", "mcnemar", 12, 3, 25)
    assert metric["ci"] == pytest.approx([0.037001, 0.391239], abs=5e-7)
    assert (metric["family"], metric["p"], metric["pAdjusted"]) == (2, pytest.approx(0.03515625), pytest.approx(0.0703125))
    assert document["flips"][0] == {"metric": "acc", "idA": "q18", "idB": "q18", "a": 1.0, "b": 0.0, "wins": False}
    assert [(each["side"], len(each["metrics"]), len(each["flips"])) for each in document["others"]] == [(2, 1, 15)]
    assert document["warnings"] == [{
        "code": "SEED_UNRECORDED", "sides": ["expedited:edited"], "message": "which seed was used is not said by expedited:edited",
        "remedy": "have the arm print the seed that it used",
    }]  # fmt: skip


@pytest.mark.parametrize("code", WARNING_CODES)
def test_every_warning_has_a_sentence_and_a_document(code: str) -> None:
    warning = sample(WARNING_CODES[code])
    said = warning_sentence(warning)
    assert said.message and said.remedy and said.message.isprintable() and said.remedy.isprintable()
    document: Any = json.loads(json.dumps(warning_document(warning)))
    assert (document["code"], document["message"], document["remedy"]) == (code, said.message, said.remedy)
    assert len(document) == 3 + len(type(warning).__dataclass_fields__)
    assert code_of(type(warning)) == code


def test_three_arms_are_counted() -> None:
    found = warning_sentence(sample(WARNING_CODES["IDENTICAL_OUTPUTS"]).__class__(("e:a", "e:b", "e:c"), 200))
    assert found.message == "3 arms (e:a, e:b and e:c) gave the same 200 outputs, byte for byte"


def test_nothing_in_a_line_or_a_picture_is_obeyed() -> None:
    a, b = (
        replace(each, arm=HOSTILE, experiment=HOSTILE, came=replace(each.came, samples=tuple(
            replace(found, outcome=Scored({HOSTILE: value})) for value, found in zip(values, each.came.samples, strict=True)
        )))
        for each, values in zip(forty(), ([0.0] * 40, [0.0, 1.0] * 20), strict=True)
    )  # fmt: skip
    found = compared(a, b)
    pair = found.pairs.first
    shown = [
        *(cell for row in side_rows(found.sides) for cell in row), *(cell for row in metric_rows(pair) for cell in row),
        *(cell for row in flip_rows(pair) for cell in row), *(cell for row in metrics_table(found.sides)[1] for cell in row),
        conclusion_line(pair.metrics[0]), join_line(pair.join, pair),
    ]  # fmt: skip
    assert all(each.isprintable() for each in shown)
    tree = ET.fromstring(interval_svg(found))
    assert {each.tag.removeprefix(SVG) for each in tree.iter()} == {"svg", "rect", "text", "path", "g", "title", "circle"}


@proven_by(planted(picture, "ROWS_MAX", 1))
def test_the_picture_has_a_row_for_every_metric() -> None:
    a, b = forty()
    told_a, told_b = [{"loss": 1.0 + at / 10} for at in range(9)], [{"loss": 0.5 + at / 11} for at in range(9)]
    a, b = (
        replace(each, repeats=9, came=replace(each.came, metrics=side("x", (), 0, metrics=told).came.metrics))
        for each, told in ((a, told_a), (b, told_b))
    )
    found = compared(a, b, replace(b, arm="third"))
    tree = ET.fromstring(interval_svg(found))
    titles = [each.text for each in tree.iter(SVG + "title")]
    assert titles == [conclusion_line(each) for pair in found.pairs for each in pair.metrics]
    assert len(list(tree.iter(SVG + "circle"))) == 4
    assert ROWS_MAX > 100


def test_the_picture_of_nothing() -> None:
    a, b = forty()
    nothing = replace(b, asked=())
    ET.fromstring(interval_svg(compared(a, nothing)))
    assert len(list(ET.fromstring(interval_svg(compared(a, nothing))).iter(SVG + "circle"))) == 0
