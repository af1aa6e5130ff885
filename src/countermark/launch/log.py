"""COMMAND's log: written by COMMAND itself, bounded by the supervisor.

Rules kept here:

1. COMMAND writes to the file, not through a pipe: a supervisor that dies breaks nothing for the trainer.
2. Everybody appends, so the file can be cut to nothing under its writers.
3. Past the bound, the tail is kept in ``log.1.txt`` and the file begins anew, saying so. A disk too full for the tail costs the tail.
4. What the supervisor has to say and cannot write is kept and said later; nothing here raises for a full disk.
"""

import os
from pathlib import Path
from typing import Final, final

from countermark.files.attempt_folder import LOG, OLDER_LOG

#: The bound of ``log.txt`` in bytes, unless a launcher is given another.
LOG_BYTES_MAX: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_UNSAID_MAX: Final = 100
_FLAGS: Final = os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@final
class BoundedLog:
    """The log of one attempt. ``writer`` is the descriptor that COMMAND gets as its standard output and error."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Opens or creates the log. Raises ``OSError``."""
        self._older = folder / OLDER_LOG
        self._bytes_max = bytes_max
        self._own = os.open(folder / LOG, os.O_RDWR | _FLAGS, 0o644)
        self._unsaid: list[str] = []
        self.writer = os.open(folder / LOG, os.O_WRONLY | _FLAGS, 0o644)

    def say(self, text: str) -> None:
        """Append a line of our own, and what could not be said before it."""
        self._unsaid = [*self._unsaid, text][-_UNSAID_MAX:]
        lines = "".join(f"countermark: {line}\n" for line in self._unsaid)
        try:
            os.write(self._own, lines.encode("utf-8", errors="replace"))
        except OSError:
            return
        self._unsaid = []

    def bound(self) -> None:
        """Cut the log if it passed its bound."""
        size = os.fstat(self._own).st_size
        if size <= self._bytes_max:
            return
        kept = self._keep_tail(size)
        try:
            os.ftruncate(self._own, 0)
        except OSError as error:
            self.say(f"the log cannot be cut: {error.strerror}")
            return
        tail = f"the last {kept} bytes are in {OLDER_LOG}" if kept else "no room was left for its tail"
        self.say(f"the log passed {self._bytes_max} bytes and was cut at {size}; {tail}")

    def _keep_tail(self, size: int) -> int:
        """Copy the last quarter of the bound, and what is appended meanwhile, into the older log; the number of bytes kept."""
        wanted = max(self._bytes_max // 4, 1)
        temporary = self._older.with_name(f".tmp-{self._older.name}")
        kept = 0
        try:
            temporary.unlink(missing_ok=True)
            with open(temporary, "xb") as older:
                # What COMMAND appends while we copy belongs to the tail too; a COMMAND that writes as fast as we copy must not keep us.
                while kept < 2 * wanted and (chunk := os.pread(self._own, _CHUNK_BYTES, size - min(wanted, size) + kept)):
                    older.write(chunk)
                    kept += len(chunk)
            os.replace(temporary, self._older)
        except OSError:
            _remove(temporary)
            return 0
        return kept


def _remove(temporary: Path) -> None:
    """Take a half-copied tail away; one that stays is worth less than the cut of the log that comes next."""
    try:
        temporary.unlink(missing_ok=True)
    except OSError:
        return
