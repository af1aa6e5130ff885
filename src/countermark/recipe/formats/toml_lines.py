"""Where the keys of a TOML text stand: what the standard library's parser does not tell.

Rules kept here:

1. The index is an aid: ``tomllib`` alone decides what is TOML. On text that is none the scan stops, and the parser says why.
2. Every repeated key is found, with both lines; the parser would stop at the first.
3. Nesting is measured before anything recurses.
4. A key in a list's tables has the path that it would have in one table: the index looks through lists.
"""

import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast, final

Path: TypeAlias = tuple[str, ...]

_TOKEN: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""(?:"{0,2})'
    r"|'''(?:[^']|'(?!''))*'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*|[ \t\r]+|\n|[\[\]{},=]|[^\s\[\]{},=#\"']+|.",
    re.DOTALL,
)
#: Begins a part of a path that is no key but an element of a list; no key that is written plainly begins so.
_ELEMENT: Final = "\x00"
_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_KEY_PART: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[A-Za-z0-9_-]+')


@final
@dataclass(frozen=True, slots=True)
class Repeated:
    """A key that stands twice."""

    path: Path
    line: int
    first_line: int


@dataclass(slots=True)
class KeyIndex:
    """The first line (from 1) of every key and table, the keys that stand twice, and where the text nests too deep (0: nowhere)."""

    lines: dict[Path, int] = field(default_factory=dict[Path, int])
    repeated: list[Repeated] = field(default_factory=list[Repeated])
    too_deep_line: int = 0

    def line(self, *path: str) -> int:
        """The line of a key, or of the nearest table around it that has one."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0


@dataclass(slots=True)
class _Container:
    """A list or an inline table that the scan is inside of; the elements of a list have paths of their own: none repeats another."""

    path: Path
    is_list: bool
    elements: int = 0

    def element(self) -> Path:
        self.elements += 1
        return (*self.path, f"{_ELEMENT}{self.elements}")


def _through_lists(path: Path) -> Path:
    return tuple(part for part in path if not part.startswith(_ELEMENT))


class _Scan:
    """One scan over a text."""

    def __init__(self, text: str, depth_max: int) -> None:
        self.text, self.depth_max = text, depth_max
        self.at = 0
        self.index = KeyIndex()
        self.defined: dict[Path, int] = {}
        self.elements: dict[Path, int] = {}
        self.ends = [found.start() for found in re.finditer("\n", text)]

    def line(self) -> int:
        return bisect_right(self.ends, self.at - 1) + 1

    def run(self) -> KeyIndex:
        prefix: Path = ()
        while not self.index.too_deep_line:
            self.at = cast("re.Match[str]", _SPACE.match(self.text, self.at)).end()
            if self.at >= len(self.text):
                break
            if self.text[self.at] == "[":
                header = self.header()
                if header is None:
                    break
                prefix = header
            elif not self.pair(prefix) or not self.value():
                break
        return self.index

    def header(self) -> Path | None:
        """``[table]`` or ``[[table]]``; the path under which its keys stand."""
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        line = self.line()
        self.at += brackets
        path = self.key()
        if path is None or not self.text.startswith("]" * brackets, self.at):
            return None
        self.at += brackets
        if brackets == 1:
            self.define(path, line)
            return path
        self.elements[path] = self.elements.get(path, -1) + 1
        self.note(path, line)
        return (*path, f"{_ELEMENT}{self.elements[path]}")

    def pair(self, prefix: Path) -> bool:
        """``key =``; the scan stands behind it."""
        line = self.line()
        path = self.key()
        if path is None or not self.text.startswith("=", self.at):
            return False
        self.at += 1
        self.define(prefix + path, line)
        self.last = prefix + path
        return True

    def define(self, path: Path, line: int) -> None:
        if path in self.defined:
            self.index.repeated.append(Repeated(_through_lists(path), line, self.defined[path]))
        self.defined.setdefault(path, line)
        self.note(path, line)

    def note(self, path: Path, line: int) -> None:
        path = _through_lists(path)
        for length in range(1, len(path) + 1):
            self.index.lines.setdefault(path[:length], line)

    def key(self) -> Path | None:
        """A dotted key, and the blanks around it."""
        parts: list[str] = []
        while True:
            self.blanks()
            found = _KEY_PART.match(self.text, self.at)
            if found is None:
                return None
            parts.append(_unquoted(found[0]))
            if len(parts) > self.depth_max:
                self.index.too_deep_line = self.line()
                return None
            self.at = found.end()
            self.blanks()
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def blanks(self) -> None:
        self.at = cast("re.Match[str]", _BLANK.match(self.text, self.at)).end()

    def value(self) -> bool:
        """A value up to the end of its line; keys of inline tables are noted. Lists and tables are kept on a stack of our own."""
        around: list[_Container] = []
        where = self.last
        while True:
            found = _TOKEN.match(self.text, self.at)
            if found is None:
                return not around
            token = found[0]
            if token == "\n" and not around:
                return True
            self.at = found.end()
            if token in "[{":
                if around and around[-1].is_list:
                    where = around[-1].element()
                around.append(_Container(where, token == "["))
                if len(around) > self.depth_max:
                    self.index.too_deep_line = self.line()
                    return False
            elif token in "]}":
                if not around:
                    return False
                around.pop()
            if token in "{," and around and not around[-1].is_list:
                self.at = cast("re.Match[str]", _SPACE.match(self.text, self.at)).end()
                if self.text.startswith("}", self.at):
                    continue
                if not self.pair(around[-1].path):
                    return False
                where = self.last


def _unquoted(part: str) -> str:
    if part[0] not in "\"'":
        return part
    try:
        return str(tomllib.loads("key = " + part)["key"])
    except ValueError:
        return part


def index_of_keys(text: str, depth_max: int) -> KeyIndex:
    """The index of a text, as far as it is TOML."""
    return _Scan(text, depth_max).run()
