"""What could still begin of a cancelled run, as the observer of local attempts says it."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from countermark.evidence.members import (
    Misfiled,
    NotAttempted,
    Observed,
    ProcessSeen,
    ReadRefused,
)
from countermark.files import locks
from countermark.observe import local
from countermark.run.attempts import AttemptKey
from countermark.run.claims import Cancellation
from countermark.wire.receipts import StartReceipt, encode
from tests.faults import planted, proven_by
from tests.observe.attempts import HERE, OTHER, World, processes
from tests.run.examples import key


def the_fence_is_not_read() -> AbstractContextManager[object]:
    return planted(local, "FENCED", "no fence")()


def a_start_is_an_end() -> AbstractContextManager[object]:
    real = local._process_or_opening

    def look(attempt: AttemptKey, folder: Path, found: Any) -> None:
        (local._process if (folder / "start.json").exists() else real)(attempt, folder, found)

    return planted(local, "_process_or_opening", look)()


def only_what_has_a_folder_could_begin() -> AbstractContextManager[object]:
    real = local._process_or_opening

    def look(attempt: AttemptKey, folder: Path, found: Any) -> None:
        (real if folder.exists() else local._process)(attempt, folder, found)

    return planted(local, "_process_or_opening", look)()


@proven_by(the_fence_is_not_read, a_start_is_an_end, only_what_has_a_folder_could_begin)
def test_what_could_still_begin_is_said_once_the_run_is_cancelled(world: World) -> None:
    """In turn: no folder yet, one that a call made, one whose supervisor died before its child was seen, each behind a fence, a trainer
    that was seen, one that lives, a supervisor at work, and a claim that nobody was to launch."""
    world.attempt(1, folder=False)
    folders_made = {number: world.attempt(number) for number in range(2, 9)}
    for number in (3, 5, 6, 7, 8):
        processes(folders_made[number])
    for number in (3, 5):
        (folders_made[number] / "process.json").unlink()
    for number in (4, 5):
        (folders_made[number] / "fenced").write_bytes(b"{}")
    descriptor = locks.open_lock(folders_made[7] / "lock")
    assert locks.take_lock(descriptor)
    (folders_made[8] / "process.json").unlink()
    (folders_made[8] / "start.json").write_bytes(encode(StartReceipt(1, folders_made[8].name, HERE, 0)))
    world.attempt(9, host=None)
    seen = [(3, "dead"), (5, "dead"), (6, "dead"), (7, "alive"), (8, "settling")]
    before = world.members("processes")
    assert [(member.attempt, member.state) for member in before] == [(key(number), state) for number, state in seen]
    world.ledger = replace(world.ledger, cancellations=(Cancellation("ada", 1),))
    after = world.members("processes")
    assert [member for member in after if member.state != "unbarred"] == before
    assert [member for member in after if member.state == "unbarred"] == [
        ProcessSeen(key(number), None, "unbarred") for number in (1, 2, 3)
    ]
    locks.os.close(descriptor)


def test_of_what_cannot_be_read_or_names_another_attempt_no_opening_is_said(world: World) -> None:
    (world.attempt(1) / "start.json").write_bytes(b"{")
    processes(world.attempt(2), attempt=OTHER)
    world.attempt(3, host="elsewhere")
    world.ledger = replace(world.ledger, cancellations=(Cancellation("ada", 1),))
    first, second, third = world.arms("processes")
    assert isinstance(first, ReadRefused) and isinstance(third, NotAttempted)
    assert isinstance(second, Observed) and second.members == () and second.misfiled == (Misfiled(key(2), OTHER),)
