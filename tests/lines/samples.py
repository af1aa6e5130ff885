"""One hostile instance of every defect, built from the types of its fields: a new defect needs no sample of its own."""

import types
from dataclasses import fields
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from countermark.lines.defects import CODES
from countermark.recipe import WorkKey
from countermark.run.attempts import AttemptKey, Nonce
from countermark.values import NonEmpty, Principal, Sha256

#: What a file name, a tensor name or a recipe may hold: a colour, a window title, a turned reading direction, a line break, markup.
HOSTILE: Final = "\x1b[31mred\x1b]0;title\x07\u202e\n\t<script>\udcff"
_WORK: Final = WorkKey(Principal("local"), Sha256("ab" * 32))
_SPECIAL: Final[dict[type, Any]] = {
    str: HOSTILE,
    int: 2**60,
    float: 0.5,
    bool: True,
    AttemptKey: AttemptKey(_WORK, Nonce("0123456789abcdef" * 2)),
    WorkKey: _WORK,
    Sha256: Sha256("cd" * 32),
}


def sample(kind: Any) -> Any:
    """A value of the type ``kind``."""
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return sample(next(arm for arm in args if arm is not type(None)))
    if origin is tuple:
        return (sample(args[0]), sample(args[0]))
    if origin is Literal:
        return args[0]
    if origin is NonEmpty:
        return NonEmpty(sample(args[0]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    hints = get_type_hints(kind)
    return kind(*(sample(hints[field.name]) for field in fields(kind)))


SAMPLES: Final[dict[str, Any]] = {code: sample(kind) for code, kind in CODES.items()}
