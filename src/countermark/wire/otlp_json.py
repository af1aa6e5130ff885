"""OTLP requests in JSON: documents → the records of ``otlp_records``.

Rules kept here:

1. Ids are hexadecimal in either case, as OTLP says: a reader of protobuf's own JSON would take them for base64 and be silently wrong.
2. A 64-bit whole number is a number or its digits, and stays exact in either. An enumeration's value is its number or its name.
3. Keys that the protocol does not have are passed over; null is what is not there.
4. A record is refused with everything in it that is of the wrong type. What stands in a record's place and is none is refused by its place.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, cast

from countermark.sessions.canonical import DEPTH_MAX
from countermark.sessions.edits import EventFieldInvalid
from countermark.sessions.events import EventDefect
from countermark.values import NonEmpty, Refused, shown
from countermark.wire.otlp_records import SPAN_KINDS, STATUS_CODES, Document, Emitter, LogRecord, SpanRecord, emitter_of, said

_Table: TypeAlias = Mapping[str, object]

_LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
#: Names of enumerations' values in their order, from 0.
_SPAN_KINDS: Final = tuple(f"SPAN_KIND_{name.upper()}" for name in SPAN_KINDS)
_STATUS_CODES: Final = tuple(f"STATUS_CODE_{name.upper()}" for name in STATUS_CODES)
_SEVERITIES: Final = (
    "SEVERITY_NUMBER_UNSPECIFIED",
    *(f"SEVERITY_NUMBER_{level}{digit}" for level in _LEVELS for digit in ("", "2", "3", "4")),
)
_DIGITS: Final = re.compile(r"-?\d{1,20}", re.ASCII)
_DOUBLE: Final = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,4})?|NaN|-?Infinity", re.ASCII)
_EXACT_MAX: Final = 2**53
_INT32: Final = (-(2**31), 2**31 - 1)
_UINT32: Final = (0, 2**32 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_UINT64: Final = (0, 2**64 - 1)


_Read = TypeVar("_Read")


def spans_of(document: _Table) -> Iterator[SpanRecord | Refused[EventDefect]]:
    """The spans of a traces request, in its order."""
    return _records(document, ("resourceSpans", "scopeSpans", "spans"), _span)


def logs_of(document: _Table) -> Iterator[LogRecord | Refused[EventDefect]]:
    """The log records of a logs request, in its order."""
    return _records(document, ("resourceLogs", "scopeLogs", "logRecords"), _log)


def _records(
    document: _Table, keys: tuple[str, str, str], read: "Callable[[Emitter, _Node], _Read]"
) -> Iterator[_Read | Refused[EventDefect]]:
    groups, scopes, records = keys
    for group in _Node(document, "").nodes_apart(groups):
        if isinstance(group, Refused):
            yield group
            continue
        resource = _resource(group)
        for scoped in group.nodes_apart(scopes):
            if isinstance(scoped, Refused):
                yield scoped
                continue
            scope = _scope(scoped)
            emitter = emitter_of(resource, scope, (*group.defects, *scoped.defects))
            for node in scoped.nodes_apart(records):
                yield node if isinstance(node, Refused) else read(emitter, node.at_its_own_place())


def _span(emitter: Emitter, node: "_Node") -> SpanRecord:
    status = node.node("status")
    return SpanRecord(
        emitter,
        node.text("traceId"),
        node.text("spanId"),
        node.text("parentSpanId"),
        node.text("name"),
        node.enumerated("kind", _SPAN_KINDS),
        node.whole("startTimeUnixNano", _UINT64),
        node.whole("endTimeUnixNano", _UINT64),
        node.attributes(),
        [_span_event(event) for event in node.nodes("events")],
        [_link(link) for link in node.nodes("links")],
        status.enumerated("code", _STATUS_CODES),
        status.text("message"),
        said(traceState=node.text("traceState"), flags=node.whole("flags", _UINT32), **node.dropped("Attributes", "Events", "Links")),
        node.defects,
    )


def _log(emitter: Emitter, node: "_Node") -> LogRecord:
    return LogRecord(
        emitter,
        node.text("traceId"),
        node.text("spanId"),
        node.text("eventName"),
        node.whole("timeUnixNano", _UINT64),
        node.whole("observedTimeUnixNano", _UINT64),
        node.enumerated("severityNumber", _SEVERITIES),
        node.text("severityText"),
        node.node("body").any(0),
        node.attributes(),
        said(flags=node.whole("flags", _UINT32), **node.dropped("Attributes")),
        node.defects,
    )


def _resource(group: "_Node") -> Document:
    resource = group.node("resource")
    return said(attributes=resource.attributes(), schemaUrl=group.text("schemaUrl"), **resource.dropped("Attributes"))


def _scope(scoped: "_Node") -> Document:
    scope = scoped.node("scope")
    return said(
        name=scope.text("name"),
        version=scope.text("version"),
        attributes=scope.attributes(),
        schemaUrl=scoped.text("schemaUrl"),
        **scope.dropped("Attributes"),
    )


def _span_event(node: "_Node") -> Document:
    time_ns = node.whole("timeUnixNano", _UINT64)
    return said(name=node.text("name"), timeUnixNano=time_ns, attributes=node.attributes(), **node.dropped("Attributes"))


def _link(node: "_Node") -> Document:
    return said(
        trace=node.text("traceId").lower(),
        span=node.text("spanId").lower(),
        traceState=node.text("traceState"),
        flags=node.whole("flags", _UINT32),
        attributes=node.attributes(),
        **node.dropped("Attributes"),
    )


class _Node:
    """A JSON object at its place, and what is wrong below it: nodes within one another share their list of defects."""

    def __init__(self, table: _Table, place: str, defects: list[EventDefect] | None = None) -> None:
        self._table = table
        self._place = place
        self.defects: list[EventDefect] = [] if defects is None else defects

    def at_its_own_place(self) -> "_Node":
        """The same object where places are told from it on."""
        return _Node(self._table, "", self.defects)

    def text(self, key: str) -> str:
        found = self._table.get(key)
        return found if isinstance(found, str) else self._default(key, "a text", "")

    def whole(self, key: str, bounds: tuple[int, int]) -> int:
        """A whole number within its bounds, or its digits."""
        found = self._table.get(key)
        if isinstance(found, str) and _DIGITS.fullmatch(found):
            found = int(found)
        elif isinstance(found, float) and abs(found) <= _EXACT_MAX and found.is_integer():
            found = int(found)
        if isinstance(found, int) and not isinstance(found, bool) and bounds[0] <= found <= bounds[1]:
            return found
        return self._default(key, f"a whole number from {bounds[0]} to {bounds[1]}, or its digits as text", 0)

    def enumerated(self, key: str, names: Sequence[str]) -> int:
        found = self._table.get(key)
        return names.index(found) if isinstance(found, str) and found in names else self.whole(key, _INT32)

    def dropped(self, *whats: str) -> dict[str, int]:
        """How many the emitter says that it left out, of each that it left out some of."""
        counts = {f"dropped{what}Count": self.whole(f"dropped{what}Count", _UINT32) for what in whats}
        return {key: count for key, count in counts.items() if count}

    def node(self, key: str) -> "_Node":
        found = self._table.get(key)
        table = cast("_Table", found) if isinstance(found, dict) else self._default(key, "a JSON object", cast("_Table", {}))
        return _Node(table, f"{self._place}{key}.", self.defects)

    def items(self, key: str) -> Sequence[object]:
        found = self._table.get(key)
        return cast("list[object]", found) if isinstance(found, list) else self._default(key, "a list", ())

    def nodes(self, key: str) -> "Iterator[_Node]":
        """The objects of a list; what stands among them and is none is told of."""
        for index, item in enumerate(self.items(key)):
            place = f"{self._place}{key}[{index}]"
            if isinstance(item, dict):
                yield _Node(cast("_Table", item), place + ".", self.defects)
            else:
                self.defects.append(EventFieldInvalid(place, shown(item), "a JSON object"))

    def nodes_apart(self, key: str) -> "Iterator[_Node | Refused[EventDefect]]":
        """The objects of a list, each with defects of its own: what is no object, or no list, is refused alone."""
        alone = _Node(self._table, self._place)
        for index, item in enumerate(alone.items(key)):
            place = f"{self._place}{key}[{index}]"
            if isinstance(item, dict):
                yield _Node(cast("_Table", item), place + ".")
            else:
                yield Refused(NonEmpty(EventFieldInvalid(place, shown(item), "a JSON object")))
        if (refused := NonEmpty.of(alone.defects)) is not None:
            yield Refused(refused)

    def attributes(self, key: str = "attributes", depth: int = 0) -> dict[str, object]:
        return {pair.text("key"): pair.node("value").any(depth) for pair in self.nodes(key)}

    def any(self, depth: int) -> object:
        """The value that this object denotes: one of the kinds of values, or none. What is nested too deep is cut one level below the depth
        that is refused."""
        kinds = [kind for kind in _VALUES if self._table.get(kind) is not None]
        if len(kinds) > 1:
            self.defects.append(EventFieldInvalid(self._place.removesuffix("."), ", ".join(kinds), "one kind of value"))
        return _VALUES[kinds[0]](self, depth) if kinds else None

    def string(self, depth: int) -> object:
        return self.text("stringValue")

    def integer(self, depth: int) -> object:
        return self.whole("intValue", _INT64)

    def double(self, depth: int) -> object:
        found = self._table["doubleValue"]
        if (isinstance(found, int | float) and not isinstance(found, bool)) or (isinstance(found, str) and _DOUBLE.fullmatch(found)):
            try:
                return float(found)
            except OverflowError:
                pass
        return self._default("doubleValue", "a number", 0.0)

    def boolean(self, depth: int) -> object:
        found = self._table["boolValue"]
        return found if isinstance(found, bool) else self._default("boolValue", "true or false", False)

    def base64(self, depth: int) -> object:
        found = self.text("bytesValue")
        try:
            return b64encode(b64decode(found.translate(_STANDARD), validate=True)).decode()
        except (Base64Error, ValueError):
            return self._default("bytesValue", "base64", "")

    def array(self, depth: int) -> object:
        return [] if depth > DEPTH_MAX else [item.any(depth + 1) for item in self.node("arrayValue").nodes("values")]

    def table(self, depth: int) -> object:
        return [] if depth > DEPTH_MAX else self.node("kvlistValue").attributes("values", depth + 1)

    def _default(self, key: str, wanted: str, default: _Read) -> _Read:
        """What stands for a field that is not there; one that is there and could not be read is told of."""
        if (found := self._table.get(key)) is not None:
            self.defects.append(EventFieldInvalid(self._place + key, shown(found), wanted))
        return default


_VALUES: Final[Mapping[str, Callable[[_Node, int], object]]] = {
    "stringValue": _Node.string, "intValue": _Node.integer, "doubleValue": _Node.double, "boolValue": _Node.boolean,
    "arrayValue": _Node.array, "kvlistValue": _Node.table, "bytesValue": _Node.base64,
}  # fmt: skip
_STANDARD: Final = str.maketrans("-_", "+/")
