"""Whatever is sent, in whatever order, grouping and repetition: two openers of one store tell what follows from the events alone."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from countermark.sessions.events import Event
from countermark.sessions.records import SessionListed
from countermark.store.sessions import folding, ingest
from countermark.store.sessions.interface import SessionStore
from countermark.store.sessions.postgres import PostgresSessions
from countermark.store.sessions.sqlite import SqliteSessions
from tests.faults import Fault, planted, proven_by
from tests.store.sessions.examples import NOW, T1, T2, spelled
from tests.store.sessions.machine import Model

Opener = Callable[[], SessionStore]

PAYLOADS: Final = (
    {"text": "alpha beta"},
    {"text": "beta", "kind": "weights.edit", "tensor": "w", "changed": 2**63 - 1, "checkpointAfter": "a" * 64},
    {"kind": "weights.edit", "tensor": "v", "changed": 1},
    {"attributes": {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r", "gen_ai.usage.input_tokens": 7}},
    {"attributes": {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r", "gen_ai.usage.output_tokens": 5}},
    {"usage": {"cost": 1e6, "inputTokens": 10**12}, "responseId": "q"},
    {"usage": {"cost": 0.1}, "error": "x\ud800"},
)
SESSIONS: Final = ("s-b", "s-a", "s-\uffff", "s-\U00010000")


@st.composite
def events(draw: st.DrawFn) -> Event:
    trace = draw(st.sampled_from([None, T1, T1, T2]))
    received = NOW + draw(st.integers(0, 3))
    return Event(
        draw(st.sampled_from([f"e-{number}" for number in range(9)])),
        draw(st.sampled_from(["notification", "span", "message", "end", "tool_call"])),
        spelled(draw(st.sampled_from(PAYLOADS))),
        received,
        draw(st.sampled_from([None, None, *SESSIONS])),
        trace,
        source=draw(st.sampled_from([None, "svc", "svb"])),
        start_ns=draw(st.sampled_from([0, NOW, NOW - 5, NOW + 2**50])),
        end_ns=draw(st.sampled_from([0, NOW + 1, NOW - 9])),
    )


@contextmanager
def _sqlite(request: pytest.FixtureRequest) -> Iterator[Opener]:
    folder = Path(tempfile.mkdtemp(prefix="countermark-sessions-"))
    try:
        yield lambda: SqliteSessions.open(folder, create=True)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _postgresql(request: pytest.FixtureRequest) -> Iterator[Opener]:
    cluster: Any = request.getfixturevalue("postgres")
    url = cluster.new_database()
    try:
        yield lambda: PostgresSessions.open(url, create=True)
    finally:
        cluster.give_back(url)


KINDS: Final[dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[Opener]]]] = {"postgresql": _postgresql, "sqlite": _sqlite}


def machine(kind: str, request: pytest.FixtureRequest, reached: Counter[str]) -> type[RuleBasedStateMachine]:
    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.place = KINDS[kind](request)
            opener = self.place.__enter__()
            self.stores = [opener(), opener()]
            self.model = Model()

        @rule(batch=st.lists(events(), max_size=6), who=st.integers(0, 1))
        def send(self, batch: list[Event], who: int) -> None:
            wanted = self.model.ingest(batch)
            assert self.stores[who].ingest(batch) == wanted
            reached.update(stored=len(wanted.stored), duplicates=len(wanted.duplicates), conflicts=len(wanted.conflicts))

        @rule(who=st.integers(0, 1), data=st.data())
        def send_again(self, who: int, data: st.DataObject) -> None:
            if self.model.events:
                known = self.model.events[data.draw(st.sampled_from(sorted(self.model.events)))]
                again = replace(known, received_ns=NOW + 99)
                place = self.stores[who].latest()
                assert self.stores[who].ingest([again, again]) == self.model.ingest([again, again])
                assert self.stores[1 - who].tail(place) == ()

        @rule(who=st.integers(0, 1), data=st.data())
        def forget(self, who: int, data: st.DataObject) -> None:
            session = data.draw(st.sampled_from([*(listed.id for listed in self.model.listed()), "nobody"]))
            wanted = self.model.forget(session)
            assert self.stores[who].forget([session]) == wanted
            reached.update(forgotten=wanted.sessions)

        @invariant()
        def holds(self) -> None:
            wanted = self.model.listed()
            for store in self.stores:
                assert list(store.sessions(limit=99).items) == wanted
            store = self.stores[0]
            for listed in wanted:
                assert {each.event.id for each in store.events(listed.id).events} == self.model.of(listed.id)
            assert {each.event.id: each.event for each in store.tail(0)} == self.model.events
            for asked in ("beta", "alpha beta", "svc"):
                assert {each.event.id for each in store.search(asked).items} == self.model.holding(asked.split())
            for trace in {trace for trace, _ in self.model.names}:
                led = store.session(f"trace:{trace}")
                if isinstance(led, SessionListed):
                    assert led.id == min((named for one, named in self.model.names if one == trace), key=str.encode)
                    reached.update(led=1)

        def teardown(self) -> None:
            try:
                assert self.stores[0].check() == ()
            finally:
                for store in self.stores:
                    store.close()
                self.place.__exit__(None, None, None)

    return Machine


def moves_nothing() -> AbstractContextManager[object]:
    return planted(ingest, "_move", lambda connection, names, added: set())()


def adds_to_what_was_left() -> AbstractContextManager[object]:
    honest = folding.add
    return planted(folding, "add", lambda connection, added, left, recounted: honest(connection, added, (), recounted))()


def learns_only_from_what_is_new() -> AbstractContextManager[object]:
    honest = ingest._Names
    return planted(ingest, "_Names", lambda connection, batch: honest(connection, ingest._sorted_out(connection, batch).new))()


@proven_by(moves_nothing, adds_to_what_was_left, learns_only_from_what_is_new)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_store_tells_what_follows_from_the_events(kind: str, request: pytest.FixtureRequest, planted_fault: Fault | None) -> None:
    reached: Counter[str] = Counter()
    # Under a fault an example is enough, and need not be the smallest one.
    phases = [Phase.generate] if planted_fault is not None else [Phase.generate, Phase.shrink]
    drawn = settings(max_examples=20, stateful_step_count=12, phases=phases)
    run_state_machine_as_test(machine(kind, request, reached), settings=drawn)  # type: ignore[no-untyped-call]
    assert min(reached[what] for what in ("stored", "duplicates", "conflicts", "forgotten", "led")) >= 5, reached
