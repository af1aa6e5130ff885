"""A standby is refused as a store, and an address that lists it beside its primary finds the primary."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy.exc import SQLAlchemyError

from countermark.run.claims import Cancellation
from countermark.run.records import Recorded
from countermark.store import StoreError, postgres
from countermark.store.failures import ServerTakesNoWrites
from countermark.store.postgres import PostgresStore
from tests.faults import planted, proven_by
from tests.postgres import SUPERUSER, Cluster, binaries, postgres_cluster
from tests.store.examples import RUN, loaded, recorded


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary server with a store, and a standby that follows it."""
    with postgres_cluster() as primary:
        with PostgresStore.open(primary.url("postgres"), create=True) as store:
            recorded(store)
        programs = binaries()
        assert programs is not None
        folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        shutil.copystat(primary.folder, folder)
        shutil.chown(folder, primary.folder.owner())
        standby = Cluster(folder, programs, {})
        try:
            standby._run("pg_basebackup", "-D", str(standby.data), "-h", str(primary.folder), "-U", SUPERUSER, "-R", "-c", "fast")
            with (standby.data / "postgresql.auto.conf").open("a") as settings:
                settings.write(f"unix_socket_directories = '{folder}'\n")
            standby.start()
            yield primary, standby
        finally:
            standby.stop("immediate")
            shutil.rmtree(folder, ignore_errors=True)


def taken_as_it_is() -> AbstractContextManager[object]:
    """Nobody looks at a new connection."""
    return planted(postgres, "_check_server", lambda connection, where: None)()


@proven_by(taken_as_it_is)
def test_a_standby_is_refused_also_for_reading_because_it_may_be_behind(pair: tuple[Cluster, Cluster]) -> None:
    _, standby = pair
    with pytest.raises((StoreError, SQLAlchemyError)) as caught, PostgresStore.open(standby.url("postgres"), create=False):
        pass
    assert isinstance(caught.value, StoreError)
    failure = caught.value.failure
    assert isinstance(failure, ServerTakesNoWrites)
    assert failure.what() == "the database server takes no writes: it is a standby, or it is set to read only"


def test_an_address_that_lists_both_finds_the_one_that_takes_writes(pair: tuple[Cluster, Cluster]) -> None:
    primary, standby = pair
    hosts = "&".join(f"host={quote(f'{server.folder}:5432', safe='')}" for server in (standby, primary))
    address = f"postgresql://postgres@/postgres?{hosts}&target_session_attrs=read-write"
    with PostgresStore.open(address, create=False) as store:
        assert store.cancel(RUN, "ada", 1) == Recorded(Cancellation("ada", 1))
    with PostgresStore.open(primary.url("postgres"), create=False) as store:
        assert loaded(store).ledger.cancellations == (Cancellation("ada", 1),)
