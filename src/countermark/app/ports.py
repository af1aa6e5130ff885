"""What the operations reach the outside through: the store, the observer, the launcher, the clock and entropy, handed in by a surface."""

import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from countermark.app.patience import patiently
from countermark.app.stores import ledger_of
from countermark.app.sweeping import Observer, quiet
from countermark.files.attempt_folder import START, ReceiptRead, present, read_claim
from countermark.files.checkpoints import read_checkpoint
from countermark.files.desired import CHECKPOINTS
from countermark.files.place import made_place, place_of
from countermark.files.procfs import host_name
from countermark.launch.local import LocalLauncher
from countermark.lines.surface import CheckpointGone
from countermark.observe.local import LocalObserver
from countermark.run.attempts import CheckpointIdentity, checkpoint_of
from countermark.run.checkpoint import AdmittedCheckpoint, CheckpointDefect, admit_checkpoint
from countermark.run.claims import ExecutionClaim
from countermark.run.records import RunRecord
from countermark.store.interface import LoadDefect, Store
from countermark.values import NonEmpty, Refused
from countermark.wire.receipts import ResumesFrom

#: The entry of a store's folder under which each attempt has its own.
ATTEMPTS = "attempts"


@final
@dataclass(frozen=True, slots=True)
class Ports:
    """One store, with the launcher and the observer of its folder. ``host``: this host as intents name it (see ``host_of``). ``grace_ms``:
    how long a dispatch may show nothing before it is lost; ``stop_grace_s``: between SIGTERM and SIGKILL; ``poll_s``: between two cheap
    looks while waiting."""

    folder: Path
    store: Store
    launcher: LocalLauncher
    observer: Observer
    host: str
    grace_ms: int
    stop_grace_s: float
    poll_s: float
    now_ms: Callable[[], int]
    new_id: Callable[[], str]

    def new_nonce(self) -> str:
        """A name for an attempt: 128 random bits in hexadecimal."""
        return self.new_id()

    def load(self, run_id: str) -> RunRecord | Refused[LoadDefect]:
        """The run as the ledger has it now."""
        return self.store.load_run(run_id)

    def beginning(self, record: RunRecord, claim: ExecutionClaim) -> str | None | Refused[CheckpointGone]:
        """The path of the checkpoint at which the claim's attempt begins, admitted again now; None for the base artifact.

        An earlier dispatch of the claim may have written the path down already. That one stands: the claim's bytes are the same at every
        dispatch, also where a copy of the checkpoint came to lie, or vanished, elsewhere.
        """
        wanted = checkpoint_of(claim.transition.cause)
        if wanted is None:
            return None
        folder = self.launcher.folder(claim.attempt.nonce.hex)
        written = read_claim(folder)
        told = written.receipt.beginning if isinstance(written, ReceiptRead) else None
        if isinstance(told, ResumesFrom) and present(folder, START):
            return told.path
        found = self.find_checkpoint(record, wanted, told.path if isinstance(told, ResumesFrom) else None)
        return Refused(NonEmpty(CheckpointGone(wanted.step, wanted.digest.spell()))) if found is None else found.path

    def find_checkpoint(self, record: RunRecord, wanted: CheckpointIdentity, path: str | None = None) -> AdmittedCheckpoint | None:
        """The admitted checkpoint of the run that has this identity: the one at ``path``, else the first in the order of the claims."""
        claims = record.ledger.claims
        members = frozenset(claim.attempt.nonce.hex for claim in claims)
        places = [self.launcher.folder(claim.attempt.nonce.hex) / CHECKPOINTS / f"step-{wanted.step}" for claim in claims]
        for place in places if path is None else [Path(path)]:
            answer: AdmittedCheckpoint | Refused[CheckpointDefect] = admit_checkpoint(
                read_checkpoint(place), record.ledger.desired.manifest, members
            )
            if isinstance(answer, AdmittedCheckpoint) and answer.identity == wanted:
                return answer
        return None


def host_of(folder: Path, url: str | None, acts: bool) -> str:
    """This host as intents name it.

    A ledger in the folder knows no other folder. One in a database is shared, and what was dispatched from another folder is as far away as
    what was dispatched on another host: its attempts do not lie here, so nobody here could find what an earlier call began, or see it
    live. Each folder is a place of its own therefore, and gets its name before anything is dispatched from it. Raises ``OSError``.
    """
    if url is None:
        return host_name()
    place = made_place(folder) if acts else place_of(folder)
    return host_name() if place is None else f"{host_name()}:{place}"


@contextmanager
def opened(
    folder: Path,
    *,
    create: bool,
    grace_s: float,
    stop_grace_s: float,
    poll_s: float,
    url: str | None = None,
    acts: bool = True,
    patience_s: float = 0.0,
    told: Callable[[str], None] = quiet,
) -> Generator[Ports, None, None]:
    """The ports of the store in ``folder``, whose ledger is at ``url`` where it is in a database. ``acts``: something may be dispatched
    through them. ``patience_s``: how long a store is waited for that is out of reach for a moment; ``told`` hears of it. Raises
    ``StoreError`` where it cannot be opened."""
    from countermark.store.opening import open_store

    def new_id() -> str:
        return secrets.token_hex(16)

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    attempts = folder.absolute() / ATTEMPTS
    with patiently(lambda: open_store(ledger_of(folder, url), create=create), told, patience_s) as store:
        host = host_of(folder.absolute(), url, acts)
        observer = LocalObserver(attempts, host, now_ms, new_id)
        grace_ms = int(grace_s * 1000)
        yield Ports(folder, store, LocalLauncher(attempts), observer, host, grace_ms, stop_grace_s, poll_s, now_ms, new_id)
