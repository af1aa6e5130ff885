"""Reads the project's own recipes: TOML text that was handed in.

Rules kept here:

1. The format is closed: every field is a coordinate, a source, or an inert setting with its reason; a field that other tools have and that
   changes the computation is named as such, and any other field is unknown.
2. Numbers are read as they are written; a number written as text is the same number where it is one.
3. Text that cannot be a recipe (too large, no UTF-8, another format, broken, a key twice, nested too deep) is refused with its line before
   anything of it counts. Everything else is found at once: each bad field with its line, and each axis that stays open.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Final, cast, final

from countermark.recipe.formats.live_tables import LORA_CONFIG, SFT_CONFIG, TRAINING_ARGUMENTS
from countermark.recipe.formats.rules import FieldRule, Maps, Refuses, nearest
from countermark.recipe.formats.toml_lines import KeyIndex, index_of_keys
from countermark.recipe.manifest import ENTRIES
from countermark.recipe.resolve import (
    Layer,
    Observation,
    Observations,
    Receipt,
    ResolveDefect,
    SettingRefused,
    UnknownField,
    UnsupportedSemanticField,
)
from countermark.recipe.text import (
    DEPTH_MAX,
    RECIPE_BYTES_MAX,
    SOURCES,
    TRAINER_SETTINGS,
    InertField,
    Recipe,
    RecipeEmpty,
    RecipeFieldRepeated,
    RecipeMalformed,
    RecipeNotUtf8,
    RecipeOtherFormat,
    RecipeTextDefect,
    RecipeTooDeep,
    RecipeTooLarge,
    SetMalformed,
    Setting,
    Source,
    read_inert,
)
from countermark.values import TEXT_LENGTH_MAX, NonEmpty, Refused, Unreadable, shown, spelled

FORMAT_VERSION: Final = 1
_TABLES: Final = ("coordinates", "sources", "trainer")
_NAME: Final = InertField(None, "it says what people call the run")
_FIELDS: Final = ("countermark", "name", *_TABLES)
#: For how many defects names that are spelled alike are looked for: comparing takes longer than reading.
_COMPARED_MAX: Final = 100
_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)")
_LONG_NUMBER: Final = re.compile(r"\d{4300}")
_COMMENTS: Final = re.compile(r"(?:\s|#[^\n]*)*")

#: Fields of other tools by name: what they map to there, or why they are refused.
_FOREIGN: Final[Mapping[str, FieldRule]] = MappingProxyType(
    {
        **LORA_CONFIG,
        **SFT_CONFIG,
        **TRAINING_ARGUMENTS,
        "loraplus_lr_ratio": Refuses((), "the two matrices learn at different rates"),
        "early_stopping_patience": Refuses((), "a metric decides when the run ends"),
        "early_stopping": Refuses((), "a metric decides when the run ends"),
        "alpha": Maps(("scaling",)),
        "batch_size": Maps(("micro_batch",)),
        "epochs": Maps(("total_steps",)),
        "warmup_ratio": Maps(("warmup_steps",)),
    }
)
_WORKERS: Final = frozenset({"workers", "num_processes", "nproc_per_node", "num_gpus", "nnodes", "world_size"})
_MANY_WORKERS: Final = "several workers reduce gradients in an order that no coordinate holds"


@dataclass(slots=True)
class _Reading:
    """What one text has said so far."""

    source: str
    tool: str
    index: KeyIndex
    said: list[Observation] = field(default_factory=list[Observation])
    defects: list[ResolveDefect] = field(default_factory=list[ResolveDefect])
    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    trainer: dict[str, Setting] = field(default_factory=dict[str, Setting])
    name: str = ""

    def receipt(self, axis: str, *path: str) -> Receipt:
        return Receipt(axis, self.source, self.index.line(*path), ".".join(path), self.tool)

    def say(self, axis: str, raw: object, *path: str, deferred: bool = False) -> None:
        self.said.append(Observation(axis, raw, self.receipt(axis, *path), deferred))

    def wrong(self, raw: object, why: str, *path: str) -> None:
        self.defects.append(SettingRefused(".".join(path), self.index.line(*path), _found(raw), why, self.source))

    def recipe(self) -> Recipe:
        observations = Observations((Layer("authored", tuple(self.said)),), tuple(self.defects))
        return Recipe(self.name, observations, MappingProxyType(self.sources), MappingProxyType(self.trainer))


def read_toml(content: bytes, source: str, tool: str) -> Recipe | Refused[RecipeTextDefect]:
    """The recipe of a TOML text. ``source`` names the file in receipts and defects; ``tool`` is this reader's name and version."""
    text = _text(content, source)
    if not isinstance(text, str):
        return Refused(NonEmpty(text))
    index = index_of_keys(text, DEPTH_MAX)
    if index.too_deep_line:
        return Refused(NonEmpty(RecipeTooDeep(source, index.too_deep_line, DEPTH_MAX)))
    repeated = (RecipeFieldRepeated(source, ".".join(each.path), each.line, each.first_line) for each in index.repeated)
    if (found := NonEmpty.of(repeated)) is not None:
        return Refused(found)
    table = _parsed(text, source)
    if not isinstance(table, dict):
        return Refused(NonEmpty(table))
    reading = _Reading(source, tool, index)
    _read_top(reading, table)
    return reading.recipe()


def _text(content: bytes, source: str) -> str | RecipeTooLarge | RecipeNotUtf8 | RecipeEmpty:
    if len(content) > RECIPE_BYTES_MAX:
        return RecipeTooLarge(source, len(content), RECIPE_BYTES_MAX)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start + (len(content) - len(error.object))
        return RecipeNotUtf8(source, content.count(b"\n", 0, start) + 1, start)
    text = text.replace("\r\n", "\n")
    blank = _COMMENTS.match(text)
    return RecipeEmpty(source) if blank is not None and blank.end() == len(text) else text


def _parsed(text: str, source: str) -> dict[str, object] | RecipeMalformed | RecipeOtherFormat:
    try:
        return cast("dict[str, object]", _settled(tomllib.loads(text, parse_float=Decimal)))
    except tomllib.TOMLDecodeError as error:
        other = _other_format(text)
        if other:
            return RecipeOtherFormat(source, other)
        place = _PLACE.search(str(error))
        why = _PLACE.sub("", str(error)).replace("(at end of document)", "at the end of the text").strip()
        line, column = (int(place[1]), int(place[2])) if place else (max(len(text.splitlines()), 1), 0)
        return RecipeMalformed(source, line, column, why)
    except (ValueError, RecursionError):
        # Numbers of over 4300 digits, which Python does not read; nesting is bounded before the parser recurses.
        long = _LONG_NUMBER.search(text)
        return RecipeMalformed(source, text.count("\n", 0, long.start()) + 1 if long else 0, 0, "a number is longer than any that is read")


def _settled(raw: object) -> object:
    """Parsed TOML with lists as tuples, and whole numbers that nothing here could hold (hexadecimal ones have no limit) as a text."""
    if isinstance(raw, dict):
        return {name: _settled(value) for name, value in cast("dict[str, object]", raw).items()}
    if isinstance(raw, list):
        return tuple(_settled(item) for item in cast("list[object]", raw))
    if isinstance(raw, int) and raw.bit_length() > 512:
        return f"a whole number of {raw.bit_length()} bits"
    return raw


def _other_format(text: str) -> str:
    """Which other format a text that is no TOML looks like; empty for none."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    first = lines[0].strip() if lines else ""
    if first.startswith("{") or first in ("[", "[{") or re.match(r"\[\s*[{\d]", first):
        return "JSON"
    if first.startswith(("---", "%YAML")) or re.match(r"(- |[A-Za-z0-9_.\"'-]+:(\s|$))", first):
        return "YAML"
    if first.startswith("<"):
        return "XML or HTML"
    if first.startswith(("import ", "from ", "#!", "def ", "class ")):
        return "Python"
    return ""


def _read_top(reading: _Reading, table: Mapping[str, object]) -> None:
    version = table.get("countermark")
    if version is None:
        reading.wrong("", f"a recipe of this format says which version of it: countermark = {FORMAT_VERSION}", "countermark")
    elif version != FORMAT_VERSION or isinstance(version, bool):
        reading.wrong(version, f"this version reads format {FORMAT_VERSION}", "countermark")
    for name, raw in table.items():
        if name in _TABLES:
            _read_table(reading, name, raw)
        elif name == "name":
            _name(reading, raw)
        elif name != "countermark":
            _foreign(reading, raw, _FIELDS, name)


def _name(reading: _Reading, raw: object) -> None:
    value = read_inert(_NAME, raw)
    if isinstance(value, Unreadable):
        reading.wrong(raw, value.why, "name")
    else:
        reading.name = str(value)


def _read_table(reading: _Reading, table: str, raw: object) -> None:
    if not isinstance(raw, Mapping):
        reading.wrong(raw, f"[{table}] must be a table", table)
        return
    for name, value in cast("Mapping[str, object]", raw).items():
        if table == "coordinates" and name in ENTRIES:
            _coordinate(reading, name, value, table, name)
        elif table == "sources" and name in SOURCES:
            _source(reading, name, value)
        elif table == "trainer" and name in TRAINER_SETTINGS:
            _setting(reading, name, value)
        else:
            known = {"coordinates": tuple(ENTRIES), "sources": tuple(SOURCES), "trainer": tuple(TRAINER_SETTINGS)}[table]
            _foreign(reading, value, known, table, name)


def _coordinate(reading: _Reading, axis: str, raw: object, *path: str) -> None:
    """A coordinate, or with a dotted ``axis`` a leaf of one. A table that names the form stands for the whole coordinate, one that does not
    speaks of single leaves."""
    kind = ENTRIES[axis].kind if axis in ENTRIES else None
    if kind is None or not (kind.arms and isinstance(raw, Mapping)):
        reading.say(axis, raw, *path)
        return
    for leaf, value in cast("Mapping[str, object]", raw).items():
        if leaf == kind.key:
            reading.say(axis, {leaf: value}, *path, leaf)
        else:
            reading.say(f"{axis}.{leaf}", value, *path, leaf)


def _source(reading: _Reading, name: str, raw: object) -> None:
    value = read_inert(SOURCES[name], raw)
    if isinstance(value, Unreadable):
        reading.wrong(raw, value.why, "sources", name)
    else:
        reading.sources[name] = Source(str(value), reading.receipt("", "sources", name))


def _setting(reading: _Reading, name: str, raw: object) -> None:
    value = read_inert(TRAINER_SETTINGS[name], raw)
    if isinstance(value, Unreadable):
        reading.wrong(raw, value.why, "trainer", name)
    else:
        reading.trainer[name] = value


def _foreign(reading: _Reading, raw: object, known: tuple[str, ...], *path: str) -> None:
    """A field that this format does not have: another tool's that changes the computation, or an unknown one."""
    name, line = path[-1], reading.index.line(*path)
    rule = _FOREIGN.get(name)
    if name == "auto_find_batch_size" and isinstance(raw, bool):
        if raw:
            reading.say("micro_batch", raw, *path, deferred=True)
    elif name in _WORKERS:
        if raw != 1 or isinstance(raw, bool):
            reading.defects.append(UnsupportedSemanticField(".".join(path), _found(raw), line, _MANY_WORKERS, reading.source))
    elif isinstance(rule, Refuses):
        reading.defects.append(UnsupportedSemanticField(".".join(path), _found(raw), line, rule.why, reading.source))
    else:
        meant = rule.axes if isinstance(rule, Maps) else ()
        if not meant and len(reading.defects) < _COMPARED_MAX:
            meant = nearest(name, known) or nearest(name, (*ENTRIES, *SOURCES, *TRAINER_SETTINGS, *_FIELDS))
        reading.defects.append(UnknownField(".".join(path), _found(raw), line, meant, reading.source))


def _found(raw: object) -> str:
    return raw if isinstance(raw, str) and raw.isprintable() and len(raw) <= 80 else spelled(raw)


@final
@dataclass(frozen=True, slots=True)
class _Argument:
    """One argument of ``--set``, taken apart."""

    name: str
    value: str


def read_settings(texts: tuple[str, ...], tool: str, option: str = "--set") -> Recipe | Refused[RecipeTextDefect]:
    """The recipe that arguments ``AXIS=VALUE`` are: an axis, a leaf of one (``optimizer.beta1``), ``sources.…``, ``trainer.…``, ``name``.

    A value is text as a coordinate is spelled; one in brackets, braces or quotes is read as TOML.
    """
    arguments: list[_Argument] = []
    malformed: list[RecipeTextDefect] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            malformed.append(SetMalformed(shown(text), "it must be AXIS=VALUE"))
        else:
            arguments.append(_Argument(name.strip(), value.strip()))
    if (found := NonEmpty.of(malformed)) is not None:
        return Refused(found)
    reading = _Reading(option, tool, KeyIndex())
    for argument in arguments:
        _argument(reading, argument)
    return reading.recipe()


def _set_value(text: str) -> object:
    """What stands behind ``AXIS=``."""
    if not text.startswith(("[", "{", '"', "'")) or len(text) > TEXT_LENGTH_MAX:
        return text
    try:
        return _settled(tomllib.loads(f"value = {text}", parse_float=Decimal)["value"])
    except (ValueError, RecursionError):
        return text


def _argument(reading: _Reading, argument: _Argument) -> None:
    name, value = argument.name.removeprefix("coordinates."), _set_value(argument.value)
    axis, _, leaf = name.partition(".")
    if axis in ENTRIES:
        kind = ENTRIES[axis].kind
        if leaf and leaf not in (kind.key, *kind.leaves):
            near = tuple(f"{axis}.{each}" for each in (kind.key, *kind.leaves) if each) or (axis,)
            reading.defects.append(UnknownField(name, _found(value), 0, near, reading.source))
        else:
            _coordinate(reading, name, value, name)
    elif axis in ("sources", "trainer") and leaf:
        _read_table(reading, axis, {leaf: value})
    elif name == "name":
        _name(reading, value)
    else:
        _foreign(reading, value, tuple(ENTRIES), name)
