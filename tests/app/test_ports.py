"""Finding the checkpoint that a claim names, over folders made by hand."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from countermark.app import ports as room
from countermark.app.ports import Ports, opened
from countermark.files.procfs import this_process
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.launch.local import LocalLauncher
from countermark.lines.surface import CheckpointGone
from countermark.recipe import spellings
from countermark.run.attempts import CheckpointIdentity, InfrastructureRetry, Resume
from countermark.run.claims import RunLedger
from countermark.run.records import RunContext, RunRecord
from countermark.store.failures import StoreError
from countermark.values import NonEmpty, Refused
from countermark.wire.receipts import ClaimReceipt, ResumesFrom, StartReceipt, encode
from tests.app.bench import SETTINGS
from tests.faults import planted, proven_by
from tests.files.folders import checkpoint
from tests.run.examples import claimed, desired, key

CONTEXT = RunContext("topics-lora", {}, {}, ("train",), "/", {}, "local")


class Place:
    """Two attempts that computed one and the same checkpoint, and a third that is to go on from it."""

    def __init__(self, root: Path) -> None:
        self.launcher = LocalLauncher(root / "attempts")
        source = checkpoint(root, 4)
        ledger = claimed(claimed(RunLedger(desired(), 0), 2), 1, InfrastructureRetry(key(2)))
        identities = [self.publish(source, number) for number in (2, 1)]
        self.identity: CheckpointIdentity = identities[0]
        assert identities == [self.identity] * 2
        self.record = RunRecord("run", claimed(ledger, 3, Resume(key(1), self.identity)), CONTEXT, 0)
        self.claim = self.record.ledger.claims[-1]
        anything = cast(Any, None)
        self.ports = Ports(root, anything, self.launcher, anything, "here", 0, 0.0, 0.0, anything, anything)

    def publish(self, source: Path, number: int) -> CheckpointIdentity:
        parent = self.launcher.folder(key(number).nonce.hex) / "checkpoints"
        manifest = spellings(desired().manifest)
        nonce, work = key(number).nonce.hex, key(number).work.spell()
        made = publish_checkpoint(source, parent, step=4, attempt=nonce, work_key=work, manifest=manifest)
        assert isinstance(made, PublishedCheckpoint), made
        return made.identity

    def path(self, number: int) -> str:
        return str(self.launcher.folder(key(number).nonce.hex) / "checkpoints" / "step-4")

    def written(self, path: str, started: bool) -> None:
        """The claim of the third attempt as an earlier dispatch wrote it down."""
        folder = self.launcher.folder(key(3).nonce.hex)
        folder.mkdir(parents=True)
        receipt = ClaimReceipt(1, folder.name, "wk1:", "d", ("train",), "/", {}, ResumesFrom(path), "sha256:" + "0" * 64)
        (folder / "claim.json").write_bytes(encode(receipt))
        if started:
            (folder / "start.json").write_bytes(encode(StartReceipt(1, folder.name, this_process(), 0)))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def any_copy_will_do() -> AbstractContextManager[object]:
    """The order of hashes, which is another one in every process."""
    real = Ports.find_checkpoint

    def find(self: Ports, record: RunRecord, wanted: CheckpointIdentity, path: str | None = None) -> object:
        turned = replace(record.ledger, claims=record.ledger.claims[::-1])
        return real(self, replace(record, ledger=turned), wanted, path)

    return planted(Ports, "find_checkpoint", find)()


@proven_by(any_copy_will_do)
def test_of_equal_checkpoints_the_first_claims_is_taken(place: Place) -> None:
    """A dispatch that is made again, by another process, must say the same path."""
    assert place.ports.beginning(place.record, place.claim) == place.path(2)
    assert place.ports.beginning(place.record, place.record.ledger.claims[0]) is None


def nothing_was_written_down() -> AbstractContextManager[object]:
    return planted(room, "read_claim", lambda folder: None)()


@proven_by(nothing_was_written_down)
def test_the_path_that_was_written_down_stands(place: Place) -> None:
    place.written(place.path(1), started=False)
    assert place.ports.beginning(place.record, place.claim) == place.path(1)


def test_a_checkpoint_that_is_gone_or_another_one_is_no_beginning(place: Place) -> None:
    gone = Refused(NonEmpty(CheckpointGone(4, place.identity.digest.spell())))
    place.written(place.path(1), started=False)
    (Path(place.path(1)) / "scheduler.pt").unlink()
    assert place.ports.beginning(place.record, place.claim) == gone
    other = CheckpointIdentity(5, place.identity.digest)
    assert place.ports.find_checkpoint(place.record, other) is None
    found = place.ports.find_checkpoint(place.record, place.identity)
    assert found is not None and found.path == place.path(2)


def test_what_was_started_is_not_asked_for_its_checkpoint_again(place: Place) -> None:
    place.written("/gone/step-4", started=True)
    assert place.ports.beginning(place.record, place.claim) == "/gone/step-4"


def test_a_store_is_created_only_where_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StoreError), opened(tmp_path / "store", create=False, **SETTINGS):
        raise AssertionError("there is no store to open")
    assert not (tmp_path / "store").exists()
    with opened(tmp_path / "store", create=True, **SETTINGS) as ports:
        assert ports.grace_ms == 300 and len({ports.new_nonce() for _ in range(100)}) == 100
        assert isinstance(ports.load("0" * 32), Refused)
