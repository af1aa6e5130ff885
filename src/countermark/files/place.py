"""Which place a folder of attempts is, where a ledger is shared by many: no two folders share an answer, on one host or on two of one name.

Rules kept here:

1. A place has a name of its own, random and made once: by whoever comes first, exclusively and durably, before anything refers to it.
2. It goes where the folder goes. A folder that was taken away takes its name with it, so another one in its place is never taken for it.
3. A copy of the folder is another place: the name holds for the folder (its inode) for which it was made, and a copy gets one of its own.
"""

import os
import re
import secrets
from pathlib import Path
from typing import Final

from countermark.files.durable import make_folder, write_new

#: Behind it comes the folder's inode.
FILE: Final = "place-"
_NAME: Final = re.compile(r"[0-9a-f]{16}\n", re.ASCII)
_BYTES_MAX: Final = 64


def made_place(folder: Path) -> str:
    """The name of the place, made now where there is none. Raises ``OSError``."""
    if (name := place_of(folder)) is not None:
        return name
    make_folder(folder)
    try:
        write_new(_file_of(folder), f"{secrets.token_hex(8)}\n".encode())
    except FileExistsError:
        pass
    name = place_of(folder)
    assert name is not None, "it was just made, by this process or another"
    return name


def place_of(folder: Path) -> str | None:
    """The name of the place; None where nothing was ever dispatched from. Raises ``OSError``, also where the file is none of ours."""
    try:
        path = _file_of(folder)
        with path.open("rb") as file:
            text = file.read(_BYTES_MAX).decode("ascii", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    if _NAME.fullmatch(text) is None:
        raise OSError(f"{path} does not hold the name of a place; put it back from a backup")
    return text.strip()


def _file_of(folder: Path) -> Path:
    """The file with the name of just this folder, wherever it was moved. Raises ``OSError``, also where there is no such folder."""
    return folder / f"{FILE}{os.stat(folder).st_ino}"
