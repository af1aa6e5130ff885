"""What is too old is looked for and taken out by one walk, and what would go is what goes."""

from pathlib import Path

import pytest

from countermark.app import retention
from countermark.app.retention import retire, rule_of
from countermark.lines import leaving
from countermark.lines.leaving import Retired, leaving_document, leaving_lines, leaving_rows
from countermark.sessions.records import Outdated, Rule
from countermark.store.sessions.interface import Forgotten, SessionStore
from countermark.store.sessions.sqlite import SqliteSessions
from tests.faults import planted, proven_by
from tests.store.sessions.examples import DAY, NOW, edit, event


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    """Nine sessions, each a day older than the one before, of which a sink has not sent the fourth."""
    opened = SqliteSessions.open(tmp_path, create=True)
    opened.hold_sink("sink", "me", NOW, NOW + 1)
    for number in range(9):
        one = edit if number == 3 else event
        opened.ingest([one(f"e-{number}", "w" if number == 3 else None, session=f"s-{number}", received_ns=NOW - number * DAY)])
    return opened


def test_a_rule_is_of_days_and_a_day_is_rested() -> None:
    assert rule_of(1, NOW) == Rule(NOW - DAY, NOW - DAY)
    assert rule_of(90, NOW, unsent=True) == Rule(NOW - 90 * DAY, NOW - DAY, unsent=True)


@proven_by(planted(retention, "NAMED_MAX", 1))
def test_what_would_go_is_what_goes(store: SessionStore) -> None:
    rule = rule_of(2, NOW)
    named = tuple(Outdated(f"s-{number}", 1, NOW - number * DAY, ("sink",) if number == 3 else ()) for number in range(8, 2, -1))
    assert retire(store, rule, False) == Retired(rule, False, 5, 5, {"sink": 1}, named)
    told: list[Forgotten] = []
    assert retire(store, rule, True, told.append) == Retired(rule, True, 5, 5, {"sink": 1}, named)
    assert told == [Forgotten(5, 5)]
    assert [each.id for each in store.sessions().items] == ["s-0", "s-1", "s-2", "s-3"]
    assert retire(store, rule_of(2, NOW, unsent=True), True).sessions == 1
    assert retire(store, rule, True) == Retired(rule, True, 0, 0, {}, ())


def test_what_goes_page_by_page_is_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SqliteSessions.outdated
    monkeypatch.setattr(SqliteSessions, "outdated", lambda self, rule, after: honest(self, rule, after, limit=2))
    told: list[Forgotten] = []
    with SqliteSessions.open(tmp_path, create=True) as store:
        store.ingest([event(f"e-{number}", session=f"s-{number % 5}", received_ns=NOW + number % 5) for number in range(15)])
        assert retire(store, Rule(NOW + 9, NOW + 9), True, told.append).events == 15
    assert told == [Forgotten(2, 6), Forgotten(4, 12), Forgotten(5, 15)]


@proven_by(planted(leaving, "_fate", lambda retired, session: "went"))
def test_what_a_person_is_told() -> None:
    first = (Outdated("s\x1b[1m", 1_234, NOW, ()), Outdated("s-2", 1, NOW, ("a", "b")))
    would = Retired(Rule(NOW, NOW), False, 1, 1_234, {"a": 1, "b": 2}, first)
    assert leaving_rows(would) == (
        ("s\\x1b[1m", "1,234", "2026-11-30T00:53:20Z", "would go"),
        ("s-2", "1", "2026-11-30T00:53:20Z", "stays for a and b"),
    )
    since = "in which nothing happened since 2026-11-30T00:53:20Z"
    assert leaving_lines(would) == (
        f"1 session with 1,234 events, {since}, would go; nothing was taken out: --yes does it",
        "1 older session stays: a has not sent everything of them yet",
        "2 older sessions stay: b has not sent everything of them yet",
    )
    anyway = Retired(Rule(NOW, NOW, unsent=True), True, 80, 90, {}, first * 25)
    assert {fate for *_, fate in leaving_rows(anyway)} == {"went"}
    assert leaving_lines(anyway) == ("and 30 more sessions", f"80 sessions with 90 events, {since}, went")
    assert leaving_lines(Retired(Rule(-5, NOW), False, 0, 0, {}, ())) == (
        "0 sessions with 0 events, in which nothing happened since 1970-01-01T00:00:00Z, would go",
    )
    assert leaving_document(would) == {
        "before": "2026-11-30T00:53:20Z",
        "dryRun": True,
        "sessions": 1,
        "events": 1_234,
        "unsent": [{"sink": "a", "sessions": 1}, {"sink": "b", "sessions": 2}],
        "outdated": [
            {"session": "s\x1b[1m", "events": 1_234, "last": "2026-11-30T00:53:20Z", "owed": []},
            {"session": "s-2", "events": 1, "last": "2026-11-30T00:53:20Z", "owed": ["a", "b"]},
        ],
    }
