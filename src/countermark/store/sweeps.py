"""Reading and appending sweeps and verdicts, inside a transaction that the caller holds.

A sweep's document is kept as the bytes it came as, with their digest: a replay years later reads what was written, or is told that it does
not.
"""

import hashlib

from sqlalchemy import Connection, func, insert, select

from countermark.run.records import StoredSweep, StoredVerdict, SweepDamaged
from countermark.store.ledger import fetch
from countermark.store.rows import Row, bytes_of, int_of, text_of
from countermark.store.schema import sweeps, verdicts
from countermark.values import NonEmpty, Refused


def _sweep(row: Row) -> StoredSweep | Refused[SweepDamaged]:
    document, recorded = bytes_of(row, "document"), text_of(row, "digest")
    found = hashlib.sha256(document).hexdigest()
    if found != recorded:
        return Refused(NonEmpty(SweepDamaged(text_of(row, "sweep_id"), f"sha256:{recorded}", f"sha256:{found}")))
    return StoredSweep(text_of(row, "sweep_id"), text_of(row, "run_id"), document, int_of(row, "started_ms"), int_of(row, "ended_ms"))


def load(connection: Connection, sweep_id: str) -> StoredSweep | None | Refused[SweepDamaged]:
    found = fetch(connection, select(sweeps).where(sweeps.c.sweep_id == sweep_id))
    return _sweep(found[0]) if found else None


def latest(connection: Connection, run_id: str) -> StoredSweep | None | Refused[SweepDamaged]:
    found = fetch(connection, select(sweeps).where(sweeps.c.run_id == run_id).order_by(sweeps.c.ordinal.desc()).limit(1))
    return _sweep(found[0]) if found else None


def begins(connection: Connection, prefix: str) -> tuple[str, ...]:
    query = select(sweeps.c.sweep_id).where(func.substr(sweeps.c.sweep_id, 1, len(prefix)) == prefix).order_by(sweeps.c.ordinal)
    return tuple(text_of(row, "sweep_id") for row in fetch(connection, query))


def append(connection: Connection, sweep: StoredSweep) -> None:
    columns = {
        "sweep_id": sweep.sweep_id,
        "run_id": sweep.run_id,
        "started_ms": sweep.started_ms,
        "ended_ms": sweep.ended_ms,
        "digest": hashlib.sha256(sweep.document).hexdigest(),
        "document": sweep.document,
    }
    connection.execute(insert(sweeps), columns)


def run_of(connection: Connection, sweep_id: str) -> str | None:
    found = fetch(connection, select(sweeps.c.run_id).where(sweeps.c.sweep_id == sweep_id))
    return text_of(found[0], "run_id") if found else None


def concluded(connection: Connection, sweep_id: str) -> tuple[StoredVerdict, ...]:
    query = select(verdicts).where(verdicts.c.sweep_id == sweep_id).order_by(verdicts.c.ordinal)
    return tuple(
        StoredVerdict(text_of(row, "arm"), bool(int_of(row, "closed")), int_of(row, "version"), bytes_of(row, "text"))
        for row in fetch(connection, query)
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
    connection.execute(insert(verdicts), columns)


def newest_of(connection: Connection, run_id: str) -> tuple[str, bool, int] | None:
    """Of the run's latest verdict: its sweep, whether it closed the run, and at which version."""
    query = select(verdicts).where(verdicts.c.run_id == run_id).order_by(verdicts.c.ordinal.desc()).limit(1)
    found = fetch(connection, query)
    return (text_of(found[0], "sweep_id"), bool(int_of(found[0], "closed")), int_of(found[0], "version")) if found else None


def closed_versions(connection: Connection) -> dict[str, int]:
    """The runs whose latest verdict closed them, with the version at which it did."""
    newest = select(func.max(verdicts.c.ordinal)).group_by(verdicts.c.run_id)
    query = select(verdicts.c.run_id, verdicts.c.version).where(verdicts.c.ordinal.in_(newest), verdicts.c.closed == 1)
    return {text_of(row, "run_id"): int_of(row, "version") for row in fetch(connection, query)}
