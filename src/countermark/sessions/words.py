"""The words by which an event is found, and those of a question: the same on every store, because none of them takes texts apart.

Rules kept here:

1. A word is a run of letters and digits, casefolded; a run that is longer than ``WORD_LENGTH_MAX`` is several, in events and in questions.
2. An event's words are those of every text that it holds, its name, its source and the session that it names. Keys and numbers are none.
3. A word never holds a space, a quote or any sign, so that no index's own language is spoken by accident.
"""

import re
from typing import Final, cast

from countermark.sessions.events import Event

WORD_LENGTH_MAX: Final = 100
#: More different words than these no event is found by.
WORDS_MAX: Final = 20_000

_WORD: Final = re.compile(rf"[^\W_]{{1,{WORD_LENGTH_MAX}}}")


def words_of(text: str) -> tuple[str, ...]:
    """The different words of a text, in the order in which they first come."""
    return tuple(dict.fromkeys(_WORD.findall(text.casefold())))


def event_words(event: Event) -> tuple[str, ...]:
    """The words by which an event is found."""
    told = [text for text in (event.name, event.source, event.session) if text]
    return words_of("\n".join([*told, *_texts(event.payload.value)]))[:WORDS_MAX]


def _texts(value: object) -> list[str]:
    """Every text in a value that was read from JSON, but the keys."""
    found: list[str] = []
    left: list[object] = [value]
    # What is in a list or an object comes behind what is there already: one walk, and nothing is called for each value.
    for one in left:
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            left.extend(cast("dict[str, object]", one).values())
        elif isinstance(one, list):
            left.extend(cast("list[object]", one))
    return found
