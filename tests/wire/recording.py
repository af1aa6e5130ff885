"""Sweeps as this release stores them, each with the text of its verdict, for every later release to read and to conclude from.

``python -m tests.wire.recording NUMBER`` writes ``tests/recorded/sweeps-NUMBER.jsonl.gz``, one line for each sweep that no earlier file
holds. A release that stores something new records a file of its own; what an earlier one recorded is never written again.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from countermark.evidence.members import Misfiled, NotExecuted, Read, Unread
from countermark.lines.conclusion import conclusion_lines
from countermark.run.attempts import CapabilityEscalation, Relaunch, RequestedReexecution, Resume
from countermark.run.checkpoint import (
    ArtifactFact,
    ComponentAbsent,
    ComponentChanging,
    ComponentRead,
    ComponentUnreadable,
    FileReading,
    StepWitness,
    Unobserved,
)
from countermark.run.claims import Dispatched
from countermark.values import Refused, Sha256
from countermark.verdict import Sweep, conclude
from countermark.wire.sweep import encode_sweep
from tests.run.examples import CHECKPOINT
from tests.scenarios.notation import evidence_of, files, read
from tests.verdict.scenes import Scene, Try, changed, checkpoint, ended, failed, key, manifest, output, process, sweep, unidentified
from tests.verdict.test_join import blind, scoped

FOLDER = Path(__file__).parents[1] / "recorded"
STARTED = Dispatched("started")
#: The first attempt is of another host and given up, and what is away cannot be looked at from here.
GIVEN_UP = Scene(
    (Try(1, STARTED, host="n2"), Try(2, STARTED, Relaunch(key(1), "process"))),
    abandoned=(1,),
    **blind(terminals={"local": ()}, processes={"local": ()}),
)
ODD = "a\u202eb \x1b[31m \udcff é"


def odd_checkpoints() -> Scene:
    """Checkpoints with every kind of reading, defect and number that a readback can hold."""
    file = FileReading("optimizer.bin", Sha256("1" * 64), 2**60)
    replaced = ComponentRead((file,), (StepWitness(ODD, 4), StepWitness("b", 6)), Sha256("9" * 64))
    seen = (
        checkpoint(1, 1, rng_state=ComponentAbsent(("rng_state.pth",)), scheduler_state=ComponentUnreadable(("torn", ODD))),
        checkpoint(1, 2, optimizer_state=ComponentChanging(("optimizer.pt",))),
        checkpoint(1, 5, optimizer_state=replaced),
        checkpoint(1, 7),
        checkpoint(1, 8),
    )
    unseen = replace(seen[3], readback=replace(seen[3].readback, marker=Unobserved(("written in place",))))
    whole = replace(
        seen[4].readback,
        attempt=key(9).nonce.hex,
        work_key="wk1:" + "0" * 64,
        declared={"seed": "18"},
        facts=(ArtifactFact("optimizer.beta1", "0.8", "optimizer.pt"),),
        model_shapes=((8, 4), ()),
        optimizer_shapes=((8,),),
        optimizer_parameters=3,
        micro_batches=2**60,
        epoch=0.1 + 0.2,
        scaled=True,
        notes=(ODD,),
    )
    strange = replace(seen[4], readback=whole)
    return Scene((Try(1, STARTED),), terminals={"supervisor": (failed(1),)}, checkpoints={"files": (*seen[:3], unseen, strange)})


def checkpoint_of_workers() -> Scene:
    """A checkpoint into which each of several workers wrote its part."""
    files = tuple(FileReading(f"rng_state_{rank}.pth", Sha256(f"{rank}" * 64), 100) for rank in range(2))
    seen = checkpoint(1, 5, rng_state=ComponentRead(files, workers=2))
    return Scene((Try(1, STARTED),), terminals={"supervisor": (failed(1),)}, checkpoints={"files": (seen,)})


def odd_ends() -> Scene:
    """Outcomes, causes and ways of reading that no scenario tells."""
    tries = (
        Try(1, STARTED),
        Try(2, STARTED, CapabilityEscalation(key(1), "memory=80GiB")),
        Try(3, STARTED, Resume(key(2), CHECKPOINT)),
        Try(4, STARTED, RequestedReexecution(ODD)),
    )
    ways = {
        "seed": Read("17", "file_hash"),
        "rank": Read("4", "artifact"),
        "dropout": Read("50", "passed_through"),
        "scaling": Unread(ODD),
    }
    return Scene(
        tries,
        terminals={"supervisor": (ended(1, NotExecuted(126, ODD)), failed(2, code=137), failed(3), ended(4)), "launcher": "down"},
        processes={"local": (process(1, "dead", boot=ODD, host=ODD), unidentified(2, "dead"))},
        outputs={"files": (output(4, path=f"/{ODD}"),)},
        manifests={"trainer": (manifest(4, ODD, **ways),)},
    )


def misfiled() -> Scene:
    """A receipt in another attempt's folder: stored, and refused again."""
    stray = {"terminals": (Misfiled(key(1), ODD),), "outputs": (Misfiled(key(1), key(2).nonce.hex),)}
    return changed(odd_ends(), misfiled=stray)


def told() -> Iterator[tuple[str, Sweep]]:
    """Every sweep that is recorded, by name: those of all scenarios, and what no scenario tells."""
    for path in files():
        for scene in read(path.read_text(encoding="utf-8")):
            yield f"{path.stem}: {scene.title}", evidence_of(scene.evidence)
    for made in (odd_checkpoints, odd_ends, misfiled, checkpoint_of_workers):
        yield made.__name__, sweep(made())
    for attempt in (1, 2):
        yield f"a source that speaks of attempt {attempt} alone", scoped(GIVEN_UP, attempt)


def verdict_text(of: Sweep) -> str:
    """What is concluded, line by line; of a sweep whose parts do not fit, the names of the defects."""
    answer = conclude(of)
    if isinstance(answer, Refused):
        return "\n".join(("refused", *(type(defect).__name__ for defect in answer.defects)))
    return "\n".join(conclusion_lines(answer))


def recorded(number: int) -> list[dict[str, str]]:
    """The sweeps of a recorded file: name, document and verdict."""
    with gzip.open(FOLDER / f"sweeps-{number}.jsonl.gz", "rt", encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


def numbers() -> list[int]:
    """The files that there are."""
    return sorted(int(path.name.removeprefix("sweeps-").removesuffix(".jsonl.gz")) for path in FOLDER.glob("sweeps-*.jsonl.gz"))


if __name__ == "__main__":
    mine = int(sys.argv[1])
    known = {one["document"] for number in numbers() if number < mine for one in recorded(number)}
    lines = (
        json.dumps({"name": name, "document": document, "verdict": verdict_text(of)})
        for name, of in told()
        if (document := encode_sweep(of).decode("ascii")) not in known
    )
    place = FOLDER / f"sweeps-{mine}.jsonl.gz"
    place.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode("ascii"), mtime=0))
    sys.stdout.write(f"{place}: {place.stat().st_size} bytes\n")
