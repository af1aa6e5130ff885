"""Statements that go to the driver by the shortest way say, give and fail as SQLAlchemy's own do; what follows from a row follows from that
row alone."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, bindparam, create_engine, insert, literal, literal_column, select, union_all
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.schema import CreateSchema

from countermark.run.records import RunIdRowMismatch, RunRecord, WorkKeyRowMismatch
from countermark.store import control_rows as room
from countermark.store.control_rows import control_rows
from countermark.store.material import Material, derive
from countermark.store.postgres import connect, read_url
from countermark.store.postgres_schema import SCHEMA
from countermark.store.rows import WORK_COLUMNS, context_columns, desired_columns, work_of
from countermark.store.schema import FACT_TABLES, LEDGER, facts, runs
from countermark.store.statements import Statement
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.run.examples import desired
from tests.store.examples import CONTEXT, RUN

CONTEXT_COLUMNS = context_columns(CONTEXT)
assert isinstance(CONTEXT_COLUMNS, dict)
ROW: dict[str, object] = {**desired_columns(desired()), **CONTEXT_COLUMNS, "created_ms": 1_000}
WEEKLY: dict[str, object] = {**ROW, "run_id": desired("weekly").demand.id.run_id(), "request": "weekly"}

NEW_RUN = Statement(insert(runs))
BY_NAME = Statement(select(runs).where(runs.c.requester == "ada", runs.c.request == bindparam("request")))


def _sqlite(request: pytest.FixtureRequest) -> Engine:
    return create_engine("sqlite+pysqlite://")


def _postgresql(request: pytest.FixtureRequest) -> Engine:
    return connect(read_url(request.getfixturevalue("postgres_url")), 10)


@pytest.fixture(params=[_postgresql, _sqlite], ids=["postgresql", "sqlite"])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A connection to tables of the ledger as Core makes them, on each kind of database."""
    engine: Engine = request.param(request)
    with engine.connect() as connected:
        if connected.dialect.name == "postgresql":
            connected.execute(CreateSchema(SCHEMA))
            connected.exec_driver_sql("SET session_replication_role = replica")
        LEDGER.create_all(connected)
        connected.commit()
        yield connected
    engine.dispose()


def test_a_statement_gives_what_was_written_with_the_values_of_each_call(connection: Connection) -> None:
    NEW_RUN.run(connection, **ROW)
    NEW_RUN.run(connection, **ROW | {"run_id": "f" * 32, "request": "weekly"})
    assert BY_NAME.rows(connection, request="nightly") == (ROW,)
    assert [row["run_id"] for row in BY_NAME.rows(connection, request="weekly")] == ["f" * 32]
    assert BY_NAME.rows(connection, request="never") == ()
    assert tuple(map(dict, connection.execute(select(runs).where(runs.c.request == "nightly")).mappings())) == (ROW,)


def test_a_statement_begins_a_transaction_that_can_be_taken_back(connection: Connection) -> None:
    NEW_RUN.run(connection, **ROW)
    assert connection.in_transaction()
    connection.rollback()
    assert BY_NAME.rows(connection, request="nightly") == ()


def test_a_driver_s_error_comes_out_as_sqlalchemy_s(connection: Connection) -> None:
    NEW_RUN.run(connection, **ROW)
    connection.commit()
    with pytest.raises(IntegrityError):
        NEW_RUN.run(connection, **ROW)
    connection.rollback()
    assert BY_NAME.rows(connection, request="nightly") == (ROW,)
    connection.exec_driver_sql("DROP TABLE runs" + (" CASCADE" if connection.dialect.name == "postgresql" else ""))
    connection.commit()
    gone = ProgrammingError if connection.dialect.name == "postgresql" else OperationalError
    with pytest.raises(gone):
        BY_NAME.rows(connection, request="nightly")
    connection.rollback()
    with pytest.raises(gone):
        NEW_RUN.run(connection, **ROW)


def in_the_wrong_order() -> AbstractContextManager[object]:
    """Answers that are given to the next question."""
    honest = Statement.together

    def turned(connection: Connection, *asked: Statement, **values: object) -> object:
        return honest(connection, *asked, **values)[::-1]

    return planted(Statement, "together", turned)()


@proven_by(in_the_wrong_order)
def test_what_is_asked_in_one_go_is_what_each_gives_alone(connection: Connection) -> None:
    NEW_RUN.run(connection, **ROW)
    every = Statement(select(runs.c.run_id))
    for _ in range(7):  # a driver prepares a statement that it has been given some times
        assert Statement.together(connection, BY_NAME, every, BY_NAME, request="nightly") == ((ROW,), ({"run_id": RUN},), (ROW,))
        assert Statement.together(connection, BY_NAME, every, request="never") == ((), ({"run_id": RUN},))
    assert BY_NAME.rows(connection, request="nightly") == (ROW,)


@contextmanager
def one_after_another() -> Iterator[None]:
    """Each question waits for the answer to the one before it."""
    with planted(psycopg.Connection, "pipeline", lambda self: nullcontext())():
        yield


@proven_by(one_after_another)
def test_what_is_asked_in_one_go_waits_for_no_answer_in_between(postgres_url: str) -> None:
    waited: list[bool] = []

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, *given: Any, **more: Any) -> Any:
            waited.append(self.connection.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF)
            return super().execute(*given, **more)

    engine = connect(read_url(postgres_url), 10)
    with engine.connect() as connected:
        driver: Any = connected.connection.dbapi_connection
        driver.cursor_factory = Cursor
        one = Statement(select(literal(1).label("one")))
        assert Statement.together(connected, one, one, one) == (({"one": 1},),) * 3
        assert one.rows(connected) == ({"one": 1},)
    engine.dispose()
    assert waited == [False, False, False, True]


def test_of_what_is_asked_in_one_go_the_error_comes_out_and_nothing_is_printed(
    connection: Connection, capfd: pytest.CaptureFixture[str]
) -> None:
    NEW_RUN.run(connection, **ROW)
    connection.commit()
    wrong = Statement(select(runs.c.run_id, literal_column("nowhere")).where(runs.c.request == bindparam("request")))
    for asked in ((wrong, BY_NAME), (BY_NAME, wrong), (wrong, wrong)):
        with pytest.raises(ProgrammingError if connection.dialect.name == "postgresql" else OperationalError, match="nowhere"):
            Statement.together(connection, *asked, request="nightly")
        connection.rollback()
        assert Statement.together(connection, BY_NAME, request="nightly") == ((ROW,),)
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------------------------------------------------- control facts


def in_disorder(connection: Connection) -> dict[str, list[dict[str, object]]]:
    """Two rows in each table of facts, the later version first, as no transaction writes them: none belongs to any other."""
    written: dict[str, list[dict[str, object]]] = {}
    words = {"kind": "claim", "result": "unknown", "ruling": "believe_source"}
    for table in (facts, *FACT_TABLES.values()):
        for version in (9, 2) if table.name != "cancellations" else (2,):
            row: dict[str, object] = {
                column.name: words.get(column.name, f"{table.name} {column.name} {version}")
                for column in table.columns
                if column.name != "run_id"
            }
            row |= {"version": version} | ({"recorded_ms": 7} if "recorded_ms" in row else {})
            row |= {name: f"{version}".rjust(digits, "a") for name, digits in (("slot", 64), ("nonce", 32)) if name in row}
            connection.execute(insert(table), {"run_id": RUN, **row})
            written.setdefault(table.name, []).insert(0, row)
    return written


def facts_alone() -> AbstractContextManager[object]:
    """A reading that goes by the lines in ``facts``, as a join would."""
    return planted(room, "ALL", Statement(union_all(room._shared(facts))))()


@proven_by(facts_alone)
def test_the_rows_of_every_table_are_read_in_the_order_of_their_versions_whatever_they_belong_to(connection: Connection) -> None:
    written = in_disorder(connection)
    assert {table: [dict(row) for row in each] for table, each in control_rows(room.ALL.rows(connection, run_id=RUN)).items()} == written
    assert set(written) == {"facts", *(table.name for table in FACT_TABLES.values())}
    assert not any(control_rows(room.ALL.rows(connection, run_id="e" * 32)).values())


# ------------------------------------------------------------------------------------------------------------ material


def by_run_alone() -> AbstractContextManager[object]:
    """What follows from a run, kept under its id."""
    kept: dict[object, object] = {}
    return planted(Material, "derive", lambda self, row: kept.setdefault(row["run_id"], derive(row)))()


@proven_by(by_run_alone)
def test_a_row_that_differs_in_any_cell_is_derived_anew() -> None:
    material = Material()
    first = material.derive(ROW)
    assert first == derive(ROW)
    assert material.derive(dict(ROW)) is first
    for name in ROW:
        for forged in ("", "[]", None, 5, 1_000.0, b"x"):
            row = {**ROW, name: forged}
            assert material.derive(row) == derive(row), name
            assert material.derive(ROW) == first, name


@proven_by(by_run_alone)
def test_a_work_key_is_held_against_the_material_although_the_run_was_read_before() -> None:
    material = Material()
    material.derive(ROW)
    other = desired(seed="18").demand.work
    answer = material.derive({**ROW, "work_digest": other.digest.hex})
    mismatch = WorkKeyRowMismatch(RUN, other.spell(), desired().demand.work.spell())
    assert answer == (Refused(NonEmpty(mismatch)), CONTEXT)


def of_its_digest_alone() -> AbstractContextManager[object]:
    """What follows from a work, kept under the key that it is recorded with."""
    kept: dict[object, object] = {}
    return planted(Material, "_work", lambda self, row: kept.setdefault(row["work_digest"], work_of(row)))()


@proven_by(of_its_digest_alone)
def test_rows_that_agree_in_their_work_share_its_derivation_and_others_do_not() -> None:
    material = Material()
    first, second = material.derive(ROW), material.derive(WEEKLY)
    assert isinstance(first, RunRecord)
    assert isinstance(second, RunRecord)
    assert second.ledger.desired == desired("weekly")
    assert second.ledger.desired.manifest is first.ledger.desired.manifest
    for name in WORK_COLUMNS:
        for forged in ("", "[]", None, 5, b"x", desired_columns(desired(seed="18", principal="other"))[name]):
            row = {**WEEKLY, name: forged}
            assert material.derive(row) == derive(row), name


def test_a_row_without_a_name_of_its_own_is_refused_although_its_work_is_known() -> None:
    material = Material()
    material.derive(ROW)
    answer = material.derive({**ROW, "request": "weekly"})
    assert answer == (Refused(NonEmpty(RunIdRowMismatch(RUN, desired("weekly").demand.id.run_id()))), CONTEXT)


def test_what_is_kept_is_bounded() -> None:
    material = Material(kept_max=1)
    first = material.derive(ROW)
    material.derive(WEEKLY)
    assert material.derive(ROW) is not first
    assert material.derive(ROW) == first
