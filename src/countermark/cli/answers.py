"""What a command answers, and the two ways in which it is printed: for a person or as one JSON document.

Rules kept here:

1. With ``--json`` exactly one document goes to standard output, also when the answer is a refusal; ``defects`` is empty if ``ok``.
2. On a terminal a table is drawn; in a pipe it is written as ``lines/blocks.py`` has it.
3. Refusals and warnings for people go to standard error, each with what to do.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO, final

from countermark.lines.blocks import LENGTH_MAX, Block, block_lines
from countermark.lines.blocks import Lines as Lines
from countermark.lines.blocks import Painted as Painted
from countermark.lines.blocks import Table as Table
from countermark.lines.texts import JsonValue, counted, plain

if TYPE_CHECKING:
    from countermark.lines.defects import AnyDefect
    from countermark.lines.heat_text import Styled

DONE: Final = 0
REFUSED: Final = 1
WRONG_USAGE: Final = 2
ENVIRONMENT_FAILED: Final = 3
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

_RUN_PLACE: Final = re.compile(r"\bRUN\b")


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """A command's answer: ``document`` for programs, ``blocks`` for people, what was refused and warned of, and the exit code.
    ``run`` is the id that stands for RUN in remedies, where the answer is about one run; ``summary`` says in one line what the blocks told
    of the defects already."""

    document: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    blocks: tuple[Block, ...] = ()
    defects: "tuple[AnyDefect, ...]" = ()
    warnings: "tuple[AnyDefect, ...]" = ()
    code: int = DONE
    run: str | None = None
    summary: str | None = None


def known_defects(found: Iterable[object]) -> "tuple[AnyDefect, ...]":
    """Defects as all surfaces know them. Their sentences take longer to import than a small file to be read, and where there are no defects
    nobody needs them."""
    kept = tuple(found)
    if not kept:
        return ()
    from countermark.lines.defects import known

    return known(kept)


def refused(defects: "Sequence[AnyDefect]", document: Mapping[str, JsonValue] | None = None, code: int = REFUSED) -> Answer:
    """The answer of a command that was refused with these defects."""
    return Answer(document or {}, (), tuple(defects), (), code)


def give(answer: Answer, as_json: bool) -> int:
    """Print the answer and return the exit code. Raises ``OSError`` where the output cannot be written."""
    if as_json:
        sys.stdout.write(document_text(answer) + "\n")
        sys.stdout.flush()
        return answer.code
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        # What the output's encoding has no sign for is escaped, as on standard error.
        reconfigure(errors="backslashreplace")
    for block in answer.blocks:
        _print_block(block, sys.stdout)
    sys.stdout.flush()
    _complain(answer)
    sys.stderr.flush()
    return answer.code


def _complain(answer: Answer) -> None:
    """Warnings and defects for a person, each with what to do."""
    if not answer.warnings and not answer.defects:
        return
    from countermark.lines.defects import sentence

    word = {WRONG_USAGE: "wrong usage", ENVIRONMENT_FAILED: "failed"}.get(answer.code, "refused")
    if answer.summary is not None:
        sys.stderr.write(f"{word}: {answer.summary}\n")
    elif len(answer.defects) > 1:
        sys.stderr.write(f"{word}: {counted(len(answer.defects), 'defect')}\n")
    for kind, found in (("warning", answer.warnings), (word, answer.defects if answer.summary is None else ())):
        sentences = [sentence(defect) for defect in found]
        for at, (defect, said) in enumerate(zip(found, sentences, strict=True)):
            remedy = said.remedy if answer.run is None else _RUN_PLACE.sub(answer.run, said.remedy)
            code = "" if answer.code in (WRONG_USAGE, ENVIRONMENT_FAILED) and kind == word else f"{type(defect).__name__}: "
            # A remedy that several defects in a row share is said once, after the last of them.
            more = at + 1 < len(sentences) and sentences[at + 1].remedy == said.remedy
            sys.stderr.write(f"{kind}: {code}{said.message}\n" + ("" if more else f"  → {remedy}\n"))


def document_text(answer: Answer) -> str:
    """The answer as a JSON document in ASCII: nothing in it can move a terminal's cursor."""
    document: dict[str, JsonValue] = {"ok": answer.code == DONE, **answer.document, "defects": [], "warnings": []}
    if answer.warnings or answer.defects:
        from countermark.lines.defects import defect_documents

        document |= {"defects": defect_documents(answer.defects), "warnings": defect_documents(answer.warnings)}
    return json.dumps(document, ensure_ascii=True, allow_nan=False, indent=2)


def _print_block(block: Block, stream: TextIO) -> None:
    match block:
        case Painted(lines) if stream.isatty():
            _paint(lines, stream)
        case Table(columns, rows) if stream.isatty():
            _draw(columns, rows, stream)
        case Lines() | Painted() | Table():
            stream.write("".join(f"{line}\n" for line in block_lines(block)))


def _paint(lines: "tuple[Styled, ...]", stream: TextIO) -> None:
    """Coloured where the terminal has colours and nobody asked for none (NO_COLOR)."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, markup=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((plain(text, LENGTH_MAX), style) for text, style in line)))


def _draw(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell, LENGTH_MAX)) for cell in row))
    Console(file=stream, highlight=False, markup=False).print(table)
