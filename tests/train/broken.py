"""A trainer's checkpoint, broken in one place each, and what must be said against it: the roster of the oracle and of its page.

Rules kept here:

1. What must be said is restated here from what was done to the file; nothing asks the product.
2. A break changes one file, and leaves one that a trainer may well find: gone, of another step, with one bit turned, of another adapter.
"""

import io
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The file that holds each component in the trainer's own form.
FILES: Final = {
    "model_weights": "adapter_model.safetensors",
    "optimizer_state": "optimizer.pt",
    "scheduler_state": "scheduler.pt",
    "rng_state": "rng_state.pth",
    "data_position": "trainer_state.json",
}
#: Components whose own bytes say at which step they were written.
TELLING: Final = frozenset({"optimizer_state", "scheduler_state", "data_position"})
#: Components that lie in an archive with a checksum for each of its members.
SUMMED: Final = frozenset({"optimizer_state", "scheduler_state", "rng_state"})
STEP: Final = 4
LATER: Final = 6

Codes = tuple[str, ...]


@dataclass(frozen=True)
class Donors:
    """Checkpoints that parts are taken from: of the same run two steps later, and of a run with another adapter."""

    later: Path
    foreign: Path


@dataclass(frozen=True)
class Break:
    """What is done to a checkpoint's folder, and everything that must be said against it: as the trainer wrote it and somebody vouched for
    it, and as we published it."""

    name: str
    do: Callable[[Path, Donors], None]
    in_place: Codes
    published: Codes


def _removed(file: str) -> Callable[[Path, Donors], None]:
    return lambda folder, donors: (folder / file).unlink()


def _replaced(file: str) -> Callable[[Path, Donors], None]:
    return lambda folder, donors: put(folder / file, (donors.later / file).read_bytes())


def _foreign(folder: Path, donors: Donors) -> None:
    put(folder / "optimizer.pt", (donors.foreign / "optimizer.pt").read_bytes())


def put(path: Path, content: bytes) -> None:
    """Other bytes in the place of a file."""
    path.unlink()
    path.write_bytes(content)


def _turned(file: str) -> Callable[[Path, Donors], None]:
    def turn(folder: Path, donors: Donors) -> None:
        content = bytearray((folder / file).read_bytes())
        content[turned_at(file, bytes(content))] ^= 1
        put(folder / file, bytes(content))

    return turn


def turned_at(file: str, content: bytes) -> int:
    """Where a bit is turned: in the exponent of a number in the payload; in the step of a file of text; in a name where no numbers are."""
    if file.endswith(".json"):
        return content.index(b'"global_step": ') + len(b'"global_step": ')
    if file.endswith(".safetensors"):
        return len(content) - 1
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        tensors = [one for one in archive.infolist() if "/data/" in one.filename]
    if not tensors:
        return content.index(b"last_epoch")
    largest = max(tensors, key=lambda one: one.file_size)
    name_size, extra_size = struct.unpack_from("<2H", content, largest.header_offset + 26)
    # Of a float32 in its middle, the last byte has most of the exponent.
    return largest.header_offset + 30 + name_size + extra_size + largest.file_size // 8 * 4 + 3


def _roster() -> Iterable[Break]:
    for component, file in FILES.items():
        missing = (f"ComponentMissing({component})", "PublicationIncomplete")
        yield Break(f"`{file}` removed", _removed(file), missing, missing)
    for component, file in FILES.items():
        told = (f"ComponentStepMismatch({component})", "PublicationIncomplete") if component in TELLING else ()
        yield Break(f"`{file}` of step {LATER}", _replaced(file), told, (f"ComponentDigestMismatch({component})", *told))
    for component, file in FILES.items():
        if component in SUMMED:
            unread = (f"ComponentUnread({component})", "PublicationIncomplete")
            yield Break(f"one bit of `{file}` turned", _turned(file), unread, unread)
        else:
            told = (f"ComponentStepMismatch({component})", "PublicationIncomplete") if component in TELLING else ()
            yield Break(f"one bit of `{file}` turned", _turned(file), told, (f"ComponentDigestMismatch({component})", *told))
    foreign = "ComponentForeign(optimizer_state)"
    yield Break("`optimizer.pt` of an adapter of rank 2", _foreign, (foreign,), (foreign, "ComponentDigestMismatch(optimizer_state)"))


BREAKS: Final = tuple(_roster())


def copied(folder: Path, into: Path) -> Path:
    """A copy of a checkpoint that may be broken."""
    shutil.copytree(folder, into)
    return into


def admission_table() -> str:
    """What is to be said of each break, as the page shows it."""
    head = "| done to the checkpoint of step 4 | in place, vouched for | published |\n| --- | --- | --- |\n"
    rows = ((each.name, _cell(each.in_place), _cell(each.published)) for each in BREAKS)
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(codes: Codes) -> str:
    return ", ".join(f"`{code}`" for code in codes) or "admissible"
