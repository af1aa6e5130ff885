"""The tables of blockers and verdicts once more, as plainly as they can be written: no index, no pass, each line looks at everything.

It says of a scene that nobody cancelled and nobody ruled on which arm is right and about whom. It shares nothing with
``countermark.verdict``, so that a mistake there is seen here.
"""

from dataclasses import dataclass
from typing import Any

from countermark.evidence.cut import STAGES, Stage
from countermark.evidence.members import NotAttempted, Read, Succeeded
from countermark.recipe import ROSTER
from countermark.run.attempts import Relaunch, predecessor_of
from countermark.run.checkpoint import AdmittedCheckpoint, admit_checkpoint
from countermark.run.claims import DispatchRefused, DispatchUnknown
from tests.verdict.scenes import HERE, PROCESSES_READ_MS, SPELLINGS, Scene, Try, desired, key, number_of

#: An arm, and whom it is about: numbers of attempts, or blockers as (kind, attempt or attempts).
Plain = tuple[str, frozenset[Any]]


@dataclass(frozen=True)
class Facts:
    """A scene, asked about one attempt at a time."""

    scene: Scene

    def seen(self, stage: Stage, number: int) -> list[Any]:
        given = [arm for arm in self.scene.axis(stage).values() if isinstance(arm, tuple)]
        members = (member for members in given for member in members if number_of(member.attempt) == number)
        # That an attempt could still begin is asked of cancelled runs alone.
        return [member for member in members if getattr(member, "state", "") != "unbarred"]

    def ends(self, number: int) -> list[Any]:
        return self.seen("terminals", number) + self.seen("terminals_again", number)

    def whole(self, *stages: Stage) -> bool:
        return all(isinstance(arm, tuple) for stage in stages for arm in self.scene.axis(stage).values())

    def ran(self, stage: Stage) -> bool:
        return any(not isinstance(arm, NotAttempted) for arm in self.scene.axis(stage).values())

    def ordered(self, earlier: Stage, later: Stage) -> bool:
        ran = [stage for stage in self.scene.order if self.ran(stage)]
        return self.scene.finished and {earlier, later} <= set(ran) and ran.index(earlier) < ran.index(later)

    def succeeded(self, number: int) -> bool:
        return bool(self.ends(number)) and all(end.outcome == Succeeded() for end in self.ends(number))

    def living(self, number: int, *states: str) -> bool:
        return any(process.state in states for process in self.seen("processes", number))

    def traces(self, number: int) -> bool:
        axes: tuple[Stage, ...] = ("processes", "outputs", "checkpoints", "manifests")
        return any(self.seen(stage, number) for stage in axes)

    def unread(self, number: int) -> bool:
        """Whether some coordinate of what the attempt ran was read by nobody."""
        said = [manifest.coordinates for manifest in self.seen("manifests", number)]
        reads = [[one[name] for one in said if isinstance(one.get(name), Read)] for name in ROSTER]
        return any(all(read.how == "passed_through" for read in found) for found in reads)

    def old_news(self, number: int) -> bool:
        """Whether a process lives beside a terminal, and no order says that the terminal came first."""
        return bool(self.ends(number)) and self.living(number, "alive") and not self.lives_after(number)

    def lives_after(self, number: int) -> bool:
        first: Stage = "terminals" if self.seen("terminals", number) else "terminals_again"
        return bool(self.ends(number)) and self.living(number, "alive") and self.ordered(first, "processes")

    def lacks_output(self, number: int) -> bool:
        said = any(end.outcome == Succeeded() for end in self.ends(number))
        return said and not self.seen("outputs", number) and self.whole("outputs")

    def lacks_it_in_order(self, number: int) -> bool:
        first = any(end.outcome == Succeeded() for end in self.seen("terminals", number))
        return self.lacks_output(number) and self.ordered("terminals" if first else "terminals_again", "outputs")


def blockers(facts: Facts) -> frozenset[Any]:
    found: set[Any] = set()
    places: dict[str, set[int]] = {}
    for one in facts.scene.tries:
        number = one.number
        known = [process for process in facts.seen("processes", number) if process.execution is not None]
        executions = {process.execution for process in known}
        live = {process.execution for process in known if process.state == "alive"}
        said = [(name, manifest.coordinates.get(name)) for manifest in facts.seen("manifests", number) for name in ROSTER]
        wrong = {
            "ContradictoryTerminals": len({end.outcome for end in facts.ends(number)}) > 1,
            "LiveProcessAfterTerminal": facts.lives_after(number),
            "SeveralLiveProcesses": len(live) > 1,
            "SeveralExecutions": len(executions) > 1 and executions > live,
            "SuccessWithoutOutput": facts.lacks_it_in_order(number),
            "SeveralOutputs": len({output.digest for output in facts.seen("outputs", number)}) > 1,
            "EffectiveManifestDiverges": any(isinstance(read, Read) and read.value != SPELLINGS[name] for name, read in said),
            "AttemptWithoutExecutionClaim": not one.claimed,
            "EvidenceOnRefusedDispatch": isinstance(one.result, DispatchRefused) and (facts.traces(number) or bool(facts.ends(number))),
        }
        found |= {(name, number) for name, is_so in wrong.items() if is_so}
        for member in facts.seen("outputs", number) + facts.seen("checkpoints", number):
            places.setdefault(member.path, set()).add(number)
    return frozenset(found | {("SharedLocation", tuple(sorted(who))) for who in places.values() if len(who) > 1})


def place(facts: Facts, one: Try, superseded: set[int]) -> tuple[str, bool]:
    """Where a frontier attempt stands of which nothing lives, and whether that rests on what this sweep did not bring."""
    number, traces = one.number, facts.traces(one.number)
    unseen = not facts.whole("processes", "terminals_again")
    if facts.ends(number):
        return ("success" if facts.succeeded(number) else "ended"), False
    if number in superseded:
        return "lost", False
    if isinstance(one.result, DispatchRefused):
        return "ended", False
    if not traces:
        if one.result == "claimed":
            return "claimed", False
        if isinstance(one.result, DispatchUnknown):
            return "pending", unseen
        if one.result is None and one.launcher == "local" and (one.host != HERE or not facts.ran("processes")):
            if unseen:
                return "pending", False
        elif one.result is None and one.launcher in ("local", "ray"):
            return "claimed", unseen
    last_ms = one.recorded_ms - (100 if one.result is None else 0)
    waited = facts.ran("processes") and PROCESSES_READ_MS - last_ms >= facts.scene.grace_ms
    over = traces if one.result == "claimed" else waited
    return ("lost" if over else "pending"), unseen or (over and not facts.ordered("processes", "terminals_again"))


def plainly(scene: Scene) -> Plain:
    """The verdict of a scene that nobody cancelled and nobody ruled on."""
    facts, tries = Facts(scene), {one.number: one for one in scene.tries}
    followed = {number: predecessor_of(one.cause) for number, one in tries.items()}
    before = {number: number_of(attempt) for number, attempt in followed.items() if attempt is not None}
    relaunched = {before[number] for number, one in tries.items() if isinstance(one.cause, Relaunch)}
    superseded = relaunched | set(scene.abandoned)
    frontier = [number for number in tries if number not in before.values()]
    if found := blockers(facts):
        return "Blocked", found
    stirring = {number for number in tries if facts.living(number, "alive", "settling") and not facts.ends(number)}
    if unwanted := stirring & superseded:
        return "StopRequired", frozenset(unwanted)
    if stirring:
        return "InProgress", frozenset(stirring)
    if not tries:
        return ("ExecutionRequired" if facts.whole(*STAGES) else "ObservationRequired"), frozenset()
    stands = {number: place(facts, tries[number], superseded) for number in frontier}
    done = frozenset(number for number in tries if facts.succeeded(number) and facts.seen("outputs", number) and not facts.unread(number))
    admitted = any(
        isinstance(
            admit_checkpoint(seen.readback, desired().manifest, frozenset(key(each).nonce.hex for each in tries)), AdmittedCheckpoint
        )
        for number in tries
        for seen in facts.seen("checkpoints", number)
    )
    missing = any(lacks for _, lacks in stands.values())
    for number in tries:
        if facts.succeeded(number) and number not in done:
            missing |= facts.unread(number) or facts.lacks_output(number) or not facts.whole("outputs")
    if not done and all(where == "ended" for where, _ in stands.values()):
        missing |= _next_needs(facts, [number for number in tries if number not in superseded], frontier, admitted)
    if missing:
        return "ObservationRequired", frozenset()
    for arm, where in (("LaunchDispatchRequired", "claimed"), ("LaunchPending", "pending"), ("Lost", "lost")):
        if there := frozenset(number for number, (stand, _) in stands.items() if stand == where):
            return arm, there
    if done:
        return ("SeveralCandidates" if len(done) > 1 else "Converged"), done
    return ("ResumeAvailable", frozenset()) if admitted else ("RetryRequired", frozenset(frontier))


def _next_needs(facts: Facts, not_given_up: list[int], frontier: list[int], admitted: bool) -> bool:
    """Whether another attempt needs what this sweep did not bring: that nothing lives, and that there is nothing to go on from."""
    refused = any(
        isinstance(one.result, DispatchRefused) and one.number in frontier and not facts.ends(one.number) for one in facts.scene.tries
    )
    blind = not facts.whole("processes") or (not admitted and not facts.whole("checkpoints"))
    perhaps = any(facts.old_news(one.number) for one in facts.scene.tries)
    return (bool(not_given_up) and blind) or (refused and not facts.whole("terminals_again")) or perhaps
