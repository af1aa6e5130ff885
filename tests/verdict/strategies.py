"""Scenes drawn at random: any attempts, any members on any axis, any arm of any source, any order."""

from typing import Any

from hypothesis import strategies as st

from countermark.evidence.cut import STAGES
from countermark.evidence.members import CancelledByRequest, Failed, Killed, NotAttempted, NotExecuted, Preempted, Read, Succeeded, Unread
from countermark.run.attempts import (
    CapabilityEscalation,
    Cause,
    CheckpointIdentity,
    InfrastructureRetry,
    InitialAttempt,
    Relaunch,
    RequestedReexecution,
    Resume,
)
from countermark.run.checkpoint import ComponentAbsent, ComponentChanging, ComponentUnreadable
from countermark.run.claims import Adjudication, BelieveSource, Dispatched, DispatchRefused, DispatchUnknown, Ruling, SetAside
from countermark.values import Sha256
from countermark.verdict.kinds import AttemptWithoutExecutionClaim, LiveProcessAfterTerminal, SuccessWithoutOutput
from countermark.verdict.rulings import blocker_text
from tests.verdict.scenes import Scene, Try, checkpoint, ended, key, manifest, output, process, ruled, unidentified

RESULTS = ("claimed", None, Dispatched("started"), DispatchRefused("no room"), DispatchUnknown("timed out"))
OUTCOMES = (Succeeded(), Failed(1), NotExecuted(127, "COMMAND was not found"), Killed(9), CancelledByRequest(), Preempted())
RULINGS: tuple[Ruling, ...] = (SetAside(), SetAside(), BelieveSource("supervisor"), BelieveSource("launcher"), BelieveSource("nobody"))
IDENTITY = CheckpointIdentity(5, Sha256("c" * 64))


def cause(number: int, draw: st.DrawFn) -> Cause:
    """A cause of the attempt of this number: a root, or one that follows an earlier attempt."""
    if number == 1:
        return InitialAttempt()
    before = key(draw(st.integers(1, number - 1)))
    causes: tuple[Cause, ...] = (
        RequestedReexecution(f"again {number}"),
        InfrastructureRetry(before),
        CapabilityEscalation(before, "memory=80GiB"),
        Relaunch(before, "process"),
        Relaunch(before, "process", IDENTITY),
        Resume(before, IDENTITY),
    )
    return draw(st.sampled_from(causes))


@st.composite
def tries(draw: st.DrawFn) -> tuple[Try, ...]:
    found = []
    for number in range(1, draw(st.integers(0, 4)) + 1):
        result = draw(st.sampled_from(RESULTS))
        claimed = result != "claimed" or draw(st.booleans())
        launcher: Any = draw(st.sampled_from(("local", "slurm", "ray")))
        host = draw(st.sampled_from(("n1", "n2")))
        found.append(Try(number, result, cause(number, draw), launcher, host, draw(st.sampled_from((500, 99_000, 200_000))), claimed))
    return tuple(found)


def member(stage: str, number: int, draw: st.DrawFn) -> Any:
    state: Any
    if stage in ("terminals", "again"):
        outcome: Any = draw(st.sampled_from(OUTCOMES))
        return ended(number, outcome, draw(st.sampled_from(("supervisor", "launcher"))))
    if stage == "processes":
        state = draw(st.sampled_from(("alive", "settling", "dead", "unbarred")))
        return (
            unidentified(number, state)
            if state == "unbarred" or draw(st.booleans())
            else process(number, state, draw(st.sampled_from((100, 200))))
        )
    if stage == "outputs":
        return output(number, draw(st.sampled_from("de")), draw(st.sampled_from((None, "/shared", f"/other/{number}"))))
    if stage == "checkpoints":
        broken: Any = draw(st.sampled_from((None, ComponentAbsent(("a",)), ComponentUnreadable(("truncated",)), ComponentChanging(("b",)))))
        step = draw(st.integers(1, 3))
        return checkpoint(number, step) if broken is None else checkpoint(number, step, rng_state=broken)
    reading = draw(st.sampled_from((None, Read("17", "passed_through"), Read("18", "artifact"), Unread("no"))))
    return manifest(number, draw(st.sampled_from(("trainer", "artifact"))), **({} if draw(st.booleans()) else {"seed": reading}))


@st.composite
def axis(draw: st.DrawFn, stage: str, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for source in ("one", "two")[: draw(st.integers(1, 2))]:
        kind = draw(st.sampled_from(("observed", "observed", "observed", "not attempted", "refused")))
        if kind == "observed":
            numbers = draw(st.lists(st.integers(1, count), max_size=4)) if count else []
            found[source] = tuple(member(stage, number, draw) for number in numbers)
        else:
            found[source] = NotAttempted("nobody looked") if kind == "not attempted" else "the disk failed"
    return found


@st.composite
def adjudications(draw: st.DrawFn, numbers: list[int]) -> Adjudication:
    """A ruling on what may or may not be there."""
    texts = (SuccessWithoutOutput, LiveProcessAfterTerminal, AttemptWithoutExecutionClaim)
    named = draw(st.lists(st.sampled_from([blocker_text(kind(key(number))) for kind in texts for number in numbers]), max_size=3))
    return Adjudication(key(draw(st.sampled_from(numbers))), draw(st.sampled_from(RULINGS)), tuple(named), "ben", "by heart", 50_000)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Any scene whose parts fit together."""
    drawn = draw(tries())
    count = len(drawn)
    axes = {name: draw(axis(name, count)) for name in ("terminals", "processes", "outputs", "checkpoints", "manifests", "again")}
    claimed = [one.number for one in drawn if one.claimed]
    rulings = tuple(draw(st.lists(adjudications(claimed), max_size=2))) if claimed else ()
    scene = Scene(
        drawn,
        axes["terminals"],
        axes["processes"],
        axes["outputs"],
        axes["checkpoints"],
        axes["manifests"],
        axes["again"],
        cancelled=draw(st.booleans()),
        abandoned=tuple(draw(st.lists(st.sampled_from(claimed), unique=True))) if claimed else (),
        grace_ms=draw(st.sampled_from((0, 60_000, 10**9))),
        order=tuple(draw(st.permutations(STAGES))) if draw(st.booleans()) else STAGES,
        finished=draw(st.sampled_from((True, True, False))),
        adjudications=rulings,
    )
    for _ in range(draw(st.integers(0, 2)) if claimed else 0):
        scene = ruled(scene, draw(st.sampled_from(claimed)), draw(st.sampled_from(RULINGS)))
    return scene
