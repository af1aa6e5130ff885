"""The arguments of tools: what each takes, as a schema, and what a client gave, read once.

Rules kept here:

1. A tool's roster of arguments is its schema and its reader: neither takes what the other does not.
2. Everything that is wrong with a call is told together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, final

from countermark.lines.serving import ParameterUnfit
from countermark.lines.texts import Document
from countermark.values import NonEmpty, Refused, shown

ArgumentKind: TypeAlias = Literal["text", "texts", "limit", "number", "flag"]
LENGTH_MAX: Final = 4_000
TEXTS_MAX: Final = 20
LIMIT_MAX: Final = 200
_NUMBER_MAX: Final = 2**53


@final
@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool; ``default`` is what stands for a limit that was not said."""

    name: str
    kind: ArgumentKind
    doc: str
    required: bool = False
    default: int = 0

    def schema(self) -> Document:
        return {**self._form(), "description": self.doc} if self.doc else self._form()

    def _form(self) -> Document:
        match self.kind:
            case "text":
                return {"type": "string"}
            case "texts":
                return {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": TEXTS_MAX}
            case "limit":
                return {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": self.default}
            case "number":
                return {"type": "integer", "minimum": 0}
            case "flag":
                return {"type": "boolean"}


CURSOR: Final = Argument("cursor", "text", "next of the page before")


def limit(default: int) -> Argument:
    return Argument("limit", "limit", "", default=default)


@final
@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call, read; what was not said is absent."""

    values: Mapping[str, object]

    def text(self, name: str) -> str | None:
        return cast("str | None", self.values.get(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.values.get(name, ()))

    def number(self, name: str) -> int | None:
        return cast("int | None", self.values.get(name))

    @property
    def limit(self) -> int:
        return cast(int, self.values["limit"])

    def flag(self, name: str) -> bool:
        return self.values.get(name) is True

    def asked(self) -> Mapping[str, object]:
        """What a cursor belongs to: everything but the page."""
        return {name: value for name, value in self.values.items() if name not in ("cursor", "limit")}


def input_schema(arguments: tuple[Argument, ...]) -> Document:
    required = [each.name for each in arguments if each.required]
    form: Document = {"type": "object", "properties": {each.name: each.schema() for each in arguments}, "additionalProperties": False}
    return {**form, "required": required} if required else form


def read_arguments(arguments: tuple[Argument, ...], said: Mapping[str, object]) -> Given | Refused[ParameterUnfit]:
    """What a client gave, or everything that is wrong with it. Null is as if it was not said."""
    known = {each.name: each for each in arguments}
    values: dict[str, object] = {each.name: each.default for each in arguments if each.kind == "limit"}
    defects: list[ParameterUnfit] = []
    for name, value in said.items():
        found = known.get(name)
        if found is None:
            defects.append(ParameterUnfit(shown(name), shown(value), f"none of this tool, which has {', '.join(known)}"))
        elif value is None:
            continue
        elif (read := _read(value, found)) is None:
            defects.append(ParameterUnfit(name, shown(value), _wanted(found)))
        else:
            values[name] = read
    defects += [ParameterUnfit(each.name, "absent", _wanted(each)) for each in arguments if each.required and said.get(each.name) is None]
    return Given(values) if (refused := NonEmpty.of(defects)) is None else Refused(refused)


def _read(value: object, argument: Argument) -> object | None:
    match argument.kind:
        case "text":
            return value if isinstance(value, str) and 0 < len(value) <= LENGTH_MAX else None
        case "texts":
            items = cast("list[object]", value) if isinstance(value, list) else []
            fit = 1 <= len(items) <= TEXTS_MAX and all(isinstance(each, str) and 0 < len(each) <= LENGTH_MAX for each in items)
            return tuple(items) if fit else None
        case "limit" | "number":
            lowest, highest = (1, LIMIT_MAX) if argument.kind == "limit" else (0, _NUMBER_MAX)
            whole = isinstance(value, int) and not isinstance(value, bool)
            return value if whole and lowest <= cast(int, value) <= highest else None
        case "flag":
            return value if isinstance(value, bool) else None


def _wanted(argument: Argument) -> str:
    match argument.kind:
        case "text":
            return f"a text of 1 to {LENGTH_MAX:,} characters"
        case "texts":
            return f"a list of 1 to {TEXTS_MAX} texts, each of 1 to {LENGTH_MAX:,} characters"
        case "limit":
            return f"a whole number from 1 to {LIMIT_MAX}"
        case "number":
            return "a whole number from 0 to 2^53"
        case "flag":
            return "true or false"
