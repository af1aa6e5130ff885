"""A supervisor starts what was claimed, under the name under which it was claimed, and nothing that came to lie there instead."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from countermark.files.attempt_folder import ReceiptAbsent, read_start
from countermark.launch.supervisor import NOT_STARTED, STARTED
from countermark.wire.receipts import Failed, NotExecuted
from tests.launch.conftest import NONCE, Place

OTHER: Final = "f" * 32


def claimed(place: Place) -> None:
    """A claim that is written down whole and that nobody started."""
    controller = place.begin_controller(place.order(), "claim written")
    assert controller.wait(timeout=30) == -9


def supervised(place: Place, nonce: str = NONCE) -> tuple[int, str]:
    """What a supervisor says of a folder: its exit code, and why."""
    done = subprocess.run([*place.driver(), str(place.folder(nonce))], capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr.strip()


#: What may lie there when the supervisor comes, and what it makes of that.
OTHERS: Final[dict[str, Callable[[Path], object]]] = {
    "another manifest": lambda folder: (folder / "manifest.json").write_bytes(b"{ }\n"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_manifest_than_the_claimed_one_is_not_trained_from(place: Place, what: str) -> None:
    claimed(place)
    OTHERS[what](place.folder())
    assert supervised(place)[0] == STARTED
    terminal = place.terminal()
    whys = {"another manifest": "manifest.json is not the one that was claimed", "no manifest": "manifest.json: No such file or directory"}
    assert (terminal.outcome, terminal.main, place.runs()) == (Failed(125), NotExecuted(125, whys[what]), 0)


def test_a_folder_of_another_attempts_claim_starts_nothing(place: Place) -> None:
    """A copy under another name: the claim is used where it was made."""
    claimed(place)
    shutil.copytree(place.folder(), place.folder(OTHER))
    assert supervised(place, OTHER) == (NOT_STARTED, f"the claim in {OTHER} is that of {NONCE}")
    assert isinstance(read_start(place.folder(OTHER)), ReceiptAbsent)
    assert supervised(place)[0] == STARTED
    assert (place.terminal().attempt, place.runs()) == (NONCE, 1)
