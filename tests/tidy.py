"""Style as a test: the rules that no linter knows, each a pure function from a file's text to its findings.

Rules about this file: it reads nothing (``tests/test_tidy.py`` walks the tree), every rule stands in ``RULES``, and what must not be
written anywhere is spelled here in pieces, so that this file needs no exemption from itself.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, final

FUNCTION_LINES_MAX: Final = 70
FILE_LINES_MAX: Final = 500


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and on which line (counted from 1)."""

    line: int
    what: str


Findings: TypeAlias = tuple[Finding, ...]
Found: TypeAlias = Iterator[Finding]


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's name, the files that it is for (by path from the root, with ``/``), and its judge."""

    name: str
    applies: Callable[[str], bool]
    findings: Callable[[str], Findings]


@lru_cache(maxsize=1024)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _nodes(text: str) -> Iterator[ast.AST]:
    return ast.walk(_tree(text))


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` for a name or an attribute of one, else nothing."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr) if owner := _dotted(value):
            return f"{owner}.{attr}"
        case _:
            return ""


def _matching(text: str, patterns: dict[str, str]) -> Findings:
    """A finding for every line on which one of the patterns (pattern → what it means) matches, whatever the case."""
    compiled = [(re.compile(pattern, re.IGNORECASE), what) for pattern, what in patterns.items()]
    lines = enumerate(text.splitlines(), start=1)
    return tuple(Finding(number, what) for number, line in lines for pattern, what in compiled if pattern.search(line))


# ------------------------------------------------------------------------------------------------------------- size


def long_functions(text: str) -> Findings:
    def found() -> Found:
        for node in _nodes(text):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield Finding(node.lineno, f"{node.name} has {lines} lines; {FUNCTION_LINES_MAX} are the most")

    return tuple(found())


def long_file(text: str) -> Findings:
    lines = len(text.splitlines())
    return (Finding(lines, f"{lines} lines; {FILE_LINES_MAX} are the most"),) if lines > FILE_LINES_MAX else ()


def untidy_ends(text: str) -> Findings:
    def found() -> Found:
        if text and not text.endswith("\n"):
            yield Finding(len(text.splitlines()), "the last line has no end")
        if text.endswith("\n\n"):
            yield Finding(len(text.splitlines()), "empty lines at the end")
        for number, line in enumerate(text.split("\n"), start=1):
            if line != line.rstrip():
                yield Finding(number, "spaces or a carriage return at the end of the line")

    return tuple(found())


# -------------------------------------------------------------------------------------------------------------- code


def no_docstring(text: str) -> Findings:
    return () if not text.strip() or ast.get_docstring(_tree(text)) else (Finding(1, "the module has no docstring"),)


def wildcard_arms(text: str) -> Findings:
    """``case _:`` and ``case anything:`` without a guard: a new arm of a sum would be swallowed instead of reported."""

    def takes_all(pattern: ast.pattern) -> bool:
        match pattern:
            case ast.MatchAs(pattern=None):
                return True
            case ast.MatchAs(pattern=ast.pattern() as inner):
                return takes_all(inner)
            case ast.MatchOr(patterns=patterns):
                return any(map(takes_all, patterns))
            case _:
                return False

    return tuple(
        Finding(_line(case.pattern), "a match arm that takes everything")
        for node in _nodes(text)
        if isinstance(node, ast.Match)
        for case in node.cases
        if case.guard is None and takes_all(case.pattern)
    )


_BROAD: Final = frozenset({"", "Exception", "BaseException"})


def swallowed_exceptions(text: str) -> Findings:
    """A handler of everything that does nothing, and ``suppress`` of everything."""

    def broad(kind: ast.expr | None) -> bool:
        kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
        return any(one is None or _dotted(one).removeprefix("builtins.") in _BROAD - {""} for one in kinds)

    def idle(statement: ast.stmt) -> bool:
        constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        return constant or isinstance(statement, ast.Pass | ast.Continue | ast.Break)

    def found() -> Found:
        for node in _nodes(text):
            if isinstance(node, ast.ExceptHandler) and broad(node.type) and all(map(idle, node.body)):
                yield Finding(node.lineno, "every exception is caught and dropped")
            if isinstance(node, ast.Call) and _dotted(node.func).endswith("suppress") and any(map(broad, node.args)):
                yield Finding(node.lineno, "every exception is suppressed")

    return tuple(found())


def unfinished(text: str) -> Findings:
    return _matching(text, {rf"\b({'TO' + 'DO'}|{'FIX' + 'ME'}|{'HA' + 'CK'})\b": "a note about unfinished work; finish it or file it"})


def stubs(text: str) -> Findings:
    return tuple(
        Finding(node.lineno, "a stub instead of an implementation")
        for node in _nodes(text)
        if isinstance(node, ast.Name) and node.id == "NotImplementedError"
    )


def bare_ignores(text: str) -> Findings:
    return _matching(
        text,
        {
            r"#\s*type:\s*ignore(?!\[[a-z-]+(,\s*[a-z-]+)*\])": "a type error is ignored without its code",
            r"#\s*pyright:\s*ignore(?!\[\w+(,\s*\w+)*\])": "a pyright rule is ignored without its name",
            r"#\s*noqa(?!:\s*[A-Z]+\d+)": "a lint is ignored without its code",
        },
    )


_DANGEROUS: Final = {
    "pickle.load": "unpickling executes what it reads",
    "pickle.loads": "unpickling executes what it reads",
    "pickle.Unpickler": "unpickling executes what it reads",
    "marshal.loads": "marshal is not for data from outside",
    "os.system": "a shell reads the text",
    "os.popen": "a shell reads the text",
    "yaml.load": "a loader that builds objects",
    "eval": "text is executed",
    "exec": "text is executed",
}


def dangerous_calls(text: str) -> Findings:
    """Calls that execute what comes from outside."""

    def keyword(call: ast.Call, name: str) -> object:
        values = [word.value.value for word in call.keywords if word.arg == name and isinstance(word.value, ast.Constant)]
        return values[0] if values else None

    def found() -> Found:
        for node in _nodes(text):
            if isinstance(node, ast.Call):
                name = _dotted(node.func)
                if name in _DANGEROUS:
                    yield Finding(node.lineno, f"{name}: {_DANGEROUS[name]}")
                if name == "torch.load" and keyword(node, "weights_only") is not True:
                    yield Finding(node.lineno, "torch.load without weights_only=True unpickles")
                if keyword(node, "shell") is True:
                    yield Finding(node.lineno, "a shell reads the command")
            if isinstance(node, ast.ImportFrom) and node.module in {"pickle", "marshal"}:
                yield Finding(node.lineno, f"names taken out of {node.module} hide what they do")

    return tuple(found())


def coercing_library(text: str) -> Findings:
    """A validation library that converts where we refuse would be a second reader beside the values."""
    return tuple(
        Finding(_line(node), "pydantic is imported")
        for node in _nodes(text)
        if isinstance(node, ast.Import | ast.ImportFrom) and "pydantic" in {name.partition(".")[0] for name in _imported(node)}
    )


def _imported(node: ast.AST) -> Iterator[str]:
    """The modules that an import statement names; none for a relative one."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module
        case _:
            return


def _is_slotted(node: ast.ClassDef) -> bool:
    return any(
        isinstance(one, ast.Call) and _dotted(one.func).endswith("dataclass") and any(word.arg == "slots" for word in one.keywords)
        for one in node.decorator_list
    )


def super_in_slots(text: str) -> Findings:
    """``super()`` means the class from before ``slots=True`` rebuilt it, and fails when it is called."""
    return tuple(
        Finding(call.lineno, f"super() without arguments in the slotted dataclass {node.name}")
        for node in _nodes(text)
        if isinstance(node, ast.ClassDef) and _is_slotted(node)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and _dotted(call.func) == "super" and not call.args
    )


# ------------------------------------------------------------------------------------------------------------- heart

#: What the heart may import besides its own lower rooms. A module joins this list only if it has no clock, no disk, no chance in it.
HEART_IMPORTS: Final = frozenset(
    "__future__ abc array base64 binascii bisect collections contextlib copy dataclasses datetime decimal difflib enum "
    "fnmatch fractions functools graphlib hashlib heapq itertools json keyword math msgspec numbers numpy operator re statistics "
    "string struct textwrap tomllib types typing unicodedata".split()
)
_HEART_CALLS: Final = frozenset({"open", "input", "print", "__import__", "breakpoint"})
_CLOCK_CALLS: Final = frozenset({"now", "utcnow", "today"})


def impure_heart(text: str) -> Findings:
    """Clock, disk, chance and output in rooms whose every answer must be the same in a replay years later."""

    in_hash = {
        call
        for node in _nodes(text)
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__"
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
    }

    def found() -> Found:
        for node in _nodes(text):
            for name in (module.partition(".")[0] for module in _imported(node)):
                if name != "countermark" and name not in HEART_IMPORTS:
                    yield Finding(_line(node), f"the heart imports {name}")
            if isinstance(node, ast.Call):
                name = _dotted(node.func)
                if name in _HEART_CALLS:
                    yield Finding(node.lineno, f"the heart calls {name}")
                if isinstance(node.func, ast.Attribute) and node.func.attr in _CLOCK_CALLS:
                    yield Finding(node.lineno, f"the heart asks a clock: {node.func.attr}")
                if name in {"hash", "id"} and node not in in_hash:
                    yield Finding(node.lineno, f"{name}() differs from process to process")

    return tuple(found())


# -------------------------------------------------------------------------------------------------------------- text


def _spelled(*pieces: str) -> str:
    return "".join(pieces)


_TOOLS: Final = "|".join(
    re.escape(_spelled(*pieces))
    for pieces in (("clau", "de"), ("anthro", "pic"), ("chat", "gpt"), ("co", "pilot"), ("cod", "ex"), ("gem", "ini"), ("dev", "in.ai"))
)
_MAKING: Final = {
    rf"\b({_TOOLS})\b": "a tool for writing software is named",
    _spelled(r"\bcod", r"ing[ -]ag", r"ents?\b"): "a tool for writing software is named",
    _spelled(r"\bsub-?ag", r"ents?\b"): "speaks of how it was made",
    _spelled(r"\bA", r"I[ -](assist", r"ant|generated|written)"): "speaks of how it was made",
    _spelled(r"\bas an A", r"I\b"): "speaks of how it was made",
    _spelled(r"co-auth", r"ored-by"): "speaks of how it was made",
    _spelled(r"generated (by|with) (an? )?(A", r"I|LL", r"M)\b"): "speaks of how it was made",
    _spelled(r"\b(wo", r"rk order|th", r"e integrator|(my|th", r"e) br", r"ief)\b"): "speaks of how it was made",
}


def talk_of_making(text: str) -> Findings:
    """A repository speaks of what it does, not of who or what typed it."""
    return _matching(text, _MAKING)


def dangling_documents(text: str) -> Findings:
    """Notes that lie outside the repository: a reader of a clone cannot open them."""
    rooms = "identity|evidence|control|weights|sessions|experiments|surfaces"
    return _matching(
        text,
        {
            rf"(?<![\w-])[1-7]-({rooms})\b": "refers to a document outside the repository",
            _spelled(r"\bhouse", r"\.md\b|\bfacts", r"\.md\b|\bdesign", r"\.md\b"): "refers to a document outside the repository",
            _spelled(r"\bshar", r"ed/(spec|cases|hooks|scripts)\b"): "refers to a folder outside the repository",
        },
    )


def machine_paths(text: str) -> Findings:
    """Absolute paths of one machine. A folder called work *inside* another path is none."""
    return _matching(text, {_spelled(r"(?<![\w.>})\]*-])/(wo", r"rk|ro", r"ot)/"): "an absolute path of one machine"})


def registry_hosts(text: str) -> Findings:
    """Package registries by host: which mirror is used is the user's own configuration."""
    hosts = (
        ("py", "pi.org"),
        ("pythonhost", "ed.org"),
        ("npm", "js.org"),
        ("npm", "js.com"),
        ("deb.deb", "ian.org"),
        ("download.py", "torch.org"),
    )
    return _matching(text, {"|".join(re.escape(_spelled(*pieces)) for pieces in hosts): "a package registry's host"})


# -------------------------------------------------------------------------------------------------------- the roster


def _python(path: str) -> bool:
    return path.endswith(".py")


def _source(path: str) -> bool:
    return path.startswith("src/") and _python(path)


def _prose(path: str) -> bool:
    return path.endswith((".py", ".md", ".toml", ".txt")) or path in {"Makefile", ".ci/run"}


def _everything(path: str) -> bool:
    return True


#: Files that name such tools on purpose, and why. It may only shrink.
NAMES_TOOLS: Final = {"tests/environment.py": "it lists the variables that such tools set, so that no test sees them"}

#: Files with an arm that takes everything, and why the matched type is not a sum of ours.
TAKES_EVERYTHING: Final[dict[str, str]] = {}


def heart_rule(rooms: frozenset[str]) -> Rule:
    """The rule for the rooms of the heart, which the import order in pyproject.toml names."""

    def in_heart(path: str) -> bool:
        parts = path.split("/")
        return _source(path) and parts[:2] == ["src", "countermark"] and parts[2].removesuffix(".py") in rooms

    return Rule("pure heart", in_heart, impure_heart)


RULES: Final = (
    Rule("function length", _python, long_functions),
    Rule("file length", _python, long_file),
    Rule("line ends", _prose, untidy_ends),
    Rule("module docstring", _source, no_docstring),
    Rule("no wildcard arm", lambda path: _source(path) and path not in TAKES_EVERYTHING, wildcard_arms),
    Rule("no swallowed exception", _python, swallowed_exceptions),
    Rule("nothing unfinished", _everything, unfinished),
    Rule("no stub", _source, stubs),
    Rule("ignores name their code", _python, bare_ignores),
    Rule("no dangerous call", _source, dangerous_calls),
    Rule("no coercing library", _source, coercing_library),
    Rule("super in slots", _python, super_in_slots),
    Rule("no talk of making", lambda path: path not in NAMES_TOOLS, talk_of_making),
    Rule("no dangling document", _everything, dangling_documents),
    Rule("no machine path", _everything, machine_paths),
    Rule("no registry host", _everything, registry_hosts),
)
