"""Deferrals: what stands in a recipe where somebody else is meant to decide.

Rules kept here:

1. A deferral is never a value. It is told from a mistake, because its remedy is another one: to pin it, not to correct it.
2. A word counts as a deferral only after the coordinate has refused to read it: ``none`` is a value of ``packing``, and of nothing else.
3. A name where content is wanted (a model's name, a path, a branch, a tag) is a deferral: what it names can change under it.
"""

import re
from collections.abc import Sequence
from typing import Final, cast

from countermark.values import Sha256

#: What other tools write for "decide for me", in lower case.
WORDS: Final = frozenset(
    "auto|latest|default|best|none|null|nil|~||-1|all|all-linear|all_linear|any|random|unset|undefined|unknown|tbd|?|inherit|same".split(
        "|"
    )
)
#: What a module may not be called, because a shorthand is.
SHORTHANDS: Final = frozenset(
    "auto|latest|default|best|none|null|nil|all|all-linear|all_linear|any|random|unset|undefined|unknown".split("|")
)
_PATTERN: Final = re.compile(r"[*?+\[\](){}|^$\\]")


def defers(kind: type[object] | None, raw: object) -> bool:
    """Whether raw input that ``kind`` could not read defers to somebody else; ``kind`` None is a closed list of forms."""
    if raw is None or (isinstance(raw, int) and raw == -1 and not isinstance(raw, bool)):
        return True
    if isinstance(raw, str):
        if raw.strip().lower() in WORDS:
            return True
        if kind is Sha256:
            return not raw.startswith("sha256:")
        return names_modules(kind) and bool(_PATTERN.search(raw))
    if names_modules(kind) and isinstance(raw, Sequence) and not isinstance(raw, bytes):
        items = cast("Sequence[object]", raw)
        return not items or any(isinstance(item, str) and (item.strip().lower() in SHORTHANDS or _PATTERN.search(item)) for item in items)
    return False


def names_modules(kind: type[object] | None) -> bool:
    """Whether a kind is a set of module names, for which a pattern stands for whatever the model has."""
    return hasattr(kind, "of_modules")
