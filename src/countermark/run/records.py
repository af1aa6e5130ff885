"""What a ledger keeps of a run beside its control facts, and every way in which a recorded row can be refused.

Rules kept here:

1. The context (names, paths, command, receipts) is inert: nothing of it enters an identity, and attaching with another one is no defect.
2. A row is never an authority. Its Work key, run id and slots follow from the material beside them; where they do not, the row is refused
   by name with what was recorded and what follows.
3. Texts that go into rows are bounded here, so that every kind of store keeps the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar, final

from countermark.recipe import WorkKey
from countermark.run.attempts import Nonce
from countermark.run.claims import Launcher, RunLedger
from countermark.run.demand import DemandId
from countermark.values import TEXT_LENGTH_MAX, NonEmpty

T_co = TypeVar("T_co", covariant=True)

JsonValue: TypeAlias = "None | bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue]"

#: Largest JSON text of one field of a context, in bytes; a command line of the kernel's own limit fits several times.
FIELD_BYTES_MAX: Final = 8 * 2**20
#: Largest sweep document, in bytes.
DOCUMENT_BYTES_MAX: Final = 256 * 2**20

FactKind = Literal["claim", "intent", "outcome", "cancellation", "abandonment", "adjudication"]


@final
@dataclass(frozen=True, slots=True)
class RunContext:
    """What a demand came with: recipe name, where its sources lie, trainer settings, the command, and who said what in the recipe."""

    name: str
    sources: Mapping[str, str]
    trainer: Mapping[str, JsonValue]
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    launcher: Launcher
    receipts: tuple[Mapping[str, JsonValue], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One control fact in the order of the ledger: which version it made, its kind, when it was recorded (milliseconds UTC), and who asked
    for a claim (empty where a controller made it by itself)."""

    version: int
    kind: FactKind
    recorded_ms: int
    by: str = ""


@final
@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as a ledger gives it back, read in one snapshot."""

    run_id: str
    ledger: RunLedger
    context: RunContext
    created_ms: int
    history: tuple[LedgerEntry, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of a list of runs. It carries no Work key, because a list derives none: load the run for that."""

    run_id: str
    demand: DemandId
    name: str
    created_ms: int
    version: int
    cancelled: bool


@final
@dataclass(frozen=True, slots=True)
class DamagedRun:
    """One line of a list of runs whose row holds something that the ledger never writes. The others are listed beside it."""

    run_id: str
    created_ms: int
    version: int
    cancelled: bool
    defects: "NonEmpty[RowUnreadable]"


RunListed: TypeAlias = "RunSummary | DamagedRun"


@final
@dataclass(frozen=True, slots=True)
class AttemptFound:
    """An attempt that a prefix names, and its run."""

    run_id: str
    nonce: Nonce


@final
@dataclass(frozen=True, slots=True)
class Recorded(Generic[T_co]):
    """The fact was written, and the transaction committed before this answer was made."""

    fact: T_co


@final
@dataclass(frozen=True, slots=True)
class Stands(Generic[T_co]):
    """The ledger holds this fact already, and nothing was written: a success, to be carried on with."""

    fact: T_co


@final
@dataclass(frozen=True, slots=True)
class Attached:
    """The demand was recorded before, for the same work; its first context stands."""

    record: RunRecord


@final
@dataclass(frozen=True, slots=True)
class DemandNamesAnotherWork:
    """The requester gave this request's name to another work before; a run is one demand for one work."""

    run: str
    recorded: WorkKey
    demanded: WorkKey


@final
@dataclass(frozen=True, slots=True)
class RunUnknown:
    """No run of this id is recorded."""

    run: str


@final
@dataclass(frozen=True, slots=True)
class FieldUnwritable:
    """A field cannot be kept as it is; ``why`` is a clause that fits after "because"."""

    field: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class RowUnreadable:
    """A row holds something that the ledger never writes; ``why`` is a clause that fits after "because"."""

    table: str
    row: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class WorkKeyRowMismatch:
    """The row's Work key is not the one that its manifest, principal and requirements give (spellings of both)."""

    run: str
    recorded: str
    derived: str


@final
@dataclass(frozen=True, slots=True)
class RunIdRowMismatch:
    """The row's run id is not the one that its requester and request give."""

    run: str
    derived: str


@final
@dataclass(frozen=True, slots=True)
class SlotRowMismatch:
    """A claim's slot is not the one that its transition gives (spellings of both)."""

    run: str
    attempt: str
    recorded: str
    derived: str


@final
@dataclass(frozen=True, slots=True)
class LedgerOutOfOrder:
    """The run's control facts are not numbered 1, 2, 3, … with one fact each: something was taken out or put in between."""

    run: str
    versions: tuple[int, ...]


RowDefect = RowUnreadable | WorkKeyRowMismatch | RunIdRowMismatch | SlotRowMismatch | LedgerOutOfOrder


@final
@dataclass(frozen=True, slots=True)
class StoredSweep:
    """A sweep as it was recorded: the document's own bytes, and when the sweep began and ended (milliseconds UTC)."""

    sweep_id: str
    run_id: str
    document: bytes
    started_ms: int
    ended_ms: int


@final
@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """A verdict's text as it was derived from a sweep and a ledger at ``version``; ``arm`` is the verdict's name, and ``closed`` says that
    there is nothing left to do or to look for at that version."""

    arm: str
    closed: bool
    version: int
    text: bytes


@final
@dataclass(frozen=True, slots=True)
class SweepUnknown:
    """No sweep of this id is recorded."""

    sweep: str


@final
@dataclass(frozen=True, slots=True)
class SweepIdTaken:
    """Another sweep was recorded under this id."""

    sweep: str


@final
@dataclass(frozen=True, slots=True)
class SweepDamaged:
    """The stored document no longer has the digest that was recorded with it (spellings of both)."""

    sweep: str
    recorded: str
    found: str


def bounded(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """A launcher's or person's words, cut at ``length_max`` characters with the number of those left out: an outcome is never lost because
    somebody was wordy."""
    return text if len(text) <= length_max else f"{text[: length_max - 40]}… ({len(text) - length_max + 40} more characters)"
