"""What a defect is told with."""

from dataclasses import dataclass
from typing import final

from countermark.lines.texts import plain
from countermark.values import shown


@final
@dataclass(frozen=True, slots=True)
class Sentence:
    """``message`` says what is wrong and where; ``remedy`` what to do about it. Both are safe to print as they are."""

    message: str
    remedy: str


def quoted(text: str) -> str:
    """Outside text within a sentence: quoted, escaped and bounded."""
    return shown(text, 120)


def short(nonce_or_digest: str) -> str:
    """An id by its first digits, as lists and sentences show it."""
    return plain(nonce_or_digest[:8])
