"""The entry point: reads the command line, calls one command, prints its answer, and turns every failure into a sentence.

Rules kept here:

1. Exit codes: 0 done, 1 the domain says no, 2 wrong usage, 3 the environment failed; 130 after Ctrl-C, 141 when the reader went away.
2. No traceback reaches a user; ``--debug`` (or COUNTERMARK_DEBUG) shows it.
3. A stream that was closed before is one to which nobody listens: what is said there goes nowhere, the exit code stays, and no file that is
   opened later takes its number.
4. ``--json`` and ``--debug`` are recognized anywhere before ``--``, so that a refusal to parse is a document as well.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import typer

from countermark.cli.entry import SAID
from countermark.cli.failures import CallRefused, OfRun, WrongCall
from countermark.cli.groups import HELP_OPTIONS, LazyGroup, PipeClosed

_HELP = """From a training recipe to a verdict: one identity per computation, claims before launches, evidence before conclusions.

Start with 'countermark demo', or with 'countermark resolve RECIPE'.
"""


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """How a call is printed, whatever the command: one document or text, and tracebacks or none."""

    as_json: bool
    debug: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    _open_closed_streams()
    args, frame = _frame(list(sys.argv[1:] if argv is None else argv))
    try:
        return _answered(args, frame)
    except KeyboardInterrupt:
        # The parser turns those into an answer that come while a command works; this one came before or after.
        return _interrupted()
    except (BrokenPipeError, PipeClosed):
        _abandon_output()
        return 141
    except OSError as error:
        # The output itself could not be written, so it is not used again.
        _abandon_output()
        _complain(f"countermark: the output could not be written: {error.strerror or error}")
        return 3


def application() -> Any:
    """The group of all commands, as the parser wants it."""
    app = typer.Typer(cls=LazyGroup, name="countermark", rich_markup_mode=None, help=_HELP, context_settings=dict(HELP_OPTIONS))
    app.callback(help=_HELP, epilog="Exit codes: 0 done · 1 the domain says no · 2 wrong usage · 3 the environment failed.")(_options)
    return typer.main.get_command(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"countermark {version('countermark')}")
        raise typer.Exit


def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_version)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure; stands anywhere before --.")] = False,
) -> None:
    """What can stand before a command; ``--debug`` was taken out before."""


def _frame(args: list[str]) -> tuple[list[str], Frame]:
    ours = args[: args.index("--")] if "--" in args else args
    rest = [arg for arg in ours if arg != "--debug"] + args[len(ours) :]
    return rest, Frame("--json" in ours, "--debug" in ours or bool(os.environ.get("COUNTERMARK_DEBUG")))


def _answered(args: list[str], frame: Frame) -> int:
    from countermark.cli.answers import INTERRUPTED, Answer, give

    try:
        answer = application().main(args or ["--help"], prog_name="countermark", standalone_mode=False)
    except (PipeClosed, BrokenPipeError):
        raise
    except Exception as error:
        if frame.debug:
            import traceback

            traceback.print_exc()
        answer = _failure(error)
    if isinstance(answer, Answer):
        return give(answer, frame.as_json)
    sys.stdout.flush()
    if answer == INTERRUPTED:
        return _interrupted()
    return 2 if not args else answer if isinstance(answer, int) else 0


def _interrupted() -> int:
    from countermark.cli.answers import INTERRUPTED

    _complain(SAID)
    return INTERRUPTED


def _failure(error: Exception) -> Any:
    """A failure as an answer."""
    from countermark.cli.answers import ENVIRONMENT_FAILED, WRONG_USAGE, refused
    from countermark.lines.surface import EnvironmentFault, WrongUsage

    if isinstance(error, WrongCall):
        return refused((WrongUsage(error.why, error.usage),), code=WRONG_USAGE)
    if isinstance(error, CallRefused):
        return replace(refused(error.defects, code=error.code), run=error.run)
    if isinstance(error, OfRun):
        failed = _failure(error.error)
        then = f"; then go on with run {error.run}: countermark reconcile {error.run} --watch"
        told = (replace(each, mend=each.mend + then) if isinstance(each, EnvironmentFault) else each for each in failed.defects)
        return replace(failed, defects=tuple(told))
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        usage = (
            "countermark --help"
            if context is None
            else f"{' '.join(context.get_usage().removeprefix('Usage: ').split())} (--help says more)"
        )
        return refused((WrongUsage(error.format_message(), usage),), code=WRONG_USAGE)
    said = tuple(getattr(error, name, None) for name in ("what", "where", "remedy"))
    if all(isinstance(part, str) for part in said):
        # The operations' EnvironmentFailed and the store's own error both say what failed, where, and what mends it.
        fault = EnvironmentFault(type(getattr(error, "failure", error)).__name__, *map(str, said))
    elif isinstance(error, OSError):
        name = error.filename
        where = os.fsdecode(name) if isinstance(name, str | bytes) else "this machine"
        mend = "mend that place (space, permissions, mount) and call again; nothing that was recorded is lost"
        fault = EnvironmentFault(type(error).__name__, error.strerror or str(error), where, mend)
    else:
        what = f"a fault in countermark itself: {type(error).__name__}: {error}"
        fault = EnvironmentFault(type(error).__name__, what, "countermark", "call again with --debug and report what it shows")
    return refused((fault,), code=ENVIRONMENT_FAILED)


def _complain(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        pass


def _open_closed_streams() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, and those below are open by now.
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))


def _abandon_output() -> None:
    """Point standard output at nothing, so that the interpreter's own flush at its end does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    sys.exit(main())
