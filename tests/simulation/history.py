"""A recorded history of controllers, their ledger and the trainers that they started, as a value and as a file.

Each process appends its own events to one file, a line of JSON each, so that a line written before another really happened before it.
A controller writes ``Asked`` before it claims and ``Answered`` when it has the answer; a trainer writes ``Began`` with its own identity as
the first thing it does. Facts of the ledger are written as they commit, where somebody sees that (``at commit``), or read from the ledger
when all is over (``afterwards``); then only their versions order them.

The rules that such a history must keep stand in ``tests.simulation.checker``.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

import msgspec

FactKind = Literal["claim", "intent", "outcome", "cancellation", "abandonment", "adjudication"]
Answer = Literal["committed", "already", "stale", "refused"]


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="event"):
    pass


@final
class Asked(_Event, tag="asked"):
    """A controller is about to claim ``slot`` of ``run`` for ``candidate``, having concluded on version ``snapshot``."""

    call: str
    run: str
    slot: str
    candidate: str
    snapshot: int


@final
class Answered(_Event, tag="answered"):
    """The answer of a call. ``attempt``: whose claim holds the slot (empty for "stale" and "refused"); ``version``: that claim's, or the
    current one for "stale", or 0."""

    call: str
    answer: Answer
    attempt: str
    version: int


@final
class Fact(_Event, tag="fact"):
    """One control fact of a run. ``slot``, ``cause`` and ``predecessor`` are a claim's; empty where there is none."""

    run: str
    version: int
    kind: FactKind
    attempt: str
    slot: str = ""
    cause: str = ""
    predecessor: str = ""
    seen: Literal["at commit", "afterwards"] = "at commit"


@final
class Began(_Event, tag="began"):
    """A trainer of the attempt is running: written by itself. ``process`` names the execution (host, boot, pid and start time)."""

    attempt: str
    process: str


@final
class Ended(_Event, tag="ended"):
    """That execution is gone: written by whoever saw it."""

    attempt: str
    process: str


@final
class Killed(_Event, tag="killed"):
    """Something was killed or stopped on purpose: ``what`` (controller, supervisor, trainer, database), at which ``point``."""

    what: str
    point: str


Event: TypeAlias = Asked | Answered | Fact | Began | Ended | Killed

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)


def append(path: Path, event: Event) -> None:
    """Add one line, in one write: lines of several processes never mix. Raises ``OSError`` where it is not written whole."""
    line = _ENCODER.encode(event) + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(f"{path}: a line was written in part")
    finally:
        os.close(descriptor)


@final
@dataclass(frozen=True, slots=True)
class LineUnreadable:
    """A line (counted from 1) is no event."""

    line: int
    why: str


def read(path: Path) -> Iterator[Event | LineUnreadable]:
    """The events of a file in their order; a line that is none is given out as such."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield _DECODER.decode(line)
            except msgspec.DecodeError as error:
                yield LineUnreadable(number, str(error))


def _by_name(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counted.items()))


@final
@dataclass(frozen=True, slots=True)
class Figures:
    """What a history held: calls by answer, facts by kind, launches counted by the trainers, attempts that began twice, kills by point."""

    calls: Counter[str]
    unanswered: int
    facts: Counter[str]
    launches: int
    doubles: int
    kills: Counter[str]

    def lines(self) -> tuple[str, ...]:
        """The figures, one line each."""
        return (
            f"claims asked for: {self.calls.total() + self.unanswered} ({_by_name(self.calls)}, unanswered {self.unanswered})",
            f"facts: {self.facts.total()} ({_by_name(self.facts)})",
            f"launches, counted by the trainers: {self.launches}; attempts launched twice: {self.doubles}",
            f"kills: {self.kills.total()}",
            *(f"  {point}: {number}" for point, number in sorted(self.kills.items())),
        )


def figures(events: Iterable[Event | LineUnreadable]) -> Figures:
    """Count what a history holds."""
    calls: Counter[str] = Counter()
    facts: Counter[str] = Counter()
    kills: Counter[str] = Counter()
    began: Counter[str] = Counter()
    asked = 0
    for event in events:
        match event:
            case Asked():
                asked += 1
            case Answered(answer=answer):
                calls[answer] += 1
            case Fact(kind=kind):
                facts[kind] += 1
            case Began(attempt=attempt):
                began[attempt] += 1
            case Killed(what=what, point=point):
                kills[f"{what} {point}"] += 1
            case Ended() | LineUnreadable():
                pass
    doubles = sum(times > 1 for times in began.values())
    return Figures(calls, asked - calls.total(), facts, began.total(), doubles, kills)
