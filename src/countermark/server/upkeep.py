"""What a server does for its store beside everything else: what an older version folded is folded anew, and what is too old is taken out.

Rules kept here:

1. Both go by small transactions, and rest after each for several times as long as it took: whoever stores waits for one of them at most,
   and whoever reads for none.
2. What fails is told and tried again; it never ends the server, and the server's end never waits for more than the transaction under way.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, final

from countermark.app.retention import retire, rule_of
from countermark.store import StoreError
from countermark.store.sessions.interface import Forgotten, SessionStore

_LOG: Final = logging.getLogger("countermark.server")
#: Between two looks for what is too old, in seconds.
EVERY_S: Final = 3_600.0
#: After a transaction it is rested for so many times its length, and for so long at least.
_REST_TIMES: Final = 4.0
_REST_S: Final = 0.01
#: After a failure, in seconds.
_AGAIN_S: Final = 60.0


class _Ended(Exception):
    """The server ends; what is left is done after the next start."""


@final
class Upkeep:
    """The thread that keeps a store in order, until ``end``. ``keep_days``: for how many days sessions are kept; None for ever.
    ``sessions`` and ``events`` are how many were taken out."""

    def __init__(self, store: SessionStore, keep_days: int | None, now_ns: Callable[[], int]) -> None:
        self._store: Final = store
        self._keep_days: Final = keep_days
        self._now_ns: Final = now_ns
        self._ended: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="upkeep")
        self._since_s = 0.0
        self.sessions = self.events = 0

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Returns when the transaction under way, if there is one, has ended."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._begin()
            self._fold()
            while self._keep_days is not None:
                self._ended.wait(EVERY_S if self._retire(self._keep_days) else _AGAIN_S)
                self._begin()
        except _Ended:
            return

    def _fold(self) -> None:
        try:
            self._store.refold(lambda done, left: self._rest())
        except StoreError as error:
            _LOG.error("what an older version folded could not be folded anew: %s", error.what)

    def _retire(self, keep_days: int) -> bool:
        before = Forgotten(self.sessions, self.events)

        def went(gone: Forgotten) -> None:
            self.sessions, self.events = before.sessions + gone.sessions, before.events + gone.events
            self._rest()

        try:
            found = retire(self._store, rule_of(keep_days, self._now_ns()), True, went)
        except StoreError as error:
            _LOG.error("what is older than %d days could not be taken out: %s", keep_days, error.what)
            return False
        if found.sessions:
            _LOG.info("%d sessions that are older than %d days were taken out", found.sessions, keep_days)
        for sink, sessions in found.owed.items():
            _LOG.warning("%d sessions that are older than %d days stay: %s has not sent everything yet", sessions, keep_days, sink)
        return True

    def _begin(self) -> None:
        if self._ended.is_set():
            raise _Ended
        self._since_s = time.monotonic()

    def _rest(self) -> None:
        """After a transaction. Raises ``_Ended``."""
        took_s = time.monotonic() - self._since_s
        self._ended.wait(max(_REST_S, took_s * _REST_TIMES))
        self._begin()
