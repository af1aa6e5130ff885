"""Sessions that leave: by a rule, some at a time, with everything of them, and never what somebody is still owed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from sqlalchemy import text

from countermark.sessions.records import Outdated, Rule, SessionCursor
from countermark.store.opening import open_sessions
from countermark.store.sessions import retention
from countermark.store.sessions import statements as said
from countermark.store.sessions.base import SqlSessions
from countermark.store.sessions.interface import Aside, Forgotten, SessionStore
from countermark.store.sessions.retention import SqlRetention
from countermark.store.statements import Statement
from tests.faults import planted, proven_by
from tests.store.sessions.conftest import Opener
from tests.store.sessions.examples import DAY, NOW, T1, chat, edit, event, found, ids, only, rows_of

SINK: Final = "sink"
#: A day later than everything that the examples say, and silent since.
LATER: Final = Rule(NOW + DAY, NOW + DAY)


def outdated(store: SessionStore, rule: Rule = LATER) -> list[str]:
    return [each.id for each in store.outdated(rule).items]


def test_what_is_forgotten_is_gone_and_new_when_it_comes_again(store: SessionStore) -> None:
    kept = [event("k-1", {"t": "shared kept"}, session="s-kept"), event("k-2", trace=T1, session="s-kept")]
    store.ingest(kept)
    before = rows_of(store)
    gone = [edit("g-1", "w", said={"note": "shared gone"}), chat("g-2", "r", 5), event("g-3", trace=T1, session="s-main")]
    store.ingest(gone)
    store.ingest([event("g-1", {"other": 1})])
    assert store.forget(["s-main", "nobody", "s-main"]) == Forgotten(1, 3)
    assert rows_of(store) == before
    assert (found(store, "shared"), found(store, "gone"), store.check()) == (["k-1"], [], ())
    assert store.ingest(gone).stored == ("g-1", "g-2", "g-3")
    assert [each.ordinal for each in store.tail(0)] == [1, 2, 6, 7, 8], "no number is given twice"


#: Faults: all events of a session go at once; a session of which some are left looks folded.
GREEDY: Final = planted(retention, "_take_events", lambda connection, session, limit: honest_take(connection, session, 10**6))
UNMARKED: Final = Statement(text("UPDATE sessions SET fold_version = fold_version WHERE session_id = :session"))
honest_take = retention._take_events


@proven_by(GREEDY)
def test_some_events_go_by_each_transaction_and_whole_sessions_in_the_end(store: SessionStore, stores: Opener) -> None:
    store.ingest([event(f"e-{number}", session=f"s-{number % 3}") for number in range(30)])
    store.ingest([edit("other", "w", session="s-4")])
    told: list[tuple[int, int]] = []
    other = stores()

    def between(forgotten: Forgotten) -> None:
        told.append((forgotten.sessions, forgotten.events))
        assert other.check() == ()
        other.ingest([edit(f"meanwhile-{len(told)}", "w", session="s-4")])

    with patch.object(retention, "_FORGOTTEN_AT_ONCE", 4):
        assert store.forget(["s-0", "s-1", "s-2"], between=between) == Forgotten(3, 30)
    assert told == [(0, 4), (0, 8), (1, 12), (1, 16), (1, 20), (2, 24), (2, 28), (3, 30)]
    assert (only(store).id, only(store).session.sums.events, store.check()) == ("s-4", 9, ())


@proven_by(planted(said, "STALE", UNMARKED))
def test_a_session_of_which_some_is_left_is_folded_anew_from_that(store: SessionStore) -> None:
    store.ingest([chat(f"e-{number}", f"r-{number}", 5) for number in range(6)])

    class Enough(Exception):
        pass

    def enough(forgotten: Forgotten) -> None:
        raise Enough

    with patch.object(retention, "_FORGOTTEN_AT_ONCE", 4), pytest.raises(Enough):
        store.forget(["s-main"], between=enough)
    assert store.check() == ()
    assert (store.to_refold(), store.refold()) == (1, 1)
    assert (only(store).session.sums.events, only(store).session.usage.input_tokens, store.check()) == (2, 10, ())
    with patch.object(retention, "_FORGOTTEN_AT_ONCE", 1), pytest.raises(Enough):
        store.forget(["s-main"], between=enough)
    assert store.ingest([chat("e-0", "r-0", 5)]).stored == ("e-0",)
    assert (only(store).session.sums.events, ids(store), store.check()) == (2, ["e-5", "e-0"], ())


@pytest.mark.parametrize(
    ("start_ns", "received_ns", "gone"),
    [
        (NOW - 9 * DAY, NOW - 9 * DAY, True),
        (NOW - 9 * DAY, NOW - 2 * DAY, True),
        (NOW - 9 * DAY, NOW, False),
        (NOW - 2 * DAY, NOW - 2 * DAY, False),
        (0, NOW - 9 * DAY, True),
        (0, NOW - 2 * DAY, False),
        (NOW + 900 * DAY, NOW - 9 * DAY, True),
        (NOW + 900 * DAY, NOW - 2 * DAY, False),
        (1, NOW - 2 * DAY, True),
    ],
)
def test_a_session_is_as_old_as_what_happened_last_in_it(store: SessionStore, start_ns: int, received_ns: int, gone: bool) -> None:
    store.ingest([event("first", start_ns=NOW - 99 * DAY, received_ns=NOW - 99 * DAY)])
    store.ingest([event("last", start_ns=start_ns, received_ns=received_ns)])
    rule = Rule(NOW - 7 * DAY, NOW - DAY)
    assert outdated(store, rule) == ["s-main"] * gone
    assert store.forget(["s-main"], rule) == (Forgotten(1, 2) if gone else Forgotten(0, 0))
    if gone:
        assert store.ingest([event("last", start_ns=start_ns, received_ns=NOW)]).stored == ("last",)
        assert outdated(store, rule) == [], "what comes again is there to be seen, for as long as what has come just now"
        assert outdated(store, Rule(NOW - 6 * DAY, NOW + DAY)) == ["s-main"] * (0 < start_ns < NOW), "and goes by the rule that it went by"


def test_every_outdated_session_is_told_of_page_by_page(store: SessionStore) -> None:
    store.ingest([event(f"e-{number}", session=f"s-{number % 7}", received_ns=NOW + number % 7) for number in range(21)])
    rule, pages = Rule(NOW + 5, NOW + 6), list[tuple[Outdated, ...]]()
    after: SessionCursor | None = None
    while True:
        page = store.outdated(rule, after, limit=2)
        pages.append(page.items)
        if (after := page.next) is None:
            break
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert [each for page in pages for each in page] == [Outdated(f"s-{number}", 3, NOW + number, ()) for number in range(5)]


@proven_by(planted(retention, "_holds", lambda rule, row: True))
def test_a_session_that_something_came_to_meanwhile_stays(store: SessionStore, stores: Opener) -> None:
    store.ingest([event(f"e-{number}", session=f"s-{number}") for number in range(3)])
    going = outdated(store)
    assert going == ["s-0", "s-1", "s-2"]
    stores().ingest([event("late", session="s-1", received_ns=NOW + 2 * DAY)])
    assert store.forget(going, LATER) == Forgotten(2, 2)
    assert (only(store).id, store.check()) == ("s-1", ())


def nobody_is_owed(*given: object) -> dict[str, tuple[str, ...]]:
    return {}


@proven_by(planted(SqlRetention, "_owed", nobody_is_owed))
def test_what_a_sink_has_not_sent_or_told_of_stays_until_it_has(store: SessionStore) -> None:
    for sink in (SINK, "other"):
        store.hold_sink(sink, "me", NOW, NOW + 1)
    store.ingest([edit("a", "w", session="s-a"), edit("b", "w", session="s-b"), event("c", session="s-c")])
    store.ingest([edit("d", "w", session="s-d", forwarded=True)])

    def owed() -> dict[str, tuple[str, ...]]:
        return {each.id: each.owed for each in store.outdated(LATER).items}

    both, one = ("other", SINK), (SINK,)
    assert owed() == {"s-a": both, "s-b": both, "s-c": (), "s-d": ()}
    assert store.forget(["s-a", "s-b", "s-c", "s-d"], LATER) == Forgotten(2, 2)
    store.sent("other", "me", 2, [], [], NOW)
    assert owed() == {"s-a": one, "s-b": one}
    store.sent(SINK, "me", 1, ["s-a"], [], NOW)
    assert owed() == {"s-a": one, "s-b": one}
    store.told(SINK, "me", ["s-a"], [], NOW)
    assert owed() == {"s-a": (), "s-b": one}
    store.sent(SINK, "me", 2, [], [Aside("b", "s-b", "answered 400")], NOW)
    assert owed() == {"s-a": (), "s-b": ()}
    assert store.forget(["s-a", "s-b"], LATER) == Forgotten(2, 2)
    assert rows_of(store).tables["sink_sessions"] == rows_of(store).tables["sink_aside"] == []


def test_what_is_owed_goes_where_somebody_says_so(store: SessionStore) -> None:
    store.hold_sink(SINK, "me", NOW, NOW + 1)
    store.ingest([edit("a", "w")])
    anyway = Rule(LATER.before_ns, LATER.quiet_ns, unsent=True)
    assert (outdated(store, anyway), store.forget(["s-main"], anyway)) == (["s-main"], Forgotten(1, 1))
    assert (store.waiting(SINK), store.to_tell(SINK, NOW + DAY)) == ((), ())


@proven_by(planted(SqlSessions, "_formerly", lambda self, connection, asked: {}))
def test_a_session_that_moved_after_it_was_sent_stays_until_it_is_told_of(store: SessionStore) -> None:
    store.hold_sink(SINK, "me", NOW, NOW + 1)
    store.ingest([edit("a", "w", trace=T1)])
    store.sent(SINK, "me", 1, [f"trace:{T1}"], [], NOW)
    store.ingest([event("b", trace=T1, session="s-named")])
    assert [each.owed for each in store.outdated(LATER).items] == [(SINK,)]
    assert store.forget(["s-named"], LATER) == Forgotten(0, 0)


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_kill_in_the_middle_leaves_a_whole_store_and_the_next_one_goes_on(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with open_sessions(url, create=True) as store:
        for session in range(12):
            store.ingest([edit(f"{session}-{number}", "shared w", session=f"s-{session}") for number in range(30)])
            store.ingest([event(f"{session}-0", {"other": 1}, session=f"s-{session}")])
    program = (
        "import sys; from countermark.store.sessions import retention; retention._FORGOTTEN_AT_ONCE = 7\n"
        "from countermark.store.opening import open_sessions\n"
        "with open_sessions(sys.argv[1], create=False) as store:\n"
        "    print('begun', flush=True)\n"
        "    store.forget([f's-{n}' for n in range(11)], between=lambda f: print(f.events, flush=True))\n"
    )
    drawn = random.Random(7)
    for _ in range(3):
        command = [sys.executable, "-c", program, url]
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(drawn.randint(1, 9)):
            process.stdout.readline()
        time.sleep(drawn.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        with open_sessions(url, create=False) as store:
            assert store.check() == ()
            left = store.sessions().items
            assert 1 < len(left) <= 12
            assert len(store.search("shared", limit=500).items) == sum(len(ids(store, each.id)) for each in left)
    with open_sessions(url, create=False) as store:
        gone = store.forget([f"s-{number}" for number in range(11)])
        assert gone.sessions == len(left) - 1
        assert (only(store).id, only(store).session.sums.events, only(store).conflicts, store.check()) == ("s-11", 30, 1, ())
        assert len(rows_of(store).tables["event_conflicts"]) == 1
