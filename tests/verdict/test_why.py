"""Why not yet: for every arm the whole of what is said, no more and no less."""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, get_args

import pytest

from countermark.evidence.cut import OutOfOrder
from countermark.evidence.members import CancelledByRequest, Read, Unread
from countermark.run.attempts import RequestedReexecution
from countermark.run.checkpoint import ComponentAbsent
from countermark.run.claims import Dispatched, DispatchUnknown, SetAside
from countermark.verdict.kinds import (
    AxisRefused,
    CheckpointNotAdmitted,
    CoordinatesUnread,
    GraceRunning,
    NoOutputRead,
    NoSuccess,
    NotBarred,
    NoTerminal,
    NothingAttempted,
    OrderMissing,
    SetAsideByPerson,
    Verdict,
    WhyNot,
)
from tests.faults import planted, proven_by
from tests.verdict.scenes import (
    Scene,
    Try,
    changed,
    checkpoint,
    concluded,
    ended,
    failed,
    key,
    manifest,
    output,
    plus,
    process,
    ruled,
    unidentified,
)
from tests.verdict.test_verdicts import ALIVE, CLAIMED, COMPLETED, DISPATCHED, ENDED, TWICE

STARTED = Dispatched("started")
TORN = checkpoint(1, 9, rng_state=ComponentAbsent(("rng_state.pth",)))
READ_LATE = OrderMissing(key(1), "LiveProcessAfterTerminal", "terminals_again", "processes", OutOfOrder())
NO_OUTPUT = changed(COMPLETED, outputs={"local": ()})
UNREAD = CoordinatesUnread(key(1), ("seed: no",))


def defects(step: Any) -> Any:
    """The defects of the torn checkpoint, as its admission names them."""
    from countermark.run.checkpoint import admit_checkpoint
    from countermark.values import Refused
    from tests.verdict.scenes import desired

    answer = admit_checkpoint(step.readback, desired().manifest, frozenset({key(1).nonce.hex}))
    assert isinstance(answer, Refused)
    return answer.defects


TORN_NAMED = CheckpointNotAdmitted(key(1), 9, TORN.path, defects(TORN))
#: An arm, a scene of it, and everything that is said of why it has not converged.
SAID: list[tuple[str, Scene, tuple[WhyNot, ...]]] = [
    ("Blocked", NO_OUTPUT, (NoOutputRead(key(1)),)),
    ("Blocked", changed(COMPLETED, manifests={"local": (manifest(1, seed=Read("18", "artifact"), rank=Unread("no")),)}),
     (CoordinatesUnread(key(1), ("rank: no",)),)),
    ("Blocked", changed(ENDED, processes={"local": (process(1),)}), (NoSuccess(key(1), "failed with exit code 1"),)),
    ("StopRequired", changed(ALIVE, cancelled=True), (NoTerminal(key(1)),)),
    ("StopRequired", ruled(changed(COMPLETED, processes={"local": (process(1),)}), 1, SetAside()),
     (SetAsideByPerson(key(1), "ada", "seen to"),)),
    ("StopRequired", changed(DISPATCHED, cancelled=True, processes={"local": (unidentified(1, "unbarred"),)}),
     (NotBarred(key(1)), NoTerminal(key(1)))),
    ("Cancelled", changed(DISPATCHED, cancelled=True), (NoTerminal(key(1)),)),
    ("Cancelled", changed(ENDED, cancelled=True, terminals={"supervisor": (ended(1, CancelledByRequest()),)}),
     (NoSuccess(key(1), "cancelled"),)),
    ("Cancelled", changed(Scene(), cancelled=True), (NothingAttempted(),)),
    ("Cancelled", changed(COMPLETED, cancelled=True), ()),
    ("InProgress", ALIVE, (NoTerminal(key(1)),)),
    ("ObservationRequired", changed(NO_OUTPUT, outputs={"local": "down"}), (AxisRefused("outputs", "local", "down"), NoOutputRead(key(1)))),
    ("ObservationRequired", changed(COMPLETED, manifests={"local": (manifest(1, seed=Unread("no")),)}), (UNREAD,)),
    ("ObservationRequired", changed(ALIVE, again={"supervisor": (failed(1),)}), (READ_LATE, NoSuccess(key(1), "failed with exit code 1"))),
    ("LaunchDispatchRequired", CLAIMED, (NoTerminal(key(1)),)),
    ("LaunchPending", Scene((Try(1, DispatchUnknown("?")),)), (NoTerminal(key(1)),)),
    ("LaunchPending", changed(DISPATCHED, grace_ms=10**6), (GraceRunning(key(1), 99_500, 10**6), NoTerminal(key(1)))),
    ("Lost", DISPATCHED, (NoTerminal(key(1)),)),
    ("SeveralCandidates", changed(TWICE, outputs={"local": (output(1), output(2))}), ()),
    ("Converged", COMPLETED, ()),
    ("Converged", changed(COMPLETED, terminals={"supervisor": ()}, again={"supervisor": (ended(1),)}, processes={"local": (process(1),)}),
     (READ_LATE,)),
    ("ResumeAvailable", changed(ENDED, checkpoints={"local": (checkpoint(1, 5), TORN)}),
     (TORN_NAMED, NoSuccess(key(1), "failed with exit code 1"))),
    ("RetryRequired", ENDED, (NoSuccess(key(1), "failed with exit code 1"),)),
    ("RetryRequired", changed(ENDED, checkpoints={"local": (TORN,)}), (TORN_NAMED, NoSuccess(key(1), "failed with exit code 1"))),
    ("RetryRequired", ruled(NO_OUTPUT, 1, SetAside()), (SetAsideByPerson(key(1), "ada", "seen to"),)),
    ("ExecutionRequired", Scene(), (NothingAttempted(),)),
]  # fmt: skip


def nothing_said() -> AbstractContextManager[object]:
    return planted(import_module("countermark.verdict.reconcile"), "_reasons", lambda fold, frontier: ())()


def test_every_arm_and_every_reason_is_among_them() -> None:
    assert {name for name, _, _ in SAID} == {arm.__name__ for arm in get_args(Verdict)}
    assert {type(why).__name__ for _, _, said in SAID for why in said} == {kind.__name__ for kind in get_args(WhyNot)} - {
        "AxisNotAttempted"
    }


@pytest.mark.parametrize(("name", "scene", "said"), SAID, ids=[f"{name} {at}" for at, (name, _, _) in enumerate(SAID)])
def test_what_is_said_of_why_not_yet_is_all_and_nothing_else(name: str, scene: Scene, said: tuple[WhyNot, ...]) -> None:
    conclusion = concluded(scene)
    assert type(conclusion.verdict).__name__ == name
    assert sorted(map(repr, conclusion.why_not)) == sorted(map(repr, said))


@proven_by(nothing_said)
def test_every_attempt_of_the_frontier_says_its_own_reason() -> None:
    tries = (Try(1, STARTED), Try(2, STARTED, RequestedReexecution("b")), Try(3, STARTED, RequestedReexecution("c")))
    scene = changed(
        ENDED, tries=(*tries, Try(4, "claimed", RequestedReexecution("d"))), terminals=plus(ENDED.terminals, ended(3), ended(2))
    )
    scene = changed(scene, outputs={"local": (output(3),)}, manifests={"local": (manifest(3), manifest(2))})
    found = concluded(changed(scene, finished=False)).why_not
    reasons = [why for why in found if isinstance(why, NoTerminal | NoSuccess | NoOutputRead)]
    assert reasons == [NoSuccess(key(1), "failed with exit code 1"), NoOutputRead(key(2)), NoTerminal(key(4))], "the third one completed"
