"""Scenarios: evidence as text in, a conclusion as text out.

A file holds scenes. ``== title`` begins one; then come evidence lines, ``->``, and what is concluded, line by line. ``python -m
tests.scenarios.notation`` writes what is concluded now into every file, to be read in the difference before it is kept.

Evidence lines (what is left out was observed and is empty; effective manifests that are left out agree, where an attempt says success)::

    c: A1(dispatched) A2(retry A1, claim)     claims, in the order of the ledger
         causes: initial (left out), again, retry A1, relaunch A1, resume A1
         dispatch: claim, intent, dispatched, refused, unknown; "unclaimed" for an attempt that nobody claimed
         "on n2": dispatched from that host; "by slurm": that launcher; "just now": a second before processes were read
    claim: again as A2 at 1                   one more claim on that version, decided as the ledger decides it; prints the decision
    outcome: A1 refused                       a launcher's answer, decided as the ledger decides it; prints the decision
    T: {A1 ok, A1 fail}                       ok, fail, killed, cancelled, preempted; "T launcher:" names another source than the supervisor
    T2: {A1 ok}                               the second reading of terminals, where it is not the first once more
    P: {A1 p1 alive, A1 p1 dead boot b0}      alive, settling, dead; "?" for a process without a receipt
    O: {A1 d}                                 a digest's letter; "at /path" for another place than the attempt's own
    K: {A1 s500, A1 s600 without rng_state}   also "mismatch model_weights"
    M: {A1, A2 seed=18, A3 seed unread}
    any axis: n/a(why), X(why)                nobody looked; no reading
    cancelled, broken off, grace: 10, abandoned: A1
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from countermark.evidence.members import CancelledByRequest, Failed, Killed, NotAttempted, Preempted, Read, Succeeded, Unread
from countermark.lines.conclusion import conclusion_lines
from countermark.run.attempts import (
    Attempt,
    Cause,
    CheckpointIdentity,
    InfrastructureRetry,
    InitialAttempt,
    Relaunch,
    RequestedReexecution,
    Resume,
)
from countermark.run.checkpoint import ComponentAbsent, ComponentRead, FileReading
from countermark.run.claims import (
    Admissible,
    AlreadyCommitted,
    Dispatched,
    DispatchOutcome,
    DispatchRefused,
    DispatchUnknown,
    SnapshotStale,
    Transition,
    admit_start_claim,
)
from countermark.run.dispatch import Insertable, admit_dispatch_outcome
from countermark.run.records import Stands
from countermark.values import Refused, Sha256
from countermark.verdict import Sweep, conclude
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
    how, *names = words or [""]
    for name in names:
        file = FileReading(f"{name}.bin", Sha256("e" * 64), 10)
        broken[name] = ComponentAbsent((f"{name}.bin",)) if how == "without" else ComponentRead((file,), (), Sha256("f" * 64))
    assert how in ("", "without", "mismatch")
    return checkpoint(attempt, step, **broken)


def arm(axis: str, text: str, source: str) -> Any:
    if match := re.fullmatch(r"(n/a|X)\((.*)\)", text):
        return NotAttempted(match[2]) if match[1] == "n/a" else match[2]
    match = re.fullmatch(r"\{(.*)\}", text)
    assert match, f"{text!r} is neither members in braces, nor n/a(why), nor X(why)"
    return tuple(member(axis, one.strip(), source) for one in match[1].split(",") if one.strip())


# -------------------------------------------------------------------------------------------------------------- playing


def play(evidence: list[str]) -> list[str]:
    """What is decided and concluded on this evidence, in lines."""
    scene, axes, steps = Scene(), dict[str, dict[str, Any]](), list[tuple[str, str]]()
    for line in evidence:
        head, _, text = (part.strip() for part in line.partition(":"))
        axis, _, source = head.partition(" ")
        if axis in AXES:
            name = source or SOURCES[axis]
            axes.setdefault(AXES[axis], {})[name] = arm(axis, text, name)
        elif head == "c":
            scene = changed(scene, tries=tuple(tries(text)))
        elif head in ("claim", "outcome"):
            steps.append((head, text))
        elif head == "abandoned":
            scene = changed(scene, abandoned=tuple(map(number, text.split())))
        elif head == "grace":
            scene = changed(scene, grace_ms=int(text) * 1000)
        elif line in ("cancelled", "broken off"):
            scene = changed(scene, **({"cancelled": True} if line == "cancelled" else {"finished": False}))
        else:
            raise AssertionError(f"{line!r} is no line of evidence")
    of = sweep(scene)
    lines = []
    for kind, text in steps:
        of, line = (_claim if kind == "claim" else _outcome)(of, text)
        lines.append(line)
    terminals = (
        one for name in ("terminals", "again") for given in axes.get(name, {}).values() if isinstance(given, tuple) for one in given
    )
    succeeded = sorted({number_of(one.attempt) for one in terminals if one.outcome == Succeeded()})
    axes.setdefault("manifests", {"trainer": tuple(map(manifest, succeeded))})
    whole = sweep(changed(scene, **axes))
    conclusion = conclude(replace(whole, ledger=of.ledger, attempts=of.attempts))
    if isinstance(conclusion, Refused):
        return [*lines, *(f"refused: {type(defect).__name__}" for defect in conclusion.defects)]
    return [*lines, *conclusion_lines(conclusion)]


def _claim(of: Sweep, text: str) -> tuple[Sweep, str]:
    match = re.fullmatch(r"(.+) as (A\d+) at (\d+)", text)
    assert match, f"{text!r} is no claim"
    demand = desired().demand
    ledger = replace(of.ledger, version=len(of.ledger.claims) + len(of.ledger.outcomes) + len(of.ledger.intents))
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


def _outcome(of: Sweep, text: str) -> tuple[Sweep, str]:
    name, word = text.split()
    answer = admit_dispatch_outcome(of.ledger, DispatchOutcome(key(number(name)), RESULTS[word], 99_000))
    if isinstance(answer, Insertable):
        grown = replace(of.ledger, outcomes=(*of.ledger.outcomes, answer.fact))
        return replace(of, ledger=grown), f"outcome: {word} recorded"
    if isinstance(answer, Stands):
        return of, f"outcome: {type(answer.fact.result).__name__} stands"
    return of, f"outcome: refused: {', '.join(type(defect).__name__ for defect in answer.defects)}"


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
