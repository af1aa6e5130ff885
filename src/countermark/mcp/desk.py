"""What tools work with, and what they answer."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from countermark.app.stores import ledger_of
from countermark.lines.blocks import Block
from countermark.lines.defects import AnyDefect
from countermark.lines.texts import Document
from countermark.mcp.cursors import Cursors
from countermark.mcp.places import Places

if TYPE_CHECKING:
    from countermark.files.digest_cache import DigestCache
    from countermark.store.sessions.interface import SessionStore

_TOLD_EVERY_S: Final = 0.25


@final
@dataclass(frozen=True, slots=True)
class Desk:
    """Where the store is and what may be read: its ``folder``, and the address of its ``database`` where it has one. ``idle_s``: after how
    many seconds without an event a session is idle; ``cache``: the digests that this user has measured before, made for each call."""

    folder: Path
    database: str | None
    places: Places
    cache: "Callable[[], DigestCache]"
    idle_s: float = 300
    now_ns: Callable[[], int] = time.time_ns
    cursors: Cursors = field(default_factory=Cursors)

    @property
    def address(self) -> str:
        return ledger_of(self.folder, self.database)

    def open_sessions(self) -> "SessionStore":
        """The sessions as they are. Raises ``StoreError``: none are made or migrated here."""
        from countermark.store.opening import open_sessions

        return open_sessions(self.address, create=False)


@final
@dataclass(frozen=True, slots=True)
class Told:
    """What a tool answers: as ``lines.blocks.Shown``, with what is wrong with what was looked at, and lines about what comes next."""

    document: Document
    blocks: tuple[Block, ...]
    defects: tuple[AnyDefect, ...] = ()
    warnings: tuple[AnyDefect, ...] = ()
    more: tuple[str, ...] = ()


class Stopped(Exception):
    """Whoever asked does not want the answer any more."""


@final
class Watch:
    """Hears how far a long call is, and ends it where nobody waits for it. ``tell`` is told bytes done and bytes to do, now and then."""

    def __init__(self, tell: Callable[[int, int], None] | None = None) -> None:
        self._tell = tell
        self._told_s = 0.0
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def check(self) -> None:
        """Raises ``Stopped``."""
        if self._stopped.is_set():
            raise Stopped

    def bytes_done(self, done: int, total: int) -> None:
        """Raises ``Stopped``."""
        self.check()
        now = time.monotonic()
        if self._tell is not None and now - self._told_s >= _TOLD_EVERY_S:
            self._told_s = now
            self._tell(done, total)
