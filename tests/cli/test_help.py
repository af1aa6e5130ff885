"""``countermark --help`` is light: what it imports is listed, and what it costs is bounded."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from countermark.cli.groups import load
from countermark.cli.roster import ENTRIES, GROUPS
from tests.cli.called import Caller
from tests.files.tensors import encoded, f32, write

#: Everything of ours that help may import, and the packages of others.
OURS: Final = {
    "countermark",
    "countermark.cli",
    "countermark.cli.answers",
    "countermark.cli.entry",
    "countermark.cli.failures",
    "countermark.cli.groups",
    "countermark.cli.main",
    "countermark.cli.roster",
    "countermark.lines",
    "countermark.lines.blocks",
    "countermark.lines.texts",
}
OTHERS: Final = {"typer", "typing_extensions", "shellingham", "annotated_doc"}
CPU_S_MAX: Final = 0.25

_LIST: Final = """
import sys
from countermark.cli.main import main
code = main(["--help"])
print("\\n".join(["modules:", *sys.modules]))
sys.exit(code)
"""


def imported() -> set[str]:
    done = subprocess.run([sys.executable, "-c", _LIST], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return set(done.stdout.partition("modules:\n")[2].split())


def test_help_imports_these_modules_and_no_others() -> None:
    names = imported()
    ours = {name for name in names if name.partition(".")[0] == "countermark"}
    others = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"countermark"}
    assert ours == OURS
    # An editable installation and coverage bring finders of their own.
    assert {name for name in others if not name.startswith(("_", "__"))} - {"sitecustomize", "usercustomize"} <= OTHERS


_ROOT: Final = """
import sys
from countermark.cli import groups
from countermark.cli.main import main
if len(sys.argv) > 2:
    groups._with_plain_texts = lambda params: params
main(["weights", "root", sys.argv[1], "--json", "--fresh"])
print("modules:", *sys.modules, sep="\\n")
"""


def test_a_command_that_takes_texts_imports_nothing_to_make_them_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", encoded({"w": f32(1.0)}))
    found = []
    for more in ((), ("as the parser does it",)):
        done = subprocess.run([sys.executable, "-c", _ROOT, path, *more], capture_output=True, text=True, check=True)
        modules = set(done.stdout.partition("modules:")[2].split())
        found.append(modules & {"pydantic", "countermark.lines.defects"})
    assert found == [set(), {"pydantic"}]


def test_help_costs_little_cpu() -> None:
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "countermark.cli.entry", "--help"], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) <= CPU_S_MAX


def test_help_lists_every_command_once_with_its_line(call: Caller) -> None:
    called = call("--help")
    text = " ".join(called.out.split())
    assert called.code == 0
    assert called.err == ""
    assert [entry.name for entry in ENTRIES if text.count(f" {entry.name} {entry.help}") != 1] == []
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_command_s_line_is_its_docstring_s_first_and_its_help_ends_well(entry: object, call: Caller) -> None:
    command = load(entry)  # type: ignore[arg-type]
    words = entry.words  # type: ignore[attr-defined]
    assert command.help.splitlines()[0] == entry.help  # type: ignore[attr-defined]
    called = call(*words, "--help")
    assert (called.code, called.err) == (0, "")
    assert called.out.startswith(f"Usage: countermark {' '.join(words)} ")
    assert call(*words, "-h").out == called.out


def test_every_option_says_what_it_does() -> None:
    silent = [
        f"{entry.name} {parameter.opts[-1]}" for entry in ENTRIES for parameter in load(entry).params if not (parameter.help or "").strip()
    ]
    assert silent == []


def test_groups_are_the_first_words_of_longer_commands() -> None:
    assert list(GROUPS) == list(dict.fromkeys(entry.words[0] for entry in ENTRIES if len(entry.words) > 1))


def test_one_file_per_command() -> None:
    modules = [entry.module for entry in ENTRIES]
    folder = Path(sys.modules["countermark.cli"].__path__[0])
    assert len(set(modules)) == len(modules)
    assert [module for module in modules if not (folder / f"{module}.py").is_file()] == []


def test_completion_offers_commands_and_options(here: Path) -> None:
    def offered(words: str, at: int) -> set[str]:
        environ = {**os.environ, "_COUNTERMARK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        program = "import sys; from countermark.cli.main import main; sys.exit(main([]))"
        done = subprocess.run([sys.executable, "-c", program], env=environ, cwd=here, capture_output=True, text=True, check=False)
        return set(done.stdout.split())

    assert offered("countermark re", 1) >= {"resolve", "resume", "reconcile"}
    assert offered("countermark store ", 2) == {"init", "migrate", "prune", "check"}
    assert "--explain" in offered("countermark key --", 2)
