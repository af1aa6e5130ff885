"""What an arm printed, line by line, as what came of its samples.

Rules kept here:

1. A JSON object with an ``id`` is a sample's result, one with ``metrics`` is what the arm says of itself; every other line is its log. A
   line that shows either key and cannot be read was to be a result, and is a fault.
2. Every fault is listed with its line, and none of them becomes a score: what is missing is errored, a score that is no finite number is
   none, a second result for an id counts nothing, an id that was not asked is nobody's.
3. How the process ended says why what is missing is missing. An arm that tells its numbers alone owes no samples.
4. Sizes are bounded: a line, an id, a text that is kept, names, faults.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, cast, final

from countermark.experiments.faults import (
    ArmMetricRepeated,
    OutputFault,
    OutputLineUnreadable,
    OutputOfOtherRepeat,
    OutputOfUnknownSample,
    OutputRepeated,
    SampleMissing,
    ScoreUnusable,
    SeedNotUsed,
)
from countermark.experiments.samples import (
    NAME_LENGTH_MAX,
    NUMBER_SIZE_MAX,
    ArmMetrics,
    ErrorCause,
    Errored,
    Outcome,
    Sample,
    Scored,
    Unscored,
    is_number,
)
from countermark.sessions.canonical import Spelling, kept_text, spelled_json
from countermark.sessions.events import EventUnreadable
from countermark.values import Unreadable, shown
from countermark.wire.events import read_json
from countermark.wire.sample_lines import at_most, read_id

#: Metrics of one line.
METRICS_MAX: Final = 1_000
_WHY_LENGTH_MAX: Final = 2_000

_Table: TypeAlias = Mapping[str, object]


@final
@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended by itself; ``status`` is 0 where it says that all went well."""

    status: int


@final
@dataclass(frozen=True, slots=True)
class Killed:
    """The process was ended by a signal."""

    signal: int


@final
@dataclass(frozen=True, slots=True)
class TimedOut:
    """The process was stopped after so many seconds."""

    seconds: float


End: TypeAlias = Exited | Killed | TimedOut


@final
@dataclass(frozen=True, slots=True)
class ArmOutput:
    """What came of a job. ``samples`` hold second results too, behind the first ones; ``log`` counts the lines that are no results."""

    samples: tuple[Sample, ...]
    metrics: ArmMetrics | None
    faults: tuple[OutputFault, ...]
    log: int
    seed_used: int | None


def read_output(lines: Iterable[bytes], asked: Iterable[str], repeat: int, end: End, seed: int | None = None) -> ArmOutput:
    """What a job told of the ids that it was asked, in one repeat and with one seed."""
    reader = _Reader(tuple(asked), repeat, seed)
    for number, line in enumerate(lines, start=1):
        reader.line(number, line)
    return reader.ended(end)


class _Reader:
    """One job's lines, with what was found in them so far."""

    def __init__(self, asked: tuple[str, ...], repeat: int, seed: int | None) -> None:
        self._asked = asked
        self._known = frozenset(asked)
        self._repeat = repeat
        self._seed = seed
        self._samples: list[Sample] = []
        self._first: dict[str, int] = {}
        self._metrics: dict[str, float] = {}
        self._faults: list[OutputFault] = []
        self._log = 0
        self._seed_used: int | None = None

    def line(self, number: int, line: bytes) -> None:
        """Take one line."""
        if not line.lstrip().startswith(b"{"):
            self._log += bool(line.strip())
            return
        document = read_json(line)
        if isinstance(document, EventUnreadable):
            if b'"id"' in line or b'"metrics"' in line:
                self._faults.append(OutputLineUnreadable(number, document.why))
            else:
                self._log += 1
            return
        table = cast("_Table", document)
        if "id" not in table and "metrics" not in table:
            self._log += 1
            return
        if not self._is_of_this_job(number, table):
            return
        self._echo(number, table)
        if "metrics" in table:
            self._own(number, table["metrics"])
        if "id" in table:
            self._result(number, table)

    def _is_of_this_job(self, number: int, table: _Table) -> bool:
        raw = table.get("repeat")
        if raw is None or (isinstance(raw, int) and not isinstance(raw, bool) and raw == self._repeat):
            return True
        if isinstance(raw, int) and not isinstance(raw, bool) and raw.bit_length() <= 63:
            self._faults.append(OutputOfOtherRepeat(number, raw, self._repeat))
        else:
            self._faults.append(OutputLineUnreadable(number, f"its repeat {shown(raw)} is no whole number"))
        return False

    def _echo(self, number: int, table: _Table) -> None:
        used = table.get("seed")
        if used is None:
            return
        if not isinstance(used, int) or isinstance(used, bool) or used.bit_length() > 256:
            self._faults.append(OutputLineUnreadable(number, f"its seed {shown(used)} is no whole number"))
            return
        expected = self._seed if self._seed is not None else self._seed_used
        if expected is not None and used != expected:
            self._faults.append(SeedNotUsed(number, str(expected), str(used)))
        if self._seed_used is None:
            self._seed_used = used

    def _own(self, number: int, raw: object) -> None:
        if not isinstance(raw, dict):
            self._faults.append(OutputLineUnreadable(number, f"its metrics {shown(raw)} are no JSON object"))
            return
        for name, value in self._numbers(number, "", cast("_Table", raw)).items():
            if value is None:
                continue
            if name in self._metrics:
                self._faults.append(ArmMetricRepeated(number, name))
            else:
                self._metrics[name] = value

    def _result(self, number: int, table: _Table) -> None:
        name = read_id(table["id"])
        if isinstance(name, Unreadable):
            self._faults.append(OutputLineUnreadable(number, name.why))
            return
        if name not in self._known:
            self._faults.append(OutputOfUnknownSample(number, name))
            return
        if name in self._first:
            self._faults.append(OutputRepeated(number, name, self._first[name]))
        else:
            self._first[name] = number
        self._samples.append(Sample(name, self._repeat, self._outcome(number, name, table), table.get("cached") is True))

    def _outcome(self, number: int, name: str, table: _Table) -> Outcome:
        if table.get("error") is not None:
            raw = table["error"]
            return Errored("reported", kept_text(raw if isinstance(raw, str) else shown(raw), _WHY_LENGTH_MAX))
        output = _text(table.get("output"))
        raw = table.get("scores")
        if isinstance(output, Unreadable) or not (raw is None or isinstance(raw, dict)):
            why = output.why if isinstance(output, Unreadable) else f"its scores {shown(raw)} are no JSON object"
            self._faults.append(OutputLineUnreadable(number, why))
            return Errored("malformed", why)
        scores = self._numbers(number, name, cast("_Table", raw)) if raw else {}
        if any(score is not None for score in scores.values()):
            return Scored(scores, output)
        return Unscored("it has no score" if not scores else "none of its scores is a number", output)

    def _numbers(self, number: int, name: str, raw: _Table) -> dict[str, float | None]:
        """Finite numbers by their names; None for what is null or no such number."""
        found: dict[str, float | None] = {}
        for metric, value in list(raw.items())[:METRICS_MAX]:
            kept = kept_text(metric, NAME_LENGTH_MAX)
            read = None if value is None else _number(value)
            if not metric or kept != metric:
                read = Unreadable(f"its name is empty, has over {NAME_LENGTH_MAX} characters or is no text that can be kept")
            if isinstance(read, Unreadable):
                self._faults.append(ScoreUnusable(number, name, kept, read.why))
            if metric and kept == metric:
                found[metric] = None if isinstance(read, Unreadable) else read
        if len(raw) > METRICS_MAX:
            self._faults.append(OutputLineUnreadable(number, f"it has {len(raw):,} scores, and {METRICS_MAX:,} are the most"))
        return found

    def ended(self, end: End) -> ArmOutput:
        """Everything, with what is missing."""
        missing = [] if self._metrics and not self._first else [each for each in self._asked if each not in self._first]
        cause, why = _cause(end)
        self._samples.extend(Sample(each, self._repeat, Errored(cause, why)) for each in missing)
        self._faults.extend(map(SampleMissing, missing))
        metrics = ArmMetrics(self._repeat, self._metrics) if self._metrics else None
        return ArmOutput(tuple(self._samples), metrics, tuple(at_most(self._faults)), self._log, self._seed_used)


def _cause(end: End) -> tuple[ErrorCause, str]:
    match end:
        case Exited(status):
            return ("missing", "the arm ended without a word of it") if status == 0 else ("crash", f"the arm ended with status {status}")
        case Killed(signal):
            return "crash", f"the arm was ended by signal {signal}"
        case TimedOut(seconds):
            return "timeout", f"the arm was stopped after {seconds:g} s"


def _text(raw: object) -> str | None | Unreadable:
    """An output: text as it is, any other JSON value as its canonical spelling."""
    if raw is None or isinstance(raw, str):
        return None if raw is None else kept_text(raw)
    spelled = spelled_json(raw, "output")
    return spelled.text if isinstance(spelled, Spelling) else Unreadable("its output holds a value that JSON has no spelling of")


def _number(raw: object) -> float | Unreadable:
    """A score: a finite number, or true and false as 1 and 0."""
    if not isinstance(raw, int | float):
        return Unreadable(f"{shown(raw)} is no number")
    try:
        value = float(raw)
    except OverflowError:
        return Unreadable("it is too large")
    if is_number(value):
        return value
    return Unreadable(f"its size is beyond {NUMBER_SIZE_MAX:g}" if value - value == 0 else f"{value} is not finite")
