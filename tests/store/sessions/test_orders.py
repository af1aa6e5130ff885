"""Every order of arrival, and every way to group it into batches, leaves the same rows, byte for byte."""

import random
from collections.abc import Iterator, Sequence
from itertools import permutations, product

import pytest
from sqlalchemy import Connection, create_engine, select
from sqlalchemy.pool import StaticPool

from countermark.sessions.events import Event
from countermark.sessions.fold import folded
from countermark.store.sessions import folding
from countermark.store.sessions.checks import made_afresh, row_findings
from countermark.store.sessions.ingest import ingest
from countermark.store.sessions.rows import listed_session
from countermark.store.sessions.schema import SESSIONS, feed, sessions
from countermark.store.sessions.statements import LATEST
from tests.faults import planted, proven_by
from tests.store.sessions.examples import NOW, T1, T2, chat, edit, event

#: Two traces, of which one names two sessions, and both learn of one that is already there.
EVENTS = (
    edit("e-1", "w", 2**63 - 1, trace=T1, source="svc"),
    chat("e-2", "r", 10, trace=T1, session="s-b", received_ns=NOW + 5),
    chat("e-3", "r", 12, session="s-a", source="sva"),
    edit("e-4", "w", 7, said={"checkpoint_after": "a" * 64}, trace=T2, start_ns=NOW + 2**60),
    event("e-5", {}, "end", trace=T1, session="s-a", received_ns=NOW + 1),
    event("e-6", {"t": "x\0"}, "message", trace=T2, session="s-b"),
)


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    """A store in memory, whose rows nobody commits."""
    engine = create_engine("sqlite+pysqlite://", poolclass=StaticPool)
    with engine.connect() as opened:
        made_afresh(opened)
        opened.commit()
        yield opened
    engine.dispose()


def batches(order: Sequence[Event], ends: Sequence[bool]) -> Iterator[list[Event]]:
    """The events in groups; a group ends where ``ends`` says so."""
    batch: list[Event] = []
    for each, end in zip(order, (*ends, True), strict=True):
        batch.append(each)
        if end:
            yield batch
            batch = []


def rows_after(connection: Connection, groups: Iterator[list[Event]]) -> dict[str, list[str]]:
    """Every row but the numbers of receipt, after these batches."""
    try:
        for batch in groups:
            (row,) = LATEST.rows(connection)
            ingest(connection, batch, int(str(row["ordinal"])))
        assert list(row_findings(connection, "")) == []
        return {
            table.name: sorted(repr(tuple(row)) for row in connection.execute(select(*(c for c in table.columns if c.name != "ordinal"))))
            for table in SESSIONS.sorted_tables
            if table is not feed
        }
    finally:
        connection.rollback()


def adds_to_what_was_left(connection: Connection, added: object, left: object, recounted: object) -> None:
    _HONEST(connection, added, (), recounted)  # type: ignore[arg-type]


_HONEST = folding.add


@proven_by(planted(folding, "add", adds_to_what_was_left))
def test_every_order_of_four_in_every_grouping(connection: Connection) -> None:
    chosen = (EVENTS[0], EVENTS[1], EVENTS[4], EVENTS[3])
    wanted = rows_after(connection, iter([list(chosen)]))
    for order, ends in product(permutations(chosen), product([False, True], repeat=3)):
        assert rows_after(connection, batches(order, ends)) == wanted, [each.id for each in order]


def test_every_order_of_six_in_some_grouping(connection: Connection) -> None:
    drawn = random.Random(6)
    wanted = rows_after(connection, iter([list(EVENTS)]))
    for order in permutations(EVENTS):
        assert rows_after(connection, batches(order, [drawn.random() < 0.5 for _ in range(5)])) == wanted, [each.id for each in order]


@pytest.mark.slow
def test_every_order_of_six_in_every_grouping(connection: Connection) -> None:
    wanted = rows_after(connection, iter([list(EVENTS)]))
    for order, ends in product(permutations(EVENTS), product([False, True], repeat=5)):
        assert rows_after(connection, batches(order, ends)) == wanted, [each.id for each in order]


def test_the_rows_are_the_fold_of_the_events_from_scratch(connection: Connection) -> None:
    try:
        ingest(connection, EVENTS, 0)
        found = {row.session_id: listed_session(row._asdict()).session for row in connection.execute(select(sessions))}
    finally:
        connection.rollback()
    parts = {"s-a": (0, 2, 4), "s-b": (1, 3, 5)}
    assert found == {name: folded(name, [EVENTS[each] for each in numbers]) for name, numbers in parts.items()}
