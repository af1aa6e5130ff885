"""What a trainer alone does with each broken checkpoint: ``python -m tests.train.alone --write`` measures it and writes the page.

Rules kept here:

1. The trainer is Transformers' own, with the arguments that ours hands out and without any of our callbacks; it is asked to go on from the
   folder and nothing looks at it before.
2. Each break is tried in a process of its own, forked after the libraries were loaded, with the number of threads pinned. Its exit code
   and what it says on standard error beyond what it says of a whole checkpoint are its own.
3. The finished weights are held against those of a run that was never interrupted, byte for byte.
"""

import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.train.broken import BREAKS, LATER, STEP, Donors, admission_table, copied

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "guide" / "resuming.md"
WHOLE: Final = "nothing was done to it"
HEAD: Final = "| done to the checkpoint of step 4 | trainer alone: exit | it says | finished weights |"


@dataclass(frozen=True)
class Alone:
    """How a trainer ended that went on from a folder: its exit code, its error or that it warned, and whether its weights are those of a
    run that was never interrupted (None: it left none)."""

    name: str
    exit: int
    says: str
    same: bool | None

    def row(self) -> str:
        weights = {True: "the same", False: "**different**", None: "none"}[self.same]
        return f"| {self.name} | {self.exit} | {self.says} | {weights} |"


def _in_a_child(work: Callable[[], None], err: Path) -> int:
    """The exit code of a forked process that does this, with what it says in a file."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            descriptor = os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for stream in (1, 2):
                os.dup2(descriptor, stream)
            work()
            code = 0
        except BaseException as error:
            print(f"ERROR {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _trained(attempt: Any, end: Path, resume: Path | None = None) -> int:
    """Train with the plain trainer, in a child; ``end`` holds the adapter afterwards, and beside it lies what was said. The exit code."""
    from tests.train.tiny import honest

    def train() -> None:
        trainer = honest(attempt.training()).trainer()
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        trainer.model.save_pretrained(end)

    return _in_a_child(train, said_beside(end))


def said_beside(end: Path) -> Path:
    return end.with_suffix(".said")


def _said(err: Path, ordinary: frozenset[str]) -> str:
    """The error, else the first thing said that is not said of a whole checkpoint."""
    lines = [line.strip() for line in err.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR ").partition(":")[0] for line in lines if line.startswith("ERROR ")]
    if errors:
        return f"`{errors[0]}`"
    more = [line for line in lines if line not in ordinary and "warn" in line.lower()]
    return "a warning" if more else "nothing"


def _bits(folder: Path) -> dict[str, bytes] | None:
    from tests.train.tiny import adapter_bits

    return adapter_bits(folder) if (folder / "adapter_model.safetensors").is_file() else None


def measured(scratch: Path) -> tuple[Alone, ...]:
    """Every break, after the whole checkpoint."""
    import torch
    import transformers

    from tests.train.tiny import make_tiny

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    tiny = make_tiny(scratch, itertools.count(1))
    whole, other = tiny.attempt(), tiny.attempt(rank="2", total_steps=str(STEP))
    assert _trained(whole, scratch / "whole") == _trained(other, scratch / "other") == 0
    checkpoints, foreign = (attempt.folder / "work" for attempt in (whole, other))
    donors = Donors(checkpoints / f"checkpoint-{LATER}", foreign / f"checkpoint-{STEP}")
    expected = _bits(scratch / "whole")
    found: list[Alone] = []
    ordinary: frozenset[str] = frozenset()
    for number, (name, do) in enumerate([(WHOLE, None), *((each.name, each.do) for each in BREAKS)]):
        folder = copied(checkpoints / f"checkpoint-{STEP}", scratch / f"try-{number}" / f"checkpoint-{STEP}")
        if do is not None:
            do(folder, donors)
        end = scratch / f"end-{number}"
        exit_code = _trained(tiny.attempt(), end, folder)
        if do is None:
            ordinary = frozenset(map(str.strip, said_beside(end).read_text(errors="replace").splitlines()))
        weights = _bits(end)
        found.append(Alone(name, exit_code, _said(said_beside(end), ordinary), None if weights is None else weights == expected))
    return tuple(found)


def table(rows: tuple[Alone, ...]) -> str:
    """The rows as the page shows them."""
    return "\n".join([HEAD, "| --- | --- | --- | --- |", *(row.row() for row in rows)]) + "\n"


def shown(page: str, head: str) -> str:
    """The table with this head that a page shows."""
    return "".join(itertools.takewhile(lambda line: line.startswith("|"), page[page.index(head) :].splitlines(keepends=True)))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        rows = measured(Path(scratch))
    if "--write" in sys.argv:
        page = PAGE.read_text(encoding="utf-8")
        for text in (table(rows), admission_table()):
            page = page.replace(shown(page, text.splitlines()[0]), text)
        PAGE.write_text(page, encoding="utf-8")
    print(json.dumps([asdict(row) for row in rows]) if "--json" in sys.argv else table(rows), end="")


if __name__ == "__main__":
    main()
