"""A filter's condition as SQL, by one compiler for SQLite, PostgreSQL and ClickHouse.

Rules kept here:

1. Values are bound, never spliced: a filter's text reaches a database in no other way.
2. The same rows everywhere: texts compare by their bytes, LIKE tells capitals from small letters, ILIKE folds A to Z and no more, and
   nothing is "unknown": where a cell may be NULL, what that means is part of the condition.
3. A set is asked by its side table: EXISTS, which is best where many rows have the member, or IN, which is best where few have it.
   ClickHouse has IN alone.
4. What a run's verdict is, and whether the run is closed, is kept in tables of their own: here is said how they are asked.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from sqlalchemy import (
    JSON,
    BigInteger,
    BindParameter,
    Column,
    ColumnClause,
    ColumnElement,
    Double,
    FromClause,
    LargeBinary,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    exists,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    table,
    true,
)
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import Function
from sqlalchemy.types import TypeEngine

from countermark.sessions.filters.condition import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Cell,
    Condition,
    Flagged,
    Has,
    Holds,
    Is,
    Like,
    Piece,
    Scalar,
    Test,
    Where,
    Wild,
)
from countermark.sessions.filters.keys import IDS, Members, Words
from countermark.sessions.filters.tree import Sign
from countermark.store.schema import agenda, runs, verdicts

Expression = ColumnElement[Any]
Truth = ColumnElement[bool]

#: What SQLite calls to read a text that is kept as JSON; whoever opens a connection gives it ``json_word``.
JSON_WORD: Final = "countermark_word"
#: A JSON string in ASCII, as rows have it, of a text that every database holds: without NUL and half surrogate pairs.
_WORD: Final = r'"([ !#-\[\]-~]|\\["\\bfnrt]|\\u(?!0000|d[89a-f])[0-9a-f]{4}|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})*"'
_IS_WORD: Final = re.compile(_WORD)

_COMPARED: Final[Mapping[Sign, Callable[[Expression, Expression], Truth]]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


# ----------------------------------------------------------------------------------------------------------- the databases


@final
@dataclass(frozen=True, slots=True)
class Dialect:
    """In what a database differs: the collation that compares bytes (None: it has no other), whether a subquery may name what is around it,
    how a pattern is written and asked, and how a text is read that is kept as JSON."""

    collation: str | None
    correlates: bool
    any: str
    one: str
    escaped: Mapping[int, str]
    like: Callable[[Expression, Expression], Truth]
    word: Callable[[Expression], Expression]


def _glob(text: Expression, pattern: Expression) -> Truth:
    return text.op("GLOB", is_comparison=True)(pattern)


def _like(text: Expression, pattern: Expression) -> Truth:
    return text.like(pattern)


def _called_word(text: Expression) -> Expression:
    # As bytes: what is no UTF-8 would end the query before it is called.
    return Function(JSON_WORD, cast(text, LargeBinary), type_=Text())


def _guarded_word(text: Expression) -> Expression:
    # A cast of what is none would end the query.
    read = cast(text, JSON).op("#>>", return_type=Text())(literal_column("'{}'"))
    return case((text.op("~", is_comparison=True)(literal(f"^{_WORD}$", Text())), read), else_="")


_BACKSLASHED: Final = {ord(each): "\\" + each for each in "\\%_"}
DIALECTS: Final[Mapping[str, Dialect]] = {
    "sqlite": Dialect("BINARY", True, "*", "?", {ord(each): f"[{each}]" for each in "*?["}, _glob, _called_word),
    "postgresql": Dialect("C", True, "%", "_", _BACKSLASHED, _like, _guarded_word),
    "clickhouse": Dialect(None, False, "%", "_", _BACKSLASHED, _like, func.JSONExtractString),
}


def json_word(cell: object) -> str:
    """The text in a JSON string that is given as bytes; '' where it is none that every database holds."""
    written = cell.decode("latin-1") if isinstance(cell, bytes) else ""
    return str(json.loads(written)) if _IS_WORD.fullmatch(written) else ""


# ------------------------------------------------------------------------------------------------------------ the compiler


def _unknown(ids: Select[Any]) -> bool:
    return False


def condition(where: Where, rows: FromClause, dialect: str, few: Callable[[Select[Any]], bool] = _unknown) -> Truth:
    """The condition on ``rows``, the table of the filter's subject, for a database's dialect by its name. ``few`` tells of a query for ids
    whether it gives so few that they are best looked up first; a database that keeps statistics knows better by itself."""
    return _Compiler(where, rows, DIALECTS[dialect], few).condition(where.condition)


@final
class _Compiler:
    def __init__(self, where: Where, rows: FromClause, dialect: Dialect, few: Callable[[Select[Any]], bool]) -> None:
        self._rows: Final = rows
        self._id: Final = IDS[where.subject]
        self._dialect: Final = dialect
        self._few: Final = few

    def condition(self, asked: Condition) -> Truth:
        match asked:
            case AllOf(parts):
                return and_(*map(self.condition, parts))
            case AnyOf(parts):
                return or_(*map(self.condition, parts))
            case Always(truth):
                return true() if truth else false()
            case Holds(kept, test, absent):
                cell = _verdict() if kept.column == "verdict" else self._rows.c[kept.column]
                satisfied = self._satisfied(self._spelled(kept, cell, test), test)
                return or_(satisfied, cell.is_(None)) if absent and _may_lack(cell) else satisfied
            case Flagged(kept, up):
                if self._rows is runs:
                    return _closed() if up else runs.c.run_id.in_(select(agenda.c.run_id))
                flag = self._rows.c[kept.column]
                return flag == 1 if up else or_(flag == 0, flag.is_(None)) if _may_lack(flag) else flag == 0
            case Has(kept, test, negated):
                has = self._has(kept, test)
                return ~has if negated else has

    def _spelled(self, kept: Scalar, cell: Expression, test: Test) -> Expression:
        """A cell as the filter speaks of it. A prefix was taken off what is compared, but a pattern may match into it."""
        if not isinstance(kept, Words):
            return cell
        text = self._dialect.word(cell) if kept.as_json else cell
        if kept.prefix and isinstance(test, Like):
            text = literal(kept.prefix, Text()) + text
        return self._by_bytes(text)

    def _by_bytes(self, text: Expression) -> Expression:
        return text if self._dialect.collation is None else text.collate(self._dialect.collation)

    def _satisfied(self, value: Expression, test: Test) -> Truth:
        match test:
            case Is(sign, cell):
                return _COMPARED[sign](value, _bound(cell))
            case Among(cells, negated):
                bound = list(map(_bound, cells))
                return value.not_in(bound) if negated else value.in_(bound)
            case Like(pieces, folded, negated):
                # lower() folds A to Z and no more where texts compare by their bytes, on all three.
                like = self._dialect.like(func.lower(value) if folded else value, _bound(self._pattern(pieces)))
                return ~like if negated else like

    def _pattern(self, pieces: tuple[Piece | Wild, ...]) -> str:
        said = self._dialect
        wilds = {"any": said.any, "one": said.one}
        return "".join(piece.text.translate(said.escaped) if isinstance(piece, Piece) else wilds[piece] for piece in pieces)

    def _has(self, kept: Members, test: Test | None) -> Truth:
        own: ColumnClause[Any] = column(self._id)
        member = column(kept.column, Text())
        fixed = {name: column(name, Text()) for name, _ in kept.where}
        side = table(kept.table, own, member, *fixed.values())
        asked = [fixed[name] == _bound(cell) for name, cell in kept.where]
        if test is not None:
            asked.append(self._satisfied(self._by_bytes(member), test))
        ids = select(own).select_from(side).where(*asked)
        if not self._dialect.correlates or self._few(ids):
            return self._rows.c[self._id].in_(ids)
        return exists(ids.where(own == self._rows.c[self._id]).correlate(self._rows))


def _may_lack(cell: Expression) -> bool:
    """Whether a cell may be NULL."""
    return not isinstance(cell, Column) or bool(cell.nullable)


def _bound(cell: Cell) -> Expression:
    kind: TypeEngine[Any] = Text() if isinstance(cell, str) else Double() if isinstance(cell, float) else BigInteger()
    return bindparam(None, cell, kind)


def _verdict() -> Expression:
    """A run's latest verdict."""
    latest = select(verdicts.c.arm).where(verdicts.c.run_id == runs.c.run_id).order_by(verdicts.c.ordinal.desc()).limit(1)
    return latest.correlate(runs).scalar_subquery()


def _closed() -> Truth:
    """Whether a run is off the agenda."""
    return ~exists(select(1).where(agenda.c.run_id == runs.c.run_id).correlate(runs))


# --------------------------------------------------------------------------------------------------------- for ClickHouse


class _Compiled(SQLCompiler):
    """SQL whose values the server binds: ``{name:Type}``."""

    def visit_bindparam(self, bindparam: BindParameter[Any], *given: Any, **named: Any) -> str:
        written: Any = super()
        name = str(written.visit_bindparam(bindparam, *given, **named)).removeprefix(":")
        kind = "String" if isinstance(bindparam.type, Text) else "Float64" if isinstance(bindparam.type, Double) else "Int64"
        return f"{{{name}:{kind}}}"


class _ClickHouse(DefaultDialect):
    name = "clickhouse"
    statement_compiler = _Compiled
    supports_native_boolean = True


def clickhouse(where: Where, rows: FromClause) -> tuple[str, Mapping[str, Cell]]:
    """The condition as ClickHouse's text, and the values of its parameters."""
    compiled = condition(where, rows, "clickhouse").compile(dialect=_ClickHouse(paramstyle="named"))
    return str(compiled), compiled.params
