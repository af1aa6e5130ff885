"""Every receipt of an attempt is durable before anybody goes on from it, whichever process writes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from countermark.files import durable
from countermark.launch.local import Dispatched, Fenced, LocalLauncher
from countermark.launch.stopping import NothingToStop, Stopped
from tests.faults import planted, proven_by
from tests.launch.conftest import NONCE, Place
from tests.launch.noting import durably_made, durably_named, just_written, noting
from tests.launch.planting import in_supervisor

#: Who writes what: the launcher and who stops and fences, the supervisor, and its child before it becomes COMMAND.
RECEIPTS: Final = ("claim.json", "manifest.json", "start.json", "process.json", "stop.json", "terminal.json", "fenced")


@contextmanager
def names_are_not_synced() -> Iterator[None]:
    """The folder is left as the system has it, which after a cut of the power may be without the receipt."""
    with planted(durable, "sync_folder", lambda path: None)(), in_supervisor("folders_are_not_synced")():
        yield


made_in_passing = planted(LocalLauncher, "_make_folder", lambda self, folder: folder.mkdir(parents=True, exist_ok=True))


@proven_by(planted(durable, "write_new", just_written), in_supervisor("receipts_are_just_written"), names_are_not_synced, made_in_passing)
def test_every_receipt_is_on_the_disk_before_it_counts(place: Place) -> None:
    notes = place.root / "notes"
    with patch.multiple("os", **noting(notes)):
        launcher = place.launcher("--note", str(notes))
        assert launcher.dispatch(place.order("sleep 30")) == Dispatched("started")
        place.wait(lambda: place.runs() == 1)
        assert launcher.stop(NONCE, 5) == Stopped()
        place.terminal()
        assert launcher.fence(NONCE) == Fenced()
    lines = notes.read_text(encoding="utf-8").splitlines()
    assert {name: durably_named(lines, name, NONCE) for name in RECEIPTS} == dict.fromkeys(RECEIPTS, True)
    assert durably_made(lines, NONCE, "attempts") and durably_made(lines, "attempts", place.root.name)


def test_what_is_told_of_notes() -> None:
    """One order is sound, and each other is not."""
    sound = ["made n", "synced attempts", "synced .tmp-a-1", "named .tmp-a-1 a", "synced n"]
    assert durably_named(sound, "a", "n") and durably_made(sound, "n", "attempts")
    for place in (2, 3, 4):
        assert not durably_named([*sound[:place], *sound[place + 1 :]], "a", "n")
    assert not durably_named(["synced n", "named .tmp-a-1 a", "synced .tmp-a-1"], "a", "n")
    assert not durably_made(["made n", "named .tmp-a-1 a", "synced attempts"], "n", "attempts")
    assert not durably_made(sound[1:], "n", "attempts")


def test_a_fence_that_was_found_is_synced_once_more(place: Place) -> None:
    """Whoever put it up may have died between the name and the folder's sync."""
    assert place.launcher().fence(NONCE) == Fenced()
    notes = place.root / "notes"
    with patch.multiple("os", **noting(notes)):
        assert place.launcher().fence(NONCE) == Fenced()
    lines = notes.read_text(encoding="utf-8").splitlines()
    assert not any(line.endswith(" fenced") for line in lines), "the first one stands"
    assert lines[-1] == f"synced {NONCE}"


@proven_by(names_are_not_synced)
def test_a_request_to_stop_that_was_found_is_synced_once_more(place: Place) -> None:
    place.folder().mkdir(parents=True)
    assert place.launcher().stop(NONCE, 5) == NothingToStop()
    notes = place.root / "notes"
    notes.touch()
    with patch.multiple("os", **noting(notes)):
        assert place.launcher().stop(NONCE, 5) == NothingToStop()
    assert f"synced {NONCE}" in notes.read_text(encoding="utf-8").splitlines()
