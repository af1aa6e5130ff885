"""How large an answer is at most, and what becomes of one that is larger.

Rules kept here:

1. A document has at most ``DOCUMENT_BYTES_MAX`` bytes as JSON, its text ``TEXT_BYTES_MAX``: pages end early, and a long payload is named by
   the address at which it is read in pieces.
2. What is still too long is cut within: lists and texts keep their beginnings, and ``cut`` says where and how much there was.
3. No token of ours stands in an answer, and nothing that has no place in UTF-8.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar, cast

from countermark.lines.blocks import Block, block_lines
from countermark.lines.texts import Document, JsonValue, counted
from countermark.sessions.secrets import without_tokens

T = TypeVar("T")

DOCUMENT_BYTES_MAX: Final = 64 * 1024
#: What the rows of one page have together, so that what stands beside them has room as well.
PAGE_BYTES_MAX: Final = 48 * 1024
TEXT_BYTES_MAX: Final = 16 * 1024
#: A payload that is longer is named, and read by its address.
PAYLOAD_BYTES_MAX: Final = 2 * 1024
#: One piece of what is read by its address, in characters.
PIECE_LENGTH_MAX: Final = 16 * 1024

#: How many items of a list and characters of a text are kept, the first pair that is enough.
_STEPS: Final = ((200, 4_000), (50, 1_000), (20, 300), (5, 100), (1, 40))
_CUTS_TOLD_MAX: Final = 20
_DEPTH_MAX: Final = 12
_KEY_LENGTH_MAX: Final = 200
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def spelled(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def size_of(value: object) -> int:
    """Its bytes as JSON."""
    return len(spelled(value).encode("utf-8", "surrogatepass"))


def fitting(rows: Sequence[Document], bytes_max: int = PAGE_BYTES_MAX) -> int:
    """How many rows from the first on fit into a page: one at least, where there is one."""
    left = bytes_max
    for at, row in enumerate(rows):
        left -= size_of(row)
        if left < 0:
            return max(at, 1)
    return len(rows)


def clean(text: str) -> str:
    """A text without tokens of ours and without halves of characters."""
    return without_tokens(_SURROGATES.sub("\ufffd", text))


def bounded(document: Mapping[str, JsonValue]) -> Document:
    """A document as it may be answered."""
    text = spelled(document)
    kept = clean(text)
    whole: Document = dict(document) if kept == text else json.loads(kept)
    if len(kept.encode()) <= DOCUMENT_BYTES_MAX:
        return whole
    for items_max, length_max in _STEPS:
        cuts: list[JsonValue] = []
        shorter = cast(Document, _cut(whole, items_max, length_max, "", cuts, 0))
        beyond: list[JsonValue] = [{"at": "…", "of": len(cuts)}] if len(cuts) > _CUTS_TOLD_MAX else []
        told: list[JsonValue] = [*cuts[:_CUTS_TOLD_MAX], *beyond]
        found: Document = {**shorter, "cut": told}
        if size_of(found) <= DOCUMENT_BYTES_MAX:
            return found
    return {"ok": whole.get("ok", False), "defects": [], "warnings": [], "cut": [{"at": "", "of": len(text)}]}


def _cut(value: JsonValue, items_max: int, length_max: int, at: str, cuts: list[JsonValue], depth: int) -> JsonValue:
    def cut(of: int) -> None:
        cuts.append({"at": at[:100], "of": of})

    if isinstance(value, str):
        if len(value) > length_max:
            cut(len(value))
            return value[: length_max - 1] + "…"
        return value
    if isinstance(value, Mapping):
        if depth > _DEPTH_MAX or (depth and len(value) > items_max + 30):
            cut(len(value))
        kept = list(value.items())[: 0 if depth > _DEPTH_MAX else items_max + 30 if depth else None]
        found: Document = {}
        for key, inner in kept:
            name = _cut(key, items_max, _KEY_LENGTH_MAX, f"{at}.{key}", cuts, depth + 1)
            found[str(name)] = _cut(inner, items_max, length_max, f"{at}.{key}" if at else key, cuts, depth + 1)
        return found
    if isinstance(value, Sequence):
        if len(value) > items_max or depth > _DEPTH_MAX:
            cut(len(value))
        kept_items = value[: 0 if depth > _DEPTH_MAX else items_max]
        return [_cut(inner, items_max, length_max, f"{at}[{index}]", cuts, depth + 1) for index, inner in enumerate(kept_items)]
    return value


def text_of(blocks: Iterable[Block], more: Iterable[str] = ()) -> str:
    """Blocks as the command line writes them into a pipe, and lines that follow them, as far as they fit."""
    lines = [clean(line) for block in blocks for line in block_lines(block)]
    last = [clean(line) for line in more]
    left = TEXT_BYTES_MAX - 200 - sum(len(line.encode()) + 1 for line in last)
    kept: list[str] = []
    for line in lines:
        left -= len(line.encode()) + 1
        if left < 0:
            kept.append(f"… {counted(len(lines) - len(kept), 'more line')} in the structured content")
            break
        kept.append(line)
    return "\n".join((*kept, *last))


def taken(rows: Sequence[T], document_of: Callable[[T], Document]) -> tuple[tuple[T, ...], tuple[Document, ...]]:
    """The rows that fit into a page, with their documents."""
    documents = tuple(map(document_of, rows))
    count = fitting(documents)
    return tuple(rows[:count]), documents[:count]
