"""Every way in which a PostgreSQL store does not open: what is wrong is told exactly, and no text, traceback or value holds a password."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from urllib.parse import quote, quote_plus

import pytest

from countermark.store import postgres, postgres_errors
from countermark.store.failures import (
    DatabaseMissing,
    LoginRefused,
    NotAStore,
    PrivilegeMissing,
    ServerTakesNoWrites,
    ServerTooOld,
    ServerUnreachable,
    StoreAddressUnknown,
    StoreBroken,
    StoreDamaged,
    StoreError,
    StoreFailure,
    StoreFull,
    StoreLocked,
    StoreMissing,
    StoreOfAnotherVersion,
)
from countermark.store.opening import open_store
from countermark.store.postgres import PostgresStore, read_url
from countermark.values import shown
from tests.faults import planted, proven_by
from tests.postgres import Cluster, postgres_cluster
from tests.run.examples import desired
from tests.store.examples import CONTEXT, RUN, intended, loaded, recorded, won

PASSWORD = "s3cret p@ss/w%rd:&?"
WRONG = "wr0ng p@ss/w%rd:&?"
#: Each spelling in which a password could show itself.
SPELLINGS = [form for each in (PASSWORD, WRONG) for form in (each, quote(each, safe=""), quote_plus(each), quote(each))]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """A server that asks for passwords, with few connections."""
    with postgres_cluster(durable=False, max_connections="12", superuser_reserved_connections="2") as cluster:
        rules = ("local all postgres trust", "local locked all reject", "local all all scram-sha-256")
        (cluster.data / "pg_hba.conf").write_text("\n".join((*rules, "")))
        cluster.sql("CREATE DATABASE made", "CREATE DATABASE empty", "CREATE DATABASE shut", "CREATE DATABASE locked")
        cluster.sql(f"CREATE ROLE ada LOGIN PASSWORD '{PASSWORD}'", "REVOKE CONNECT ON DATABASE shut FROM PUBLIC")
        cluster.restart()
        with PostgresStore.open(cluster.url("made"), create=True) as store:
            recorded(store)
        yield cluster


def failure(address: str, create: bool = True) -> StoreFailure:
    with pytest.raises(StoreError) as caught:
        PostgresStore.open(address, create, wait_s=2).close()
    held_back(caught.value)
    return caught.value.failure


def held_back(error: BaseException) -> None:
    """Nothing that anybody could print of an error holds a password, in no spelling."""
    texts = ["".join(traceback.format_exception(error)), repr(error), str(error)]
    if isinstance(error, StoreError):
        texts += [repr(error.failure), error.what, error.where, error.remedy]
    link = error.__cause__ or error.__context__
    while link is not None:
        texts += [repr(link), str(link), repr(link.args)]
        link = link.__cause__ or link.__context__
    for text in texts:
        assert not [spelling for spelling in SPELLINGS if spelling in text], text


def socket(cluster: Cluster) -> str:
    return f'connection to server on socket "{cluster.folder}/.s.PGSQL.5432" failed: '


def no_login_by_text() -> AbstractContextManager[object]:
    """The driver's text alone says that a login was refused; nobody reads it."""
    return planted(postgres_errors, "_without_state", lambda error, url: ServerUnreachable("", ""))()


# ------------------------------------------------------------------------------------------------------------------ logins


@proven_by(no_login_by_text)
@pytest.mark.parametrize(
    ("user", "password", "why"),
    [
        ("ada", WRONG, 'FATAL: password authentication failed for user "ada"'),
        ("bob", WRONG, 'FATAL: password authentication failed for user "bob"'),
        ("ada", None, "fe_sendauth: no password supplied"),
    ],
    ids=["wrong password", "no such role", "no password"],
)
def test_a_login_that_is_refused_says_whose_and_why(guarded: Cluster, user: str, password: str | None, why: str) -> None:
    address = guarded.url("made", user, password)
    where = f"postgresql://{user}@/made?host={quote(str(guarded.folder), safe='')}"
    told = LoginRefused(where, user, shown(f"connection failed: {socket(guarded)}{why}", 300))
    assert failure(address) == told
    assert told.what() == f"the database server refuses {user}: {told.why}"
    if password is not None:
        assert failure(f"{guarded.url('made', user)}&password={quote(password, safe='')}") == told


def test_a_login_that_the_server_s_list_rejects_is_a_login(guarded: Cluster) -> None:
    found = failure(guarded.url("locked", "ada", PASSWORD))
    assert isinstance(found, LoginRefused)
    assert 'pg_hba.conf rejects connection for host "[local]", user "ada", database "locked"' in found.why


def test_a_password_opens_wherever_it_stands_and_shows_nowhere(guarded: Cluster) -> None:
    guarded.sql("GRANT USAGE ON SCHEMA countermark TO ada", "GRANT SELECT ON ALL TABLES IN SCHEMA countermark TO ada", database="made")
    queried = f"{guarded.url('made', 'ada')}&password={quote(PASSWORD, safe='')}"
    for address in (guarded.url("made", "ada", PASSWORD), queried):
        with PostgresStore.open(address, create=False) as store:
            shown_texts = (store.location, repr(store), repr(store._engine), repr(store._engine.url), repr(read_url(address)))
            assert not [spelling for spelling in SPELLINGS for text in shown_texts if spelling in text], shown_texts
            assert [each.run_id for each in store.list_runs()] == [RUN]
            with pytest.raises(StoreError) as caught:
                store.cancel(RUN, "ada", 1)
            held_back(caught.value)
            assert caught.value.failure == PrivilegeMissing(store.location, "'permission denied for table runs'")
    assert read_url(queried).password == PASSWORD
    guarded.sql("DROP OWNED BY ada", database="made")


def kept_as_it_is() -> AbstractContextManager[object]:
    return planted(postgres_errors, "_why", lambda error, url: " ".join(str(error).split()))()


@proven_by(kept_as_it_is)
@pytest.mark.parametrize("spelled", [str, lambda each: quote(each, safe=""), quote_plus], ids=["plain", "percent", "plus"])
def test_a_password_that_the_driver_repeats_is_taken_out(spelled: Callable[[str], str]) -> None:
    import psycopg

    url = read_url(f"postgresql://ada:{quote(PASSWORD, safe='')}@/d")
    told = postgres_errors.postgres_failure(psycopg.OperationalError(f'invalid value "{spelled(PASSWORD)}" for option'), url, 1)
    assert isinstance(told, ServerUnreachable)
    assert not [spelling for spelling in SPELLINGS if spelling in told.why]
    assert "***" in told.why


# ------------------------------------------------------------------------------------------------- addresses and databases


def test_addresses_that_no_driver_takes_are_said_and_not_waited_for(guarded: Cluster) -> None:
    where = f"postgresql://postgres@/made?host={quote(str(guarded.folder), safe='')}"
    made = guarded.url("made")
    assert failure(f"{made}&nonsense=1") == StoreAddressUnknown(where, "'invalid connection option \"nonsense\"'")
    assert failure(f"{made}&sslmode=sometimes") == StoreAddressUnknown(where, "'connection is bad: invalid sslmode value: \"sometimes\"'")
    assert failure("postgresql:///?service=nowhere") == StoreAddressUnknown(
        "postgresql:///", "'connection is bad: definition of service \"nowhere\" not found'"
    )
    for address in (f"postgresql://ada:{quote(WRONG, safe='')}@localhost:port/d", "mysql://ada@/d", "postgresql+asyncpg://ada@/d"):
        assert failure(address) == StoreAddressUnknown("postgresql:…")


def test_a_server_that_is_away_is_said_with_its_place(guarded: Cluster) -> None:
    secret = quote(WRONG, safe="")
    for place in ("127.0.0.1:1", "no-such-host.invalid"):
        found = failure(f"postgresql://ada:{secret}@{place}/d")
        assert isinstance(found, ServerUnreachable)
        assert found.where == f"postgresql://ada@{place}/d"
    gone = failure(f"postgresql://ada:{secret}@/d?host=/nonexistent")
    assert isinstance(gone, ServerUnreachable)
    assert 'on socket "/nonexistent/.s.PGSQL.5432" failed: No such file or directory' in gone.why


def test_a_database_that_is_missing_is_named_and_never_made(guarded: Cluster) -> None:
    found = failure(guarded.url("nowhere"))
    assert isinstance(found, DatabaseMissing)
    assert (found.name, found.what()) == ("nowhere", "the server has no database nowhere")
    assert guarded.sql("SELECT 1 FROM pg_database WHERE datname = 'nowhere'") == []


def test_no_more_connections_is_said(guarded: Cluster) -> None:
    import psycopg

    taken = [psycopg.connect(guarded.url("made")) for _ in range(10)]
    try:
        found = failure(guarded.url("made", "ada", PASSWORD))
        assert isinstance(found, ServerUnreachable)
        assert "remaining connection slots are reserved" in found.why
        taken += [psycopg.connect(guarded.url("made")) for _ in range(2)]
        found = failure(guarded.url("made"))
        assert isinstance(found, ServerUnreachable)
        assert "sorry, too many clients already" in found.why
    finally:
        for connection in taken:
            connection.close()


# -------------------------------------------------------------------------------------------------------------- privileges


@pytest.mark.parametrize(
    ("database", "why"),
    [
        ("made", "'permission denied for schema countermark"),
        ("empty", "'permission denied for database empty'"),
        ("shut", 'FATAL: permission denied for database "shut" DETAIL: User does not have CONNECT privilege.'),
    ],
)
def test_each_missing_right_is_named(guarded: Cluster, database: str, why: str) -> None:
    found = failure(guarded.url(database, "ada", PASSWORD))
    assert isinstance(found, PrivilegeMissing)
    assert why in found.why


def test_the_rights_that_the_remedy_names_are_enough_and_no_more(guarded: Cluster) -> None:
    """SELECT and INSERT on all tables, UPDATE on runs (to lock), all on the agenda: the triggers keep the rest append-only."""
    tables = "ALL TABLES IN SCHEMA countermark"
    grants = (
        "GRANT USAGE ON SCHEMA countermark TO ada",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA countermark TO ada",
        f"GRANT SELECT, INSERT ON {tables} TO ada",
        "GRANT UPDATE ON countermark.runs TO ada",
        "GRANT ALL ON countermark.agenda TO ada",
    )
    guarded.sql(*grants, database="made")
    with PostgresStore.open(guarded.url("made", "ada", PASSWORD), create=False) as store:
        recorded(store, desired("weekly"))
        intended(store, won(store, 1))
        store.cancel(RUN, "ada", 4_000)
        store.record_sweep(RUN, "s1", b"{}", 1, 2)
        assert store.take_due(9_000, 1, 1)
        assert loaded(store).ledger.version == 3
        assert [each.code for each in store.check()] == ["SchemaNotCompared", "ServerNotDurable", "ServerNotDurable"]
        assert store.record_demand(desired("weekly"), CONTEXT, 9) is not None
    guarded.sql("DROP OWNED BY ada", database="made")


# ---------------------------------------------------------------------------------------------------------- what is there


def test_a_database_without_a_store_is_left_alone_unless_one_is_to_be_made(postgres: Cluster, postgres_url: str) -> None:
    found = failure(postgres_url, create=False)
    assert isinstance(found, StoreMissing)
    assert PostgresStore.initialise(postgres_url)
    assert not PostgresStore.initialise(postgres_url)
    with open_store(postgres_url, create=False) as store:
        assert (store.check(), store.list_runs()) == ((), ())


@pytest.mark.parametrize(
    ("statements", "wanted"),
    [
        (("DROP SCHEMA countermark CASCADE", "CREATE SCHEMA countermark", "CREATE TABLE countermark.runs (x int)"), NotAStore),
        (("SET session_replication_role = replica", "UPDATE countermark.schema_versions SET version = 99"), StoreOfAnotherVersion),
        (("SET session_replication_role = replica", "DELETE FROM countermark.schema_versions"), StoreDamaged),
    ],
    ids=["tables of another program", "another version", "no version"],
)
def test_what_is_no_store_of_this_version_is_left_as_it_is(
    postgres: Cluster, postgres_url: str, statements: tuple[str, ...], wanted: type[StoreFailure]
) -> None:
    import psycopg

    PostgresStore.initialise(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        for statement in statements:
            raw.execute(statement.encode())
        before = raw.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'countermark'::regnamespace").fetchone()
        found = failure(postgres_url, create=True)
        assert isinstance(found, wanted)
        assert raw.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'countermark'::regnamespace").fetchone() == before
    if isinstance(found, StoreOfAnotherVersion):
        assert (found.found, found.supported) == (99, 2)


def test_an_older_server_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PostgresStore.initialise(postgres_url)
    monkeypatch.setattr(postgres, "_OLDEST", 99)
    found = failure(postgres_url)
    assert isinstance(found, ServerTooOld)
    assert found.needed == "99"
    assert found.what() == f"the database server is PostgreSQL {found.found}, and 99 or later is needed"


def test_a_server_that_takes_no_writes_is_refused(postgres: Cluster, postgres_url: str) -> None:
    PostgresStore.initialise(postgres_url)
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    with PostgresStore.open(postgres_url, create=False) as store:
        recorded(store)
        postgres.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        found = failure(postgres_url)
        assert found == ServerTakesNoWrites(store.location)
        store._let_go()
        with pytest.raises(StoreError) as caught:
            store.cancel(RUN, "ada", 1)
        assert caught.value.failure == found


# ------------------------------------------------------------------------------------------------------ the server's codes

WHERE = "postgresql://ada@db.example/runs"
SAID = "'so it says'"
CODES: dict[str, StoreFailure] = {
    "08006": ServerUnreachable(WHERE, SAID),
    "25006": ServerTakesNoWrites(WHERE),
    "25P03": ServerUnreachable(WHERE, SAID),
    "28000": LoginRefused(WHERE, "ada", SAID),
    "28P01": LoginRefused(WHERE, "ada", SAID),
    "3D000": DatabaseMissing(WHERE, "runs"),
    "3F000": StoreDamaged(WHERE, SAID),
    "42501": PrivilegeMissing(WHERE, SAID),
    "42703": StoreDamaged(WHERE, SAID),
    "42P01": StoreDamaged(WHERE, SAID),
    "53100": StoreFull(WHERE),
    "53200": StoreBroken(WHERE, "the server is out of memory"),
    "53300": ServerUnreachable(WHERE, SAID),
    "55P03": StoreLocked(WHERE, 1_500, ""),
    "57014": StoreBroken(WHERE, "the server cancelled the statement"),
    "57P01": ServerUnreachable(WHERE, SAID),
    "57P02": ServerUnreachable(WHERE, SAID),
    "57P03": ServerUnreachable(WHERE, SAID),
    "57P05": ServerUnreachable(WHERE, SAID),
    "58030": StoreBroken(WHERE, SAID),
    "XX001": StoreDamaged(WHERE, SAID),
    "XX002": StoreDamaged(WHERE, SAID),
}


def told_by_class() -> AbstractContextManager[object]:
    """Whatever the server says, it is taken for being away."""
    return planted(postgres_errors, "state_of", lambda error: "08000")()


def failure_of(code: str) -> StoreFailure | None:
    import psycopg

    error = psycopg.errors.lookup(code)("so it says")
    return postgres_errors.postgres_failure(error, read_url(f"postgresql://ada:{quote(WRONG, safe='')}@db.example/runs"), 1.5)


@proven_by(told_by_class)
def test_each_code_of_the_server_means_one_failure() -> None:
    assert {code: failure_of(code) for code in CODES} == CODES


@pytest.mark.parametrize("code", ["23505", "23503", "40001", "42601", "22P02"])
def test_a_mistake_of_ours_is_no_failing_environment(code: str) -> None:
    assert failure_of(code) is None
