"""Two openers of one store beside the model of it: every call is asked of one of them, and both must tell what the model holds then."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import pytest
from sqlalchemy import select

from countermark.run.records import StoredVerdict
from countermark.store import Store
from countermark.store.base import SqlStore
from countermark.store.postgres import PostgresStore
from countermark.store.schema import agenda as agenda_table
from countermark.store.sqlite import SqliteStore
from tests.store.breaking import Broke, Failed, Interrupted, breaking
from tests.store.model import Model

Opener = Callable[[], Store]
Request = pytest.FixtureRequest


@contextmanager
def _sqlite(request: Request) -> Iterator[Opener]:
    folder = Path(tempfile.mkdtemp(prefix="countermark-machine-"))
    try:
        yield lambda: SqliteStore.open(folder / "store", create=True)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _postgresql(request: Request) -> Iterator[Opener]:
    cluster: Any = request.getfixturevalue("postgres")
    url = cluster.new_database()
    try:
        yield lambda: PostgresStore.open(url, create=True)
    finally:
        cluster.give_back(url)


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store: an empty one for each example, whether all that a call writes is one transaction, and how many examples it gets."""

    empty: Callable[[Request], AbstractContextManager[Opener]]
    one_transaction: bool
    examples: int


MACHINES: Final = {"postgresql": Kind(_postgresql, True, 24), "sqlite": Kind(_sqlite, False, 16)}


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a store tells."""

    records: dict[str, object]
    runs: tuple[object, ...]
    open_runs: tuple[object, ...]
    agenda: dict[str, int]
    next_due: int | None
    latest: dict[str, object]
    sweeps: tuple[str, ...]
    verdicts: dict[str, tuple[StoredVerdict, ...]]


def told(model: Model) -> Seen:
    by_age = sorted(model.records.values(), key=lambda record: (record.created_ms, record.run_id))
    runs = tuple(model.summary(record.run_id) for record in by_age)
    return Seen(
        dict(model.records),
        runs,
        tuple(each for each in runs if each.run_id in model.agenda),
        dict(model.agenda),
        model.next_due(),
        {run: model.latest(run) for run in model.records},
        tuple(model.sweeps),
        {sweep: model.concluded(sweep) for sweep in model.sweeps},
    )


def seen(store: Store) -> Seen:
    runs = store.list_runs()
    ids = [each.run_id for each in runs]
    assert isinstance(store, SqlStore)
    with store._reading() as connection:
        rows = connection.execute(select(agenda_table.c.run_id, agenda_table.c.due_ms)).all()
    sweeps = store.find_sweeps("")
    return Seen(
        {run: store.load_run(run) for run in ids},
        runs,
        store.list_runs(open_only=True),
        {str(run): int(due_ms) for run, due_ms in rows},
        store.next_due(),
        {run: store.latest_sweep(run) for run in ids},
        sweeps,
        {sweep: store.verdicts(sweep) for sweep in sweeps},
    )


class Pair:
    """The openers, the model, and what was reached so far, by the kind of answer."""

    def __init__(self, kind: Kind, request: Request, reached: Counter[str]) -> None:
        self.kind = kind
        self.reached = reached
        self.place = kind.empty(request)
        self.opener = self.place.__enter__()
        self.stores: list[Store] = [self.opener(), self.opener()]
        self.model = Model()
        #: At which step the next call breaks off (0: it does not), and how.
        self.breaks: tuple[int, type[Broke]] = (0, Failed)

    def end(self) -> None:
        """The store's own check, and an end of everything."""
        try:
            assert self.stores[0].check() == ()
        finally:
            for store in self.stores:
                store.close()
            self.place.__exit__(None, None, None)

    def reopen(self, who: int) -> None:
        self.stores[who].close()
        self.stores[who] = self.opener()
        self.held()

    def call(
        self,
        who: int,
        ask: Callable[[Store], object],
        tell: Callable[[Model], object],
        transactions: int = 1,
        half: Callable[[Model], object] = lambda model: None,
    ) -> None:
        """One call. ``transactions``: how many it takes, of which the last one writes; ``half``: what the one before it wrote."""
        after = self.model.copy()
        wanted = tell(after)
        (at, how), self.breaks = self.breaks, (0, Failed)
        answer: object = None
        broke = False
        with breaking(at, how) as breaks:
            try:
                answer = ask(self.stores[who])
            except (Failed, Interrupted):
                broke = True
        if broke:
            left = after if breaks.committed == transactions else self.model.copy()
            if 0 < breaks.committed == transactions - 1:
                half(left)
            what = f"broke off at {breaks.steps[-1]}"
            assert seen(self.stores[0]) == told(left), f"it {what} after {breaks.committed} of {transactions} commits: not all or nothing"
            self.model = left
        else:
            assert answer == wanted
            what = type(wanted).__name__
            self.model = after
        self.reached[what] += 1
        self.held()

    def held(self) -> None:
        wanted = told(self.model)
        for store in self.stores:
            assert seen(store) == wanted
