"""``fd1``: the digest of exact files, for what has no weights root (pickles, other formats).

It is in-toto's ``dirHash``: the SHA-256 of one line ``<sha256 hex>  <path>`` per file, sorted by the bytes of the path, as
``find . -type f | cut -c3- | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum`` prints it.

Rules kept here: a link counts as the file that it leads to, and must lead to one in the folder; pipes, devices, links to folders and names
with newlines are refused, all at once; folders count by their files only.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.digest_cache import DigestCache, hash_file
from countermark.files.reading import find_folder, is_folder, list_folder
from countermark.values import FilesDigest, NonEmpty, Refused, Sha256, is_unicode
from countermark.weights.refusals import ExactDefect, FileNameUnlistable, FileNotRegular, FolderEmpty, FolderTooDeep

_DEPTH_MAX: Final = 64


@final
@dataclass(frozen=True, slots=True)
class MeasuredFiles:
    """Exact files as they were read: digest and size in bytes for each path in the folder."""

    digest: FilesDigest
    files: tuple[tuple[str, Sha256, int], ...]
    bytes: int


def files_digest(files: dict[str, Sha256]) -> FilesDigest:
    """The digest of files that were hashed already, by path in the folder."""
    lines = "".join(f"{files[path].hex}  {path}\n" for path in sorted(files, key=lambda path: path.encode("utf-8")))
    return FilesDigest(hashlib.sha256(lines.encode("utf-8")).hexdigest())


def measure_exact(path: Path, cache: DigestCache | None = None) -> MeasuredFiles | Refused[ExactDefect]:
    """The exact files of a folder, or one file alone under its own name."""
    if is_folder(path):
        return measure_files(path, cache)
    real = Path(os.path.realpath(path))
    hashed = hash_file(real.parent, real.name, cache=cache)
    if not isinstance(hashed, tuple):
        return Refused(NonEmpty(hashed))
    return MeasuredFiles(files_digest({path.name: hashed[0]}), ((path.name, *hashed),), hashed[1])


def measure_files(folder: Path, cache: DigestCache | None = None) -> MeasuredFiles | Refused[ExactDefect]:
    """The exact files of a folder and of the folders in it, or everything that keeps them from having a digest."""
    root = find_folder(folder)
    if not isinstance(root, Path):
        return Refused(NonEmpty(root))
    found: dict[str, tuple[Sha256, int]] = {}
    defects: list[ExactDefect] = []
    open_folders = [""]
    while open_folders:
        prefix = open_folders.pop()
        listed = list_folder(root / prefix)
        if not isinstance(listed, tuple):
            defects.append(listed)
            continue
        for entry in listed:
            path = prefix + entry.name
            if "\n" in entry.name or not is_unicode(entry.name):
                defects.append(FileNameUnlistable(path))
            elif entry.kind == "a folder" and path.count("/") >= _DEPTH_MAX:
                defects.append(FolderTooDeep(path))
            elif entry.kind == "a folder":
                open_folders.append(path + "/")
            elif entry.kind == "a link" and is_folder(root / path):
                defects.append(FileNotRegular(path, "a link to a folder"))
            else:
                hashed = hash_file(root, path, cache=cache)
                if isinstance(hashed, tuple):
                    found[path] = hashed
                else:
                    defects.append(hashed)
    if not found and not defects:
        defects.append(FolderEmpty())
    if refusal := NonEmpty.of(defects):
        return Refused(refusal)
    digest = files_digest({path: digest for path, (digest, _) in found.items()})
    files = tuple((path, *found[path]) for path in sorted(found))
    return MeasuredFiles(digest, files, sum(size for _, size in found.values()))
