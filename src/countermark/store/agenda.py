"""The runs that may be open, and when each is to be looked at next, inside a transaction that the caller holds.

Rules kept here:

1. The agenda is derived and proves nothing: an entry too many costs one look. An entry too few would lose a run, so an entry is put in the
   transaction that records a fact, and taken out only behind a verdict that closed the run at the version it has now.
2. An entry handed out is hidden for a while, so that controllers do not look at the same run; who claims it is decided by the slot alone.
"""

from typing import Any, Final

from sqlalchemy import Connection, LargeBinary, Text, bindparam, cast, delete, exists, func, insert, literal, select, update

from countermark.store.ledger import fetch, version_of
from countermark.store.rows import int_of, is_askable, text_of
from countermark.store.schema import agenda, runs
from countermark.store.statements import Statement

_ABSENT: Final = select(runs.c.run_id, bindparam("due_ms", type_=agenda.c.due_ms.type)).where(
    runs.c.run_id == bindparam("asked"), ~exists(select(1).where(agenda.c.run_id == runs.c.run_id))
)
_PUT: Final = Statement(insert(agenda).from_select(["run_id", "due_ms"], _ABSENT))
_SET: Final = Statement(update(agenda).where(agenda.c.run_id == bindparam("run")).values(due_ms=bindparam("until_ms")))
_TAKE_OUT: Final = Statement(delete(agenda).where(agenda.c.run_id == bindparam("run_id")))
_NEXT: Final = Statement(select(func.min(agenda.c.due_ms).label("due_ms")))


def put(connection: Connection, run_id: str, due_ms: int) -> None:
    """Have the run on the agenda, if it is recorded; an entry that is there keeps its time. The caller holds the run."""
    _PUT.run(connection, asked=run_id, due_ms=due_ms)


def hurry(connection: Connection, run_id: str, due_ms: int) -> None:
    """Have the run on the agenda, and looked at no later than ``due_ms``: a person said something. The caller holds the run."""
    put(connection, run_id, due_ms)
    connection.execute(update(agenda).where(agenda.c.run_id == run_id, agenda.c.due_ms > due_ms).values(due_ms=due_ms))


def set_due(connection: Connection, run_id: str, due_ms: int) -> None:
    """When the run is to be looked at next; a run that is not on the agenda stays off it."""
    _SET.run(connection, run=run_id, until_ms=due_ms)


def take(connection: Connection, now_ms: int, until_ms: int, limit: int) -> tuple[str, ...]:
    """At most ``limit`` runs that are due, the longest due first, now hidden until ``until_ms``. Entries that another transaction is taking
    are passed over (where the database locks rows; elsewhere the transaction is alone)."""
    due = select(agenda.c.run_id).where(agenda.c.due_ms <= now_ms).order_by(agenda.c.due_ms, agenda.c.run_id).limit(limit)
    taken = tuple(text_of(row, "run_id") for row in fetch(connection, due.with_for_update(skip_locked=True)))
    if taken:
        connection.execute(update(agenda).where(agenda.c.run_id.in_(list(map(_as_it_lies, taken)))).values(due_ms=until_ms))
    return tuple(filter(is_askable, taken))


def _as_it_lies(run_id: str) -> Any:
    """An id as an entry holds it. One with stray bytes is no run's, and is hidden all the same: else it would be due for ever, before all
    others."""
    return run_id if is_askable(run_id) else cast(literal(run_id.encode("utf-8", "surrogateescape"), LargeBinary), Text)


def next_due(connection: Connection) -> int | None:
    """The earliest time at which a run is due; None when the agenda is empty."""
    (row,) = _NEXT.rows(connection)
    return None if row["due_ms"] is None else int_of(row, "due_ms")


def follow(connection: Connection, run_id: str, closed: bool, version: int) -> None:
    """What the run's newest verdict, made at ``version``, means for the agenda. The caller holds the run.

    A controller may be late: what it closes at a version that has passed is looked at once more, also where another one had closed the run
    at its own version meanwhile.
    """
    if closed and version_of(connection, run_id) == version:
        _TAKE_OUT.run(connection, run_id=run_id)
    else:
        put(connection, run_id, 0)
