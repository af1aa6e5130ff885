"""The reference pages, generated from the rosters: ``python -m countermark.cli.reference [--check]`` writes, or compares, docs/reference.

Rules kept here:

1. A page says nothing that a roster does not: commands, defects, verdicts, settings and coordinates are iterated, never listed by hand.
2. The same code gives the same bytes; a test refuses a stale page.
"""

import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from countermark.cli.groups import load
from countermark.cli.roster import ENTRIES
from countermark.cli.settings import ROSTER as SETTINGS
from countermark.lines.defects import FAMILIES, sentence
from countermark.lines.texts import camel
from countermark.recipe import WorkKey
from countermark.recipe.manifest import ENTRIES as COORDINATES
from countermark.recipe.sums import own_leaves
from countermark.run.attempts import AttemptKey, Nonce
from countermark.sessions.edits import EDIT_PREFIX, FIELDS, KIND
from countermark.sessions.events import KEYS, TYPES
from countermark.sessions.filters.keys import IDS, OPERATORS, keys_of
from countermark.sessions.fold import TAGS
from countermark.sessions.genai import ALIASES
from countermark.values import NonEmpty, Principal, Sha256
from countermark.verdict.kinds import Blocker, OrphanOutput, Verdict, WhyNot

_GENERATED: Final = "<!-- Written by `make docs` from the program's own rosters; edit those. -->\n"
_WIDTH: Final = 140


def pages() -> dict[str, str]:
    """File name → text of every reference page."""
    return {
        "commands.md": _commands(),
        "coordinates.md": _coordinates(),
        "defects.md": _defects(),
        "events.md": _events(),
        "filter-keys.md": _filter_keys(),
        "settings.md": _settings(),
        "verdicts.md": _verdicts(),
    }


def _page(title: str, lead: str, parts: Iterable[str]) -> str:
    return "\n\n".join((f"# {title}", _GENERATED.rstrip("\n"), _wrapped(lead), *parts)) + "\n"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(" ".join(text.split()), _WIDTH, break_long_words=False, break_on_hyphens=False))


def _prose(kind: Any) -> str:
    """A class's docstring as a paragraph."""
    return _wrapped(re.sub(r"``(.+?)``", r"`\1`", inspect.getdoc(kind) or ""))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join(("| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *lines))


# ------------------------------------------------------------------------------------------------------------- commands


def _commands() -> str:
    sections: dict[str, list[str]] = {}
    for entry in ENTRIES:
        command = load(entry)
        rows = tuple(_parameter(parameter) for parameter in command.params)
        said = f"### {entry.name}\n\n{entry.help}\n\n```\n{_usage(entry.name, command)}\n```"
        table = "\n\n" + _table(("argument or option", "meaning"), rows) if rows else ""
        sections.setdefault(entry.section, []).append(said + table)
    lead = (
        "Every command takes `--help`. `--debug`, before `--`, shows the traceback of a failure, and `--json` prints one document on "
        "standard output, also for a refusal: `ok`, `defects`, `warnings` and the fields of the command, as "
        "[contract/schema.json](../../contract/schema.json) says under the command's name. In a pipe a table is a line of "
        "column names and tab-separated rows. Exit codes: 0 done; 1 the domain says no; 2 wrong usage; 3 the environment failed; 130 after "
        "Ctrl-C."
    )
    completion = (
        "## Completion\n\n`countermark --install-completion` installs completion for the shell that calls it, and `countermark "
        "--show-completion` prints it."
    )
    return _page("Commands", lead, [*("\n\n".join((f"## {name}", *parts)) for name, parts in sections.items()), completion])


def _usage(name: str, command: Any) -> str:
    arguments = [_argument(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    options = "[OPTIONS]" if any(parameter.param_type_name == "option" for parameter in command.params) else ""
    return " ".join(filter(None, ("countermark", name, options, *arguments)))


def _argument(parameter: Any) -> str:
    text = str(parameter.metavar)
    return f"-- {text}..." if text == "COMMAND" else text if parameter.required else f"[{text}]"


def _parameter(parameter: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`", str(parameter.help)
    takes = "" if parameter.is_flag else f" {parameter.metavar}"
    return f"`{parameter.opts[-1]}{takes}`", str(parameter.help)


# ------------------------------------------------------------------------------------------------------ defects, verdicts


def _defects() -> str:
    parts: list[str] = []
    for family, lead in FAMILIES.items():
        parts.append(f"## {family}")
        for kind in lead:
            parts.append(_defect(kind))
    lead_text = (
        "Whatever is refused, blocked, unread or warned of has one of these codes. A document carries the code, the values that are "
        "listed, `message` and `remedy`; the examples show both with placeholders. Codes are stable."
    )
    return _page("Defects", lead_text, parts)


def _defect(kind: type) -> str:
    said = sentence(example(kind))
    values = ", ".join(f"`{camel(field.name)}`" for field in fields(kind)) or "none"
    return f"### {kind.__name__}\n\n{_prose(kind)}\n\nValues: {values}.\n\n> {said.message}\n>\n> → {said.remedy}"


def _verdicts() -> str:
    parts = [
        "## Verdicts",
        *_kinds(Verdict),
        "## Blockers",
        _wrapped("Each is a conflict of facts about one attempt; any of them makes the verdict `Blocked`."),
        *_kinds(Blocker),
        "## Why not yet",
        _wrapped("Beside every verdict but convergence stands what keeps the run from it."),
        *_kinds(WhyNot),
        "## Notes",
        *_kinds(OrphanOutput),
    ]
    lead = (
        "The verdicts stand in their precedence: the first that applies is concluded. See [defects](defects.md) for messages and remedies."
    )
    return _page("Verdicts", lead, parts)


def _kinds(union: Any) -> Iterator[str]:
    for kind in get_args(union) or (union,):
        named = ", ".join(f"`{camel(field.name)}`" for field in fields(kind) if field.name != "seal")
        yield f"### {kind.__name__}\n\n{_prose(kind)}" + (f"\n\nNames: {named}." if named else "")


_EXAMPLES: Final[Mapping[Any, Any]] = {
    int: 7,
    float: 0.5,
    bool: True,
    Sha256: Sha256("0" * 64),
    WorkKey: WorkKey(Principal("local"), Sha256("0" * 64)),
    AttemptKey: AttemptKey(WorkKey(Principal("local"), Sha256("0" * 64)), Nonce("0123456789abcdef" * 2)),
}


def example(kind: Any, name: str = "") -> Any:
    """A value of the type ``kind`` in which every text is the name of the field that holds it."""
    if kind is str:
        return name.upper()
    if kind in _EXAMPLES:
        return _EXAMPLES[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return example(next(arm for arm in args if arm is not type(None)), name)
    if origin is tuple:
        return (example(args[0], name),)
    if origin is Literal:
        return args[0]
    if origin is NonEmpty:
        return NonEmpty(example(args[0], name))
    if issubclass(kind, Enum):
        return next(iter(kind))
    hints = get_type_hints(kind)
    return kind(*(example(hints[field.name], field.name) for field in fields(kind)))


# ----------------------------------------------------------------------------------------------------------------- events


def _events() -> str:
    edits = (
        (f"`{field.key}`{' (required)' if field.required else ''}", f"`{EDIT_PREFIX}{field.attribute}`", field.doc) for field in FIELDS
    )
    parts = (
        "## Keys",
        _table(("key", "meaning"), ((f"`{key}`", doc) for key, doc in KEYS.items())),
        _wrapped("`type` and `payload` are required, and one of `session`, `trace` and `source`. Another key refuses the event."),
        "## Types",
        *(f"### type: {name}\n\n{_wrapped(doc[0].upper() + doc[1:])}." for name, doc in TYPES.items()),
        _wrapped(
            "The payload of an event that is no span may say what was used: `usage` with `inputTokens`, `outputTokens` and `cost` (US "
            "dollars), and `responseId`, under which it counts once."
        ),
        f"## The payload {KIND}",
        _wrapped(
            "One edit of one tensor, the same whichever way it comes in: under `payload` of a notification, or as the attributes of a span "
            f"or a log record of OpenTelemetry that is named `countermark.{KIND}`. Another key refuses the event, and what was not said is "
            "absent, never null."
        ),
        _table(("key", "attribute", "meaning"), edits),
        "## Names of attributes",
        _wrapped("What is read of the spans of OpenTelemetry's conventions for generative models: the first name of each that is there."),
        _table(("what", "names"), ((what, ", ".join(f"`{name}`" for name in names)) for what, names in ALIASES.items())),
        "## Tags",
        *(f"### tag: {tag}\n\n{doc[0].upper()}{doc[1:]}." for tag, doc in TAGS.items()),
    )
    lead = (
        "What a session consists of. An event is a JSON object, one a line in a file; what stands in it is spelled in one way before it is "
        "stored (keys sorted, numbers as ECMAScript prints them, whole numbers exact), so that two events that say the same are the same."
    )
    return _page("Events", lead, parts)


# ------------------------------------------------------------------------------------------------------------ filter keys


def _filter_keys() -> str:
    rows = ((kind, ", ".join(f"`{operator}`" for operator in operators)) for kind, operators in OPERATORS.items())
    parts = ["## Types", _table(("type", "compared by"), rows)]
    for subject in IDS:
        parts.append(f"## {subject[0].upper()}{subject[1:]}")
        parts += [f"### {subject}: {key.name}\n\n{key.doc[0].upper()}{key.doc[1:]}. Type: {key.type}." for key in keys_of(subject).values()]
    lead = (
        "What `--where` can ask of what is listed. [Filters](../guide/filters.md) says how a filter is written, and what each comparison "
        "means; `NOT` may stand before any of them."
    )
    return _page("Filter keys", lead, parts)


# ------------------------------------------------------------------------------------------------- settings, coordinates


def _settings() -> str:
    parts = (
        f"## {setting.name}\n\n{setting.help}\n\nDefault: {setting.default_text}. Variable: `{setting.variable}`." for setting in SETTINGS
    )
    lead = (
        "Four sources, the later stronger: `countermark.toml` in the working folder or one above; `countermark/config.toml` in the XDG "
        "configuration folder; `COUNTERMARK_*` variables; flags. A dot in a name is a table in a file. `countermark doctor` prints every "
        "value and where it came from."
    )
    return _page("Settings", lead, parts)


def _coordinates() -> str:
    parts: list[str] = []
    for entry in COORDINATES.values():
        arms = ["`" + arm.arm + (f"({', '.join(own_leaves(arm))})" if own_leaves(arm) else "") + "`" for arm in entry.kind.arms]
        choices = f"\n\nOne of {', '.join(arms)}." if arms else ""
        meaning = entry.says.meaning[0].upper() + entry.says.meaning[1:]
        parts.append(f"## {entry.name}\n\n{meaning}.{choices}\n\nWhere it is left open: {entry.says.pin}.")
    lead = (
        f"The manifest of a low-rank adaptation has these {len(COORDINATES)} coordinates, in the order of the roster. A recipe that leaves "
        "one of them open is refused with all that are open."
    )
    return _page("Coordinates", lead, parts)


def main(argv: list[str]) -> int:
    """Write the pages into docs/reference of the working folder; with ``--check``, only say which are stale (1) or not (0)."""
    folder = Path("docs/reference")
    wanted = pages()
    stale = [name for name, text in wanted.items() if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text]
    if "--check" not in argv:
        folder.mkdir(parents=True, exist_ok=True)
        for name in stale:
            (folder / name).write_text(wanted[name], encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{'stale' if '--check' in argv else 'written'}: {folder / name}\n")
    return int(bool(stale) and "--check" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
