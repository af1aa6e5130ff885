"""A launcher that cannot find its first call has one intent, on either ledger: who died before the launch is waited for, then lost."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from countermark.app.sweeping import look
from countermark.evidence.members import EnumerationReceipt, Observed, Population, one_source
from countermark.run import dispatch
from countermark.run.attempts import Relaunch
from countermark.run.claims import Committed, Launcher, RunLedger, SuccessorExists
from countermark.run.dispatch import IntentUsed
from countermark.run.records import Recorded, Stands
from countermark.store import Store
from countermark.values import NonEmpty, Refused
from countermark.verdict import places
from countermark.verdict.kinds import Conclusion, LaunchDispatchRequired, LaunchPending, Lost, Verdict
from countermark.verdict.sweep import conclude
from tests.faults import planted, proven_by
from tests.run.examples import key, transition
from tests.store.examples import RUN, loaded, recorded, won

GRACE_MS = 1_000


@dataclass
class NothingThere:
    """An observer of a scheduler that knows of no job, at a time."""

    now_ms: int
    ids: int = 0

    def _nothing(self, ledger: RunLedger) -> Population[Any]:
        self.ids += 1
        return one_source("queue", Observed((), EnumerationReceipt(f"{self.ids:032x}", "queue", "n1", self.now_ms, self.now_ms)))

    terminals = processes = outputs = checkpoints = manifests = _nothing


def verdict(store: Store, now_ms: int) -> Verdict:
    concluded = conclude(look(loaded(store).ledger, NothingThere(now_ms), GRACE_MS))
    assert isinstance(concluded, Conclusion), concluded
    return concluded.verdict


def everyone_creates_or_gets() -> AbstractContextManager[object]:
    return planted(dispatch, "creates_or_gets", lambda launcher: True)()


def nobody_is_lost() -> AbstractContextManager[object]:
    return planted(places, "_grace_passed", lambda fold, standing: False)()


@proven_by(everyone_creates_or_gets, nobody_is_lost)
def test_a_crash_between_a_one_shot_intent_and_the_launch_ends_in_a_new_transition(store: Store) -> None:
    recorded(store)
    claim = won(store, 1)
    assert verdict(store, 2_500) == LaunchDispatchRequired(NonEmpty(key(1)))
    assert isinstance(store.record_dispatch_intent(claim, "slurm", "n1", 3_000), Recorded)
    assert verdict(store, 3_500) == LaunchPending(NonEmpty(key(1)))
    again = store.record_dispatch_intent(claim, "slurm", "n1", 3_600)
    assert isinstance(again, Refused) and tuple(again.defects) == (IntentUsed(key(1), "slurm"),)
    assert verdict(store, 3_000 + GRACE_MS) == Lost(NonEmpty(key(1)))
    relaunch = transition(Relaunch(key(1), "process", None))
    answer = store.claim_start(RUN, loaded(store).ledger.version, relaunch, key(2), 4_100)
    assert isinstance(answer, Committed)
    late = store.record_dispatch_intent(claim, "slurm", "n1", 4_200)
    assert isinstance(late, Refused) and set(late.defects) == {IntentUsed(key(1), "slurm"), SuccessorExists(key(1), key(2))}
    assert verdict(store, 4_300) == LaunchDispatchRequired(NonEmpty(key(2)))


def test_of_a_launcher_that_creates_or_gets_the_intent_stands(store: Store) -> None:
    """The other side of the pair: it is called again, for as long as it takes."""
    recorded(store)
    claim = won(store, 1)
    launcher: Launcher = "ray"
    assert isinstance(store.record_dispatch_intent(claim, launcher, "n1", 3_000), Recorded)
    for now_ms in (3_500, 3_000 + GRACE_MS, 10**9):
        assert verdict(store, now_ms) == LaunchDispatchRequired(NonEmpty(key(1)))
    assert isinstance(store.record_dispatch_intent(claim, launcher, "n2", 9_000), Stands)
