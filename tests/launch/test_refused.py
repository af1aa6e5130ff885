"""What a launch that fails may say: "refused" where this call surely started nothing and nobody else did, else "unknown".

The claim is written last: as long as it is not there, no supervisor begins in the folder, whoever sends one.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from countermark.files import attempt_folder, durable, locks
from countermark.files.attempt_folder import CLAIM, LOCK, MANIFEST, START, WORK, ReceiptAbsent
from countermark.launch import local, supervisor
from countermark.launch.local import LocalLauncher
from countermark.launch.order import claim_of
from countermark.launch.steps import LAUNCH_STEPS, LaunchStep
from countermark.launch.supervisor import ALREADY_STARTED, NOT_STARTED, SILENT, STARTED
from countermark.run.claims import Dispatched, DispatchRefused, DispatchUnknown
from countermark.wire.receipts import encode
from tests.faults import planted, proven_by
from tests.launch.conftest import Place
from tests.launch.planting import in_supervisor
from tests.launch.test_claimed import supervised

NO_SPACE: Final = "No space left on device"


def no_space(*asked: object, **named: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_space_for(name: str, target: Any, attribute: str) -> AbstractContextManager[object]:
    """The disk has no room where this function of it is asked for this name."""
    honest = getattr(target, attribute)

    def full(path: Any, *asked: Any, **named: Any) -> Any:
        return no_space() if os.path.basename(path) == name else honest(path, *asked, **named)

    return planted(target, attribute, full)()


#: Each thing that a launch writes, and the disk that has no room for it.
WRITES: Final[dict[str, Callable[[Place], AbstractContextManager[object]]]] = {
    "attempts": lambda place: no_space_for("attempts", os, "mkdir"),
    "folder": lambda place: no_space_for(place.folder().name, os, "mkdir"),
    "folder's name": lambda place: no_space_for("attempts", durable, "sync_folder"),
    MANIFEST: lambda place: no_space_for(MANIFEST, durable, "write_new"),
    LOCK: lambda place: no_space_for(LOCK, locks, "open_lock"),
    WORK: lambda place: no_space_for(WORK, os, "mkdir"),
    "names in the folder": lambda place: no_space_for(place.folder().name, durable, "sync_folder"),
    CLAIM: lambda place: no_space_for(CLAIM, durable, "write_new"),
}


@contextmanager
def the_claim_comes_first() -> Iterator[None]:
    honest = LocalLauncher._write_claim

    def write(self: LocalLauncher, folder: Path, claim: Any, manifest: bytes) -> str | None:
        durable.write_new(folder / CLAIM, encode(claim))
        return honest(self, folder, claim, manifest)

    with planted(LocalLauncher, "_write_claim", write)():
        yield


def what_broke_is_unknown() -> AbstractContextManager[object]:
    return planted(local, "DispatchRefused", DispatchUnknown)()


@pytest.mark.parametrize("what", WRITES)
@proven_by(what_broke_is_unknown)
def test_a_launch_without_room_is_refused_and_leaves_no_claim(place: Place, what: str) -> None:
    place.root.mkdir(exist_ok=True)
    with WRITES[what](place):
        answer = place.launcher().dispatch(place.order())
    assert type(answer) is DispatchRefused and answer.why.endswith(NO_SPACE)
    assert not (place.folder() / CLAIM).exists() and not (place.folder() / START).exists()


@proven_by(the_claim_comes_first)
def test_where_there_is_no_claim_yet_no_supervisor_begins(place: Place) -> None:
    """Whatever a dispatch that is broken off leaves: where the claim is, all the rest is; where it is not, nothing starts."""
    left: dict[LaunchStep, set[str]] = {}

    def leave(step: LaunchStep) -> None:
        left[step] = {path.name for path in place.folder().iterdir()}
        if CLAIM not in left[step]:
            assert supervised(place) == (NOT_STARTED, f"there is no claim in {place.folder()}")

    assert replace(place.launcher(), after=leave).dispatch(place.order()) == Dispatched("started")
    place.terminal()
    whole = {MANIFEST, LOCK, WORK}
    assert [left[step] for step in LAUNCH_STEPS[:3]] == [set(), whole, whole | {CLAIM}]
    assert place.runs() == 1


def the_start_is_not_looked_for() -> AbstractContextManager[object]:
    return planted(local, "read_start", lambda folder: ReceiptAbsent())()


@pytest.mark.parametrize("name", [MANIFEST, CLAIM])
@proven_by(the_start_is_not_looked_for)
def test_a_call_that_failed_beside_one_that_started_is_no_refusal(place: Place, name: str) -> None:
    """The other controller's call comes through between this one's look and its write."""
    write = durable.write_new
    calls: list[object] = []

    def late(path: Path, data: bytes) -> None:
        if path.name == name and not calls:
            with patch.object(durable, "write_new", write):
                calls.append(place.launcher().dispatch(place.order()))
            no_space()
        write(path, data)

    with patch.object(durable, "write_new", late):
        answer = place.launcher().dispatch(place.order())
    place.terminal()
    assert calls == [Dispatched("started")]
    assert answer == Dispatched(f"started, although the claim cannot be written to {place.folder()}: {NO_SPACE}")
    assert place.runs() == 1


def nothing_is_found() -> AbstractContextManager[object]:
    seen = local.present
    return planted(local, "present", lambda folder, name: name == START and seen(folder, name))()


@proven_by(nothing_is_found)
def test_what_was_started_is_found_without_room_for_anything(place: Place) -> None:
    order = place.order()
    assert place.launcher().dispatch(order) == Dispatched("started")
    place.terminal()
    with planted(durable, "write_new", no_space)():
        assert place.launcher().dispatch(order) == Dispatched("already started")


def the_claim_is_taken_for_its_own() -> AbstractContextManager[object]:
    return planted(local, "_another", lambda folder, claim: None)()


@proven_by(the_claim_is_taken_for_its_own)
def test_a_claim_that_comes_between_is_compared_all_the_same(place: Place) -> None:
    def other(step: LaunchStep) -> None:
        if step == "manifest written":
            durable.write_new(place.folder() / CLAIM, encode(claim_of(place.order("exit 1"))))

    answer = replace(place.launcher(), after=other).dispatch(place.order())
    assert answer == DispatchRefused("the claim folder holds another claim: argv")
    assert not (place.folder() / START).exists()


# ------------------------------------------------------------------------------------------------ what does not show


def absence_is_believed() -> AbstractContextManager[object]:
    return planted(LocalLauncher, "_looked", lambda self, folder, said: said)()


#: Folders in which nobody can tell that nothing was started.
IN_PLACE: Final[dict[str, Callable[[Place], object]]] = {
    "a link": lambda place: place.folder().symlink_to(place.root),
    "a link to what is not there": lambda place: place.folder().symlink_to(place.root / "gone"),
    "a file": lambda place: place.folder().write_bytes(b""),
}


@pytest.mark.parametrize("what", IN_PLACE)
@proven_by(absence_is_believed)
def test_what_lies_in_the_place_of_a_folder_may_hide_a_start(place: Place, what: str) -> None:
    place.folder().parent.mkdir()
    IN_PLACE[what](place)
    answer = place.launcher().dispatch(place.order())
    assert isinstance(answer, DispatchUnknown) and f"the claim folder {place.folder()} cannot be made: File exists" in answer.why


@proven_by(absence_is_believed)
def test_on_a_network_file_system_nothing_shows_that_nobody_started(place: Place) -> None:
    with planted(attempt_folder, "file_system_of", lambda path: "nfs4")(), WRITES[CLAIM](place):
        answer = place.launcher().dispatch(place.order())
    assert isinstance(answer, DispatchUnknown) and "not visible on a nfs4 file system" in answer.why


# --------------------------------------------------------------------------------------------------- what is said


SAID: Final[dict[int, type]] = {
    NOT_STARTED: DispatchRefused,
    SILENT: DispatchUnknown,
    1: DispatchUnknown,
    9: DispatchUnknown,
    STARTED: Dispatched,
    ALREADY_STARTED: Dispatched,
}


@proven_by(planted(local, "NOT_STARTED", SILENT))
def test_only_a_supervisors_own_word_is_a_refusal(place: Place) -> None:
    for code, arm in SAID.items():
        launcher = LocalLauncher(place.root / "attempts", supervisor=("/bin/sh", "-c", f"echo broken >&2; exit {code}"))
        answer = launcher.dispatch(place.order())
        assert type(answer) is arm, (code, answer)
        assert isinstance(answer, Dispatched) or answer.why == f"the supervisor ended with code {code}: broken"


@pytest.mark.parametrize("call", ["pipe", "fork"])
@proven_by(planted(supervisor, "NOT_STARTED", SILENT))
def test_a_supervisor_that_can_make_no_process_says_so(place: Place, call: str, capfd: pytest.CaptureFixture[str]) -> None:
    with planted(os, call, no_space)():
        try:
            code = supervisor.main([str(place.folder())])
        except OSError as error:
            pytest.fail(f"it said nothing: {error}")
    assert (code, capfd.readouterr().err) == (NOT_STARTED, f"no process could be made: {NO_SPACE}\n")


@proven_by(in_supervisor("nothing_happens_at_steps"))
def test_a_supervisor_that_dies_without_a_word_is_not_believed_to_have_said_one(place: Place) -> None:
    answer = place.launcher("--at", "begun").dispatch(place.order())
    assert answer == DispatchUnknown(f"the supervisor ended with code {SILENT}: the supervisor died before it could start")
