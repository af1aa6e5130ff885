"""What the base's files show of an effective manifest: whether they are what the trainer said to have hashed.

Rules kept here:

1. The trainer's word is held against the files only where it says that it hashed them (``file_hash``): a base that was cast while it was
   loaded has a hash of its own, which no file shows.
2. Files that were changed or replaced since the attempt began show nothing of what ran. Their times are asked for that alone.
3. Hashing a base can take minutes, so it waits for the trainer's success, without which nothing converges, and is done once for each state
   of the files in a process.
4. This is a second source beside the trainer's word. A base that cannot be read shows nothing: it is no file of the attempt's.
"""

from functools import lru_cache
from pathlib import Path
from typing import Final

from countermark.evidence.members import Read, Unread
from countermark.files.attempt_folder import ReceiptRead, read_start, read_terminal
from countermark.files.desired import Desired, read_desired
from countermark.files.model_folder import MeasuredBase, measure_base
from countermark.files.reading import Stamp
from countermark.wire.effective import EffectiveManifest
from countermark.wire.receipts import Succeeded

SOURCE: Final = "base files"
COORDINATE: Final = "base_artifact"


def base_reading(folder: Path, word: EffectiveManifest | None) -> dict[str, Read | Unread]:
    """The base as its files lie there, for the attempt whose folder this is; empty where they show nothing of what ran."""
    said = None if word is None else word.readings().get(COORDINATE)
    start, terminal = read_start(folder), read_terminal(folder)
    if not isinstance(said, Read) or said.how != "file_hash" or not isinstance(start, ReceiptRead):
        return {}
    if not isinstance(terminal, ReceiptRead) or not isinstance(terminal.receipt.outcome, Succeeded):
        return {}
    desired = read_desired(folder)
    place = desired.sources.get("model") if isinstance(desired, Desired) else None
    if place is None:
        return {}
    stamps = _stamps(Path(place))
    if not stamps or _changed_since(stamps, start.receipt.at_ms):
        return {}
    measured = _measured(place, stamps)
    return {} if measured is None else {COORDINATE: Read(measured, "file_hash")}


def _stamps(base: Path) -> tuple[Stamp, ...]:
    """The state of the files in a folder, of which links are followed; empty where it cannot be told."""
    try:
        return tuple(Stamp.of(entry.stat()) for entry in sorted(base.iterdir()) if not entry.is_dir())
    except OSError:
        return ()


def _changed_since(stamps: tuple[Stamp, ...], at_ms: int) -> bool:
    return any(max(each.mtime_ns, each.ctime_ns) >= at_ms * 1_000_000 for each in stamps)


@lru_cache(maxsize=8)
def _measured(place: str, stamps: tuple[Stamp, ...]) -> str | None:
    """The base's coordinate, spelled; None where the files are no base. ``stamps`` say which state of them is meant."""
    found = measure_base(Path(place))
    return found.base_artifact.spell() if isinstance(found, MeasuredBase) and _stamps(Path(place)) == stamps else None
