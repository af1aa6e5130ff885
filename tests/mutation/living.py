"""A mutant put in the place of the honest function within one process: what ``make mutation`` does in thousands, done for a few at once.

Rules kept here:

1. The changes are mutmut's own, made from the source as it is now; one is picked by what it changes, so a table of them stays readable.
2. A mutant lives by its code alone: every name that refers to the function, imported or not, runs the change, and none does after it.
"""

import importlib
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from mutmut.mutation.file_mutation import mutate_file_contents

from tests.mutation.rooms import ROOT, SOURCE, Change, change_of, numbered

_PACKAGE: Final = "countermark."


@cache
def mutants_of(file: str) -> dict[Change, types.CodeType]:
    """Every mutant of a file below src/countermark as its change and its code."""
    path = SOURCE / file
    made = mutate_file_contents(str(path), (ROOT / path).read_text(encoding="utf-8"))
    lines = made.code.splitlines()
    codes = {code.co_name: code for code in _codes(compile(made.code, file, "exec"))}
    module = _PACKAGE + file.removesuffix(".py").replace("/", ".")
    changes = numbered(change_of(file, f"{module}.{name}", lines, made.line_span_by_function_name) for name in made.mutant_names)
    return {change: codes[name] for change, name in zip(changes, made.mutant_names, strict=True)}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def honest(change: Change) -> types.FunctionType:
    """The function as the program has it."""
    found: object = importlib.import_module(_PACKAGE + change.file.removesuffix(".py").replace("/", "."))
    for name in change.function.split("."):
        found = vars(found)[name] if isinstance(found, type) else getattr(found, name)
    function = found.__func__ if isinstance(found, classmethod) else found
    assert isinstance(function, types.FunctionType), change
    return function


@contextmanager
def living(change: Change) -> Iterator[None]:
    """While it lasts, the function of a change is the mutant."""
    function = honest(change)
    before = function.__code__
    function.__code__ = mutants_of(change.file)[change].replace(co_name=before.co_name)
    try:
        yield
    finally:
        function.__code__ = before


def first_red(controls: list[Callable[[], None]]) -> str | None:
    """The first of some controls that fails or crashes, by its name."""
    for control in controls:
        try:
            control()
        except Exception:
            return control.__name__
    return None
