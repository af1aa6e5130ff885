"""Reading a run out of the tables, and appending facts to them, inside a transaction that the caller holds.

Rules kept here:

1. A run is read whole, in one snapshot, and refused with every row of it that does not follow from its material.
2. A fact is appended together with its line in ``facts``, under the version that the admission decided on.
3. Where others may insert at the same time (PostgreSQL), a fact whose slot, identity or version somebody else has used meanwhile is not
   appended, and nothing of it is: the caller reads what stands there by a statement of its own, and decides on that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeVar, final

from sqlalchemy import BigInteger, Connection, Executable, Table, bindparam, cast, exists, func, insert, literal, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import OperationalError

from countermark.run.attempts import AttemptKey, Nonce, predecessor_of
from countermark.run.claims import (
    Abandonment,
    Adjudication,
    Cancellation,
    DispatchIntent,
    DispatchOutcome,
    ExecutionClaim,
    RunLedger,
    Transition,
    cause_parts,
)
from countermark.run.demand import DemandId, TrainingRunDesired
from countermark.run.records import (
    AttemptFound,
    DamagedRun,
    FactKind,
    LedgerEntry,
    LedgerOutOfOrder,
    RowDefect,
    RowUnreadable,
    RunListed,
    RunRecord,
    RunSummary,
    RunUnknown,
    SlotRowMismatch,
)
from countermark.sessions.filters.condition import Where
from countermark.store import rows
from countermark.store.control_rows import ALL, ControlRows, control_rows
from countermark.store.material import Followed, derive
from countermark.store.rows import BadCell, Row, int_of, text_of
from countermark.store.schema import (
    FACT_TABLES,
    abandonments,
    adjudications,
    agenda,
    cancellations,
    claims,
    facts,
    intents,
    outcomes,
    runs,
)
from countermark.store.statements import Statement, leniently, undecodable
from countermark.store.where import condition
from countermark.values import NonEmpty, Refused

T = TypeVar("T")


def fetch(connection: Connection, query: Executable) -> tuple[Row, ...]:
    """Every row of a query by column name."""
    try:
        return tuple(dict(row) for row in connection.execute(query).mappings())
    except OperationalError as error:
        if not undecodable(error.orig):
            raise
    with leniently(connection):
        return tuple(dict(row) for row in connection.execute(query).mappings())


# ------------------------------------------------------------------------------------------------------------ reading


@final
@dataclass(slots=True)
class _Reading:
    """One run while it is read: its facts by version, and everything that is wrong with it so far."""

    run_id: str
    desired: TrainingRunDesired
    told: ControlRows
    times: dict[int, int] = field(default_factory=dict[int, int])
    kinds: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    claimants: dict[int, str] = field(default_factory=dict[int, str])
    defects: list[RowDefect] = field(default_factory=list[RowDefect])

    def key(self, row: Row) -> AttemptKey:
        return AttemptKey(self.desired.demand.work, rows.nonce_of(row))

    def each(self, kind: FactKind, table: Table, read: Callable[[Row, int], T]) -> tuple[T, ...]:
        """The facts of one kind in the order of their versions; rows that cannot be read become defects."""
        found: list[T] = []
        for row in self.told.get(table.name, ()):
            try:
                version = int_of(row, "version")
                self.kinds.append((version, kind))
                found.append(read(row, version))
            except BadCell as error:
                self.defects.append(RowUnreadable(table.name, f"{self.run_id}/{row['version']}", str(error)))
        return tuple(found)

    def claim(self, row: Row, version: int) -> ExecutionClaim:
        work = self.desired.demand.work
        transition = Transition(self.desired.demand.id, work, rows.cause_of(row, work))
        recorded, derived = text_of(row, "slot"), transition.slot().hex
        if recorded != derived:
            self.defects.append(SlotRowMismatch(self.run_id, text_of(row, "nonce"), f"sha256:{recorded}", f"sha256:{derived}"))
        before = predecessor_of(transition.cause)
        if row["predecessor"] != (None if before is None else before.nonce.hex):
            raise BadCell("predecessor is not the one that the cause names")
        if row["said_by"] is not None:
            self.claimants[version] = rows.word_of(row, "said_by")
        return ExecutionClaim(transition, self.key(row), version)

    def intent(self, row: Row, version: int) -> DispatchIntent:
        return DispatchIntent(self.key(row), rows.launcher_of(row), rows.word_of(row, "host"), self.times.get(version, 0))

    def outcome(self, row: Row, version: int) -> DispatchOutcome:
        return DispatchOutcome(self.key(row), rows.result_of(row), self.times.get(version, 0))

    def cancellation(self, row: Row, version: int) -> Cancellation:
        return Cancellation(rows.word_of(row, "said_by"), self.times.get(version, 0))

    def abandonment(self, row: Row, version: int) -> Abandonment:
        return Abandonment(self.key(row), rows.word_of(row, "said_by"), self.times.get(version, 0))

    def adjudication(self, row: Row, version: int) -> Adjudication:
        return rows.adjudication_of(row, self.key(row), self.times.get(version, 0))

    def history(self) -> tuple[LedgerEntry, ...]:
        entries: list[LedgerEntry] = []
        for row in self.told.get(facts.name, ()):
            try:
                entries.append(LedgerEntry(int_of(row, "version"), rows.kind_of(row), int_of(row, "recorded_ms")))
            except BadCell as error:
                self.defects.append(RowUnreadable("facts", f"{self.run_id}/{row['version']}", str(error)))
        self.times = {entry.version: entry.recorded_ms for entry in entries}
        return tuple(entries)


#: What a run is read from: its row, and all its control facts.
OF_RUN: Final = (Statement(select(runs).where(runs.c.run_id == bindparam("run_id"))), ALL)


def load(connection: Connection, run_id: str, follows: Callable[[Row], Followed] = derive) -> RunRecord | Refused[RunUnknown | RowDefect]:
    """The run with everything that is recorded about it, or every row that is refused. ``follows`` tells what a run's row gives."""
    return read(run_id, Statement.together(connection, *OF_RUN, run_id=run_id), follows)


def read(run_id: str, given: Sequence[Sequence[Row]], follows: Callable[[Row], Followed]) -> RunRecord | Refused[RunUnknown | RowDefect]:
    """The same, from the rows that ``OF_RUN`` gives."""
    found, facts_found = given
    if not found:
        return Refused(NonEmpty(RunUnknown(run_id)))
    followed = follows(found[0])
    told = control_rows(facts_found)
    if isinstance(followed, RunRecord):
        if not told:
            return followed
        followed = (followed.ledger.desired, followed.context)
    desired, context = followed
    if isinstance(desired, Refused):
        more = (context,) if isinstance(context, RowUnreadable) else ()
        return Refused(NonEmpty(desired.defects.first, (*desired.defects.more, *more)))
    reading = _Reading(run_id, desired, told)
    history = reading.history()
    ledger = RunLedger(
        desired,
        len(history),
        reading.each("claim", claims, reading.claim),
        reading.each("intent", intents, reading.intent),
        reading.each("outcome", outcomes, reading.outcome),
        reading.each("cancellation", cancellations, reading.cancellation),
        reading.each("abandonment", abandonments, reading.abandonment),
        reading.each("adjudication", adjudications, reading.adjudication),
    )
    defects = reading.defects
    versions = tuple(entry.version for entry in history)
    if versions != tuple(range(1, len(history) + 1)) or sorted(reading.kinds) != [(entry.version, entry.kind) for entry in history]:
        defects.append(LedgerOutOfOrder(run_id, tuple(sorted(version for version, _ in reading.kinds))))
    if isinstance(context, RowUnreadable):
        defects.append(context)
    if (refused := NonEmpty.of(defects)) is not None:
        return Refused(refused)
    assert not isinstance(context, RowUnreadable)
    by = reading.claimants
    lines = tuple([replace(entry, by=by[entry.version]) if entry.version in by else entry for entry in history])
    return RunRecord(run_id, ledger, context, int_of(found[0], "created_ms"), lines)


def _begins(column: Any, prefix: str) -> Any:
    """Ids that begin with ``prefix``; ids are lower-case hexadecimal, so a range of the index is enough and no pattern is read."""
    return (column >= prefix) & (column < prefix + "g")


def _listed(row: Row) -> RunListed:
    """A line of a list. Whatever is wrong with it is a part of the line: a run that was damaged hides no other."""
    run_id, created_ms = text_of(row, "run_id"), int_of(row, "created_ms")
    version, cancelled = int_of(row, "version"), bool(row["cancelled"])
    defects: list[RowUnreadable] = []
    demand, name = None, ""
    try:
        demand = rows.demand_id_of(row)
    except BadCell as error:
        defects.append(RowUnreadable(runs.name, run_id, str(error)))
    try:
        name = rows.word_of(row, "recipe_name")
    except BadCell as error:
        defects.append(RowUnreadable(runs.name, run_id, str(error)))
    if (found := NonEmpty.of(defects)) is not None:
        return DamagedRun(run_id, created_ms, version, cancelled, found)
    assert demand is not None
    return RunSummary(run_id, demand, name, created_ms, version, cancelled)


def _lines(which: Any) -> Executable:
    """A line for each of these runs, by time of creation."""
    version = select(func.count()).where(facts.c.run_id == runs.c.run_id).scalar_subquery().label("version")
    cancelled = exists(select(1).where(cancellations.c.run_id == runs.c.run_id)).label("cancelled")
    columns = (runs.c.run_id, runs.c.requester, runs.c.request, runs.c.recipe_name, runs.c.created_ms, version, cancelled)
    return select(*columns).where(which).order_by(runs.c.created_ms, runs.c.run_id)


_ON_AGENDA: Final = Statement(_lines(runs.c.run_id.in_(select(agenda.c.run_id))))


def _summaries(connection: Connection, query: Executable | Statement) -> tuple[RunListed, ...]:
    found = query.rows(connection) if isinstance(query, Statement) else fetch(connection, query)
    return tuple(map(_listed, found))


def summaries(connection: Connection, prefix: str = "") -> tuple[RunListed, ...]:
    """The runs whose id begins with ``prefix``, by time of creation."""
    return _summaries(connection, _lines(_begins(runs.c.run_id, prefix)))


def on_agenda(connection: Connection) -> tuple[RunListed, ...]:
    """The runs that may be open, by time of creation."""
    return _summaries(connection, _ON_AGENDA)


def chosen(connection: Connection, where: Where) -> tuple[RunListed, ...]:
    """The runs for which a filter holds, by time of creation; the connection reads the observations as well."""
    if where.subject != "runs":
        raise ValueError(f"a filter over {where.subject} says nothing of runs")
    return _summaries(connection, _lines(condition(where, runs, connection.dialect.name)))


def named(connection: Connection, run_ids: Sequence[str]) -> tuple[RunListed, ...]:
    """The runs of these ids, in their order; an id without a run is passed over: nothing can be done for it."""
    found = {each.run_id: each for each in _summaries(connection, _lines(runs.c.run_id.in_(run_ids)))}
    return tuple(found[run_id] for run_id in run_ids if run_id in found)


_VERSION: Final = Statement(select(func.count().label("version")).where(facts.c.run_id == bindparam("run_id")))
_OF_ATTEMPT: Final = Statement(select(claims.c.run_id).where(claims.c.nonce == bindparam("nonce")))
_NAMED: Final = Statement(select(runs.c.run_id).where(runs.c.requester == bindparam("requester"), runs.c.request == bindparam("request")))
_RECORDED: Final = Statement(select(runs.c.run_id).where(runs.c.run_id == bindparam("run_id")))


def version_of(connection: Connection, run_id: str) -> int:
    """The number of control facts of a run."""
    (row,) = _VERSION.rows(connection, run_id=run_id)
    return int_of(row, "version")


def attempts(connection: Connection, prefix: str) -> tuple[AttemptFound, ...]:
    """The claimed attempts whose nonce begins with ``prefix``, by nonce. Raises ``BadCell``."""
    query = select(claims.c.run_id, claims.c.nonce).where(_begins(claims.c.nonce, prefix)).order_by(claims.c.nonce)
    return tuple(AttemptFound(text_of(row, "run_id"), rows.nonce_of(row)) for row in fetch(connection, query))


def run_of_attempt(connection: Connection, attempt: Nonce) -> str | None:
    """The run that claimed an attempt of this nonce, if any."""
    found = _OF_ATTEMPT.rows(connection, nonce=attempt.hex)
    return text_of(found[0], "run_id") if found else None


def named_as(connection: Connection, demand: DemandId) -> str | None:
    """The id under which a requester's request is recorded, right or wrong, if it is."""
    found = _NAMED.rows(connection, requester=demand.requester.text, request=demand.request.text)
    return text_of(found[0], "run_id") if found else None


def is_recorded(connection: Connection, run_id: str) -> bool:
    """Whether a run of this id is recorded."""
    return bool(_RECORDED.rows(connection, run_id=run_id))


# ---------------------------------------------------------------------------------------------------------- appending


_FACT: Final = Statement(insert(facts))
#: The same where no run's claim has the attempt's identity: SQLite's guards answer that with an error like any other.
_FACT_OF_CLAIM: Final = Statement(
    insert(facts).from_select(
        [*facts.columns.keys()],
        select(*(bindparam(column.name, type_=column.type) for column in facts.columns)).where(
            ~exists(select(1).where(claims.c.nonce == bindparam("nonce")))
        ),
    )
)
_OF_KIND: Final = {kind: Statement(insert(table)) for kind, table in FACT_TABLES.items()}


def _at_once(kind: str, table: Table) -> Statement:
    """The fact and its line by one statement, which gives nothing where somebody else has been there first."""
    given: dict[str, Any] = {column.name: bindparam(column.name) for column in table.columns}
    fact = postgresql.insert(table).values(given).on_conflict_do_nothing().returning(table.c.run_id, table.c.version).cte("fact")
    line = select(fact.c.run_id, fact.c.version, literal(kind), cast(bindparam("recorded_ms"), BigInteger))
    return Statement(postgresql.insert(facts).from_select([*facts.columns.keys()], line).returning(facts.c.version))


_AT_ONCE: Final = {kind: _at_once(kind, table) for kind, table in FACT_TABLES.items()}


@final
class Overtaken(BadCell):
    """Somebody else inserted first what excludes a fact, and nothing was appended. Whoever reads again sees it; whoever is told so a second
    time has a damaged store before them."""


def _append(connection: Connection, kind: FactKind, run_id: str, version: int, now_ms: int, columns: Mapping[str, object]) -> None:
    if connection.dialect.name == "postgresql":
        if not _AT_ONCE[kind].rows(connection, run_id=run_id, version=version, recorded_ms=now_ms, **columns):
            raise Overtaken(f"a row that belongs to no fact of the run {run_id} stands in the way of its next {kind}")
        return
    line = {"run_id": run_id, "version": version, "kind": kind, "recorded_ms": now_ms}
    if kind != "claim":
        _FACT.run(connection, **line)
    elif not _FACT_OF_CLAIM.run(connection, nonce=columns["nonce"], **line):
        raise Overtaken(f"the attempt {columns['nonce']} is claimed already")
    _OF_KIND[kind].run(connection, run_id=run_id, version=version, **columns)


#: Most claims are of a run's first attempt, whose cause is always the same text.
_cause_text: Final = lru_cache(64)(rows.to_json)


def claim_columns(transition: Transition, attempt: AttemptKey, by: str = "") -> Mapping[str, object]:
    """What a claim's row says, but for its run and version."""
    before = predecessor_of(transition.cause)
    return {
        "slot": transition.slot().hex,
        "nonce": attempt.nonce.hex,
        "cause": _cause_text(cause_parts(transition.cause)),
        "predecessor": None if before is None else before.nonce.hex,
        "said_by": rows.to_json(by) if by else None,
    }


def append_claim(connection: Connection, run_id: str, version: int, columns: Mapping[str, object], now_ms: int) -> None:
    _append(connection, "claim", run_id, version, now_ms, columns)


def append_intent(connection: Connection, run_id: str, version: int, intent: DispatchIntent) -> None:
    columns = {"nonce": intent.attempt.nonce.hex, "launcher": intent.launcher, "host": rows.to_json(intent.host)}
    _append(connection, "intent", run_id, version, intent.recorded_ms, columns)


def append_outcome(connection: Connection, run_id: str, version: int, outcome: DispatchOutcome) -> None:
    result, words = rows.result_columns(outcome.result)
    columns = {"nonce": outcome.attempt.nonce.hex, "result": result, "detail": rows.to_json(words)}
    _append(connection, "outcome", run_id, version, outcome.recorded_ms, columns)


def append_cancellation(connection: Connection, run_id: str, version: int, cancellation: Cancellation) -> None:
    _append(connection, "cancellation", run_id, version, cancellation.recorded_ms, {"said_by": rows.to_json(cancellation.by)})


def append_abandonment(connection: Connection, run_id: str, version: int, abandonment: Abandonment) -> None:
    columns = {"nonce": abandonment.attempt.nonce.hex, "said_by": rows.to_json(abandonment.by)}
    _append(connection, "abandonment", run_id, version, abandonment.recorded_ms, columns)


def append_adjudication(connection: Connection, run_id: str, version: int, adjudication: Adjudication) -> None:
    ruling, source = rows.ruling_columns(adjudication.ruling)
    columns = {
        "nonce": adjudication.attempt.nonce.hex,
        "ruling": ruling,
        "source": source,
        "blockers": rows.to_json(adjudication.blockers),
        "said_by": rows.to_json(adjudication.by),
        "reason": rows.to_json(adjudication.reason),
    }
    _append(connection, "adjudication", run_id, version, adjudication.recorded_ms, columns)
