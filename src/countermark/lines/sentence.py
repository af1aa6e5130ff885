"""What a defect is told with."""

from dataclasses import dataclass
from typing import Final, final

from countermark.lines.texts import plain

_QUOTED_LENGTH_MAX: Final = 200


@final
@dataclass(frozen=True, slots=True)
class Sentence:
    """``message`` says what is wrong and where; ``remedy`` what to do about it. Both are safe to print as they are."""

    message: str
    remedy: str


def quoted(text: str) -> str:
    """Outside text within a sentence: quoted, bounded, and with everything escaped that a terminal would obey. Letters stay as they are."""
    return repr(text if len(text) <= _QUOTED_LENGTH_MAX else text[:_QUOTED_LENGTH_MAX] + "…")


def short(nonce_or_digest: str) -> str:
    """An id by its first digits, as lists and sentences show it."""
    return plain(nonce_or_digest[:8])
