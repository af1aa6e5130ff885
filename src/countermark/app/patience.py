"""Waiting for a store that went away for a moment, as a database does that is started again.

Rules kept here:

1. What was being done is done anew from its beginning: every operation over a store is safe to repeat, whatever of it was recorded.
2. The waiting is told of, ever more rarely, and so is its end. It is bounded; then the failure is what it was.
3. Whoever watches waits from the opening of the store on: a controller may be started while the server is.
4. Only what mends itself is waited for: a store that is missing, damaged or forbidden is said at once.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from countermark.store.failures import ServerUnreachable, StoreError, StoreLocked

T = TypeVar("T")

#: How long a store is waited for, in seconds.
PATIENCE_S: Final = 60.0
#: How long by a controller that stays until it is interrupted: a server may be away for an evening's work on it.
STAYING_S: Final = 4 * 3600.0
_BETWEEN_S: Final = 0.5
_TOLD_FIRST_S: Final = 10.0
_TOLD_LAST_S: Final = 600.0


def patiently(act: Callable[[], T], told: Callable[[str], None], patience_s: float = PATIENCE_S) -> T:
    """What ``act`` returns, called again for ``patience_s`` seconds where the store was out of reach. Raises the last ``StoreError``."""
    began: float | None = None
    telling = every = 0.0
    while True:
        try:
            answer = act()
        except StoreError as error:
            now = time.monotonic()
            began = now if began is None else began
            left = began + patience_s - now
            if not mends_itself(error) or left <= 0:
                raise
            if now >= telling:
                told(f"{error.what} ({error.where}): trying again for {left:.0f} s")
                every = min(max(2 * every, _TOLD_FIRST_S), _TOLD_LAST_S)
                telling = now + every
        else:
            if began is not None:
                told("the store answers again")
            return answer
        time.sleep(_BETWEEN_S)


def mends_itself(error: StoreError) -> bool:
    """Whether the failure is one that may be over in a moment without anybody doing anything here."""
    return isinstance(error.failure, StoreLocked | ServerUnreachable)
