"""The rules of ``tests.tidy`` over the tree, and over texts that break each of them.

A rule without a text that it refuses and one that it lets pass cannot be added: the samples are held against the roster of rules.
"""

import subprocess
import textwrap
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests import tidy
from tests.faults import planted, proven_by
from tests.tidy import NAMES_TOOLS, RULES, TAKES_EVERYTHING, Rule, heart_rule

ROOT: Final = Path(__file__).resolve().parent.parent
_UNTRACKED: Final = frozenset(
    {".git", ".venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
)


def heart_rooms() -> frozenset[str]:
    """The rooms from ``lines`` down, as the import order in pyproject.toml names them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rooms = [room.strip(" ()") for layer in layers for room in layer.split("|")]
    return frozenset(rooms[rooms.index("lines") :])


ALL_RULES: Final = (*RULES, heart_rule(heart_rooms()))


def texts(root: Path) -> dict[str, str]:
    """Path from the root → text, of every file that is or would be tracked and is text."""
    if (root / ".git").exists():
        command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout.decode().split("\0")
    else:
        listed = [path.relative_to(root).as_posix() for path in root.rglob("*") if not _UNTRACKED & set(path.relative_to(root).parts)]
    found = {}
    for name in sorted(filter(None, listed)):
        if (root / name).is_file() and b"\0" not in (content := (root / name).read_bytes()):
            found[name] = content.decode("utf-8")
    return found


def complaints(files: dict[str, str], rules: tuple[Rule, ...] = ALL_RULES) -> list[str]:
    """Every finding in the files, one line each, as an editor can open it."""
    return [
        f"{path}:{finding.line}: {rule.name}: {finding.what}"
        for path, text in files.items()
        for rule in rules
        if rule.applies(path)
        for finding in rule.findings(text)
    ]


def test_the_tree_is_tidy() -> None:
    assert complaints(texts(ROOT)) == []


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_every_rule_looks_at_some_file(rule: Rule) -> None:
    """A rule whose scope matches nothing would be green for ever."""
    assert any(map(rule.applies, texts(ROOT)))


def test_exemptions_are_still_needed() -> None:
    files = texts(ROOT)
    assert [path for path in NAMES_TOOLS if not tidy.talk_of_making(files.get(path, ""))] == []
    assert [path for path in TAKES_EVERYTHING if not tidy.wildcard_arms(files.get(path, ""))] == []


#: Rule → (a text that it refuses, the line of each finding) …, and a text close to it that passes.
SAMPLES: Final[dict[str, tuple[tuple[tuple[str, list[int]], ...], str]]] = {
    "function length": (
        (("def f():\n" + "    x = 1\n" * 70, [1]), ("async def f():\n" + "    x = 1\n" * 70, [1])),
        "def f():\n" + "    x = 1\n" * 69,
    ),
    "file length": ((("x = 1\n" * 501, [501]),), "x = 1\n" * 500),
    "line ends": ((("a \nb\r\nc", [3, 1, 2]), ("a\n\n", [2])), "a\n\nb\n"),
    "module docstring": ((("x = 1\n", [1]), ('x = 1\n"""late"""\n', [1])), '"""Says what it keeps."""\nx = 1\n'),
    "no wildcard arm": (
        (
            ("match x:\n    case 1:\n        pass\n    case _:\n        pass\n", [4]),
            ("match x:\n    case other:\n        pass\n", [2]),
            ("match x:\n    case 1 | _:\n        pass\n", [2]),
            ("match x:\n    case _ as y:\n        pass\n".replace("_ as y", "(_)"), [2]),
        ),
        "match x:\n    case A(_, b=_):\n        pass\n    case y if y > 1:\n        pass\n",
    ),
    "no swallowed exception": (
        (
            ("try:\n    f()\nexcept Exception:\n    pass\n", [3]),
            ("try:\n    f()\nexcept:\n    ...\n", [3]),
            ("try:\n    f()\nexcept (KeyError, BaseException):\n    '''why'''\n", [3]),
            ("with contextlib.suppress(Exception):\n    f()\n", [1]),
        ),
        "try:\n    f()\nexcept KeyError:\n    pass\nexcept Exception as error:\n    tell(error)\nwith suppress(OSError):\n    f()\n",
    ),
    "nothing unfinished": ((("a\n# TO" + "DO later\n", [2]), ("fix" + "me: b\n", [1])), "the method and its todos list\n"),
    "no stub": ((("def f():\n    raise NotImplementedError\n", [2]), ("raise NotImplementedError('x')\n", [1])), "raise ValueError\n"),
    "ignores name their code": (
        (
            ("x = 1  # type: " + "ignore\n", [1]),
            ("x = 1  # pyright: " + "ignore\n", [1]),
            ("x = 1  # no" + "qa\n", [1]),
            ("x = 1  # type: " + "ignore[]\n", [1]),
        ),
        "x = 1  # type: ignore[arg-type, misc]\ny = 2  # pyright: ignore[reportPrivateUsage]\nz = 3  # noqa: E501\n",
    ),
    "no dangerous call": (
        (
            ("import pickle\npickle.load(f)\npickle.loads(b)\n", [2, 3]),
            ("from pickle import loads\n", [1]),
            ("subprocess.run('ls', shell=True)\n", [1]),
            ("torch.load(p)\ntorch.load(p, weights_only=False)\n", [1, 2]),
            ("eval(t)\nos.system(t)\nyaml.load(t)\n", [1, 2, 3]),
        ),
        "subprocess.run(['ls'], shell=False)\ntorch.load(p, weights_only=True)\nyaml.safe_load(t)\nmodel.eval()\n",
    ),
    "no coercing library": (
        (("import pydantic\nfrom pydantic.fields import Field\ndef f():\n    import pydantic as p\n", [1, 2, 4]),),
        "import msgspec\nfrom . import pydantic\n",
    ),
    "super in slots": (
        (("@final\n@dataclass(frozen=True, slots=True)\nclass A(B):\n    def f(self):\n        return super().f()\n", [5]),),
        "@dataclass(slots=True)\nclass A(B):\n    def f(self):\n        return super(A, self).f()\nclass C(B):\n    x = super()\n",
    ),
    "no talk of making": (
        (
            ("Written with Clau" + "de.\n", [1]),
            ("the coding ag" + "ent\nCo-auth" + "ored-by: x\n", [1, 2]),
            ("A" + "I-generated\nas th" + "e integrator said\n", [1, 2]),
        ),
        "The invoke_agent span. A user agent. A session of an agent. The lead digit. A codec. Brief.\n",
    ),
    "no dangling document": (
        (("see 4-" + "weights\n", [1]), ("in house" + ".md and shar" + "ed/cases/x.json\n", [1, 1])),
        "a shared/folder, docs/decisions/0004-evidence.md and 14-weights\n",
    ),
    "no machine path": (
        (("p = '/wo" + "rk/main'\n", [1]), ("/ro" + "ot/x\n", [1])),
        "attempts/<nonce>/work/ and f'{attempt}/work/' and .../work/ and work/x\n",
    ),
    "no registry host": ((("https://py" + "pi.org/simple\n", [1]), ("registry.npm" + "js.org\n", [1])), "PyPI, the npm registry\n"),
    "pure heart": (
        (
            ("import os\nfrom time import time\nimport countermark.values\n", [1, 2]),
            ("def f():\n    import random.x\n    from pathlib import Path\n", [2, 3]),
            ("from datetime import datetime\ndatetime.now()\ndate.today()\n", [2, 3]),
            ("open(p)\nprint(x)\n__import__('os')\n", [1, 2, 3]),
            ("def key(x):\n    return hash(x)\n", [2]),
        ),
        "import hashlib\nfrom countermark.values import A\nfrom . import b\ndef __hash__(self):\n    return hash(self.x)\nself.open(p)\n",
    ),
}


def test_every_rule_has_samples() -> None:
    assert set(SAMPLES) == {rule.name for rule in ALL_RULES}


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_a_rule_refuses_what_breaks_it_and_passes_its_neighbour(rule: Rule) -> None:
    refused, clean = SAMPLES[rule.name]
    assert [[finding.line for finding in rule.findings(text)] for text, _ in refused] == [lines for _, lines in refused]
    assert rule.findings(clean) == ()
    assert rule.findings("") == ()


def _planted_tree(root: Path) -> Path:
    """A tree with one break in each of two files, and a clean file beside them."""
    heart, tests = root / "src" / "countermark" / "recipe", root / "tests"
    heart.mkdir(parents=True)
    tests.mkdir()
    (heart / "__init__.py").write_text('"""A room."""\n\nimport os\n', encoding="utf-8")
    (heart / "clean.py").write_text('"""A room."""\n\nimport re\n', encoding="utf-8")
    (tests / "test_x.py").write_text("import os\n\n\ndef test_x() -> None:\n" + "    assert os\n" * 71, encoding="utf-8")
    (root / "picture.bin").write_bytes(b"\0\xff")
    return root


@proven_by(planted(tidy, "FUNCTION_LINES_MAX", 1000), planted(tidy, "HEART_IMPORTS", frozenset({"os"})))
def test_the_walk_applies_every_rule_to_its_own_files(tmp_path: Path) -> None:
    assert complaints(texts(_planted_tree(tmp_path))) == [
        "src/countermark/recipe/__init__.py:3: pure heart: the heart imports os",
        "tests/test_x.py:4: function length: test_x has 72 lines; 70 are the most",
    ]


def test_the_walk_sees_untracked_files_and_passes_ignored_ones(tmp_path: Path) -> None:
    root = _planted_tree(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".gitignore").write_text("ignored.md\n", encoding="utf-8")
    (root / "ignored.md").write_text("a \n", encoding="utf-8")
    (root / "untracked.md").write_text("a \n", encoding="utf-8")
    assert set(texts(root)) == {
        ".gitignore",
        "src/countermark/recipe/__init__.py",
        "src/countermark/recipe/clean.py",
        "tests/test_x.py",
        "untracked.md",
    }


def test_the_heart_is_named_by_the_import_order() -> None:
    assert heart_rooms() == {
        "lines", "verdict", "evidence", "experiments", "sessions", "run", "recipe", "weights", "values",
    }  # fmt: skip


def test_a_finding_can_be_opened() -> None:
    text = textwrap.dedent("""
        match x:
            case _:
                pass
    """)
    rule = next(rule for rule in RULES if rule.name == "no wildcard arm")
    assert complaints({"src/countermark/a.py": text}, (rule,)) == [
        "src/countermark/a.py:3: no wildcard arm: a match arm that takes everything"
    ]
