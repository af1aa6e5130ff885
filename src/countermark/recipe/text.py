"""What a recipe's text is after reading: observations, and beside them what is inert (a name, sources, a trainer's settings).

Rules kept here:

1. Sources and settings never enter an identity: sources say where content lies that a coordinate names by its hash.
2. Recipes lie over each other as their observations do: the stronger one's sources and settings replace the weaker one's, one by one.
3. The table of inert settings is closed, and each has its reason; what is in no table is refused.
4. Text that is no recipe at all is refused with its line; what single fields are wrong about is reported with the axes that stay open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, final

from countermark.recipe.resolve import Observations, Receipt
from countermark.values import NonNegativeInt, PositiveInt, Unreadable, Value

#: The largest recipe, in bytes; a larger one is refused before it is looked at.
RECIPE_BYTES_MAX: Final = 1 << 20
#: How deep tables and lists of a recipe may be nested, dotted keys included.
DEPTH_MAX: Final = 16


@final
@dataclass(frozen=True, slots=True)
class RecipeTooLarge:
    """The text is larger than any recipe."""

    source: str
    size_bytes: int
    size_bytes_max: int


@final
@dataclass(frozen=True, slots=True)
class RecipeEmpty:
    """There is nothing but space and comments."""

    source: str


@final
@dataclass(frozen=True, slots=True)
class RecipeNotUtf8:
    """The bytes are no UTF-8 text, from ``byte`` (counted from 0) on line ``line``."""

    source: str
    line: int
    byte: int


@final
@dataclass(frozen=True, slots=True)
class RecipeOtherFormat:
    """The text is of another format than the reader's; ``looks_like`` names it."""

    source: str
    looks_like: str


@final
@dataclass(frozen=True, slots=True)
class RecipeMalformed:
    """The text breaks the format's grammar at a line and column (0: the place is not known)."""

    source: str
    line: int
    column: int
    why: str


@final
@dataclass(frozen=True, slots=True)
class RecipeFieldRepeated:
    """One field stands twice; a reader that lets the last one win would resolve what nobody wrote."""

    source: str
    field: str
    line: int
    first_line: int


@final
@dataclass(frozen=True, slots=True)
class RecipeTooDeep:
    """Tables or lists are nested deeper than any recipe's."""

    source: str
    line: int
    depth_max: int


@final
@dataclass(frozen=True, slots=True)
class SetMalformed:
    """An argument of ``--set`` is no AXIS=VALUE."""

    text: str
    why: str


RecipeTextDefect: TypeAlias = (
    RecipeTooLarge | RecipeEmpty | RecipeNotUtf8 | RecipeOtherFormat | RecipeMalformed | RecipeFieldRepeated | RecipeTooDeep | SetMalformed
)

Setting: TypeAlias = int | str


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Where something lies, as it was written. A relative path is relative to the file that ``said`` names, or, where an option said it, to
    the working folder."""

    text: str
    said: Receipt


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe as far as its text goes: it may leave axes open, and its observations may carry defects of single fields."""

    name: str
    observations: Observations
    sources: Mapping[str, Source]
    trainer: Mapping[str, Setting]

    def over(self, stronger: "Recipe") -> "Recipe":
        """This recipe with a stronger one (an overlay, the arguments of ``--set``) on top."""
        return Recipe(
            stronger.name or self.name,
            self.observations.over(stronger.observations),
            MappingProxyType({**self.sources, **stronger.sources}),
            MappingProxyType({**self.trainer, **stronger.trainer}),
        )


@final
@dataclass(frozen=True, slots=True)
class InertField:
    """A field that cannot change the weights: how it is read (None: text), and the reason."""

    kind: type[Value] | None
    reason: str


#: Where the content lies that ``--pin`` measures.
SOURCES: Final[Mapping[str, InertField]] = MappingProxyType(
    {
        "model": InertField(None, "a folder; its content is the coordinate base_artifact"),
        "tokenizer": InertField(None, "a folder; its content is the coordinate tokenization"),
        "dataset": InertField(None, "a file of JSON lines; its rows are the coordinate dataset"),
        "dataset_limit": InertField(PositiveInt, "how many rows of the file are taken; what was taken is the coordinate dataset"),
    }
)

#: The trainer's settings that a recipe may carry.
TRAINER_SETTINGS: Final[Mapping[str, InertField]] = MappingProxyType(
    {
        "output_dir": InertField(None, "it says where things are written"),
        "save_steps": InertField(PositiveInt, "it says how often checkpoints are written; writing draws no random numbers"),
        "keep_checkpoints": InertField(PositiveInt, "it says how many checkpoints are kept"),
        "logging_steps": InertField(PositiveInt, "it says how often numbers are logged"),
        "dataloader_workers": InertField(NonNegativeInt, "it says how batches are prepared, not which, nor in what order"),
        "threads": InertField(PositiveInt, "it belongs to the execution environment, which every attempt records"),
    }
)


def read_inert(inert: InertField, raw: object) -> Setting | Unreadable:
    """The value of an inert field."""
    if inert.kind is None:
        if not isinstance(raw, str) or not raw.strip() or len(raw) > 4096 or not raw.isprintable():
            return Unreadable("it must be a line of text")
        return raw
    value = inert.kind.read(raw)
    return value if isinstance(value, Unreadable) else int(value.spell())
