"""Which mutants there are, by room; how each fared; and which survivors were judged to change nothing.

Rules kept here:

1. A mutant is named by what it changes (file, function, lines taken out, lines put in) and never by a running number: a list of survivors
   keeps its meaning when a function grows.
2. The rooms of ``FLOORED`` have a floor: ``FLOOR_PERCENT`` of their mutants die, and every survivor is on the list with its reason. The
   rest of the heart is measured.
3. A mutant dies when a test fails, or when the tests no longer end. What no test reaches survives.
4. What is changed in the first argument of ``cast`` is no mutant: it is a word to the type checkers, and nothing runs it.
5. An entry of the list that no surviving mutant has is an error: a reason that nothing needs any more is taken out.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import Final

from mutmut.mutation.data import LineSpan, MutantLineSpans
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

ROOT: Final = Path(__file__).resolve().parents[2]
COPY: Final = ROOT / "mutants"
LIST: Final = Path(__file__).with_name("survivors.toml")
SOURCE: Final = Path("src/countermark")
FLOOR_PERCENT: Final = 95
#: Room → its files, the first match counts.
ROOMS: Final = {
    "verdict": ("verdict/*.py",),
    "claims": ("run/claims.py", "run/dispatch.py", "run/attempts.py"),
    "key": ("recipe/work.py", "recipe/canonical.py"),
    "evidence": ("evidence/*.py",),
    "run": ("run/*.py",),
    "recipe": ("recipe/*.py",),
    "values": ("values.py",),
    "weights": ("weights/*.py",),
}
FLOORED: Final = ("verdict", "claims", "key", "evidence", "run", "recipe", "values")
_CAST: Final = re.compile(r'\bcast\(("[^"]*"|\w+), ')
_DIED: Final = ("killed", "timeout", "segfault")
_UNDECIDED: Final = ("not checked", "check was interrupted by user")


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """What a mutant is: in which function of which file, and the lines out and in (joined, without indentation at their ends)."""

    file: str
    function: str
    out: str
    into: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutant with mutmut's name for it and what became of it: True if it died, None if nobody looked yet."""

    name: str
    change: Change
    died: bool | None


@dataclass(frozen=True, slots=True)
class Judged:
    """An entry of the list: the change, and why no test can notice it."""

    change: Change
    why: str


def room_of(file: str) -> str:
    """The room of a file below src/countermark."""
    return next(room for room, patterns in ROOMS.items() if any(Path(file).match(pattern) for pattern in patterns))


def change_of(file: str, name: str, lines: list[str], spans: Mapping[str, LineSpan]) -> Change:
    """The change that mutmut's mutant ``name`` is, from the mutated file's lines and where its functions lie."""
    mutated = name.rpartition(".")[2]
    honest = mutated.partition("__mutmut_")[0] + "__mutmut_orig"
    function, owner = orig_function_and_class_names_from_key(name)
    before, after = (
        [line.replace(label, function) for line in lines[spans[label].start - 1 : spans[label].end]] for label in (honest, mutated)
    )
    diff = [line for line in unified_diff(before, after, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]
    out, into = (" ⏎ ".join(line[1:].strip() for line in diff if line[0] == sign) for sign in "-+")
    return Change(file, f"{owner}.{function}" if owner else function, out, into)


def runs(change: Change) -> bool:
    """Whether a change is one of what runs, and not only of what a cast says to the type checkers."""
    return _CAST.sub("", change.out) != _CAST.sub("", change.into)


def numbered(changes: Iterable[Change]) -> Iterator[Change]:
    """The changes, of which one that was there before is told apart by its number: a function may hold the same line twice."""
    seen = Counter[Change]()
    for change in changes:
        seen[change] += 1
        yield change if seen[change] == 1 else replace(change, out=f"{change.out} (no. {seen[change]})")


def read_mutants() -> tuple[Mutant, ...]:
    """Every mutant of the copy with what became of it so far."""
    found: list[Mutant] = []
    for path in sorted((COPY / SOURCE).rglob("*.py")):
        meta = path.with_name(path.name + ".meta")
        if not meta.exists():
            continue
        relative = path.relative_to(COPY)
        spans = MutantLineSpans.load(relative)
        lines = path.read_text(encoding="utf-8").splitlines()
        assert spans is not None, relative
        file, where = str(relative.relative_to(SOURCE)), spans.span_by_function_name
        codes: dict[str, int | None] = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        changes = numbered(change_of(file, name, lines, where) for name in codes)
        found += [Mutant(name, change, _died(code)) for (name, code), change in zip(codes.items(), changes, strict=True) if runs(change)]
    return tuple(found)


def _died(code: int | None) -> bool | None:
    status = status_by_exit_code[code]
    return None if status in _UNDECIDED else status in _DIED


def read_list(text: str) -> tuple[Judged, ...]:
    """The judged survivors of a list; ``into`` holds every change of the same lines that has the one reason. Raises ``ValueError`` for an
    entry that is incomplete, and for a change that is listed twice."""
    judged: list[Judged] = []
    for entry in tomllib.loads(text).get("survivor", []):
        match entry:
            case {"in": str(place), "out": str(out), "into": [*changes], "why": str(why)} if len(entry) == 4 and changes and why.strip():
                file, _, function = place.partition(" ")
                judged += [Judged(Change(file, function, out, str(into)), why) for into in changes]
            case _:
                raise ValueError(f"an entry has in, out, into (a list) and why: {entry}")
    twice = [change for change, times in Counter(each.change for each in judged).items() if times > 1]
    if twice:
        raise ValueError(f"listed twice: {twice}")
    return tuple(judged)


@dataclass(frozen=True, slots=True)
class Score:
    """A room or a file in figures: its mutants, how many died, live and are on the list, live and are not, and are undecided."""

    total: int
    died: int
    judged: int
    unjudged: int
    undecided: int

    @property
    def percent(self) -> float:
        """Of the decided mutants, the share that died; the survivors that change nothing count against it."""
        decided = self.total - self.undecided
        return 100 * self.died / decided if decided else 100.0


def score(mutants: Iterable[Mutant], judged: Iterable[Judged]) -> Score:
    """The figures of some mutants."""
    listed = {each.change for each in judged}
    members = tuple(mutants)
    alive = Counter(mutant.change in listed for mutant in members if mutant.died is False)
    return Score(
        len(members),
        sum(mutant.died is True for mutant in members),
        alive[True],
        alive[False],
        sum(mutant.died is None for mutant in members),
    )


def objections(mutants: tuple[Mutant, ...], judged: tuple[Judged, ...]) -> tuple[str, ...]:
    """Every reason for which the result is not good enough."""
    found: list[str] = []
    for room in FLOORED:
        members = [mutant for mutant in mutants if room_of(mutant.change.file) == room]
        figures = score(members, judged)
        if not members:
            found.append(f"{room}: there is no mutant")
        if figures.percent < FLOOR_PERCENT:
            found.append(f"{room}: {figures.percent:.1f} % of the mutants die; {FLOOR_PERCENT} % are the floor")
        if figures.undecided:
            found.append(f"{room}: {figures.undecided} mutants are undecided")
        listed = {each.change for each in judged}
        found += [
            f"{room}: lives and is not on the list: {mutant.change}"
            for mutant in members
            if mutant.died is False and mutant.change not in listed
        ]
    alive = {mutant.change for mutant in mutants if mutant.died is not True}
    found += [f"on the list, and no surviving mutant is it: {each.change}" for each in judged if each.change not in alive]
    return tuple(found)
