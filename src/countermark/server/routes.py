"""The addresses of the server: one roster, from which it routes and from which OpenAPI is written.

Rules kept here:

1. A route says everything of itself: how it is asked for, with which scope, which parameters and bodies it takes, what it answers.
2. A parameter is read by its kind, once; what is wrong with any of them is told together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from countermark.app.sessions import PAGE_MAX, SEARCHED_MAX
from countermark.lines.serving import ParameterUnfit
from countermark.server.tokens import Scope
from countermark.values import NonEmpty, Refused, shown

ParameterKind: TypeAlias = Literal["text", "limit", "ordinal"]
BODY_OF_EVENTS: Final = ("application/json", "application/x-ndjson", "application/jsonl")
BODY_OF_OTLP: Final = ("application/x-protobuf", "application/json")


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query; ``default`` is what stands for a limit that was not said. ``pattern``, ``format``
    and ``length_max`` (characters) say of a text what else it is, as JSON Schema has them."""

    name: str
    kind: ParameterKind
    doc: str
    default: int = 0
    required: bool = False
    pattern: str = ""
    format: str = ""
    length_max: int = 0


@final
@dataclass(frozen=True, slots=True)
class Route:
    """One address: ``name`` is its operation, ``answers`` the name of its answer's schema (empty: a text);
    ``groups`` is the key that a request of OTLP has."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    scope: Scope | None
    doc: str
    answers: str
    parameters: tuple[Parameter, ...] = ()
    bodies: tuple[str, ...] = ()
    groups: str = ""


def _cursor(pattern: str) -> Parameter:
    return Parameter("cursor", "text", "where the page before ended: its next", pattern=pattern)


def _limit(default: int) -> Parameter:
    return Parameter("limit", "limit", f"how many at most, 1 to {PAGE_MAX}", default)


ROSTER: Final = (
    Route(
        "ingest", "POST", "/v1/ingest", "ingest",
        "Store events: a list of them, an object with such a list under events, one event, or one a line. The answer comes after the "
        "commit and says of each item what became of it.",
        "Ingested", bodies=BODY_OF_EVENTS,
    ),
    Route(
        "otlp_traces", "POST", "/v1/traces", "ingest", "Store the spans of an OTLP request.",
        "Otlp", bodies=BODY_OF_OTLP, groups="resourceSpans",
    ),
    Route(
        "otlp_logs", "POST", "/v1/logs", "ingest", "Store the log records of an OTLP request.",
        "Otlp", bodies=BODY_OF_OTLP, groups="resourceLogs",
    ),
    Route(
        "list_sessions", "GET", "/v1/sessions", "read", "The sessions for which a filter holds, those that changed last first.", "Sessions",
        (
            Parameter("where", "text", "a filter, as weights.edits > 0", format="countermark-filter"), _limit(50),
            _cursor(r"^[0-9]{1,18}\.[^\x00]{1,500}$"),
        ),
    ),
    Route(
        "show_events", "GET", "/v1/sessions/{session}/events", "read", "The events of a session in its order, page by page.", "Events",
        (_limit(200), _cursor(r"^[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,18}$")),
    ),
    Route("show_session", "GET", "/v1/sessions/{session}", "read", "One session and what is in conflict in it.", "Session"),
    Route(
        "search", "GET", "/v1/search", "read", "The events that hold every word of a text, the last received first.", "Found",
        (
            Parameter("q", "text", f"the words, at most {SEARCHED_MAX:,} characters", required=True, length_max=SEARCHED_MAX), _limit(50),
            Parameter("before", "ordinal", "only what was received before the event with this number"),
        ),
    ),
    Route("healthz", "GET", "/healthz", None, "Whether the process answers.", "Health"),
    Route("readyz", "GET", "/readyz", None, "Whether the store can be read.", "Health"),
    Route("metrics", "GET", "/metrics", "read", "What was counted, as Prometheus reads it.", ""),
    Route("openapi", "GET", "/openapi.json", None, "This description.", "OpenApi"),
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a request, read: texts and whole numbers by name; what was not said is absent."""

    texts: Mapping[str, str]
    numbers: Mapping[str, int]


def read_query(route: Route, said: Mapping[str, str]) -> Query | Refused[ParameterUnfit]:
    """The parameters of a request, or everything that is wrong with them; one that the route does not have is refused."""
    texts: dict[str, str] = {}
    numbers = {each.name: each.default for each in route.parameters if each.kind == "limit"}
    defects: list[ParameterUnfit] = []
    known = {each.name: each for each in route.parameters}
    for name, value in said.items():
        found = known.get(name)
        if found is None:
            names = ", ".join(known) or "no parameter"
            defects.append(ParameterUnfit(shown(name), shown(value), f"none of this address, which has {names}"))
        elif found.kind == "text":
            texts[name] = value
        elif (number := _number(value, found)) is None:
            wanted = f"a whole number from 1 to {PAGE_MAX}" if found.kind == "limit" else "a whole number from 1 to 2^63 − 1"
            defects.append(ParameterUnfit(name, shown(value), wanted))
        else:
            numbers[name] = number
    defects += [ParameterUnfit(each.name, "absent", each.doc) for each in route.parameters if each.required and each.name not in said]
    return Query(texts, numbers) if (refused := NonEmpty.of(defects)) is None else Refused(refused)


def _number(value: str, parameter: Parameter) -> int | None:
    highest = PAGE_MAX if parameter.kind == "limit" else 2**63 - 1
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 20 and 1 <= int(value) <= highest else None
