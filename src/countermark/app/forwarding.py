"""Sending on: weight edits and the sessions that they are of, from the store to one receiver, in order, until each is taken.

Rules kept here:

1. What is sent waits in the store (``SinkStore``): after a kill between sending and noting it is sent again under the same ids, and nothing
   is lost.
2. Nothing is sent within a transaction, and nobody who stores waits for a receiver.
3. A receiver that is away is asked ever more rarely, and as late as it says. What it never takes is halved until the one item is found,
   which is set aside and told of, so that the others go on.
4. A session is told of once, when it was closed or fell silent, whatever of it comes later.
"""

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, TypeAlias, final

from countermark.app.otlp_sink import Away, Delivered, OtlpSink, Sink, Unfit
from countermark.sessions.edits import is_edit
from countermark.store import StoreError
from countermark.store.sessions.interface import SERVE_SINK, Aside, SinkState, SinkStore
from countermark.wire.otlp_out import SpanOut, agent_span, edit_span, request_of
from countermark.wire.otlp_records import Mode

_LOG: Final = logging.getLogger("countermark.forwarding")

#: So many edits go by one request.
BATCH: Final = 200
#: Between two looks at what waits, in seconds.
EVERY_S: Final = 0.5
#: For how long a sink is held, and with less than what left it is held anew: more than a request takes.
HELD_S: Final = 20.0
_LEFT_S: Final = 12.0
FIRST_S: Final = 1.0
LAST_S: Final = 60.0
_NS: Final = 10**9


@final
@dataclass(frozen=True, slots=True)
class Forward:
    """Where edits are sent on to: the address of a receiver of OTLP, how much of each, and what is sent with every request."""

    endpoint: str
    mode: Mode = "metadata"
    headers: tuple[tuple[str, str], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Item:
    """Something to send (``span`` is None for an event that is passed over): who it is, its session, and its place among the events."""

    span: SpanOut | None
    item: str
    session: str
    ordinal: int = 0


_Note: TypeAlias = Callable[[Sequence[_Item], Sequence[Aside]], bool]


class _Lost(Exception):
    """Somebody else holds the sink now."""


def delay_s(failures: int, retry_s: float, chance: float) -> float:
    """How long a receiver is left alone after so many failures (from 1) in a row: twice as long each time, up to a minute, less up to a
    half by ``chance`` (0 to 1), and never less than it asked for."""
    longest = min(LAST_S, FIRST_S * 2.0 ** min(failures - 1, 20))
    return max(retry_s, longest * (1 - chance / 2))


@final
class Forwarder:
    """Sends what waits, in one thread. ``idle_s``: after how many seconds without an event a session is silent."""

    def __init__(
        self,
        store: SinkStore,
        sink: Sink,
        mode: Mode,
        idle_s: float,
        now_ns: Callable[[], int] = time.time_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store: Final = store
        self._sink: Final = sink
        self._mode: Final[Mode] = mode
        self._idle_s: Final = idle_s
        self._now_ns: Final = now_ns
        self._chance: Final = chance
        self._holder: Final = secrets.token_hex(8)
        self._until_ns = 0
        self._in_a_row = 0
        self._ended: Final = threading.Event()
        self.edits = self.sessions = self.rejected = self.failures = 0

    @classmethod
    def of(cls, store: SinkStore, forward: Forward, idle_s: float) -> "Forwarder":
        return cls(store, OtlpSink(forward.endpoint, forward.headers), forward.mode, idle_s)

    def hold(self) -> bool:
        """Have the sink for a while; whether it is ours. Raises ``StoreError``."""
        now_ns = self._now_ns()
        if self._until_ns - now_ns < _LEFT_S * _NS:
            until_ns = now_ns + round(HELD_S * _NS)
            self._until_ns = until_ns if self._store.hold_sink(SERVE_SINK, self._holder, now_ns, until_ns) else 0
        return self._until_ns > 0

    def state(self) -> SinkState | None:
        """How far it is. Raises ``StoreError``."""
        return self._store.sink_state(SERVE_SINK)

    def end(self) -> None:
        """End ``run``, from another thread; what is being sent is sent again by whoever comes next."""
        self._ended.set()
        self._sink.abort()

    def run(self) -> None:
        """Send until the end."""
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            try:
                pause_s = self.turn()
            except StoreError as error:
                self._in_a_row += 1
                pause_s = delay_s(self._in_a_row, 0.0, self._chance())
                _LOG.warning("what is to be sent on cannot be read or noted: %s", error.what)
        try:
            self._store.release_sink(SERVE_SINK, self._holder)
        except StoreError:
            return

    def turn(self) -> float:
        """Send what waits now, up to a batch of edits and one of sessions; the seconds until the next turn. Raises ``StoreError``."""
        if not self.hold():
            return EVERY_S
        try:
            waiting = self._store.waiting(SERVE_SINK, BATCH)
            edits = [
                _Item(
                    edit_span(each, each.session, self._mode) if is_edit(each.event.payload.value) else None,
                    each.event.id,
                    each.session,
                    each.ordinal,
                )
                for each in waiting
            ]
            away = self._send(edits, self._sent)
            if away is None and self.hold():
                silent_since_ns = self._now_ns() - round(self._idle_s * _NS)
                ended = [
                    _Item(agent_span(each.listed, each.sent_as, self._mode), f"session:{each.sent_as}", each.listed.id)
                    for each in self._store.to_tell(SERVE_SINK, silent_since_ns)
                ]
                away = self._send(ended, self._told)
        except _Lost:
            self._until_ns = 0
            return EVERY_S
        if away is not None:
            return self._later(away)
        self._in_a_row = 0
        return 0.0 if len(waiting) == BATCH else EVERY_S

    def _later(self, away: Away) -> float:
        self._in_a_row += 1
        # What was broken off to end says nothing of the receiver.
        if not self._ended.is_set():
            self.failures += 1
            self._store.failed(SERVE_SINK, self._holder, self._now_ns(), away.why)
        return delay_s(self._in_a_row, away.retry_s, self._chance())

    def _send(self, items: Sequence[_Item], note: _Note) -> Away | None:
        """Send items and note them as served, in their order, as far as the receiver takes them now."""
        spans = [each.span for each in items if each.span is not None]
        if not spans:
            self._noted(note, items, ())
            return None
        if self._ended.is_set():
            return Away("this program ends")
        if not self.hold():
            raise _Lost
        outcome = self._sink.send(request_of(spans, version("countermark")))
        match outcome:
            case Delivered(rejected):
                self.rejected += rejected
                all_of_it = rejected >= len(spans)
                self._noted(note, items, _aside(items, "it rejects it") if all_of_it else ())
                if rejected:
                    _LOG.warning("%d of %d spans were rejected by the receiver", rejected, len(spans))
                return None
            case Unfit(why) if len(spans) == 1:
                self._noted(note, items, _aside(items, why))
                _LOG.warning("one item is never taken by the receiver, and set aside: %s", why)
                return None
            case Unfit():
                half = len(items) // 2
                return self._send(items[:half], note) or self._send(items[half:], note)
            case Away():
                return outcome

    def _noted(self, note: _Note, items: Sequence[_Item], aside: Sequence[Aside]) -> None:
        if items and not note(items, aside):
            raise _Lost

    def _sent(self, items: Sequence[_Item], aside: Sequence[Aside]) -> bool:
        taken = [each for each in items if each.span is not None] if not aside else []
        sessions = [each.session for each in taken]
        noted = self._store.sent(SERVE_SINK, self._holder, items[-1].ordinal, sessions, aside, self._now_ns())
        self.edits += len(taken)
        return noted

    def _told(self, items: Sequence[_Item], aside: Sequence[Aside]) -> bool:
        named = [each.item.removeprefix("session:") for each in items]
        self.sessions += 0 if aside else len(items)
        return self._store.told(SERVE_SINK, self._holder, named, aside, self._now_ns())


def _aside(items: Sequence[_Item], why: str) -> list[Aside]:
    return [Aside(each.item, each.session, why) for each in items if each.span is not None]
