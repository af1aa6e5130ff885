"""Planted faults of a store, for the tests that hold it against its model: each breaks one rule of the protocol, on every kind of store."""

from typing import Final

from sqlalchemy import Connection

from countermark.run.claims import Adjudication, RunLedger
from countermark.run.dispatch import Insertable
from countermark.run.records import RunRecord, Stands
from countermark.store import agenda, base
from countermark.store.base import SqlStore
from tests.faults import Fault, planted


def _named(name: str, fault: Fault) -> Fault:
    fault.__name__ = fault.__qualname__ = name
    return fault


def _commits_half_way(connection: Connection, run_id: str, due_ms: int) -> None:
    connection.commit()
    connection.begin()
    _PUT(connection, run_id, due_ms)


def _remembers(store: SqlStore, run_id: str) -> object:
    kept: dict[str, object] = store.__dict__.setdefault("kept", {})
    if not isinstance(kept.get(run_id), RunRecord):
        kept[run_id] = _LOAD_RUN(store, run_id)
    return kept[run_id]


def _repeats(ledger: RunLedger, said: Adjudication) -> object:
    decision = _ADMIT(ledger, said)
    return Insertable(said) if isinstance(decision, Stands) else decision


_PUT: Final = agenda.put
_TAKE: Final = agenda.take
_ADMIT: Final = base.admit_adjudication
_LOAD_RUN: Final = SqlStore.load_run

#: Faults that a transaction which breaks off betrays.
_COMMITTED: Final = _named("what broke off is committed", planted(Connection, "rollback", Connection.commit))
HALF: Final = (_COMMITTED, _named("a transaction commits half way", planted(agenda, "put", _commits_half_way)))

FAULTS: Final = (
    _named("a fact opens no run", planted(agenda, "put", lambda connection, run_id, due_ms: None)),
    _named("what a person says waits its turn", planted(agenda, "hurry", _PUT)),
    _named("what is handed out is not hidden", planted(agenda, "take", lambda c, now_ms, until_ms, limit: _TAKE(c, now_ms, now_ms, limit))),
    _named("what is said of the next look is forgotten", planted(agenda, "set_due", lambda connection, run_id, due_ms: None)),
    _named("a verdict closes at whatever version", planted(agenda, "version_of", lambda connection, run_id: 1)),
    _named("a ruling is repeated", planted(base, "admit_adjudication", _repeats)),
    _named("who asked is forgotten", planted(base, "bounded", lambda text: "")),
    _named("a store remembers what it read", planted(SqlStore, "load_run", _remembers)),
    _COMMITTED,
)
