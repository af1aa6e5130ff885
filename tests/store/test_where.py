"""One filter gives the same rows on every database: those that the plain meaning of it gives (``tests.sessions.filters.oracle``).

The tables are made here, and hostile: every cell may be NULL, and texts have collations that do not compare bytes.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, cast, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    case,
    create_engine,
    event,
    insert,
    literal,
    select,
)
from sqlalchemy.exc import DBAPIError

from countermark.sessions.filters import binding
from countermark.sessions.filters.binding import read_where
from countermark.sessions.filters.condition import Is, Where
from countermark.sessions.filters.keys import IDS, KEYS, PADDED_DIGITS, Count, Flag, Key, Members, Padded, Subject, Time, Words, keys_of
from countermark.sessions.filters.keys import Double as DoubleColumn
from countermark.sessions.filters.tree import Compare, Filter, Name, Sign, spell
from countermark.sessions.filters.tree import Text as Quoted
from countermark.store import ledger
from countermark.store import where as compiler
from countermark.store.rows import to_json
from countermark.store.where import DIALECTS, JSON_WORD, clickhouse, condition, json_word
from tests.faults import planted, proven_by
from tests.postgres import Cluster
from tests.sessions.filters.oracle import Row, comparisons_of, every_comparison, filters, holds, population, rows, unit_of

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


def _are_few(ids: Select[Any]) -> bool:
    return True


def _are_many(ids: Select[Any]) -> bool:
    return False


class Database:
    """A database with the tables in it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dialect = connection.dialect.name
        metadata = MetaData()
        self.tables = tables(self.dialect, metadata)
        metadata.create_all(connection)
        connection.commit()

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
            # Few or not, the rows are the same: every other set is asked in the other way.
            truths = [
                case((condition(where, table, self.dialect, (_are_few, _are_many)[at % 2]), 1), else_=0) for at, where in enumerate(some)
            ]
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


#: What rows may hold for a name, and what a filter reads: what is no text of a database, or no name of ours, reads as ''.
_NAMES: Final = {
    '"plain"': "plain",
    r'"\u00e9 \ud83d\udc11 \\u0000 \n\t\"\\ \u007f"': 'é 🐑 \\u0000 \n\t"\\ \x7f',
    r'"a\u0000"': "",
    r'"\\\u0000"': "",
    r'"\udcff"': "",
    r'"\udc11\ud83d"': "",
    r'"\ud83d\ud83d\udc11"': "",
    '"raw é"': "",
    '"raw \n"': "",
    '"open': "",
    '["a"]': "",
    "7": "",
    "": "",
}


@proven_by(planted(compiler, "_WORD", '".*"'), planted(compiler, "_IS_WORD", re.compile('"[a-z]*"')))
def test_a_name_that_no_database_can_keep_is_empty_and_hides_no_other(databases: tuple[Database, ...]) -> None:
    for database in databases:
        database.holds("runs", [])
        for at, cell in enumerate(_NAMES):
            database.connection.execute(insert(database.tables["runs"]), {"run_id": str(at), "recipe_name": cell})
        asked = [_read(spell(Compare(Name("recipe"), "=", Quoted(name))), "runs") for name in _NAMES.values()]
        try:
            found = database.found("runs", asked)
        except DBAPIError as error:
            database.connection.rollback()
            pytest.fail(str(error.orig))
        wanted = [{str(at) for at, told in enumerate(_NAMES.values()) if told == name} for name in _NAMES.values()]
        assert found == wanted, database.dialect


def test_stray_bytes_in_a_name_end_no_query() -> None:
    assert (json_word(b'"\xff"'), json_word(None), json_word(7)) == ("", "", "")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.subject}.{key.name}")
def test_every_key_compiles_for_every_database_with_its_values_bound(key: Key) -> None:
    for tree in comparisons_of(key, 1):
        where = _read(spell(tree), key.subject)
        table = compiler.runs if key.subject == "runs" else tables("sqlite", MetaData())[key.subject]
        for name in DIALECTS:
            text = str(condition(where, table, name).compile(compile_kwargs={"render_postcompile": True}))
            assert "'" not in text.replace("'{}'", ""), text
        text, values = clickhouse(where, table)
        assert set(re.findall(r"\{(\w+):(?:String|Int64|Float64)\}", text)) == set(values)
        assert "'" not in text and ":" not in re.sub(r"\{\w+:(String|Int64|Float64)\}", "", text)


def test_clickhouse_is_asked_with_the_types_of_what_is_bound() -> None:
    asked = "events > 5 AND cost > 0.5 AND source LIKE 'a\\%%' AND tag != 'x' AND checkpoint.after IN ('a', 'b')"
    text, values = clickhouse(_read(asked, "sessions"), tables("sqlite", MetaData())["sessions"])
    assert " ".join(text.split()) == (
        "sessions.events > {param_1:Int64} AND sessions.cost > {param_2:Float64} AND sessions.source LIKE {param_3:String} "
        "AND (sessions.session_id NOT IN (SELECT session_tags.session_id FROM session_tags WHERE session_tags.tag = {param_4:String})) "
        "AND sessions.session_id IN (SELECT session_checkpoints.session_id FROM session_checkpoints "
        "WHERE session_checkpoints.side = {param_5:String} AND session_checkpoints.digest IN ({param_6:String}, {param_7:String}))"
    )
    assert values == {"param_1": 5, "param_2": 0.5, "param_3": "a\\%%", "param_4": "x", "param_5": "after", "param_6": "a", "param_7": "b"}


def test_an_index_on_a_column_is_used(databases: tuple[Database, ...]) -> None:
    """Where bytes are compared anyway, comparing bytes costs no index; and a range is not hidden by what NULL would mean."""
    for database in databases:
        collation = DIALECTS[database.dialect].collation
        metadata = MetaData()
        kept = Table(
            "sessions_kept", metadata, Column("session_id", Text(collation=collation)), Column("source", Text(collation=collation))
        )
        kept.append_column(Column("weight_edits", BigInteger))
        Index("by_source", kept.c.source), Index("by_edits", kept.c.weight_edits)
        metadata.create_all(database.connection)
        if database.dialect == "postgresql":
            database.connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN QUERY PLAN " if database.dialect == "sqlite" else "EXPLAIN "
        for asked, index in (("source = 'a'", "by_source"), ("source > 'a'", "by_source"), ("weights.edits > 5", "by_edits")):
            query = select(kept.c.session_id).where(condition(_read(asked, "sessions"), kept, database.dialect))
            compiled = query.compile(database.connection, compile_kwargs={"literal_binds": True})
            plan = database.connection.exec_driver_sql(explain + str(compiled)).fetchall()
            assert index in str(plan), plan


def test_a_filter_is_asked_of_its_own_subject_only() -> None:
    with pytest.raises(ValueError, match="a filter over sessions says nothing of runs"):
        ledger.chosen(cast("Any", None), _read("events > 5", "sessions"))
