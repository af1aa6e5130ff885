"""Looking a whole store over. Everything that is wrong is found at once, and nothing is mended: what mends it is said.

Rules kept here:

1. The database's own checks (pages, indices, foreign keys) come with ours: tables, indices and triggers as we make them and no others, the
   log's header, every run read and derived again, every sweep's digest.
2. Nothing is written.
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from sqlalchemy import Connection, MetaData, create_engine, func, or_, select

from countermark.run.records import (
    LedgerOutOfOrder,
    RowDefect,
    RowUnreadable,
    RunIdRowMismatch,
    RunRecord,
    RunUnknown,
    SlotRowMismatch,
    SweepDamaged,
    WorkKeyRowMismatch,
)
from countermark.store import ledger, sweeps
from countermark.store.interface import Finding
from countermark.store.ledger import fetch
from countermark.store.rows import BadCell, askable, int_of, is_askable, text_of
from countermark.store.schema import agenda as agenda_table
from countermark.store.schema import facts as facts_table
from countermark.store.schema import runs, sqlite_script
from countermark.store.schema import sweeps as sweeps_table
from countermark.store.schema import verdicts as verdicts_table
from countermark.store.sqlite_errors import NUMBERED, ORDINAL_MAX, uncounted
from countermark.values import NonEmpty, Refused, shown

_RESTORE: Final = "keep a copy of the store's folder, then restore the file from a backup"
TAMPERED: Final = "somebody changed the store past countermark: restore it from a backup, or take these runs for lost"
#: What a schema holds, by kind and name, each as the database describes it.
Objects: TypeAlias = Mapping[tuple[str, str], str]
_WAL_MAGIC: Final = (0x377F0682, 0x377F0683)


def database_findings(connection: Connection, path: Path, wanted: Objects, database: str = "main") -> Iterator[Finding]:
    """What SQLite itself finds in one file, and how what lies in it differs from what is ``wanted`` there. ``database`` is the file's name
    for the connection."""
    where = str(path)
    for (line,) in connection.exec_driver_sql(f"PRAGMA {database}.integrity_check").all():
        if line != "ok":
            yield Finding("DatabaseDamaged", where, shown(str(line), 200), _RESTORE)
    for row in connection.exec_driver_sql(f"PRAGMA {database}.foreign_key_check").all():
        yield Finding("ReferenceBroken", where, f"row {row[1]} of {row[0]} names a row of {row[2]} that is not there", TAMPERED)
    yield from differences(objects_in(connection, database), wanted, where)
    yield from _counter_findings(connection, where, database)
    yield from log_findings(path.with_name(path.name + "-wal"))


def _counter_findings(connection: Connection, where: str, database: str) -> Iterator[Finding]:
    """What SQLite keeps beside a table as the last number that it gave, where it is the last of all and no row bears it."""
    for table in NUMBERED:
        if ("table", table.name) not in objects_in(connection, database):
            continue
        query = f"SELECT seq FROM {database}.sqlite_sequence WHERE name = '{table.name}' AND seq >= {ORDINAL_MAX}"
        query += f" AND NOT EXISTS (SELECT 1 FROM {database}.{table.name} WHERE ordinal = {ORDINAL_MAX})"
        for (counted,) in connection.exec_driver_sql(query).all():
            what = f"the last row of {table.name} is said to be number {shown(str(counted), 40)}: those to come are refused"
            yield Finding("RowUncounted", where, what, TAMPERED)


def objects_in(connection: Connection, database: str = "main") -> Objects:
    """The tables, indices and triggers of a file."""
    query = f"SELECT type, name, sql FROM {database}.sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    return {(str(kind), str(name)): " ".join(str(sql).split()) for kind, name, sql in connection.exec_driver_sql(query).all()}


def made_afresh(metadata: MetaData) -> Objects:
    """What lies in a file that is made now."""
    engine = create_engine("sqlite+pysqlite://")
    try:
        with engine.connect() as connection:
            for statement in sqlite_script(metadata):
                connection.exec_driver_sql(statement)
            return objects_in(connection)
    finally:
        engine.dispose()


def differences(found: Objects, wanted: Objects, where: str) -> Iterator[Finding]:
    """How a schema differs from the one that it should be."""
    for kind, name in sorted(wanted.keys() - found.keys()):
        yield Finding("SchemaObjectMissing", where, f"the {kind} {name} is missing", TAMPERED)
    for kind, name in sorted(found.keys() - wanted.keys()):
        what = f"the {kind} {shown(name)} is not ours"
        yield Finding("SchemaObjectForeign", where, what, "take it out again: it may change what is recorded")
    for kind, name in sorted(key for key in wanted.keys() & found.keys() if wanted[key] != found[key]):
        yield Finding("SchemaObjectChanged", where, f"the {kind} {name} is not as we make it", TAMPERED)


def log_findings(path: Path) -> Iterator[Finding]:
    """A write-ahead log whose header does not add up is skipped by SQLite without a word, with every commit in it."""
    try:
        with path.open("rb") as file:
            header = file.read(32)
    except FileNotFoundError:
        return
    if not header or header == bytes(len(header)):
        return
    if len(header) < 32 or not _log_header_adds_up(header):
        what = "the header of the write-ahead log does not add up; commits in it are not seen"
        yield Finding("LogUnreadable", str(path), what, _RESTORE)


def _log_header_adds_up(header: bytes) -> bool:
    magic = struct.unpack(">I", header[:4])[0]
    if magic not in _WAL_MAGIC:
        return False
    order = ">" if magic & 1 else "<"
    first = second = 0
    words = struct.unpack(f"{order}6I", header[:24])
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack(">2I", header[24:32])


def _run_what(defect: RunUnknown | RowDefect) -> str:
    match defect:
        case RunUnknown(run):
            return f"run {run} has facts and no row of its own"
        case RowUnreadable(table, row, why):
            return f"row {row} of {table} is refused, because {why}"
        case WorkKeyRowMismatch(run, recorded, derived):
            return f"run {run} is recorded under {recorded}, and its material gives {derived}"
        case RunIdRowMismatch(run, derived):
            return f"run {run} should be called {derived} after its requester and request"
        case SlotRowMismatch(run, attempt, recorded, derived):
            return f"the claim {attempt} of run {run} occupies {recorded}, and its transition gives {derived}"
        case LedgerOutOfOrder(run, versions):
            return f"the facts of run {run} are numbered {', '.join(map(str, versions[:20])) or 'not at all'}"


def refused_runs(connection: Connection) -> dict[str, tuple[RunUnknown | RowDefect, ...]]:
    """Every run read and derived again: those that are refused, and why."""
    named = fetch(connection, select(runs.c.run_id).union(select(facts_table.c.run_id)).order_by("run_id"))
    records = ((run_id, _loaded(connection, run_id)) for run_id in (text_of(row, "run_id") for row in named))
    return {run_id: tuple(record.defects) for run_id, record in records if isinstance(record, Refused)}


def _loaded(connection: Connection, run_id: str) -> RunRecord | Refused[RunUnknown | RowDefect]:
    """A run by an id that stands in the tables, where it may be none that could be asked for."""
    if is_askable(run_id):
        return ledger.load(connection, run_id)
    return Refused(NonEmpty(RowUnreadable(runs.name, _named(run_id), "its run_id is none")))


def _named(text: str) -> str:
    """An id as it may be printed, where it may be none."""
    return text if is_askable(text) else shown(text)


def run_findings(refused: Mapping[str, tuple[RunUnknown | RowDefect, ...]], where: str) -> Iterator[Finding]:
    """What ``refused_runs`` found."""
    for defects in refused.values():
        for defect in defects:
            yield Finding(type(defect).__name__, where, _run_what(defect), TAMPERED)


def sweep_findings(connection: Connection, observations: Connection, where: str) -> Iterator[Finding]:
    """Every sweep's digest, and that its run is recorded. A ledger keeps what observations say, not the other way round."""
    recorded = {text_of(row, "run_id") for row in fetch(connection, select(runs.c.run_id))}
    for row in fetch(observations, select(sweeps_table.c.sweep_id, sweeps_table.c.run_id).order_by(sweeps_table.c.ordinal)):
        sweep_id, run_id = str(row["sweep_id"]), str(row["run_id"])
        if run_id not in recorded:
            yield Finding(
                "SweepOfUnknownRun", where, f"sweep {_named(sweep_id)} is about run {_named(run_id)}, which is not recorded", _RESTORE
            )
        try:
            sweep = sweeps.load(observations, askable(sweep_id, "sweep_id"))
        except BadCell as error:
            yield Finding("RowUnreadable", where, f"row {_named(sweep_id)} of sweeps is refused, because {error}", TAMPERED)
            continue
        for defect in sweep.defects if isinstance(sweep, Refused) else ():
            yield _sweep_finding(defect, where)
    for table in NUMBERED:
        forged = or_(table.c.ordinal < 1, table.c.ordinal >= ORDINAL_MAX)
        for row in fetch(observations, select(table.c.ordinal).where(forged).order_by(table.c.ordinal)):
            yield Finding("RowUncounted", where, uncounted(table.name, int_of(row, "ordinal")), TAMPERED)
    joined = select(verdicts_table).join(sweeps_table, verdicts_table.c.sweep_id == sweeps_table.c.sweep_id)
    for row in fetch(observations, joined.where(verdicts_table.c.run_id != sweeps_table.c.run_id)):
        what = f"verdict {row['ordinal']} names another run than its sweep {row['sweep_id']}"
        yield Finding("VerdictOfAnotherRun", where, what, TAMPERED)


def _sweep_finding(defect: SweepDamaged, where: str) -> Finding:
    what = f"sweep {defect.sweep} was recorded with {defect.recorded} and now has {defect.found}"
    return Finding("SweepDamaged", where, what, _RESTORE)


def missing_from_agenda(connection: Connection, observations: Connection) -> frozenset[str]:
    """The runs that no verdict closed at their version and that the agenda passes over."""
    version = select(func.count()).where(facts_table.c.run_id == runs.c.run_id).scalar_subquery().label("version")
    passed_over = select(runs.c.run_id, version).where(runs.c.run_id.not_in(select(agenda_table.c.run_id)))
    closed = sweeps.closed_versions(observations)
    found = ((text_of(row, "run_id"), int_of(row, "version")) for row in fetch(connection, passed_over))
    return frozenset(run_id for run_id, counted in found if closed.get(run_id) != counted)


def agenda_findings(missing: frozenset[str], where: str) -> Iterator[Finding]:
    """What ``missing_from_agenda`` found."""
    for run_id in sorted(missing):
        what = f"run {_named(run_id)} may be open and is not on the agenda: looking at all open runs passes it over"
        yield Finding("AgendaEntryMissing", where, what, f"look at it once: countermark reconcile {run_id}")
