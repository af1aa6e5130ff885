"""What a number of histories reached, for a person: the figures by their kinds, and what was not covered.

Rule kept here: what is not covered is found by the program's own rosters and by what the histories themselves came past, so that nothing
has to be kept up to date by hand; only what lies outside any simulated history is said in words.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, final, get_args

from countermark.run.attempts import Cause
from countermark.verdict.kinds import Blocker, Verdict
from tests.simulation.persons import WISHES
from tests.simulation.world import LIES

#: Points that say who waits and not what was done: whoever dies there dies between two things.
_BETWEEN: Final = frozenset({"idle"})
#: What no simulated history can show, and where it is shown.
OUTSIDE: Final = (
    "the database's own transactions and files, kill -9 and real locks (tests/store, tests/launch, make torture)",
    "several runs on one ledger (tests/store)",
    "the readers of real folders and schedulers (tests/observe)",
)


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """A history that broke a rule: its seed, what was broken, the decisions of its shortest form, and the tale of that."""

    seed: int
    what: str
    decisions: tuple[int, ...]
    tale: str

    def text(self) -> str:
        return f"seed {self.seed}: {self.what}\n{self.tale}\nlived again by: {list(self.decisions)}"


@final
@dataclass(frozen=True, slots=True)
class Told:
    """What a number of histories reached, and the first of them that failed."""

    histories: int
    steps: int
    figures: Counter[str]
    failure: Failure | None


def lines(told: Told) -> Iterator[str]:
    """The figures for a person, by their kinds, and then what was not covered."""
    figures = told.figures
    trainers = f"trainers launched {figures['launches']:,}, launched twice {figures['launched twice']:,}"
    yield f"histories {told.histories:,}, steps {told.steps:,}, {trainers}"
    kinds = sorted({name.split(":")[0] for name in figures if ": " in name})
    for kind in kinds:
        counted = sorted((name.split(": ", 1)[1], number) for name, number in figures.items() if name.startswith(f"{kind}: "))
        if kind != "came past":
            yield f"{kind} ({sum(number for _, number in counted):,}): {', '.join(f'{name} {number:,}' for name, number in counted)}"
    yield "not covered:"
    for what in not_covered(figures):
        yield f"  {what}"
    for what in OUTSIDE:
        yield f"  outside of what is simulated: {what}"


def not_covered(figures: Counter[str]) -> tuple[str, ...]:
    """Where nobody was killed or stopped although somebody came past, and whatever of the rosters was never reached."""
    found: list[str] = []
    passed = {name.removeprefix("came past: ") for name in figures if name.startswith("came past: ")}
    controllers = {point.removeprefix("controller ") for point in passed if point.startswith("controller ")}
    others = {point for point in passed if not point.startswith(("controller ", "person ", "job "))}
    killed = _named(figures, "controller killed")
    found += _missing("no controller was killed at", controllers - _BETWEEN - killed)
    found += _missing("nothing was killed at", others - _named(figures, "killed"))
    found += _missing("no verdict was", _names(Verdict) - _named(figures, "verdict"))
    found += _missing("no blocker was", _names(Blocker) - _named(figures, "blocker"))
    found += _missing("no claim was caused by", _names(Cause) - _named(figures, "claim"))
    found += _missing("nobody asked for", set(WISHES) - _named(figures, "asked"))
    found += _missing("no history told the lie", set(LIES) - _named(figures, "lie"))
    return tuple(found)


def _named(figures: Counter[str], kind: str) -> set[str]:
    return {name.removeprefix(f"{kind}: ") for name, number in figures.items() if name.startswith(f"{kind}: ") and number}


def _names(union: object) -> set[str]:
    return {arm.__name__ for arm in get_args(union)}


def _missing(what: str, names: Iterable[str]) -> list[str]:
    listed = sorted(names)
    return [f"{what}: {', '.join(listed)}"] if listed else []
