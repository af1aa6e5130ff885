"""Values to columns and back.

Rules kept here:

1. What comes out of a row is read like any input from outside: each value reads itself, or the row is refused with table, row and reason.
2. Everything that follows from other columns (Work key, run id, slot, versions) is derived again and compared; every mismatch is named.
3. Free text and structures are ASCII JSON with sorted keys.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast, get_args

from countermark.recipe import Manifest, Requirements, WorkKey, manifest_from_spellings, spellings
from countermark.run.attempts import (
    AttemptKey,
    CapabilityEscalation,
    Cause,
    CheckpointIdentity,
    InfrastructureRetry,
    InitialAttempt,
    Nonce,
    Relaunch,
    RequestedReexecution,
    Resume,
)
from countermark.run.claims import (
    Adjudication,
    BelieveSource,
    Dispatched,
    DispatchRefused,
    DispatchUnknown,
    Launcher,
    LaunchResult,
    Ruling,
    SetAside,
)
from countermark.run.demand import DemandId, TrainingRunDesired, WorkNotDerived, WorkRecalled, recall_work
from countermark.run.records import (
    FIELD_BYTES_MAX,
    FactKind,
    FieldUnwritable,
    JsonValue,
    RowDefect,
    RowUnreadable,
    RunContext,
    RunIdRowMismatch,
    WorkKeyRowMismatch,
)
from countermark.values import TEXT_LENGTH_MAX, NonEmpty, Principal, Refused, Request, Sha256, Unreadable, shown

Row = Mapping[str, object]
T = TypeVar("T")


class BadCell(ValueError):
    """A cell that the ledger never writes; caught in this room and turned into a ``RowUnreadable``."""


def text_of(row: Row, column: str) -> str:
    """A text column."""
    value = row[column]
    if not isinstance(value, str):
        raise BadCell(f"{column} is no text")
    return value


def int_of(row: Row, column: str) -> int:
    """A whole-number column."""
    value = row[column]
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadCell(f"{column} is no whole number")
    return value


def bytes_of(row: Row, column: str) -> bytes:
    """A column of bytes."""
    value = row[column]
    if not isinstance(value, bytes):
        raise BadCell(f"{column} is no bytes")
    return value


def known(column: str, value: T | Unreadable) -> T:
    """A value that was read from a column."""
    if isinstance(value, Unreadable):
        raise BadCell(f"of {column}: {value.why}")
    return value


def _plain(value: JsonValue) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


def _frozen(value: object) -> JsonValue:
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return tuple(_frozen(each) for each in cast("list[object]", value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise BadCell("it is no JSON")


_JSON: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))


def to_json(value: JsonValue) -> str:
    """ASCII JSON with sorted keys. Raises ``ValueError`` for numbers that JSON does not have and for loops."""
    return _JSON.encode(_plain(value))


def from_json(row: Row, column: str) -> JsonValue:
    """What ``to_json`` wrote, lists as tuples."""
    text = text_of(row, column)
    if not text.isascii():
        raise BadCell(f"{column} is no ASCII")
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadCell(f"{column} is no JSON: {shown(str(error))}") from error
    return _frozen(parsed)


def word_of(row: Row, column: str) -> str:
    """One text kept as JSON."""
    value = from_json(row, column)
    if not isinstance(value, str):
        raise BadCell(f"{column} is no text")
    return value


def words_of(row: Row, column: str) -> tuple[str, ...]:
    """Several texts kept as JSON."""
    value = from_json(row, column)
    if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
        raise BadCell(f"{column} is no list of texts")
    return cast("tuple[str, ...]", value)


def table_of(row: Row, column: str) -> Mapping[str, JsonValue]:
    """Names and values kept as JSON."""
    value = from_json(row, column)
    if not isinstance(value, dict):
        raise BadCell(f"{column} is no table")
    return value


def names_of(row: Row, column: str) -> Mapping[str, str]:
    """Names and texts kept as JSON."""
    value = table_of(row, column)
    if not all(isinstance(each, str) for each in value.values()):
        raise BadCell(f"{column} is no table of texts")
    return cast("Mapping[str, str]", value)


_LAUNCHERS: Final[Mapping[str, Launcher]] = {name: name for name in get_args(Launcher)}
_KINDS: Final[Mapping[str, FactKind]] = {name: name for name in get_args(FactKind)}
_RESULTS: Final[Mapping[str, Callable[[str], LaunchResult]]] = {
    "dispatched": Dispatched,
    "refused": DispatchRefused,
    "unknown": DispatchUnknown,
}


def one_of(known_words: Mapping[str, T], row: Row, column: str) -> T:
    """What a word out of a closed list stands for."""
    word = text_of(row, column)
    if word not in known_words:
        raise BadCell(f"{column} has the unknown word {shown(word)}")
    return known_words[word]


def launcher_of(row: Row) -> Launcher:
    """A launcher's name."""
    return one_of(_LAUNCHERS, row, "launcher")


# ------------------------------------------------------------------------------------------------------------ demands


def context_columns(context: RunContext) -> dict[str, object] | tuple[FieldUnwritable, ...]:
    """The columns of a context, or every field that cannot be kept."""
    fields: dict[str, JsonValue] = {
        "recipe_name": context.name,
        "sources": context.sources,
        "trainer": context.trainer,
        "argv": context.argv,
        "cwd": context.cwd,
        "env": context.env,
        "receipts": context.receipts,
    }
    columns: dict[str, object] = {"launcher": context.launcher}
    defects: list[FieldUnwritable] = []
    for name, value in fields.items():
        try:
            text = to_json(value)
        except (ValueError, RecursionError, TypeError) as error:
            defects.append(FieldUnwritable(name, f"it is no JSON: {shown(str(error))}"))
            continue
        if len(text) > FIELD_BYTES_MAX:
            defects.append(FieldUnwritable(name, f"it takes {len(text)} bytes, and {FIELD_BYTES_MAX} are the most"))
        columns[name] = text
    return tuple(defects) or columns


def desired_columns(desired: TrainingRunDesired) -> dict[str, object]:
    """The material of a demand, and what follows from it for joining."""
    demand = desired.demand
    return {
        "run_id": demand.id.run_id(),
        "requester": demand.id.requester.text,
        "request": demand.id.request.text,
        "principal": demand.work.principal.text,
        "work_digest": demand.work.digest.hex,
        "requirements": desired.requirements.spell(),
        "manifest": to_json(dict(spellings(desired.manifest))),
    }


def demand_id_of(row: Row) -> DemandId:
    """Who asked, and under which name."""
    return DemandId(known("requester", Principal.read(row["requester"])), known("request", Request.read(row["request"])))


def _manifest_of(row: Row) -> Manifest:
    manifest = manifest_from_spellings(names_of(row, "manifest"))
    if isinstance(manifest, Refused):
        names = ", ".join(shown(defect.coordinate) for defect in manifest.defects)
        raise BadCell(f"manifest is not the canonical text of a manifest: {names}")
    return manifest


#: The columns that a recorded work is read from.
WORK_COLUMNS: Final = ("principal", "work_digest", "requirements", "manifest")


def work_of(row: Row) -> WorkRecalled | Refused[WorkNotDerived]:
    """The work of a row, derived again from the material. Raises ``BadCell``."""
    recorded = known("principal or work_digest", WorkKey.read(row["principal"], f"wk1:{text_of(row, 'work_digest')}"))
    manifest = _manifest_of(row)
    return recall_work(recorded, manifest, known("requirements", Requirements.read(row["requirements"])))


def desired_of(
    row: Row, recalled_of: Callable[[Row], WorkRecalled | Refused[WorkNotDerived]] = work_of
) -> TrainingRunDesired | Refused[RowDefect]:
    """The desired run of a row, with its Work key and run id derived again. ``recalled_of`` tells what ``work_of`` does."""
    run = str(row["run_id"])
    try:
        demand_id = demand_id_of(row)
        recalled = recalled_of(row)
    except BadCell as error:
        return Refused(NonEmpty(RowUnreadable("runs", run, str(error))))
    defects: list[RowDefect] = []
    if run != demand_id.run_id():
        defects.append(RunIdRowMismatch(run, demand_id.run_id()))
    if isinstance(recalled, Refused):
        defects += [WorkKeyRowMismatch(run, defect.demanded.spell(), defect.derived.spell()) for defect in recalled.defects]
    if (found := NonEmpty.of(defects)) is not None:
        return Refused(found)
    assert not isinstance(recalled, Refused)
    return recalled.demanded_by(demand_id)


def context_of(row: Row) -> RunContext | RowUnreadable:
    """The context of a row."""
    try:
        receipts = from_json(row, "receipts")
        if not isinstance(receipts, tuple) or not all(isinstance(each, dict) for each in receipts):
            raise BadCell("receipts is no list of tables")
        return RunContext(
            word_of(row, "recipe_name"),
            names_of(row, "sources"),
            table_of(row, "trainer"),
            words_of(row, "argv"),
            word_of(row, "cwd"),
            names_of(row, "env"),
            launcher_of(row),
            cast("tuple[Mapping[str, JsonValue], ...]", receipts),
        )
    except BadCell as error:
        return RowUnreadable("runs", str(row["run_id"]), str(error))


# ------------------------------------------------------------------------------------------------------ control facts


def nonce_of(row: Row, column: str = "nonce") -> Nonce:
    """An attempt's nonce."""
    return known(column, Nonce.read(row[column]))


def kind_of(row: Row) -> FactKind:
    """The kind of a control fact."""
    return one_of(_KINDS, row, "kind")


def cause_of(row: Row, work: WorkKey) -> Cause:
    """The cause that ``cause_parts`` spelled; a predecessor is an attempt at the run's own work."""
    cause = _cause(words_of(row, "cause"), work)
    if cause is None:
        raise BadCell("cause is none of the known causes")
    return cause


def _checkpoint(step: str, digits: str) -> CheckpointIdentity:
    number = int(step) if step.isascii() and step.isdigit() and len(step) < 20 else -1
    if str(number) != step:
        raise BadCell("cause names a checkpoint without a step")
    return CheckpointIdentity(number, known("cause", Sha256.read(f"sha256:{digits}")))


def _cause(parts: tuple[str, ...], work: WorkKey) -> Cause | None:
    def before() -> AttemptKey:
        return AttemptKey(work, known("cause", Nonce.read(parts[1])))

    match parts:
        case ("InitialAttempt",):
            return InitialAttempt()
        case ("RequestedReexecution", request):
            return RequestedReexecution(request)
        case ("InfrastructureRetry", _):
            return InfrastructureRetry(before())
        case ("CapabilityEscalation", _, capability):
            return CapabilityEscalation(before(), capability)
        case ("Relaunch", _, lost):
            return Relaunch(before(), lost)
        case ("Relaunch", _, lost, step, digits):
            return Relaunch(before(), lost, _checkpoint(step, digits))
        case ("Resume", _, step, digits):
            return Resume(before(), _checkpoint(step, digits))
        case (*_,):
            return None


def unwritable_words(field: str, *texts: str) -> tuple[FieldUnwritable, ...]:
    """The texts that are too long to be kept."""
    return tuple(
        [
            FieldUnwritable(field, f"it has {len(text)} characters, and {TEXT_LENGTH_MAX} are the most")
            for text in texts
            if len(text) > TEXT_LENGTH_MAX
        ]
    )


_SWEEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


def unwritable_sweep_id(sweep_id: str) -> tuple[FieldUnwritable, ...]:
    """A sweep's id as a defect when it is no short name."""
    if _SWEEP_ID.fullmatch(sweep_id):
        return ()
    return (FieldUnwritable("sweep_id", "a sweep's id is 1 to 128 letters, digits and ._- and begins with a letter or digit"),)


def result_columns(result: LaunchResult) -> tuple[str, str]:
    """A launcher's answer as its kind and its words."""
    match result:
        case Dispatched(detail):
            return "dispatched", detail
        case DispatchRefused(why):
            return "refused", why
        case DispatchUnknown(why):
            return "unknown", why


def result_of(row: Row) -> LaunchResult:
    """A launcher's answer."""
    return one_of(_RESULTS, row, "result")(word_of(row, "detail"))


def ruling_columns(ruling: Ruling) -> tuple[str, str | None]:
    """A ruling as its kind and the source that it believes, if any."""
    match ruling:
        case SetAside():
            return "set_aside", None
        case BelieveSource(source):
            return "believe_source", to_json(source)


def _ruling(row: Row) -> Ruling:
    word, believes = text_of(row, "ruling"), row["source"] is not None
    if (word, believes) == ("set_aside", False):
        return SetAside()
    if (word, believes) == ("believe_source", True):
        return BelieveSource(word_of(row, "source"))
    raise BadCell(f"ruling {shown(word)} and source do not go together")


def adjudication_of(row: Row, attempt: AttemptKey, recorded_ms: int) -> Adjudication:
    """A person's ruling."""
    return Adjudication(attempt, _ruling(row), words_of(row, "blockers"), word_of(row, "said_by"), word_of(row, "reason"), recorded_ms)


def unwritable_adjudication(adjudication: Adjudication) -> tuple[FieldUnwritable, ...]:
    """What of a ruling is too long to be kept. The blockers that it settles are never cut: a cut text would settle nothing."""
    source = adjudication.ruling.source if isinstance(adjudication.ruling, BelieveSource) else ""
    size = len(to_json(adjudication.blockers))
    why = f"they take {size} bytes, and {FIELD_BYTES_MAX} are the most"
    return (
        *unwritable_words("source", source),
        *((FieldUnwritable("blockers", why),) if size > FIELD_BYTES_MAX else ()),
    )


def askable(text: str, column: str) -> str:
    """An id as it came out of a table, where it may be none that could be asked for."""
    if not is_askable(text):
        raise BadCell(f"{column} is none")
    return text


def is_askable(text: str) -> bool:
    """Whether an id or a prefix can be in a table at all: a database may refuse to be asked for NUL or for stray bytes."""
    return text.isascii() and "\0" not in text
