"""Waiting for a store that went away for a moment, as a database does that is started again.

Rules kept here:

1. What was being done is done anew from its beginning: every operation over a store is safe to repeat, whatever of it was recorded.
2. The waiting is told of, and has an end; then the failure is what it was.
3. Only what mends itself is waited for: a store that is missing, damaged or forbidden is said at once.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from countermark.store.failures import StoreError, StoreLocked

T = TypeVar("T")

#: How long a store is waited for, in seconds.
PATIENCE_S: Final = 60.0
_BETWEEN_S: Final = 0.5
_TOLD_EVERY_S: Final = 10.0


def patiently(act: Callable[[], T], told: Callable[[str], None], patience_s: float = PATIENCE_S) -> T:
    """What ``act`` returns, called again for ``patience_s`` seconds where the store was out of reach. Raises the last ``StoreError``."""
    deadline: float | None = None
    telling = 0.0
    while True:
        try:
            return act()
        except StoreError as error:
            now = time.monotonic()
            deadline = now + patience_s if deadline is None else deadline
            if not mends_itself(error) or now >= deadline:
                raise
            if now >= telling:
                told(f"{error.what} ({error.where}): trying again for {deadline - now:.0f} s")
                telling = now + _TOLD_EVERY_S
        time.sleep(_BETWEEN_S)


def mends_itself(error: StoreError) -> bool:
    """Whether the failure is one that may be over in a moment without anybody doing anything here."""
    return isinstance(error.failure, StoreLocked)
