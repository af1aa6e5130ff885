"""A call of a tool from its arguments to its answer, whatever happens in between.

Rules kept here:

1. No failure leaves without an answer: a refusal and a failing environment are defects with remedies, a fault of this program its kind.
2. ``ok`` says whether there are no defects. A call is an error where there is no answer, not where the answer is that something is wrong.
3. The text is what the command line would print, and what is wrong with what to do.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from countermark.app.errors import EnvironmentFailed, fault_of
from countermark.lines.defects import AnyDefect, defect_documents, known, sentence
from countermark.lines.serving import ServerFault
from countermark.lines.surface import EnvironmentFault
from countermark.lines.texts import Document, JsonValue, plain
from countermark.mcp.arguments import read_arguments
from countermark.mcp.bounds import bounded, text_of
from countermark.mcp.desk import Desk, Stopped, Told, Watch
from countermark.mcp.roster import Tool
from countermark.store import StoreError
from countermark.values import Refused

_SENTENCES_MAX: Final = 20


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """``document`` for programs, ``text`` for people, and whether the call was refused or failed."""

    document: Document
    text: str
    is_error: bool


def answered(tool: Tool, desk: Desk, said: Mapping[str, object], watch: Watch) -> Answer:
    """Raises ``Stopped`` where nobody waits for the answer."""
    return answer_of(attempted(tool, desk, said, watch))


def attempted(tool: Tool, desk: Desk, said: Mapping[str, object], watch: Watch) -> Told | tuple[AnyDefect, ...]:
    """What a tool says, or why it says nothing."""
    given = read_arguments(tool.arguments, said)
    if isinstance(given, Refused):
        return tuple(given.defects)
    try:
        found = tool.call(desk, given, watch)
        return known(found.defects) if isinstance(found, Refused) else found
    except Stopped:
        raise
    except Exception as error:
        # What was stopped may end in another failure.
        watch.check()
        return (failure_of(error),)


def failure_of(error: Exception) -> AnyDefect:
    """A failure as a defect."""
    if isinstance(error, StoreError | EnvironmentFailed):
        return fault_of(error)
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, str) else "this machine"
        mend = "mend that place (space, permissions, mount) and ask again"
        return EnvironmentFault(type(error).__name__, error.strerror or "it failed", where, mend)
    sys.stderr.write(f"countermark mcp: a fault in countermark itself: {type(error).__name__}\n")
    return ServerFault(type(error).__name__)


def answer_of(found: Told | tuple[AnyDefect, ...]) -> Answer:
    if isinstance(found, tuple):
        return Answer(_document({}, found, ()), text_of((), _complaints(found, ())), is_error=True)
    text = text_of(found.blocks, (*_complaints(found.defects, found.warnings), *found.more))
    return Answer(_document(found.document, found.defects, found.warnings), text, is_error=False)


def _document(said: Mapping[str, JsonValue], defects: Sequence[AnyDefect], warnings: Sequence[AnyDefect]) -> Document:
    ends: Document = {"defects": defect_documents(defects), "warnings": defect_documents(warnings)}
    return bounded({"ok": not defects, **said, **ends})


def _complaints(defects: Sequence[AnyDefect], warnings: Sequence[AnyDefect]) -> tuple[str, ...]:
    lines: list[str] = []
    for word, found in (("warning", warnings), ("defect", defects)):
        for defect in found[:_SENTENCES_MAX]:
            said = sentence(defect)
            lines += [plain(f"{word}: {type(defect).__name__}: {said.message}", 600), plain(f"  → {said.remedy}", 300)]
        if len(found) > _SENTENCES_MAX:
            lines.append(f"{word}: {len(found) - _SENTENCES_MAX:,} more")
    return tuple(lines)
