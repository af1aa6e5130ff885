"""Reading and appending sweeps and verdicts, inside a transaction that the caller holds.

A sweep's document is kept as the bytes it came as, with their digest: a replay years later reads what was written, or is told that it does
not.
"""

import hashlib
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, func, insert, select
from sqlalchemy.dialects import postgresql

from countermark.run.records import StoredSweep, StoredVerdict, SweepDamaged
from countermark.store.ledger import fetch
from countermark.store.rows import Row, bytes_of, int_of, text_of
from countermark.store.schema import sweeps, verdicts
from countermark.store.statements import Statement
from countermark.values import NonEmpty, Refused


def _sweep(row: Row) -> StoredSweep | Refused[SweepDamaged]:
    document, recorded = bytes_of(row, "document"), text_of(row, "digest")
    found = hashlib.sha256(document).hexdigest()
    if found != recorded:
        return Refused(NonEmpty(SweepDamaged(text_of(row, "sweep_id"), f"sha256:{recorded}", f"sha256:{found}")))
    return StoredSweep(text_of(row, "sweep_id"), text_of(row, "run_id"), document, int_of(row, "started_ms"), int_of(row, "ended_ms"))


_OF_ID: Final = Statement(select(sweeps).where(sweeps.c.sweep_id == bindparam("sweep_id")), large=True)
_LATEST: Final = Statement(
    select(sweeps).where(sweeps.c.run_id == bindparam("run_id")).order_by(sweeps.c.ordinal.desc()).limit(1), large=True
)
_RUN_OF: Final = Statement(select(sweeps.c.run_id).where(sweeps.c.sweep_id == bindparam("sweep_id")))
_CONCLUDED: Final = Statement(select(verdicts).where(verdicts.c.sweep_id == bindparam("sweep_id")).order_by(verdicts.c.ordinal), large=True)
_NEWEST_OF: Final = Statement(
    select(verdicts.c.sweep_id, verdicts.c.closed, verdicts.c.version)
    .where(verdicts.c.run_id == bindparam("run_id"))
    .order_by(verdicts.c.ordinal.desc())
    .limit(1)
)


def _given(table: Table) -> dict[str, Any]:
    """Every column of a table but the ordinal, which the database counts."""
    return {column.name: bindparam(column.name) for column in table.columns if column.name != "ordinal"}


_APPEND: Final = Statement(insert(sweeps).values(_given(sweeps)).inline())
_APPEND_UNLESS_TAKEN: Final = Statement(
    postgresql.insert(sweeps).values(_given(sweeps)).on_conflict_do_nothing().returning(sweeps.c.ordinal)
)
_APPEND_VERDICT: Final = Statement(insert(verdicts).values(_given(verdicts)).inline())


def load(connection: Connection, sweep_id: str) -> StoredSweep | None | Refused[SweepDamaged]:
    found = _OF_ID.rows(connection, sweep_id=sweep_id)
    return _sweep(found[0]) if found else None


def latest(connection: Connection, run_id: str) -> StoredSweep | None | Refused[SweepDamaged]:
    found = _LATEST.rows(connection, run_id=run_id)
    return _sweep(found[0]) if found else None


def begins(connection: Connection, prefix: str) -> tuple[str, ...]:
    query = select(sweeps.c.sweep_id).where(func.substr(sweeps.c.sweep_id, 1, len(prefix)) == prefix).order_by(sweeps.c.ordinal)
    return tuple(text_of(row, "sweep_id") for row in fetch(connection, query))


def append(connection: Connection, sweep: StoredSweep) -> bool:
    """Whether the sweep was written: runs do not exclude each other in PostgreSQL, so another one may have taken its id meanwhile."""
    columns = {
        "sweep_id": sweep.sweep_id,
        "run_id": sweep.run_id,
        "started_ms": sweep.started_ms,
        "ended_ms": sweep.ended_ms,
        "digest": hashlib.sha256(sweep.document).hexdigest(),
        "document": sweep.document,
    }
    if connection.dialect.name == "postgresql":
        return bool(_APPEND_UNLESS_TAKEN.rows(connection, **columns))
    _APPEND.run(connection, **columns)
    return True


def run_of(connection: Connection, sweep_id: str) -> str | None:
    found = _RUN_OF.rows(connection, sweep_id=sweep_id)
    return text_of(found[0], "run_id") if found else None


def concluded(connection: Connection, sweep_id: str) -> tuple[StoredVerdict, ...]:
    return tuple(
        StoredVerdict(text_of(row, "arm"), bool(int_of(row, "closed")), int_of(row, "version"), bytes_of(row, "text"))
        for row in _CONCLUDED.rows(connection, sweep_id=sweep_id)
    )


def append_verdict(connection: Connection, run_id: str, sweep_id: str, verdict: StoredVerdict) -> None:
    columns = {
        "sweep_id": sweep_id,
        "run_id": run_id,
        "arm": verdict.arm,
        "closed": int(verdict.closed),
        "version": verdict.version,
        "text": verdict.text,
    }
    _APPEND_VERDICT.run(connection, **columns)


def newest_of(connection: Connection, run_id: str) -> tuple[str, bool, int] | None:
    """Of the run's latest verdict: its sweep, whether it closed the run, and at which version."""
    found = _NEWEST_OF.rows(connection, run_id=run_id)
    return (text_of(found[0], "sweep_id"), bool(int_of(found[0], "closed")), int_of(found[0], "version")) if found else None


def closed_versions(connection: Connection) -> dict[str, int]:
    """The runs whose latest verdict closed them, with the version at which it did."""
    newest = select(func.max(verdicts.c.ordinal)).group_by(verdicts.c.run_id)
    query = select(verdicts.c.run_id, verdicts.c.version).where(verdicts.c.ordinal.in_(newest), verdicts.c.closed == 1)
    return {text_of(row, "run_id"): int_of(row, "version") for row in fetch(connection, query)}
