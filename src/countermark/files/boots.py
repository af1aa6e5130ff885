"""What an attempt that began in another boot of its machine can still be: nothing, unless the machine is another one of the same name.

Nothing outlives the boot of its machine. That the machine is this one is known by its name alone, which others may bear as well: one that
holds the lock, or one behind a file system that several machines share.
"""

from pathlib import Path

from countermark.files.attempt_folder import NETWORK_FILE_SYSTEMS, START, file_system_of
from countermark.files.locks import LockAbsent, LockFree, LockHeld, LockReading, LockUnreadable


def may_live_elsewhere(folder: Path, lock: LockReading) -> str | None:
    """Why an attempt whose start is of another boot may live all the same; None where nothing of it does. Raises ``OSError``."""
    match lock:
        case LockHeld():
            return f"the lock is held although {START} is of another boot: the reads disagree"
        case LockUnreadable(why):
            return why
        case LockFree() | LockAbsent():
            pass
    if (system := file_system_of(folder)) in NETWORK_FILE_SYSTEMS:
        return f"{START} is of another boot, and on a {system} file system perhaps of another machine of this name"
    return None
