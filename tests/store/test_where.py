"""One filter gives the same rows on every database: those that the plain meaning of it gives (``tests.sessions.filters.oracle``).

The tables are made here, and hostile: every cell may be NULL, and texts have collations that do not compare bytes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Integer,
    MetaData,
    Table,
    Text,
    case,
    create_engine,
    event,
    insert,
    literal,
    select,
)

from countermark.sessions.filters import binding
from countermark.sessions.filters.binding import read_where
from countermark.sessions.filters.condition import Is, Where
from countermark.sessions.filters.keys import IDS, KEYS, PADDED_DIGITS, Count, Flag, Members, Padded, Subject, Time, Words, keys_of
from countermark.sessions.filters.keys import Double as DoubleColumn
from countermark.sessions.filters.tree import Filter, Sign, spell
from countermark.store import where as compiler
from countermark.store.rows import to_json
from countermark.store.where import DIALECTS, JSON_WORD, condition, json_word
from tests.faults import planted, proven_by
from tests.postgres import Cluster
from tests.sessions.filters.oracle import Row, every_comparison, filters, holds, population, rows, unit_of

#: Whatever a database does to a text by this collation is wrong.
_HOSTILE: Final = {"sqlite": "NOCASE", "postgresql": "en-x-icu"}
_TYPES: Final = {Count: BigInteger, Padded: Text, DoubleColumn: Double, Time: BigInteger, Flag: Integer, Words: Text}


def tables(dialect: str, metadata: MetaData) -> dict[str, Table]:
    """A table for each subject, and each one that a key asks beside it, as the registry has them."""

    def kept(name: str, kind: Any) -> Column[Any]:
        return Column(name, Text(collation=_HOSTILE[dialect]) if kind is Text else kind)

    found: dict[str, dict[str, Column[Any]]] = {}
    for key in KEYS:
        own, beside = found.setdefault(key.subject, {}), IDS[key.subject]
        match key.column:
            case Members(table, column, where):
                found[table] = {name: kept(name, Text) for name in (beside, column, *(name for name, _ in where))}
            case Words() | Count() | Padded() | DoubleColumn() | Time() | Flag():
                if (key.subject, key.name) not in (("runs", "verdict"), ("runs", "closed")):
                    own[key.column.column] = kept(key.column.column, _TYPES[type(key.column)])
    found["verdicts"] = {"ordinal": Column("ordinal", Integer), "run_id": kept("run_id", Text), "arm": kept("arm", Text)}
    found["agenda"] = {"run_id": kept("run_id", Text)}
    return {name: Table(name, metadata, *columns.values()) for name, columns in found.items()}


class Database:
    """A database with the tables in it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dialect = connection.dialect.name
        metadata = MetaData()
        self.tables = tables(self.dialect, metadata)
        metadata.create_all(connection)

    def holds(self, subject: Subject, population: list[Row]) -> None:
        """Have these rows in it, and nothing else."""
        for table in self.tables.values():
            self.connection.execute(table.delete())
        for row in population:
            self._put(subject, row)

    def _put(self, subject: Subject, row: Row) -> None:
        own: dict[str, Any] = {}
        for key in keys_of(subject).values():
            value = row[key.name]
            match key.column:
                case Members(table, column, where):
                    for member in value:
                        beside = {IDS[subject]: row["id"], column: member, **dict(where)}
                        self.connection.execute(insert(self.tables[table]), beside)
                case Words(column, prefix, as_json):
                    own[column] = None if value is None else to_json(value) if as_json else value.removeprefix(prefix)
                case Padded(column):
                    own[column] = None if value is None else str(value).zfill(PADDED_DIGITS)
                case Time(column):
                    own[column] = None if value is None else value // unit_of(key)
                case Count(column) | DoubleColumn(column):
                    own[column] = value
                case Flag(column):
                    own[column] = None if value is None else int(value)
        if subject == "runs":
            verdict, closed = own.pop("verdict"), own.pop("closed")
            # The latest one counts, by its ordinal.
            told = [] if verdict is None else [(2, verdict), (1, "Earlier")]
            for ordinal, arm in told:
                self.connection.execute(insert(self.tables["verdicts"]), {"ordinal": ordinal, "run_id": row["id"], "arm": arm})
            if not closed:
                self.connection.execute(insert(self.tables["agenda"]), {"run_id": row["id"]})
        self.connection.execute(insert(self.tables[subject]), own)

    def found(self, subject: Subject, asked: Sequence[Where]) -> list[set[str]]:
        """The ids of the rows that each condition holds for; many conditions are asked in one query."""
        table = compiler.runs if subject == "runs" else self.tables[subject]
        sets: list[set[str]] = []
        for some in (asked[at : at + 50] for at in range(0, len(asked), 50)):
            truths = [case((condition(where, table, self.dialect), 1), else_=0) for where in some]
            answers = self.connection.execute(select(table.c[IDS[subject]], *truths)).fetchall()
            sets += [{str(row[0]) for row in answers if row[at]} for at in range(1, len(some) + 1)]
        return sets


@pytest.fixture(scope="module")
def databases(postgres: Cluster) -> Iterator[tuple[Database, ...]]:
    lite = create_engine("sqlite://")

    @event.listens_for(lite, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.create_function(JSON_WORD, 1, json_word, deterministic=True)

    url = postgres.new_database()
    great = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), connect_args={"options": "-c search_path=countermark"})
    with lite.connect() as one, great.connect() as other:
        other.exec_driver_sql("CREATE SCHEMA countermark")
        yield Database(one), Database(other)
    great.dispose()
    postgres.give_back(url)


def _agree(databases: tuple[Database, ...], subject: Subject, population: list[Row], asked: Sequence[Filter]) -> None:
    wheres = [_read(spell(tree), subject) for tree in asked]
    meant = [{row["id"] for row in population if holds(tree, row, subject)} for tree in asked]
    for database in databases:
        database.holds(subject, population)
        answers = zip(asked, meant, database.found(subject, wheres), strict=True)
        assert [(spell(tree), wanted, found) for tree, wanted, found in answers if found != wanted] == [], database.dialect


def _read(text: str, subject: Subject) -> Where:
    where = read_where(text, subject)
    assert isinstance(where, Where), where
    return where


def _without(**changes: Any) -> Any:
    """Databases that differ in less than they do."""
    return planted(compiler, "DIALECTS", {name: replace(each, **changes) for name, each in DIALECTS.items()})


def _rounded(sign: Sign, value: Fraction, low: int, high: int) -> Is:
    return Is(sign, max(low, min(high, math.floor(value))))


#: What shows in the answers about sessions, and about runs.
_FAULTS: Final = (
    _without(collation=None),
    _without(escaped={}),
    planted(compiler, "or_", lambda first, *more: first),
    planted(binding, "_FOLDED", {}),
    planted(binding, "_NEGATED", {sign: sign for sign in get_args(Sign)}),
    planted(binding, "_whole", _rounded),
)


@proven_by(*_FAULTS, _without(like=compiler._like), planted(binding, "_padded", str), planted(binding, "_double", lambda number: 0.1))
def test_every_key_of_sessions_gives_the_same_rows_by_every_comparison(databases: tuple[Database, ...]) -> None:
    _agree(databases, "sessions", population("sessions"), every_comparison("sessions"))


@proven_by(
    *_FAULTS,
    planted(compiler, "_verdict", lambda: literal("Converged")),
    planted(compiler, "_closed", lambda: literal(1) == 1),
    planted(compiler, "literal", lambda text, kind: literal("", kind)),
)
def test_every_key_of_runs_gives_the_same_rows_by_every_comparison(databases: tuple[Database, ...]) -> None:
    _agree(databases, "runs", population("runs"), every_comparison("runs"))


_SOME: Final = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@_SOME
@given(population=rows("sessions"), asked=st.lists(filters("sessions"), min_size=1, max_size=4))
def test_a_filter_over_sessions_gives_the_same_rows_everywhere(
    databases: tuple[Database, ...], population: list[Row], asked: list[Filter]
) -> None:
    _agree(databases, "sessions", population, asked)


@_SOME
@given(population=rows("runs"), asked=st.lists(filters("runs"), min_size=1, max_size=4))
def test_a_filter_over_runs_gives_the_same_rows_everywhere(
    databases: tuple[Database, ...], population: list[Row], asked: list[Filter]
) -> None:
    _agree(databases, "runs", population, asked)
