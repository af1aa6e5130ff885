"""Any defect as a sentence and as a document: the one roster of everything that can be refused, blocked, unread or warned of.

Rules kept here:

1. ``AnyDefect`` is closed, and every member has a sentence: a new defect without one does not type-check.
2. A defect's class name is its stable code; its fields are its values, in the spelling of documents.
3. Outside text is escaped in sentences. In documents it stands as it was, because JSON escapes it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeGuard, get_args

from countermark.lines.of_checkpoints import checkpoint_sentence, retention_sentence
from countermark.lines.of_evidence import EvidenceDefect, evidence_sentence
from countermark.lines.of_experiments import ExperimentDefect, experiment_sentence
from countermark.lines.of_files import FolderDefect, ReadingDefect, SourceDefect, file_sentence, folder_sentence, source_sentence
from countermark.lines.of_filters import filter_sentence
from countermark.lines.of_recipes import RecipeDefect, recipe_sentence
from countermark.lines.of_records import RecordDefect, record_sentence
from countermark.lines.of_runs import RunDefect, run_sentence
from countermark.lines.of_serving import serving_sentence
from countermark.lines.of_sessions import SessionDefect, event_sentence
from countermark.lines.of_surface import surface_sentence
from countermark.lines.of_verdicts import VerdictDefect, blocker_sentence, note_sentence, why_not_sentence
from countermark.lines.of_weights import WeightsDefect, weights_sentence
from countermark.lines.sentence import Sentence
from countermark.lines.serving import ServingDefect
from countermark.lines.surface import SurfaceDefect
from countermark.lines.texts import Document, JsonValue, camel, number, plain
from countermark.run.attempts import AttemptKey, Nonce
from countermark.run.checkpoint import CheckpointDefect
from countermark.run.retention import RetentionDefect
from countermark.sessions.filters.binding import FilterDefect
from countermark.verdict.kinds import Blocker, Note, WhyNot

AnyDefect = (
    RecipeDefect | RunDefect | CheckpointDefect | RetentionDefect | EvidenceDefect | VerdictDefect
    | RecordDefect | ReadingDefect | FolderDefect | SourceDefect | WeightsDefect | SessionDefect | FilterDefect | ServingDefect
    | ExperimentDefect | SurfaceDefect
)  # fmt: skip

_SENTENCE_LENGTH_MAX: Final = 4000

#: Every defect's class, by its code, in the order of the union.
CODES: Final[Mapping[str, type]] = {kind.__name__: kind for kind in get_args(AnyDefect)}


#: The families of defects, as the reference page orders them.
FAMILIES: Final[Mapping[str, tuple[type, ...]]] = {
    "Recipes and manifests": get_args(RecipeDefect),
    "Files, folders and weights": (*get_args(ReadingDefect), *get_args(FolderDefect), *get_args(SourceDefect), *get_args(WeightsDefect)),
    "Demands, claims and dispatches": get_args(RunDefect),
    "The ledger": get_args(RecordDefect),
    "Evidence": get_args(EvidenceDefect),
    "Checkpoints": (*get_args(CheckpointDefect), *get_args(RetentionDefect)),
    "Blockers": get_args(Blocker),
    "Why a run has not converged yet": get_args(WhyNot),
    "Notes": get_args(Note),
    "Sessions and events": get_args(SessionDefect),
    "Experiments": get_args(ExperimentDefect),
    "Filters": get_args(FilterDefect),
    "The server": get_args(ServingDefect),
    "Operations and surfaces": get_args(SurfaceDefect),
}


def sentence(defect: AnyDefect) -> Sentence:
    """What a person is told: the message and what to do. Whatever a field held, neither can move a terminal's cursor."""
    said = _told(defect)
    return Sentence(plain(said.message, _SENTENCE_LENGTH_MAX), plain(said.remedy, _SENTENCE_LENGTH_MAX))


def _told(defect: AnyDefect) -> Sentence:
    if isinstance(defect, RecipeDefect):
        return recipe_sentence(defect)
    if isinstance(defect, ServingDefect):
        return serving_sentence(defect)
    if isinstance(defect, SurfaceDefect):
        return surface_sentence(defect)
    if isinstance(defect, RunDefect):
        return run_sentence(defect)
    if isinstance(defect, RecordDefect):
        return record_sentence(defect)
    if isinstance(defect, EvidenceDefect):
        return evidence_sentence(defect)
    if isinstance(defect, CheckpointDefect):
        return checkpoint_sentence(defect)
    if isinstance(defect, RetentionDefect):
        return retention_sentence(defect)
    if isinstance(defect, ReadingDefect):
        return file_sentence(defect)
    if isinstance(defect, SourceDefect):
        return source_sentence(defect)
    if isinstance(defect, FolderDefect):
        return folder_sentence(defect)
    if isinstance(defect, WeightsDefect):
        return weights_sentence(defect)
    if isinstance(defect, ExperimentDefect):
        return experiment_sentence(defect)
    if isinstance(defect, FilterDefect):
        return filter_sentence(defect)
    if isinstance(defect, SessionDefect):
        return event_sentence(defect)
    if isinstance(defect, Blocker):
        return blocker_sentence(defect)
    if isinstance(defect, Note):
        return note_sentence(defect)
    return why_not_sentence(defect)


def defect_document(defect: AnyDefect) -> Document:
    """What a program is told: code, values, message and remedy."""
    said = sentence(defect)
    return {"code": type(defect).__name__, **_values(defect), "message": said.message, "remedy": said.remedy}


def known(defects: Iterable[object]) -> tuple[AnyDefect, ...]:
    """Defects whose kind an operation left open, each one of ours. Anything else in their place is a fault of this program."""
    found: list[AnyDefect] = []
    for defect in defects:
        if not isinstance(defect, AnyDefect):
            raise TypeError(f"{type(defect).__name__} has no sentence")
        found.append(defect)
    return tuple(found)


def defect_documents(defects: Iterable[AnyDefect]) -> list[JsonValue]:
    """Each defect's document, in their order."""
    return [defect_document(defect) for defect in defects]


def _values(value: Any) -> Document:
    return {camel(field.name): document_value(getattr(value, field.name)) for field in fields(value)}


def document_value(value: Any) -> JsonValue:
    """One of our values as a document carries it. An attempt is its nonce; whatever spells itself is its spelling."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return number(value)
    if isinstance(value, AttemptKey | Nonce):
        return value.hex if isinstance(value, Nonce) else value.nonce.hex
    if _is_mapping(value):
        return {str(key): document_value(inner) for key, inner in value.items()}
    if _is_iterable(value):
        return [document_value(inner) for inner in value]
    if isinstance(value, AnyDefect):
        return defect_document(value)
    if callable(spell := getattr(value, "spell", None)):
        return str(spell())
    if is_dataclass(value):
        return {"is": type(value).__name__, **_values(value)}
    raise TypeError(f"a document has no form for {type(value).__name__}")


def _is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_iterable(value: Any) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable)
