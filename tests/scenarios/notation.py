"""Scenarios: evidence as text in, a conclusion as text out.

A file holds scenes. ``== title`` begins one; then come evidence lines, ``->``, and what is concluded, line by line. ``python -m
tests.scenarios.notation`` writes what is concluded now into every file, to be read in the difference before it is kept.

Evidence lines (what is left out was observed and is empty; effective manifests that are left out agree, where an attempt says success)::

    c: A1(dispatched) A2(retry A1, claim)     claims, in the order of the ledger
         causes: initial (left out), again NAME, retry A1, escalate A1 WHAT, relaunch A1, resume A1
         dispatch: claim, intent, dispatched, refused, unknown; "unclaimed" for an attempt that nobody claimed
         "on n2": dispatched from that host; "by slurm": that launcher; "just now": a second before processes were read
    claim: again as A2 at 1                   one more claim on that version, decided as the ledger decides it; prints the decision
    dispatch: A1 on n2                        a launcher is to be called, decided likewise; "by slurm", "by ray" for other launchers
    outcome: A1 refused                       a launcher's answer, decided likewise
    ruled: A1 set aside by ada                a person's ruling on every conflict of A1 that the lines above show; a line below that tells
    ruled: A1 believe launcher by ada         an axis once more is what came to light after it; "a; b": two rulings at one time
    T: {A1 ok, A1 fail}                       ok, fail, killed, cancelled, preempted; "T launcher:" names another source than the supervisor
    T2: {A1 ok}                               the second reading of terminals, where it is not the first once more
    P: {A1 p1 alive, A1 p1 dead boot b0}      alive, settling, dead, unbarred; "?" for a process without a receipt
    O: {A1 d}                                 a digest's letter; "at /path" for another place than the attempt's own
    K: {A1 s500, A1 s600 without rng_state}   also "mismatch model_weights", "unread model_weights", "unpublished"; several of them in a row
                                              "at /path" first for another place
    M: {A1, A2 seed=18, A3 seed unread}
    any axis: n/a(why), X(why)                nobody looked; no reading
    cancelled, broken off, read backwards, grace: 10, abandoned: A1
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from countermark.evidence.members import CancelledByRequest, Failed, Killed, NotAttempted, Preempted, Read, Succeeded, Unread
from countermark.lines.conclusion import conclusion_lines
from countermark.lines.defects import sentence
from countermark.run.attempts import (
    Attempt,
    CapabilityEscalation,
    Cause,
    CheckpointIdentity,
    InfrastructureRetry,
    InitialAttempt,
    Relaunch,
    RequestedReexecution,
    Resume,
)
from countermark.run.checkpoint import ComponentAbsent, ComponentRead, ComponentUnreadable, FileReading, Incomplete
from countermark.run.claims import (
    Adjudication,
    Admissible,
    AlreadyCommitted,
    BelieveSource,
    Dispatched,
    DispatchIntent,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    RunLedger,
    SetAside,
    SnapshotStale,
    Transition,
    admit_start_claim,
)
from countermark.run.dispatch import Insertable, admit_dispatch_intent, admit_dispatch_outcome
from countermark.run.records import Stands
from countermark.values import Refused, Sha256
from countermark.verdict import Conclusion, Sweep, conclude
from countermark.verdict.kinds import Blocked, CheckpointNotAdmitted, ContradictoryTerminals
from countermark.verdict.rulings import attempts_of, blocker_text
from tests.recipe.examples import CLEAN
from tests.verdict.scenes import (
    Scene,
    Try,
    changed,
    checkpoint,
    desired,
    ended,
    key,
    manifest,
    number_of,
    output,
    process,
    sweep,
    unidentified,
)

FOLDER = Path(__file__).parent
AXES = {"T": "terminals", "P": "processes", "O": "outputs", "K": "checkpoints", "M": "manifests", "T2": "again"}
SOURCES = {"T": "supervisor", "T2": "supervisor", "P": "launcher", "O": "files", "K": "files", "M": "trainer"}
OUTCOMES: dict[str, Any] = {
    "ok": Succeeded(),
    "fail": Failed(1),
    "killed": Killed(9),
    "cancelled": CancelledByRequest(),
    "preempted": Preempted(),
}
RESULTS: dict[str, Any] = {
    "claim": "claimed",
    "intent": None,
    "dispatched": Dispatched("started"),
    "refused": DispatchRefused("no room"),
    "unknown": DispatchUnknown("the call timed out"),
}
BROKEN: dict[str, Callable[[str], Any]] = {
    "without": lambda name: ComponentAbsent((name,)),
    "mismatch": lambda name: ComponentRead((FileReading(name, Sha256("e" * 64), 10),), (), Sha256("f" * 64)),
    "unread": lambda name: ComponentUnreadable((f"{name} was not read",)),
}
CHECKPOINT = CheckpointIdentity(5, Sha256("c" * 64))


@dataclass
class Told:
    """A scene as it is told: title, evidence lines, and what the file says is concluded."""

    title: str
    evidence: list[str] = field(default_factory=list)
    concluded: list[str] = field(default_factory=list)


def read(text: str) -> list[Told]:
    """The scenes of a file."""
    scenes: list[Told] = []
    after = False
    for line in text.splitlines():
        if line.startswith("== "):
            scenes.append(Told(line[3:]))
            after = False
        elif line == "->":
            after = True
        elif line and not line.startswith("#"):
            (scenes[-1].concluded if after else scenes[-1].evidence).append(line)
    return scenes


def number(word: str) -> int:
    match = re.fullmatch(r"A(\d+)", word)
    assert match, f"{word!r} is no attempt"
    return int(match[1])


# ------------------------------------------------------------------------------------------------------------- control


def cause(words: str) -> Cause:
    kind, _, before = words.partition(" ")
    if kind == "initial":
        return InitialAttempt()
    if kind == "again":
        return RequestedReexecution(before or "again")
    if kind == "retry":
        return InfrastructureRetry(key(number(before)))
    if kind == "escalate":
        before, _, capability = before.partition(" ")
        return CapabilityEscalation(key(number(before)), capability or "memory")
    if kind == "relaunch":
        return Relaunch(key(number(before)), "process")
    if kind == "resume":
        return Resume(key(number(before)), CHECKPOINT)
    raise AssertionError(f"{words!r} is no cause")


def tries(text: str) -> Iterator[Try]:
    found = re.findall(r"(A\d+)\(([^)]*)\)", text)
    assert found and re.sub(r"A\d+\([^)]*\)", "", text).strip() == "", f"{text!r} is no list of claims"
    for name, words in found:
        one = Try(number(name), "claimed")
        for word in filter(None, map(str.strip, words.split(","))):
            if word in RESULTS:
                one = replace(one, result=RESULTS[word])
            elif word == "unclaimed":
                one = replace(one, claimed=False)
            elif word == "just now":
                one = replace(one, recorded_ms=99_000)
            elif word.startswith("on "):
                one = replace(one, host=word[3:])
            elif word in ("by slurm", "by ray", "by local"):
                launcher: Any = word[3:]
                one = replace(one, launcher=launcher)
            else:
                one = replace(one, cause=cause(word))
        yield one


# -------------------------------------------------------------------------------------------------------------- members


def member(axis: str, text: str, source: str) -> Any:
    """One member from its words, the attempt first."""
    name, *words = text.split()
    attempt = number(name)
    if axis in ("T", "T2"):
        return ended(attempt, OUTCOMES[words[0]], source)
    if axis == "P":
        state: Any = words[1]
        if words[0] == "?":
            return unidentified(attempt, state)
        return process(attempt, state, 3220 + int(words[0].removeprefix("p")), words[3] if words[2:3] == ["boot"] else "b1")
    if axis == "O":
        return output(attempt, words[0], words[2] if words[1:2] == ["at"] else None)
    if axis == "K":
        return _checkpoint(attempt, int(words[0].removeprefix("s")), words[1:])
    said: dict[str, Any] = {}
    if words:
        coordinate, _, value = words[0].partition("=")
        assert coordinate in CLEAN, f"{coordinate!r} is no coordinate"
        said[coordinate] = Read(value, "live_object") if value else Unread(" ".join(words[2:]) or "the callback could not read it")
    return manifest(attempt, source, **said)


def _checkpoint(attempt: int, step: int, words: list[str]) -> Any:
    broken: dict[str, Any] = {}
    how, published, place = "", True, words[1] if words[:1] == ["at"] else None
    for word in words[2:] if place else words:
        if word in BROKEN:
            how = word
        elif word == "unpublished":
            published = False
        else:
            broken[word] = BROKEN[how](f"{word}.bin")
    seen = checkpoint(attempt, step, place, **broken)
    return seen if published else replace(seen, readback=replace(seen.readback, marker=Incomplete(("a temporary name",))))


def arm(axis: str, text: str, source: str) -> Any:
    if match := re.fullmatch(r"(n/a|X)\((.*)\)", text):
        return NotAttempted(match[2]) if match[1] == "n/a" else match[2]
    match = re.fullmatch(r"\{(.*)\}", text)
    assert match, f"{text!r} is neither members in braces, nor n/a(why), nor X(why)"
    return tuple(member(axis, one.strip(), source) for one in match[1].split(",") if one.strip())


# -------------------------------------------------------------------------------------------------------------- playing


@dataclass
class Playing:
    """A scene as far as its lines were read."""

    scene: Scene = field(default_factory=Scene)
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: list[tuple[str, str]] = field(default_factory=list)

    def whole(self) -> tuple[Sweep, list[str]]:
        """The sweep that the lines make, and what the ledger decided on the way."""
        of, lines = sweep(self.scene), []
        for kind, text in self.steps:
            of, line = STEPS[kind](of, text)
            lines.append(line)
        found = sweep(changed(self.scene, **{**self.axes, "manifests": self.axes.get("manifests", self._agreeing())}))
        return replace(found, ledger=of.ledger, attempts=of.attempts), lines

    def _agreeing(self) -> dict[str, Any]:
        """Effective manifests of what says success, all as they were asked for."""
        given = (self.axes.get(name, {}).values() for name in ("terminals", "again"))
        terminals = (one for readings in given for reading in readings if isinstance(reading, tuple) for one in reading)
        succeeded = sorted({number_of(one.attempt) for one in terminals if one.outcome == Succeeded()})
        return {"trainer": tuple(map(manifest, succeeded))}

    def ruled(self, text: str) -> None:
        """Persons ruled on what is to be seen of an attempt so far."""
        given = [self._ruling(one.strip()) for one in text.split(";")]
        self.scene = changed(self.scene, adjudications=(*self.scene.adjudications, *given))

    def _ruling(self, text: str) -> Adjudication:
        match = re.fullmatch(r"(A\d+) (?:set aside|believe (\S+)) by (\w+)", text)
        assert match, f"{text!r} is no ruling"
        concluded = conclude(self.whole()[0])
        assert not isinstance(concluded, Refused), concluded
        verdict, attempt = concluded.verdict, key(number(match[1]))
        assert isinstance(verdict, Blocked), f"there is nothing to rule on: {verdict}"
        ruling = SetAside() if match[2] is None else BelieveSource(match[2])
        about = (one for one in verdict.blockers if attempt in attempts_of(one))
        texts = tuple(blocker_text(one) for one in about if match[2] is None or isinstance(one, ContradictoryTerminals))
        assert texts, f"no conflict of {match[1]} is settled by that"
        return Adjudication(attempt, ruling, texts, match[3], "looked into", 60_000)

    def line(self, line: str) -> None:
        """One line of evidence; an axis that is told once more was read anew."""
        head, _, text = (part.strip() for part in line.partition(":"))
        axis, _, source = head.partition(" ")
        if axis in AXES:
            name = source or SOURCES[axis]
            self.axes.setdefault(AXES[axis], {})[name] = arm(axis, text, name)
        elif head == "c":
            self.scene = changed(self.scene, tries=tuple(tries(text)))
        elif head in STEPS:
            self.steps.append((head, text))
        elif head == "ruled":
            self.ruled(text)
        elif head == "abandoned":
            self.scene = changed(self.scene, abandoned=tuple(map(number, text.split())))
        elif head == "grace":
            self.scene = changed(self.scene, grace_ms=int(text) * 1000)
        elif line == "read backwards":
            self.scene = changed(self.scene, order=tuple(reversed(self.scene.order)))
        elif line in ("cancelled", "broken off"):
            self.scene = changed(self.scene, **({"cancelled": True} if line == "cancelled" else {"finished": False}))
        else:
            raise AssertionError(f"{line!r} is no line of evidence")


def evidence_of(evidence: list[str]) -> Sweep:
    """The sweep that the evidence makes."""
    playing = Playing()
    for line in evidence:
        playing.line(line)
    return playing.whole()[0]


def play(evidence: list[str]) -> list[str]:
    """What is decided and concluded on this evidence, in lines."""
    playing = Playing()
    for line in evidence:
        playing.line(line)
    whole, lines = playing.whole()
    conclusion = conclude(whole)
    if isinstance(conclusion, Refused):
        return [*lines, *(f"refused: {type(defect).__name__}" for defect in conclusion.defects)]
    return [*lines, *conclusion_lines(conclusion), *_inadmissible(conclusion)]


def _inadmissible(conclusion: Conclusion) -> Iterator[str]:
    """Every defect of every checkpoint that cannot be resumed from, as ``checkpoint inspect`` says it."""
    for why in conclusion.why_not:
        if isinstance(why, CheckpointNotAdmitted):
            for defect in why.defects:
                yield f"step {why.step}: {type(defect).__name__}: {sentence(defect).message}"


def _at(ledger: RunLedger) -> RunLedger:
    """The ledger at the version that the number of its facts makes."""
    kinds = (ledger.claims, ledger.intents, ledger.outcomes, ledger.cancellations, ledger.abandonments, ledger.adjudications)
    return replace(ledger, version=sum(map(len, kinds)))


def _claim(of: Sweep, text: str) -> tuple[Sweep, str]:
    match = re.fullmatch(r"(.+) as (A\d+) at (\d+)", text)
    assert match, f"{text!r} is no claim"
    demand, ledger = desired().demand, _at(of.ledger)
    answer = admit_start_claim(ledger, int(match[3]), Transition(demand.id, demand.work, cause(match[1])), key(number(match[2])))
    if isinstance(answer, Admissible):
        grown = replace(ledger, claims=(*ledger.claims, answer.claim), version=answer.claim.version)
        claimed = Attempt(answer.claim.attempt, demand.id, answer.claim.transition.cause)
        return replace(of, ledger=grown, attempts=(*of.attempts, claimed)), f"claim: {match[2]} committed at version {answer.claim.version}"
    if isinstance(answer, AlreadyCommitted):
        return of, f"claim: A{number_of(answer.claim.attempt)} was committed before"
    if isinstance(answer, SnapshotStale):
        return of, f"claim: the ledger is at version {answer.current}"
    return of, f"claim: refused: {', '.join(type(defect).__name__ for defect in answer.defects)}"


def _dispatch(of: Sweep, text: str) -> tuple[Sweep, str]:
    match = re.fullmatch(r"(A\d+)(?: by (\w+))?(?: on (\w+))?", text)
    assert match, f"{text!r} is no dispatch"
    launcher: Any = match[2] or "local"
    answer = admit_dispatch_intent(of.ledger, DispatchIntent(key(number(match[1])), launcher, match[3] or "n1", 99_000))
    if isinstance(answer, Insertable):
        grown = replace(of.ledger, intents=(*of.ledger.intents, answer.fact))
        return replace(of, ledger=grown), f"dispatch: {match[1]} may be launched"
    if isinstance(answer, Stands):
        return of, f"dispatch: {match[1]} may be launched: it is the launch that was meant before"
    return of, f"dispatch: refused: {', '.join(type(defect).__name__ for defect in answer.defects)}"


def _outcome(of: Sweep, text: str) -> tuple[Sweep, str]:
    name, word = text.split()
    answer = admit_dispatch_outcome(of.ledger, DispatchOutcome(key(number(name)), RESULTS[word], 99_000))
    if isinstance(answer, Insertable):
        grown = replace(of.ledger, outcomes=(*of.ledger.outcomes, answer.fact))
        return replace(of, ledger=grown), f"outcome: {word} recorded"
    if isinstance(answer, Stands):
        return of, f"outcome: {type(answer.fact.result).__name__} stands"
    return of, f"outcome: refused: {', '.join(type(defect).__name__ for defect in answer.defects)}"


STEPS: dict[str, Callable[[Sweep, str], tuple[Sweep, str]]] = {"claim": _claim, "dispatch": _dispatch, "outcome": _outcome}


def files() -> list[Path]:
    """Every file of scenarios."""
    return sorted(FOLDER.glob("*.txt"))


def rewritten(text: str) -> str:
    """The file with what is concluded now."""
    lines: list[str] = []
    scenes = iter(read(text))
    skipping = False
    for line in text.splitlines():
        if line.startswith(("== ", "#")):
            skipping = False
        if not skipping:
            lines.append(line)
        if line == "->":
            lines += [*play(next(scenes).evidence), ""]
            skipping = True
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    for path in files():
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
