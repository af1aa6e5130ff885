"""Sentences for recipes that cannot be resolved, and for stored manifests that cannot be read."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.texts import either, listed, plain, sized
from countermark.recipe.manifest import CoordinateMissing, CoordinateUnknown, CoordinateUnreadable, ManifestDefect
from countermark.recipe.resolve import (
    AxisUnresolved,
    CoordinateRefused,
    ObservationsContradict,
    ResolveDefect,
    SettingRefused,
    UnknownField,
    UnsupportedSemanticField,
)
from countermark.recipe.text import (
    RecipeEmpty,
    RecipeFieldRepeated,
    RecipeMalformed,
    RecipeNotUtf8,
    RecipeOtherFormat,
    RecipeTextDefect,
    RecipeTooDeep,
    RecipeTooLarge,
    SetMalformed,
)

RecipeDefect = ResolveDefect | ManifestDefect | RecipeTextDefect

_STORED = "what was stored is no manifest of this version: read it with the countermark that wrote it"


def at(field: str, line: int, source: str) -> str:
    """A field with where it stands, as far as that is known: ``'rank' (line 7 of 'recipe.toml')``."""
    place = f"line {line}" if line else ""
    place += (" of " if place else "in ") + quoted(source) if source else ""
    return f"{quoted(field)} ({place})" if place else quoted(field)


def recipe_sentence(defect: RecipeDefect) -> Sentence:
    match defect:
        case AxisUnresolved(axis, field, found, remedy, line, source):
            stood = f"field {at(field, line, source)} holds {quoted(found)}" if found else f"field {quoted(field)} is absent"
            return Sentence(f"{plain(axis)} is left open: {stood}", plain(remedy))
        case CoordinateRefused(axis, field, line, found, why, source):
            return Sentence(
                f"field {at(field, line, source)} cannot be {plain(axis)} ({quoted(found)}), because {plain(why)}",
                f"correct it there, or pin it: --set {plain(axis)}=VALUE",
            )
        case UnsupportedSemanticField(field, found, line, why, source):
            because = f": {plain(why)}" if why else ""
            return Sentence(
                f"field {at(field, line, source)} changes the computation ({quoted(found)}) and no coordinate can say so{because}",
                "remove the field: with it, two computations would have one Work key",
            )
        case UnknownField(field, _, line, nearest, source):
            meant = f"did you mean {either(map(plain, nearest))}?" if nearest else "remove it"
            return Sentence(f"there is no field {at(field, line, source)} in this format", meant)
        case SettingRefused(field, line, found, why, source):
            return Sentence(f"field {at(field, line, source)} cannot hold {quoted(found)}, because {plain(why)}", "correct it there")
        case ObservationsContradict(axis, names, found):
            pairs = listed(f"{quoted(name)} says {quoted(said)}" for name, said in zip(names, found, strict=False))
            return Sentence(f"two fields speak of {plain(axis)} and disagree: {pairs}", "keep one of them")
        case (
            RecipeTooLarge() | RecipeEmpty() | RecipeNotUtf8() | RecipeOtherFormat() | RecipeMalformed() | RecipeFieldRepeated()
            | RecipeTooDeep() | SetMalformed()
        ):  # fmt: skip
            return _text(defect)
        case CoordinateMissing(coordinate):
            return Sentence(f"the stored manifest lacks {plain(coordinate)}", _STORED)
        case CoordinateUnreadable(coordinate, found, why):
            return Sentence(f"the stored manifest's {plain(coordinate)} ({quoted(found)}) cannot be read, because {plain(why)}", _STORED)
        case CoordinateUnknown(coordinate):
            return Sentence(f"the stored manifest has {quoted(coordinate)}, which is no coordinate", _STORED)


def _text(defect: RecipeTextDefect) -> Sentence:
    match defect:
        case RecipeTooLarge(source, size_bytes, size_bytes_max):
            return Sentence(
                f"{quoted(source)} has {sized(size_bytes)}; a recipe has at most {sized(size_bytes_max)}", "name the recipe, not its data"
            )
        case RecipeEmpty(source):
            return Sentence(f"{quoted(source)} holds nothing but space and comments", "begin it with: countermark = 1")
        case RecipeNotUtf8(source, line, byte):
            return Sentence(f"{quoted(source)} is no UTF-8 text from byte {byte} on (line {line})", "save it as UTF-8")
        case RecipeOtherFormat(source, looks_like):
            return Sentence(
                f"{quoted(source)} looks like {plain(looks_like)}, which this version does not read",
                "write the project's own TOML (countermark = 1, [coordinates]); countermark resolve then names each axis that is open",
            )
        case RecipeMalformed(source, line, column, why):
            place = f", line {line}, column {column}" if line else ""
            return Sentence(f"{quoted(source)}{place}: {plain(why)}", "correct it there")
        case RecipeFieldRepeated(source, field, line, first_line):
            return Sentence(f"{quoted(source)} holds {quoted(field)} twice, on lines {first_line} and {line}", "keep one of them")
        case RecipeTooDeep(source, line, depth_max):
            return Sentence(f"{quoted(source)}, line {line}: nested deeper than {depth_max}", "write it flatter")
        case SetMalformed(text, why):
            return Sentence(f"--set {quoted(text)} is no AXIS=VALUE, because {plain(why)}", "write it like --set seed=7")
