"""Events stored per second: ``python bench/sessions_ingest.py [--quick] [--keep] [--only KIND]``.

Ours is ``SessionStore.ingest`` in batches of 250: spans of agents' traces, every commit on the disk, every session folded and every event
searchable when the call returns. Bare is what the driver (``sqlite3``, ``psycopg``) takes for the same rows of events, put into the same
tables by one ``executemany`` and one commit a batch under the same settings: nothing is looked up, folded or indexed by words. The two
take turns on fresh stores; a turn of either kind before is not counted. Beside them: the first page of a session of 50,000 events.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.report import Report  # noqa: E402
from countermark.sessions.canonical import Spelling, spelled_json  # noqa: E402
from countermark.sessions.events import Event, session_of, span_event_id  # noqa: E402
from countermark.store.opening import open_sessions  # noqa: E402
from countermark.store.sessions import statements  # noqa: E402
from countermark.store.sessions.base import SqlSessions  # noqa: E402
from countermark.store.sessions.rows import event_row  # noqa: E402
from tests.postgres import postgres_cluster  # noqa: E402

BATCH: Final = 250
SPANS: Final = 100
_BEGAN_NS: Final = 1_796_000_000 * 10**9


def span(trace: int, number: int) -> Event:
    """A span of an agent that reads files and calls a model, as OpenTelemetry has it: 0.5 kB."""
    trace_id, span_id = f"{trace + 1:032x}", f"{number + 1:016x}"
    attributes = {
        "gen_ai.operation.name": "chat" if number % 3 == 1 else "execute_tool",
        "gen_ai.conversation.id": f"conversation-{trace}",
        "gen_ai.request.model": "llama-3",
        "gen_ai.usage.input_tokens": 100 + number,
        "gen_ai.usage.output_tokens": 20 + number,
        "gen_ai.response.id": f"response-{trace}-{number}",
        "gen_ai.tool.name": "read_file",
        "server.address": "localhost",
        "text": f"step {number} of the agent reads layers.{number}.mlp.weight and writes",
    }
    payload = spelled_json({"attributes": attributes, "status": {"code": "ok"}, "scope": "bench"}, "payload")
    assert isinstance(payload, Spelling)
    parent = f"{1:016x}" if number else None
    # Only the root names the conversation.
    session = None if number else f"conversation-{trace}"
    start_ns = _BEGAN_NS + number * 1_000
    return Event(
        span_event_id(trace_id, span_id), "span", payload, _BEGAN_NS + 10**9, session, trace_id, span_id, parent, "svc", "chat llama",
        start_ns, start_ns + 500,
    )  # fmt: skip


def ours(store: SqlSessions, batches: list[list[Event]]) -> float:
    """Seconds for all batches."""
    began_s = time.perf_counter()
    for batch in batches:
        store.ingest(batch)
    return time.perf_counter() - began_s


def bare(store: SqlSessions, batches: list[list[Event]]) -> float:
    """Seconds for the rows of the events alone, by the driver's own calls."""
    ordinal = 0
    rows: list[list[dict[str, Any]]] = []
    for batch in batches:
        given: list[dict[str, Any]] = []
        for event in batch:
            ordinal += 1
            given.append(event_row(ordinal, session_of(event, f"conversation-{int(event.trace or '1', 16) - 1}"), event))
        rows.append(given)
    with store._changing() as connection:
        cursor, compiled = statements.PUT_EVENT._ready(connection)
        values = [[compiled.given(row) for row in given] for given in rows]
    driver: Any = connection.connection.dbapi_connection
    cursor = driver.cursor()
    began_s = time.perf_counter()
    for given in values:
        if connection.dialect.name == "sqlite":
            cursor.execute("BEGIN IMMEDIATE")
        cursor.executemany(compiled.text, given)
        driver.commit()
    return time.perf_counter() - began_s


@contextmanager
def sqlite_stores() -> Iterator[Callable[[], str]]:
    with tempfile.TemporaryDirectory() as folder:
        names = iter(range(10**6))
        yield lambda: f"sqlite:///{Path(folder) / str(next(names))}"


@contextmanager
def postgresql_stores() -> Iterator[Callable[[], str]]:
    with postgres_cluster() as cluster:
        yield cluster.new_database


KINDS: Final = {"SQLite": sqlite_stores, "PostgreSQL": postgresql_stores}


def _measured(report: Report, kind: str, traces: int, rounds: int) -> None:
    batches = [
        [span(number // SPANS, number % SPANS) for number in range(first, first + BATCH)] for first in range(0, traces * SPANS, BATCH)
    ]
    events = sum(map(len, batches))
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    with KINDS[kind]() as place:
        for at in range(rounds + 1):
            for name, act in (("ours", ours), ("bare", bare)) if at % 2 else (("bare", bare), ("ours", ours)):
                with open_sessions(place(), create=True) as store:
                    assert isinstance(store, SqlSessions)
                    took_s = act(store, batches)
                if at:
                    rates[name].append(events / took_s)
        report.ratio(f"{kind}: events/s", statistics.median(rates["ours"]), "the bare rows", statistics.median(rates["bare"]), "as it is")
        report.figure(f"{kind}: stored, folded and searchable", f"{statistics.median(rates['ours']):,.0f} events/s", "10,000 on SQLite")
        _first_page(report, kind, place())


def _first_page(report: Report, kind: str, url: str) -> None:
    with open_sessions(url, create=True) as store:
        for first in range(0, 50_000, 2_500):
            store.ingest([span(0, number) for number in range(first, first + 2_500)])
        took_s: list[float] = []
        for _ in range(9):
            began_s = time.perf_counter()
            page = store.events("conversation-0")
            took_s.append(time.perf_counter() - began_s)
        assert (len(page.events), page.total) == (200, 50_000)
    report.figure(f"{kind}: first page of 50,000 events", f"{statistics.median(took_s) * 1000:.1f} ms", "300 ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    parser.add_argument("--keep", action="store_true", help="write the report to bench/results")
    parser.add_argument("--only", choices=sorted(KINDS), help="one kind of store")
    asked = parser.parse_args()
    report = Report("sessions_ingest")
    for kind in (asked.only,) if asked.only else KINDS:
        _measured(report, kind, 20 if asked.quick else 200, 1 if asked.quick else 5)
    if asked.keep:
        report.keep()


if __name__ == "__main__":
    main()
