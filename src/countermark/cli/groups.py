"""Groups of commands that import a command's module when it is called and not before."""

import difflib
import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, cast, final

import typer
from typer.core import TyperCommand, TyperGroup

from countermark.cli.roster import ENTRIES, GROUPS, Entry

HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}


class PipeClosed(Exception):
    """Whoever read the output went away; nothing is wrong and nothing is said."""


class LazyGroup(TyperGroup):
    """The commands of the roster that begin with ``prefix``."""

    prefix: tuple[str, ...] = ()

    def get_params(self, ctx: Any) -> Any:
        return _with_plain_texts(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        depth = len(self.prefix)
        return list(
            dict.fromkeys(entry.words[depth] for entry in ENTRIES if entry.words[:depth] == self.prefix and len(entry.words) > depth)
        )

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        words = (*self.prefix, cmd_name)
        for entry in ENTRIES:
            if entry.words == words:
                return load(entry)
        return subgroup(cmd_name) if not self.prefix and cmd_name in GROUPS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {' '.join((*self.prefix, args[0]))!r}.{suggestion(self.prefix, args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, dict[str, str]] = {}
        depth = len(self.prefix)
        for entry in ENTRIES:
            if entry.words[:depth] == self.prefix:
                sections.setdefault(entry.section if not depth else "Commands", {})[" ".join(entry.words[depth:])] = entry.help
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(list(rows.items()))


class PlainCommand(TyperCommand):
    """A command whose texts are taken as they are."""

    def get_params(self, ctx: Any) -> Any:
        return _with_plain_texts(super().get_params(ctx))


class CommandAfterDashes(PlainCommand):
    """A command that ends in ``-- COMMAND…``: what follows the first ``--`` is never read as an option of ours."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx)[:-1], "--", "COMMAND..."]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        after = args[len(before) + 1 :]
        if ctx.resilient_parsing or any(option in before for option in ctx.help_option_names):
            return super().parse_args(ctx, before)
        if "--" not in args:
            ctx.fail("COMMAND is missing: write it after --, as in: countermark run RECIPE -- python train.py")
        rest = super().parse_args(ctx, before)
        if ctx.params.get("command"):
            ctx.fail(f"{ctx.params['command'][0]!r} stands before --; the command and its arguments stand after it.")
        if not after:
            ctx.fail("Nothing stands after --, where COMMAND and its arguments belong.")
        if not after[0]:
            ctx.fail("COMMAND after -- is an empty text; a variable may be unset.")
        ctx.params["command"] = after
        return rest


def suggestion(prefix: tuple[str, ...], word: str) -> str:
    """A sentence with the commands that may have been meant, or nothing."""
    names = {" ".join(entry.words[: len(prefix) + 1]): None for entry in ENTRIES if entry.words[: len(prefix)] == prefix}
    typed = " ".join((*prefix, word))
    meant = difflib.get_close_matches(typed, names, n=1)
    meant += [entry.name for entry in ENTRIES if entry.name not in meant and len(entry.words) > 1 and word in entry.words[1:]]
    return " Did you mean " + " or ".join(f"'{name}'" for name in meant) + "?" if meant else ""


def load(entry: Entry) -> Any:
    """The command of an entry, its module imported now."""
    module = import_module(f"countermark.cli.{entry.module}")
    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=dict(HELP_OPTIONS))
    cls = CommandAfterDashes if entry.takes_command else PlainCommand
    app.command(entry.words[-1], cls=cls)(_guarded(getattr(module, entry.function)))
    return typer.main.get_command(app)


@final
class _Plain:
    """Takes a text, several, or none as what they are; every other value goes the parser's own way."""

    def __init__(self, several: bool, otherwise: Callable[[], Any]) -> None:
        self._several = several
        self._otherwise = otherwise

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if not self._several and (value is None or isinstance(value, str)):
            return value
        if self._several and value is None:
            return ()
        if self._several and isinstance(value, list | tuple):
            given = cast(Sequence[object], value)
            if all(isinstance(one, str) for one in given):
                return list(given)
        return self._otherwise().coerce(value, param=param, ctx=ctx)


def _with_plain_texts(params: Any) -> Any:
    """A text from the command line is one already: the library that the parser asks to make it one takes as long to import as all of ours.
    Where another release of the parser knows nothing of this, it does as it did."""
    for param in params:
        told = getattr(param, "type_descriptor", None)
        otherwise = getattr(param, "get_runtime_param", None)
        if told is None or otherwise is None or "get_runtime_param" in vars(param):
            continue
        if told.annotation in (str, bool, list[str]) and told.parameter_info.parser is None and not told.is_path:
            param.get_runtime_param = functools.partial(_Plain, told.annotation == list[str], otherwise)
    return params


def subgroup(name: str) -> Any:
    """The group of the commands that begin with ``name``."""
    app = typer.Typer(cls=LazyGroup, name=name, help=GROUPS[name], add_completion=False, rich_markup_mode=None)
    app.callback(help=GROUPS[name])(_nothing)
    app.info.context_settings = dict(HELP_OPTIONS)
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    group.prefix = (name,)
    return group


def _nothing() -> None:
    """A group of its own does nothing."""


def _guarded(function: Callable[..., object]) -> Callable[..., object]:
    """``function``, with a closed pipe told apart from the errors that the parser would answer itself."""

    @functools.wraps(function)
    def guarded(*args: object, **options: object) -> object:
        try:
            return function(*args, **options)
        except BrokenPipeError:
            raise PipeClosed from None

    return guarded
