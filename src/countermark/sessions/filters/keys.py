"""The keys that filters know: one registry, from which the reader of filters, the SQL of every database, the reference page and the tests
are made.

Rules kept here:

1. A key names an abstract column: what kind of cell it is, and the column's name. SQL is made of it in ``store.where`` and nowhere else.
2. A number that a row does not have is 0, and a text that it does not have is '': no database answers "unknown". ``IS NULL`` asks for
   what is absent, so it finds what is 0 or '' as well.
3. What a kind of cell can be compared by, and with what, follows from the kind alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

#: What is listed, and filtered: each has its keys.
Subject: TypeAlias = Literal["sessions", "runs"]
#: Everything that a key can be compared by; NOT before it is always allowed.
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "IN", "LIKE", "ILIKE", "IS NULL"]
#: What a person compares a key with.
Type: TypeAlias = Literal["text", "integer", "number", "time", "boolean", "set of texts"]

INT64_MAX: Final = 2**63 - 1
#: Digits of a padded count.
PADDED_DIGITS: Final = 40

_ORDERED: Final[tuple[Operator, ...]] = ("=", "!=", "<", "<=", ">", ">=", "IN", "IS NULL")
OPERATORS: Final[Mapping[Type, tuple[Operator, ...]]] = {
    "text": (*_ORDERED, "LIKE", "ILIKE"),
    "integer": _ORDERED,
    "number": _ORDERED,
    "time": _ORDERED,
    "boolean": ("=", "!="),
    "set of texts": ("=", "!=", "IN", "LIKE", "ILIKE", "IS NULL"),
}


@final
@dataclass(frozen=True, slots=True)
class Words:
    """A text. ``prefix`` is what stands before each in its spelling and not in the column; ``as_json`` says that the column holds the text
    as a JSON string in ASCII, because some file names are no text of any database (such a one reads as '')."""

    column: str
    prefix: str = ""
    as_json: bool = False


@final
@dataclass(frozen=True, slots=True)
class Count:
    """A whole number of 64 bits with a sign."""

    column: str


@final
@dataclass(frozen=True, slots=True)
class Padded:
    """A whole number from 0 on that may exceed 64 bits: kept as text of ``PADDED_DIGITS`` digits with zeros in front, so that the order of
    the bytes is that of the numbers. What is compared with it is padded the same way."""

    column: str


@final
@dataclass(frozen=True, slots=True)
class Double:
    """A double. A number that is compared with it is the nearest double."""

    column: str


@final
@dataclass(frozen=True, slots=True)
class Time:
    """A time in UTC since 1970, as a whole number of ``unit_ns`` nanoseconds in 64 bits."""

    column: str
    unit_ns: int


@final
@dataclass(frozen=True, slots=True)
class Flag:
    """A truth value, 0 or 1."""

    column: str


@final
@dataclass(frozen=True, slots=True)
class Members:
    """A set of texts: ``column`` of those rows of the side table ``table`` that bear the subject's id, and the fixed cells of ``where``."""

    table: str
    column: str
    where: tuple[tuple[str, str], ...] = ()


Column: TypeAlias = Words | Count | Padded | Double | Time | Flag | Members


@final
@dataclass(frozen=True, slots=True)
class Key:
    """A key of a subject, what it means, and where it is kept."""

    name: str
    subject: Subject
    doc: str
    column: Column

    @property
    def type(self) -> Type:
        """What it is compared with."""
        match self.column:
            case Words():
                return "text"
            case Count() | Padded():
                return "integer"
            case Double():
                return "number"
            case Time():
                return "time"
            case Flag():
                return "boolean"
            case Members():
                return "set of texts"


#: The column by which a subject's side tables name it.
IDS: Final[Mapping[Subject, str]] = {"sessions": "session_id", "runs": "run_id"}

KEYS: Final = (
    Key("id", "sessions", "the session's id", Words("session_id")),
    Key("source", "sessions", "what it came in from", Words("source")),
    Key("started", "sessions", "when its first event happened", Time("started_ns", 1)),
    Key("ended", "sessions", "when its last event happened", Time("ended_ns", 1)),
    Key("updated", "sessions", "when something of it was last stored", Time("updated_ns", 1)),
    Key("events", "sessions", "how many events it has", Count("events")),
    Key("messages", "sessions", "how many messages", Count("messages")),
    Key("tools", "sessions", "how many tool calls", Count("tools")),
    Key("errors", "sessions", "how many errors", Count("errors")),
    Key("tokens.input", "sessions", "tokens that models read", Count("input_tokens")),
    Key("tokens.output", "sessions", "tokens that models wrote", Count("output_tokens")),
    Key("cost", "sessions", "what it cost, in US dollars", Double("cost")),
    Key("weights.edits", "sessions", "how many weight edits", Count("weight_edits")),
    Key("weights.tensors", "sessions", "how many different tensors they name", Count("weight_tensors")),
    Key("weights.changed", "sessions", "how many weights they changed, exact however many", Padded("weights_changed")),
    Key("tag", "sessions", "its tags, for example weights:edited", Members("session_tags", "tag")),
    Key("closed", "sessions", "whether it was closed", Flag("closed")),
    Key("conflicts", "sessions", "how many events came again with another payload", Count("conflicts")),
    Key(
        "checkpoint.before",
        "sessions",
        "digests of the weights that its edits were made of",
        Members("session_checkpoints", "digest", (("side", "before"),)),
    ),
    Key(
        "checkpoint.after",
        "sessions",
        "digests of the weights that its edits made",
        Members("session_checkpoints", "digest", (("side", "after"),)),
    ),
    Key("id", "runs", "the run's id", Words("run_id")),
    Key("work", "runs", "its Work key, wk1: and 64 digits", Words("work_digest", prefix="wk1:")),
    Key("recipe", "runs", "the recipe's name", Words("recipe_name", as_json=True)),
    Key("requester", "runs", "who asked for it", Words("requester")),
    Key("request", "runs", "under which name", Words("request")),
    Key("principal", "runs", "the account under which the work is counted", Words("principal")),
    Key("launcher", "runs", "what starts it", Words("launcher")),
    Key("created", "runs", "when it was recorded", Time("created_ms", 1_000_000)),
    Key("verdict", "runs", "its latest verdict, '' before the first", Words("verdict")),
    Key(
        "closed",
        "runs",
        "whether nothing is left to be done for it: its latest verdict closed it, and nothing was recorded since",
        Flag("closed"),
    ),
)


def keys_of(subject: Subject) -> Mapping[str, Key]:
    """A subject's keys by their names, in the registry's order."""
    return _BY_SUBJECT[subject]


_BY_SUBJECT: Final[Mapping[Subject, Mapping[str, Key]]] = {
    subject: {key.name: key for key in KEYS if key.subject == subject} for subject in IDS
}
