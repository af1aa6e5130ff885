"""Calls that end before a command has an answer."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countermark.lines.defects import AnyDefect


class WrongCall(Exception):
    """Wrong usage, exit code 2: ``why`` says what is wrong, ``usage`` how the command is called."""

    def __init__(self, why: str, usage: str) -> None:
        super().__init__(why)
        self.why = why
        self.usage = usage


class OfRun(Exception):
    """The environment failed (``error``) while a recorded run was being seen to: whoever is told of it is told of the run, too."""

    def __init__(self, error: Exception, run: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.run = run


class CallRefused(Exception):
    """A refusal that ends the command wherever it was met; ``code`` is the exit code, and ``run`` stands for RUN in remedies."""

    def __init__(self, defects: "tuple[AnyDefect, ...]", code: int = 1, run: str | None = None) -> None:
        super().__init__(", ".join(type(defect).__name__ for defect in defects))
        self.defects = defects
        self.code = code
        self.run = run
