"""Proof that a control can fail.

A test that was never seen red is decoration. ``proven_by`` makes pytest run a control once as it is, where it must pass, and once under
each planted fault, where it must fail::

    def first_wins() -> AbstractContextManager[object]: ...

    @proven_by(first_wins, planted(checks, "find_defects", lambda manifest: ()))
    def test_every_defect_is_named(tmp_path: Path) -> None: ...

Rules kept here:

1. Every run is a test item of its own with fresh fixtures. Run twice in one folder, a control could fail the second time because of what
   the first time left there, and would look proven.
2. The fault is planted around the call of the test only, not around its fixtures, and is taken out again whatever happens.
3. Red is an ``AssertionError`` or ``pytest.fail`` (``pytest.raises`` without the exception included). A control that passes under the fault
   cannot fail; one that ends in any other exception crashed before it could judge. Both are reported as failures that name the fault.
4. A fault that cannot be planted (no such attribute, or already that value) is an error, never a pass.
5. Without this plugin loaded the mark is unknown, and ``--strict-markers`` refuses it: a control is never run unproven in silence.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias
from unittest.mock import patch

import pytest

Fault: TypeAlias = Callable[[], AbstractContextManager[object]]

_MARK = "proven_by"
_FIXTURE = "planted_fault"


def proven_by(*faults: Fault) -> pytest.MarkDecorator:
    """Marks a control that must pass as it is and must fail under each of the ``faults``.

    A fault is a function without arguments that returns a context manager: planted on entry, gone on exit. The test's signature, fixtures
    and other marks are left alone, so it goes above or below ``parametrize``, on functions and on classes of tests.
    """
    if not faults:
        raise ValueError("proven_by needs at least one fault: a control is shown to fail, not said to")
    return pytest.mark.proven_by.with_args(*faults)


def planted(target: object, attribute: str, replacement: object) -> Fault:
    """A fault that puts ``replacement`` in the place of ``target.attribute`` while it is planted.

    Plant it where the name is looked up: a function that was imported with ``from room import check`` is replaced in the importing module.
    """

    @contextmanager
    def fault() -> Iterator[None]:
        if getattr(target, attribute) is replacement:
            raise ValueError(f"{attribute} already is what the fault would plant")
        with patch.object(target, attribute, replacement):
            yield

    owner = getattr(target, "__name__", type(target).__name__)
    fault.__name__ = fault.__qualname__ = f"{owner.rsplit('.', 1)[-1]}.{attribute}"
    return fault


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known, which ``--strict-markers`` asks for."""
    config.addinivalue_line("markers", f"{_MARK}(*faults): run as it is (must pass) and once under each fault (must fail)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for the control as it is, and one for each fault."""
    faults: list[Fault] = [fault for mark in metafunc.definition.iter_markers(_MARK) for fault in mark.args]
    if faults:
        names = [f"under {getattr(fault, '__name__', type(fault).__name__)}" for fault in faults]
        metafunc.parametrize(_FIXTURE, [None, *faults], ids=["as it is", *names], indirect=True)


@pytest.fixture(autouse=True)
def planted_fault(request: pytest.FixtureRequest) -> Fault | None:
    """The fault of this item; None for a control as it is and for tests that are no controls."""
    return getattr(request, "param", None)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Turns the outcome around where a fault is planted: red is what was to be shown."""
    fault: Fault | None = pyfuncitem.funcargs.get(_FIXTURE)
    if fault is None:
        return (yield)
    __tracebackhide__ = True
    name = getattr(fault, "__name__", type(fault).__name__)
    with fault():
        try:
            yield
        except Exception as error:
            if not _is_red(error):
                raise NotRed(f"under the fault {name} the control did not judge, it crashed: {type(error).__name__}: {error}") from error
            return True
        except pytest.fail.Exception:
            return True
    raise NotRed(f"under the fault {name} the control still passes: it cannot see what it is there to see")


class NotRed(Exception):
    """A control that does not fail, or not by judging, under a fault that was planted for it."""


def _is_red(error: BaseException) -> bool:
    """Whether every failure that an exception carries is a judgement of the control."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_red(part) for part in error.exceptions)
    return isinstance(error, AssertionError | pytest.fail.Exception)
