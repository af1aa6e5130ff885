"""What processes do to the disk, in their order: folders made, files and folders synced, files named. All of a launch note it in one file.

A note is a line: ``made PATH``, ``synced PATH`` or ``named SOURCE TARGET``, by the last parts of the paths.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def noting(into: Path) -> dict[str, Callable[..., Any]]:
    """The calls of ``os`` that are to be put in the place of its own, by their names."""
    fsync, link, mkdir = os.fsync, os.link, os.mkdir

    def note(*words: object) -> None:
        line = " ".join(os.path.basename(os.fspath(str(word))) for word in words)
        descriptor = os.open(into, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        note("synced", os.readlink(f"/proc/self/fd/{descriptor}"))

    def named(source: Any, target: Any, **how: Any) -> None:
        link(source, target, **how)
        note("named", source, target)

    def made(path: Any, *how: Any, **more: Any) -> None:
        mkdir(path, *how, **more)
        note("made", path)

    return {"fsync": synced, "link": named, "mkdir": made}


def just_written(path: Path, data: bytes) -> None:
    """The fault: a file that is made and written, and never synced."""
    with path.open("xb") as file:
        file.write(data)


def durably_named(notes: Iterable[str], name: str, folder: str) -> bool:
    """Whether the bytes of a file were synced under another name before it got its own, and the folder's entries after that."""
    lines = list(notes)
    for at, line in enumerate(lines):
        what, source, *target = line.split(" ")
        if (what, target) == ("named", [name]):
            return f"synced {source}" in lines[:at] and f"synced {folder}" in lines[at:]
    return False


def durably_made(notes: Iterable[str], folder: str, parent: str) -> bool:
    """Whether a folder was made, and its parent's entries synced before anything in the folder got a name."""
    lines = list(notes)
    if f"made {folder}" not in lines:
        return False
    since = lines[lines.index(f"made {folder}") :]
    first = next((at for at, line in enumerate(since) if line.startswith("named ")), len(since))
    return f"synced {parent}" in since[:first]
