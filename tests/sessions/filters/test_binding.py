"""Holding a filter against the keys that there are: what each comparison asks, and everything that does not fit, alone and together."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.sessions.filters import binding
from countermark.sessions.filters.binding import (
    FilterDefect,
    FilterKeyUnknown,
    FilterOperatorUnfit,
    FilterPatternUnfit,
    FilterValueUnfit,
    read_where,
)
from countermark.sessions.filters.condition import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Condition,
    Flagged,
    Has,
    Holds,
    Is,
    Like,
    Piece,
    Where,
)
from countermark.sessions.filters.grammar import FilterUnexpected
from countermark.sessions.filters.keys import IDS, KEYS, OPERATORS, Column, Flag, Key, Members, Subject, Words, keys_of
from countermark.values import Refused
from tests.faults import planted, proven_by

INT64_MAX: Final = 2**63 - 1


def column(name: str, subject: Subject = "sessions") -> Column:
    return keys_of(subject)[name].column


def bound(text: str, subject: Subject = "sessions") -> Condition:
    where = read_where(text, subject)
    assert isinstance(where, Where), where
    assert where.subject == subject
    return where.condition


def refused(text: str, subject: Subject = "sessions") -> tuple[FilterDefect, ...]:
    where = read_where(text, subject)
    assert isinstance(where, Refused), where
    return tuple(where.defects)


# ------------------------------------------------------------------------------------------------------------- what is asked

_EVENTS: Final = column("events")
_SOURCE: Final = column("source")
_TAG: Final = column("tag")
_CLOSED: Final = column("closed")


def events(sign: str, cell: int, absent: bool) -> Holds:
    found = bound(f"events {sign} {cell}")
    assert isinstance(found, Holds) and found.column == _EVENTS and found.test == Is(sign, cell) and found.absent is absent
    return found


CLEAN: Final[dict[str, Condition]] = {
    "NOT events = 5": events("!=", 5, True),
    "NOT events < 5": events(">=", 5, False),
    "NOT NOT events < 5": events("<", 5, True),
    "events > 2.5": events(">=", 3, False),
    "events >= 2.5": events(">=", 3, False),
    "events < 2.5": events("<=", 2, True),
    "events < -2.5": events("<=", -3, False),
    "NOT events <= 2.5": events(">", 2, False),
    "events = 2.0": events("=", 2, False),
    "events > 1e3": events(">", 1000, False),
    "events IS NULL": events("=", 0, True),
    "events IS NOT NULL": events("!=", 0, False),
    "events = 2.5": Always(False),
    "events != 2.5": Always(True),
    "NOT events = 2.5": Always(True),
    f"events = {INT64_MAX}": events("=", INT64_MAX, False),
    f"events > {INT64_MAX + 1}": Always(False),
    f"events <= {INT64_MAX + 1}": Always(True),
    f"events = {INT64_MAX + 1}": Always(False),
    f"events != {-INT64_MAX - 2}": Always(True),
    f"events > {-INT64_MAX - 2}": Always(True),
    f"events IN ({INT64_MAX + 1}, 2.5)": Always(False),
    f"events NOT IN ({INT64_MAX + 1}, 2.5)": Always(True),
    "events IN (0, 2.5, 7)": Holds(_EVENTS, Among((0, 7)), True),
    "events NOT IN (1, 7)": Holds(_EVENTS, Among((1, 7), True), True),
    "weights.changed >= 18446744073709551616": Holds(column("weights.changed"), Is(">=", "18446744073709551616".zfill(40)), False),
    "weights.changed > -1": Always(True),
    "weights.changed IS NULL": Holds(column("weights.changed"), Is("=", "0" * 40), True),
    f"weights.changed < {10**39}0": Always(True),
    "cost = 0.1": Holds(column("cost"), Is("=", 0.1), False),
    "cost < 1e400": Holds(column("cost"), Is("<", float("inf")), True),
    "cost > -1e400": Holds(column("cost"), Is(">", float("-inf")), True),
    "started >= '2026-11-01'": Holds(column("started"), Is(">=", 1_793_491_200 * 10**9), False),
    "started < '9999-12-31'": Always(True),
    "started IS NULL": Holds(column("started"), Is("=", 0), True),
    "source != ''": Holds(_SOURCE, Is("!=", ""), False),
    "source LIKE '%'": Holds(_SOURCE, Like(("any",), False), True),
    r"NOT source LIKE 'a\%_\\\_%'": Holds(_SOURCE, Like((Piece("a%"), "one", Piece("\\_"), "any"), False, True), True),
    "source ILIKE 'ÄBC'": Holds(_SOURCE, Like((Piece("Äbc"),), True), False),
    "tag = 'x'": Has(_TAG, Is("=", "x"), False),
    "tag != 'x'": Has(_TAG, Is("=", "x"), True),
    "NOT tag != 'x'": Has(_TAG, Is("=", "x"), False),
    "tag NOT IN ('x', 'y')": Has(_TAG, Among(("x", "y")), True),
    "tag NOT LIKE 'x%'": Has(_TAG, Like((Piece("x"), "any"), False), True),
    "tag IS NULL": Has(_TAG, None, True),
    "tag IS NOT NULL": Has(_TAG, None, False),
    "closed = true": Flagged(_CLOSED, True),
    "closed != true": Flagged(_CLOSED, False),
    "NOT closed != false": Flagged(_CLOSED, False),
    "attributes.events > 5": events(">", 5, False),
    "session.events > 5": events(">", 5, False),
    "NOT (events > 5 AND (closed = true OR events < 0))": AnyOf(
        (events("<=", 5, True), AllOf((Flagged(_CLOSED, False), events(">=", 0, True))))
    ),
}


@pytest.mark.parametrize("text", CLEAN)
def test_what_a_filter_asks_is_decided_without_a_database(text: str) -> None:
    assert bound(text) == CLEAN[text]


def test_a_work_key_is_compared_as_it_is_spelled() -> None:
    work = column("work", "runs")
    assert isinstance(work, Words)
    assert bound("work = 'wk1:ab'", "runs") == Holds(work, Is("=", "ab"), False)
    assert bound("work = 'ab'", "runs") == bound("work IS NULL", "runs") == Always(False)
    assert bound("work < 'wk1'", "runs") == bound("work > 'wk2'", "runs") == Always(False)
    assert bound("work > 'wk1'", "runs") == bound("work < 'wk2'", "runs") == Always(True)
    assert bound("work IN ('x', 'wk1:ab')", "runs") == Holds(work, Among(("ab",)), False)


def test_a_time_of_runs_is_compared_in_whole_milliseconds() -> None:
    created = column("created", "runs")
    at_ms = 1_793_491_200_000
    for text, test in {
        "created = '2026-11-01'": Is("=", at_ms),
        "created > '2026-11-01T00:00:00.0000001Z'": Is(">=", at_ms + 1),
        "created < '2026-11-01T00:00:00.0000001Z'": Is("<=", at_ms),
    }.items():
        found = bound(text, "runs")
        assert isinstance(found, Holds) and (found.column, found.test) == (created, test)


# ------------------------------------------------------------------------------------------------------------ what is refused

_TEXT: Final = "it is compared with a text in quotes"
_NUMBER: Final = "it is compared with a number, without quotes"
_TIME: Final = "it is compared with a date or a date-time in quotes"
_TRUTH: Final = "it is TRUE or FALSE, without quotes"

BROKEN: Final[dict[str, FilterDefect]] = {
    "edits > 5": FilterKeyUnknown(1, "edits", "sessions", ("weights.edits",)),
    "Weights.Edits > 5": FilterKeyUnknown(1, "Weights.Edits", "sessions", ("weights.edits", "weights.tensors", "weights.changed")),
    "tags.`x` = 'y'": FilterKeyUnknown(1, "tags.x", "sessions", ("tag",)),
    "run.id = 'x'": FilterKeyUnknown(1, "run.id", "sessions", ("id",)),
    "verdict = 'x'": FilterKeyUnknown(1, "verdict", "sessions", ()),
    "events LIKE 'x'": FilterOperatorUnfit(1, "events", "LIKE", "integer", OPERATORS["integer"]),
    "cost NOT ILIKE 'x'": FilterOperatorUnfit(1, "cost", "ILIKE", "number", OPERATORS["number"]),
    "started LIKE '2026%'": FilterOperatorUnfit(1, "started", "LIKE", "time", OPERATORS["time"]),
    "closed > true": FilterOperatorUnfit(1, "closed", ">", "boolean", OPERATORS["boolean"]),
    "closed IN (true)": FilterOperatorUnfit(1, "closed", "IN", "boolean", OPERATORS["boolean"]),
    "closed IS NULL": FilterOperatorUnfit(1, "closed", "IS NULL", "boolean", OPERATORS["boolean"]),
    "tag < 'x'": FilterOperatorUnfit(1, "tag", "<", "set of texts", OPERATORS["set of texts"]),
    "source = 5": FilterValueUnfit(10, "source", "5", _TEXT),
    "tag = true": FilterValueUnfit(7, "tag", "TRUE", "its members are compared with a text in quotes"),
    "events = '5'": FilterValueUnfit(10, "events", "'5'", _NUMBER),
    "cost IN (1, 'x')": FilterValueUnfit(13, "cost", "'x'", _NUMBER),
    "closed = 1": FilterValueUnfit(10, "closed", "1", _TRUTH),
    "closed = 'true'": FilterValueUnfit(10, "closed", "'true'", _TRUTH),
    "started = 1793491200": FilterValueUnfit(11, "started", "1793491200", _TIME),
    "started = '2026-02-30'": FilterValueUnfit(11, "started", "'2026-02-30'", "there is no day 2026-02-30"),
    r"source LIKE 'C:\dir'": FilterPatternUnfit(13, "source", 3),
    r"tag ILIKE 'x\'": FilterPatternUnfit(11, "tag", 2),
}


@pytest.mark.parametrize("text", BROKEN)
def test_what_does_not_fit_is_told_with_its_place(text: str) -> None:
    assert refused(text) == (BROKEN[text],)


@proven_by(
    planted(binding._Binder, "_key", lambda binder, name: None),
    planted(binding, "OPERATORS", dict.fromkeys(OPERATORS, OPERATORS["text"])),
    planted(binding, "_nearest", lambda name, names: ()),
)
def test_everything_that_does_not_fit_is_told_at_once_beside_what_cannot_be_read() -> None:
    pieces = [*BROKEN, "events > > 5"]
    text = " AND ".join(pieces)
    wanted: list[FilterDefect] = []
    for piece, at in zip(pieces, (text.index(piece) for piece in pieces), strict=True):
        defect = BROKEN.get(piece, FilterUnexpected(10, ">", "a number, a text in quotes, TRUE or FALSE"))
        wanted.append(type(defect)(defect.at + at, *[getattr(defect, name) for name in defect.__match_args__[1:]]))
    assert refused(text) == tuple(wanted)


def test_an_operator_and_a_value_that_do_not_fit_are_two_defects() -> None:
    assert refused("closed > 5") == (
        FilterOperatorUnfit(1, "closed", ">", "boolean", OPERATORS["boolean"]),
        FilterValueUnfit(10, "closed", "5", _TRUTH),
    )


# --------------------------------------------------------------------------------------------------------------- the registry


def test_a_key_stands_once_for_its_subject_and_says_what_it_is() -> None:
    named = [(key.subject, key.name) for key in KEYS]
    assert len(set(named)) == len(named) == sum(len(keys_of(subject)) for subject in IDS)
    assert [key.name for key in KEYS if not key.doc or key.type not in OPERATORS] == []


def test_the_keys_that_were_promised_are_there() -> None:
    assert {"weights.edits", "weights.tensors", "weights.changed", "tag", "started"} <= keys_of("sessions").keys()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.subject}.{key.name}")
def test_every_key_takes_each_of_its_operators_and_no_other(key: Key) -> None:
    value = {"text": "'x'", "set of texts": "'x'", "integer": "7", "number": "2.5", "time": "'2026-11-01'", "boolean": "TRUE"}[key.type]
    texts = {operator: f"{key.name} {operator} {value}" for operator in ("=", "!=", "<", "<=", ">", ">=", "LIKE", "ILIKE")}
    texts |= {"IN": f"{key.name} IN ({value})", "IS NULL": f"{key.name} IS NULL"}
    texts["LIKE"], texts["ILIKE"] = f"{key.name} LIKE 'x'", f"{key.name} ILIKE 'x'"
    taken = {operator for operator, text in texts.items() if isinstance(read_where(text, key.subject), Where)}
    assert taken == set(OPERATORS[key.type])


def test_flags_and_sets_have_no_value_that_is_absent() -> None:
    assert [key.name for key in KEYS if isinstance(key.column, Flag | Members) and "<" in OPERATORS[key.type]] == []


@given(st.text(max_size=80), st.sampled_from(tuple(IDS)))
def test_no_text_raises(text: str, subject: Subject) -> None:
    assert isinstance(read_where(text, subject), Where | Refused)
