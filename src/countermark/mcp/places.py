"""The folders in which a client may name paths.

Rules kept here:

1. A path is one of the project's folder or of a folder that the server was started with. It is held against them as the disk resolves it:
   neither ``..`` nor a link leads out of them.
2. What lies outside is refused whether it is there or not, so that nobody learns which it is.
3. A folder is walked before it is read: a link in it that leads out refuses the whole of it. Whoever can write into one of the folders
   while it is read may put a link there between the two; the server is no wall against its own user.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.lines.serving import ParameterUnfit, PathOutside
from countermark.values import shown

_ENTRIES_MAX: Final = 50_000


@final
@dataclass(frozen=True, slots=True)
class Places:
    """``project``: against which a relative path is read; ``roots``: the folders, resolved, that project among them."""

    project: str
    roots: tuple[str, ...]

    @classmethod
    def of(cls, project: Path, more: tuple[Path, ...] = ()) -> "Places":
        return cls(os.path.realpath(project), tuple(dict.fromkeys(os.path.realpath(each) for each in (project, *more))))

    def path_of(self, text: str, argument: str) -> str | PathOutside | ParameterUnfit:
        """The path that a client means, resolved, or why it may not be read."""
        try:
            path = os.path.realpath(os.path.join(self.project, text))
        except (OSError, ValueError):
            return ParameterUnfit(argument, shown(text), "a path")
        if not self._within(path):
            return PathOutside(text, self.roots)
        try:
            for count, place in enumerate(self._links(path)):
                if count > _ENTRIES_MAX:
                    return ParameterUnfit(argument, shown(text), f"a path with at most {_ENTRIES_MAX:,} entries below it")
                if not self._within(place):
                    return PathOutside(text, self.roots)
        except OSError:
            # Whoever reads it says what is wrong with it.
            return path
        return path

    def _within(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self.roots)

    def _links(self, top: str) -> Iterator[str]:
        """Everything below a folder as the disk resolves it; folders behind links are walked as well, each once."""
        waiting, seen = [top], {top}
        while waiting:
            folder = waiting.pop()
            if not os.path.isdir(folder):
                continue
            with os.scandir(folder) as entries:
                for entry in entries:
                    place = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(folder, entry.name)
                    yield place
                    if place not in seen and self._within(place) and os.path.isdir(place):
                        seen.add(place)
                        waiting.append(place)
