"""Ledgers to measure on: made, and filled by the thousand without going through admission run by run.

Rules kept here:

1. The rows are those that demands, claims and verdicts write, every derived column as it follows, so that they are read like any other.
2. A PostgreSQL server is one of the script's own, and syncs to the disk as an installed one does.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from sqlalchemy import Connection, insert, text  # noqa: E402

from countermark.recipe.work import bytes_of_material, key_material  # noqa: E402
from countermark.run.attempts import AttemptKey, InitialAttempt, Nonce  # noqa: E402
from countermark.run.claims import Dispatched, DispatchIntent, DispatchOutcome, Transition  # noqa: E402
from countermark.run.demand import Demand, DemandId, TrainingRunDesired  # noqa: E402
from countermark.store import Store, ledger  # noqa: E402
from countermark.store.base import SqlStore  # noqa: E402
from countermark.store.opening import open_store  # noqa: E402
from countermark.store.postgres_schema import TABLES  # noqa: E402
from countermark.store.rows import context_columns, desired_columns  # noqa: E402
from countermark.store.schema import agenda, cancellations, facts, runs, sweeps, verdicts  # noqa: E402
from countermark.values import Principal, Request  # noqa: E402
from tests.postgres import Cluster, postgres_cluster  # noqa: E402
from tests.run.examples import desired  # noqa: E402
from tests.store.examples import CONTEXT  # noqa: E402

#: A run of the clean recipe; the runs that are filled in differ from it in the name of the request alone.
EXAMPLE: Final[TrainingRunDesired] = desired()
HOST: Final = "n1"
_CHUNK: Final = 20_000
_MADE_MS: Final = 1_000


def demand_of(request: str) -> Demand:
    """The demand of a filled run."""
    return Demand(DemandId(Principal("ada"), Request(request)), EXAMPLE.demand.work)


def run_id_of(request: str) -> str:
    return demand_of(request).id.run_id()


def first_of(request: str) -> Transition:
    """The transition that a filled run's first claim takes."""
    demand = demand_of(request)
    return Transition(demand.id, demand.work, InitialAttempt())


def attempt_of(request: str) -> AttemptKey:
    """The attempt that ``started`` claims for a filled run."""
    return AttemptKey(EXAMPLE.demand.work, Nonce(run_id_of(request)))


def filled(store: Store, requests: Sequence[str]) -> list[str]:
    """Open runs under these names, nothing claimed; their ids."""
    ids = [run_id_of(request) for request in requests]
    for chunk in _chunks(sorted(zip(ids, requests, strict=True))):
        with _sql(store)._writing(chunk[0][0]) as held:
            _runs(held.connection, chunk)
            held.connection.execute(insert(agenda), [{"run_id": run_id, "due_ms": _MADE_MS} for run_id, _ in chunk])
    return ids


def started(store: Store, requests: Sequence[str]) -> None:
    """Claim, intent and outcome for runs that ``filled`` made: each has a trainer at work."""
    for chunk in _chunks(list(requests)):
        with _sql(store)._writing(run_id_of(chunk[0])) as held:
            connection = held.connection
            for request in chunk:
                run_id, attempt = run_id_of(request), attempt_of(request)
                ledger.append_claim(connection, run_id, 1, ledger.claim_columns(first_of(request), attempt), _MADE_MS)
                ledger.append_intent(connection, run_id, 2, DispatchIntent(attempt, "local", HOST, _MADE_MS))
                ledger.append_outcome(connection, run_id, 3, DispatchOutcome(attempt, Dispatched("started"), _MADE_MS))


def closed(store: Store, requests: Sequence[str]) -> None:
    """Runs that were cancelled before anything was claimed, each with a sweep and the verdict that closed it."""
    word = ledger.rows.to_json("ada")
    for chunk in _chunks(sorted((run_id_of(request), request) for request in requests)):
        ids = [run_id for run_id, _ in chunk]
        with _sql(store)._writing(ids[0]) as held:
            connection = held.connection
            _runs(connection, chunk)
            connection.execute(
                insert(facts), [{"run_id": each, "version": 1, "kind": "cancellation", "recorded_ms": 2_000} for each in ids]
            )
            connection.execute(insert(cancellations), [{"run_id": each, "version": 1, "said_by": word} for each in ids])
        with _sql(store)._observing(ids[0]) as connection:
            assert connection is not None
            looked = {"started_ms": 3_000, "ended_ms": 3_001, "digest": "0" * 64, "document": b"{}"}
            connection.execute(insert(sweeps), [{"sweep_id": each, "run_id": each, **looked} for each in ids])
            concluded = {"arm": "Cancelled", "closed": 1, "version": 1, "text": b"Cancelled\n"}
            connection.execute(insert(verdicts), [{"sweep_id": each, "run_id": each, **concluded} for each in ids])


def settled(store: Store) -> None:
    """The tables counted, as PostgreSQL does by itself within a minute or so of such a change."""
    with _sql(store)._planning() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("ANALYZE"))


def _chunks(given: Sequence[Any]) -> Iterator[list[Any]]:
    each = iter(given)
    while chunk := list(islice(each, _CHUNK)):
        yield chunk


def _sql(store: Store) -> SqlStore:
    assert isinstance(store, SqlStore)
    return store


def _runs(connection: Connection, chunk: Sequence[tuple[str, str]]) -> None:
    """The rows of runs, which differ in name and id."""
    context = context_columns(CONTEXT)
    assert isinstance(context, dict)
    shared: dict[str, object] = {**desired_columns(EXAMPLE), **context, "created_ms": _MADE_MS}
    table = runs
    if connection.dialect.name == "postgresql":
        # The database derives the Work key from the material by itself.
        del shared["work_digest"]
        shared["material"] = bytes_of_material(key_material(EXAMPLE.manifest, EXAMPLE.requirements))
        table = TABLES.tables["runs"]
    connection.execute(insert(table), [{**shared, "run_id": run_id, "request": request} for run_id, request in chunk])


class Ground:
    """New ledgers, of a kind that is named, until the block ends."""

    def __init__(self, folder: Path, server: Cluster | None) -> None:
        self.folder = folder
        self.server = server
        self._made = 0

    def new(self, kind: str) -> str:
        """The address of a new ledger with nothing in it: ``SQLite`` or ``PostgreSQL``."""
        self._made += 1
        url = f"sqlite:///{self.folder / f'ledger{self._made}'}" if kind == "SQLite" else self.database()
        open_store(url, create=True).close()
        return url

    def database(self) -> str:
        """The address of a new database of the server, with nothing in it."""
        assert self.server is not None
        return self.server.new_database()


@contextmanager
def ground(folder: Path, postgres: bool) -> Iterator[Ground]:
    """Ledgers in ``folder``, and a server beside them where ``postgres`` asks for one."""
    with ExitStack() as stack:
        # As Debian installs it, apart from the number of connections; a million rows need no more than they need there.
        settings = {"shared_buffers": "128MB", "max_wal_size": "1GB", "autovacuum_naptime": "1min", "max_connections": "200"}
        yield Ground(folder, stack.enter_context(postgres_cluster(**settings)) if postgres else None)
