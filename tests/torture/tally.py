"""What a storm came to: launches as the children counted them, doubles of every kind, kills by victim and point, runs by verdict."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

#: What no storm here touches, said with its figures.
NOT_COVERED: Final = (
    "a power cut: a killed process loses nothing that it wrote, so no fsync is put to the test here",
    "several hosts, and disks that lie about fsync or rename",
    "full and read-only disks, pid reuse and pid namespaces: they have tests of their own, without a storm",
    "clocks that are more than seconds wrong: the tests of surroundings step them by an hour and by a day",
)


@final
@dataclass
class Count:
    """The lines of the count file, read as they come."""

    began: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[str, str] = field(default_factory=dict)
    fates: dict[str, str] = field(default_factory=dict)
    overlapping: list[str] = field(default_factory=list)
    behind_a_fence: list[str] = field(default_factory=list)
    launches: int = 0

    def take(self, line: str) -> None:
        kind, run, attempt, *rest = line.split(" ", 5)
        if kind == "began":
            self.launches += 1
            self.began[attempt].append(" ".join(rest[:2]))
            self.runs[attempt] = run
            self.fates[attempt] = rest[2]
        elif kind == "overlap":
            self.overlapping.append(attempt)
        else:
            assert kind == "fenced", line
            self.behind_a_fence.append(attempt)

    def followed(self, run: str, attempt: str) -> bool:
        """Whether a later attempt of the run began, although this one did not."""
        return attempt not in self.began and any(other == run for other in self.runs.values())

    def doubles(self, predecessors: Mapping[str, str] | None = None) -> dict[str, int]:
        """How often something ran that must not. ``predecessors``: of each attempt in the ledger (empty: none), where they are known."""
        order = {attempt: place for place, attempt in enumerate(self.began)}
        known = predecessors or {}
        late = [one for one, before in known.items() if before in order and one in order and order[before] > order[one]]
        return {
            "attempts executed twice": sum(len(processes) > 1 for processes in self.began.values()),
            "trainers beside a live one of their run": len(self.overlapping),
            "trainers behind a fence": len(self.behind_a_fence),
            "trainers without a claim": 0 if predecessors is None else len(order.keys() - known.keys()),
            "trainers after their successor": len(late),
        }


@final
@dataclass
class Figures:
    """One storm over one ledger, when it is over. ``findings``: what is wrong that is no double; empty where all is well."""

    ledger: str
    mutant: str
    seed: int
    launches: int = 0
    attempts: int = 0
    doubles: dict[str, int] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    stops: int = 0
    restarts: int = 0
    lives: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    broken_off: bool = False

    @property
    def judged(self) -> bool:
        """Whether the ledger was read when all was over."""
        return bool(self.verdicts)

    @property
    def doubled(self) -> int:
        return sum(self.doubles.values())

    def lines(self) -> Iterable[str]:
        what = f"{self.ledger}, mutant: {self.mutant}" if self.mutant else self.ledger
        yield f"{what} (seed {self.seed}, {self.seconds:.0f} s{', broken off' if self.broken_off else ''})"
        claimed = f", of {self.attempts} attempts claimed ({_spelled(self.causes)})" if self.judged else ""
        yield f"  launches, counted by the trainers: {self.launches}{claimed}"
        yield f"  doubles: {self.doubled} ({_spelled(self.doubles)})"
        yield f"  kills: {self.kills.total()}; processes stopped and woken: {self.stops}; database restarts: {self.restarts}"
        for point, number in sorted(self.kills.items()):
            yield f"    {point}: {number}"
        yield f"  lives of controllers: {self.lives}; claims asked for: {_spelled(self.answers)}"
        if not self.judged:
            yield "  ended by its first double, or broken off: nothing was brought to rest and judged"
            return
        yield f"  recorded of persons: {_spelled(self.decisions)}"
        yield f"  runs: {self.verdicts.total()} ({_spelled(self.verdicts)})"
        yield f"  findings of store check, of the history and of the verdicts: {len(self.findings)}"
        for finding in self.findings[:20]:
            yield f"    {finding}"


def _spelled(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items())) or "none"
