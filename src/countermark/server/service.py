"""What one server holds: the store, the tokens, the counts, and the threads that work.

Rules kept here:

1. One thread writes. What waits for it waits in a queue, and never keeps a reader waiting; reading has threads of its own.
2. A batch is read in a thread of its own too, so that the next is read while the one before is written down.
3. What is answered as stored was committed. A client that went away meanwhile changes nothing about that.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, final

from countermark.app.forwarding import Forward, Forwarder
from countermark.app.sessions import OUTCOMES, Taken, take
from countermark.server.bodies import Room
from countermark.server.limits import Limits
from countermark.server.metrics import BODY_BYTES, COMMIT_SECONDS, EVENTS, Counts
from countermark.server.redaction import event_without_tokens
from countermark.server.tokens import Keyring
from countermark.server.upkeep import Upkeep
from countermark.sessions.events import Batch, BatchTooLong, EventUnreadable
from countermark.store.sessions.interface import SessionStore

_P = ParamSpec("_P")
_R = TypeVar("_R")

DEFAULT_HOST: Final = "127.0.0.1"
#: OTLP's own port over HTTP, so that exporters find the server without being told where it is.
DEFAULT_PORT: Final = 4318
_READERS: Final = 4

Read = Batch | EventUnreadable | BatchTooLong


@final
@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server is started. ``open_store`` opens the store of sessions; ``tokens`` is the file of tokens, whether it is there or not;
    ``hosts`` and ``origins`` are names and pages that it answers to beside its own; ``idle_s``: after how many seconds without an event a
    session is idle; ``forward`` says where edits are sent on to, if anywhere; ``keep_days``: for how many days sessions are
    kept, None for ever."""

    open_store: Callable[[], SessionStore]
    tokens: Path
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    idle_s: int = 300
    forward: Forward | None = None
    keep_days: int | None = None
    limits: Limits = field(default_factory=Limits)
    now_ns: Callable[[], int] = time.time_ns


@final
class Service:
    """An open store behind a server. Made and closed by the thread of the event loop."""

    def __init__(self, settings: ServerSettings, store: SessionStore) -> None:
        self.settings: Final = settings
        self.store: Final = store
        self.forwarder: Final = None if settings.forward is None else Forwarder.of(store, settings.forward, settings.idle_s)
        self.upkeep: Final = Upkeep(store, settings.keep_days, settings.now_ns)
        self.keyring: Final = Keyring(settings.tokens)
        self.counts: Final = Counts()
        self.room: Final = Room(settings.limits.waiting_bytes_max)
        self._decoder: Final = ThreadPoolExecutor(1, "decode")
        self._writer: Final = ThreadPoolExecutor(1, "store")
        self._readers: Final = ThreadPoolExecutor(_READERS, "read")

    def close(self) -> None:
        """Wait for what is being written. The store stays open."""
        for pool in (self._decoder, self._writer, self._readers):
            pool.shutdown(wait=True, cancel_futures=False)

    async def reading(self, read: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Have a thread for readers call a function."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: read(*args, **kwargs))

    async def take(self, read: Callable[[int], Read], body_bytes: int, named: Sequence[str]) -> Taken | EventUnreadable | BatchTooLong:
        """Read a batch (``read`` is given the time of receipt) and store it, without tokens of ours. Raises ``StoreError``."""
        loop = asyncio.get_running_loop()
        received_ns = self.settings.now_ns()
        self.counts.add(BODY_BYTES, body_bytes)
        batch = await loop.run_in_executor(self._decoder, lambda: _redacted(read(received_ns), named))
        if not isinstance(batch, Batch):
            return batch
        taken, seconds = await loop.run_in_executor(self._writer, lambda: _timed(self.store, batch))
        self.counts.add(COMMIT_SECONDS, seconds)
        for outcome in OUTCOMES:
            self.counts.add(EVENTS, taken.count(outcome), outcome)
        self.counts.add(EVENTS, len(taken.refused), "refused")
        return taken


def _redacted(read: Read, named: Sequence[str]) -> Read:
    if not isinstance(read, Batch):
        return read
    return replace(read, events=tuple((index, event_without_tokens(event, named)) for index, event in read.events))


def _timed(store: SessionStore, batch: Batch) -> tuple[Taken, float]:
    begun = time.monotonic()
    return take(store, batch), time.monotonic() - begun
