"""Exit codes, the one document, and errors that a hurried person meets."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from countermark.app.errors import EnvironmentFailed
from countermark.cli import main as entry
from countermark.cli.answers import Answer
from countermark.files.publishing import PublishFailed
from tests.cli.called import PROGRAM, Caller, spawn
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by

#: What a hurried person types, the exit code, and what the answer must say.
HURRIED: Final[list[tuple[tuple[str, ...], int, str]]] = [
    ((), 2, ""),
    (("resolv", "recipe.toml"), 2, "There is no command 'resolv'. Did you mean 'resolve'?"),
    (("checkpoint", "inspct", "x"), 2, "Did you mean 'checkpoint inspect'?"),
    (("diff",), 2, "Did you mean 'manifest diff' or 'weights diff'?"),
    (("inspect", "x"), 2, "Did you mean 'checkpoint inspect'?"),
    (("store",), 2, "Missing command."),
    (("resolve",), 2, "Missing argument 'RECIPE'."),
    (("resolve", "recip.toml"), 2, "there is no file 'recip.toml'; did you mean 'recipe.toml'?"),
    (("resolve", "folder"), 2, "'folder' is a folder, and a recipe is a file; in it are 'folder/other.toml'"),
    (("resolve", "gone/recipe.toml"), 2, "the folder 'gone' is not there either"),
    (("resolve", "a\0b"), 2, "there is no file 'a\\x00b'"),
    (("resolve", "recipe.toml", "--jsn"), 2, "No such option: --jsn"),
    (("resolve", "recipe.toml", "--set", "seed"), 2, "--set 'seed' has no value"),
    (("resolve", "recipe.toml", "--set", "sed=3"), 1, "did you mean seed?"),
    (("resolve", "recipe.toml", "--principal", "two words"), 2, "principal from flag cannot be used"),
    (("resolve", "other.yaml"), 1, "looks like YAML"),
    (("resolve", "latin.toml"), 1, "no UTF-8 text from byte"),
    (("resolve", "empty.toml"), 1, "holds nothing but space and comments"),
    (("resolve", "twice.toml"), 1, "holds 'coordinates.seed' twice, on lines 3 and 4"),
    (("run", "recipe.toml"), 2, "COMMAND is missing: write it after --"),
    (("run", "recipe.toml", "--"), 2, "Nothing stands after --"),
    (("run", "recipe.toml", "--", ""), 2, "COMMAND after -- is an empty text"),
    (("run", "recipe.toml", "python", "x.py"), 2, "COMMAND is missing: write it after --"),
    (("run", "recipe.toml", "python", "--", "x.py"), 2, "'python' stands before --"),
    (("run", "--", "true"), 2, "Missing argument 'RECIPE'."),
    (("run", "recipe.toml", "--env", "NOT_SET_HERE", "--", "true"), 2, "--env 'NOT_SET_HERE' is not set here"),
    (("run", "recipe.toml", "--launcher", "slurm", "--", "true"), 2, "this version starts local processes only"),
    (("run", "recipe.toml", "--request", "two words", "--", "true"), 2, "cannot name a demand"),
    (("reconcile",), 2, "name one run, or --all of them"),
    (("reconcile", "12345678", "--retries", "-1"), 2, "Invalid value for '--retries'"),
    (("runs",), 3, "there is no store here"),
    (("status", "12345678"), 3, "there is no store here"),
    (("evidence", "12345678"), 3, "countermark store init"),
    (("runs", "--store", "mysql://host/db"), 2, "a store is named sqlite:///PATH or postgresql://"),
    (("weights", "root", "gone"), 2, "there is nothing at 'gone'"),
    (("weights", "root", "folder"), 1, "no file"),
    (("checkpoint", "publish", "folder"), 1, "lies in no attempt's folder"),
    (("manifest", "diff", "recipe.toml", "87654321"), 1, "nothing goes by the name '87654321'"),
]


def named(args: tuple[str, ...]) -> str:
    """A call as a test's name."""
    return " ".join(args).replace("\0", "NUL") or "nothing"


@pytest.fixture
def hurried(here: Path) -> Path:
    """A folder with a recipe and what can be mistaken for one."""
    write_recipe(here)
    (here / "folder").mkdir()
    write_recipe(here / "folder", "other.toml")
    (here / "other.yaml").write_text("base_model: x\nlora_r: 8\n", encoding="utf-8")
    (here / "latin.toml").write_bytes(b'countermark = 1\nname = "\xe9"\n')
    (here / "empty.toml").write_text("# nothing\n\n", encoding="utf-8")
    (here / "twice.toml").write_text("countermark = 1\n[coordinates]\nseed = 1\nseed = 2\n", encoding="utf-8")
    return here


@pytest.mark.parametrize(("args", "code", "said"), HURRIED, ids=[named(args) for args, _, _ in HURRIED])
def test_a_hurried_call_is_answered_with_what_to_do(args: tuple[str, ...], code: int, said: str, hurried: Path, call: Caller) -> None:
    called = call(*args)
    assert called.code == code
    assert said in " ".join(called.err.split())
    assert ("  → " in called.err) == bool(args)
    assert "Traceback" not in called.err


#: Calls of a command, without those that end before one is found.
WITH_JSON: Final = [row for row in HURRIED if row[0] not in ((), ("store",)) and "--" not in row[0]]


@pytest.mark.parametrize(("args", "code", "said"), WITH_JSON, ids=[named(args) for args, _, _ in WITH_JSON])
def test_the_same_call_with_json_is_one_document(args: tuple[str, ...], code: int, said: str, hurried: Path, call: Caller) -> None:
    called = call(*args, "--json")
    assert called.code == code
    if "--json" in call(*args[:1], "--help").out or code == 2:
        document = called.document()
        assert document["ok"] is False
        assert called.codes() != []
        assert said in " ".join(f"{defect['message']} {defect['remedy']}" for defect in document["defects"])
    assert called.out.isascii()


def test_a_refusal_before_the_dashes_is_a_document_as_well(hurried: Path, call: Caller) -> None:
    called = call("run", "recipe.toml", "python", "--json", "--", "x")
    assert (called.code, called.codes()) == (2, ["WrongUsage"])
    assert call("run", "recipe.toml", "python", "--", "x", "--json").out == ""


def test_the_version_is_that_of_the_package(call: Caller) -> None:
    assert (call("--version").code, call("--version").out) == (0, "countermark 0.1.0\n")


@proven_by(planted(entry, "_frame", lambda args: (args, entry.Frame(False, False))))
def test_a_traceback_is_shown_with_debug_only_wherever_it_stands(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> object:
        raise RuntimeError("\x1b[31munforeseen")

    monkeypatch.setattr(entry, "application", broken)
    plain = call("runs")
    assert plain.code == 3
    assert "Traceback" not in plain.err
    assert "a fault in countermark itself: RuntimeError: \\x1b[31munforeseen" in plain.err
    for args in (("--debug", "runs"), ("runs", "--debug")):
        shown = call(*args)
        assert (shown.code, "Traceback" in shown.err) == (3, True)
    assert "Traceback" not in call("runs", "--", "--debug").err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (EnvironmentFailed("the disk is full", "/store", "make room"), "EnvironmentFailed", "the disk is full (/store)"),
        (PermissionError(13, "Permission denied", "/x"), "PermissionError", "Permission denied (/x)"),
        (RecursionError("deep"), "RecursionError", "a fault in countermark itself: RecursionError: deep (countermark)"),
    ],
)
def test_a_failing_environment_is_exit_3(
    error: Exception, code: str, said: str, here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> object:
        raise error

    monkeypatch.setattr(entry, "application", broken)
    called = call("runs", "--json")
    document = called.document()
    assert called.code == 3
    assert [(each["code"], each["fault"]) for each in document["defects"]] == [("EnvironmentFault", code)]
    assert document["defects"][0]["message"] == said


def test_the_guide_shows_what_is_told_of_a_full_disk(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> object:
        raise PublishFailed(
            OSError(errno.ENOSPC, "No space left on device", "optimizer.pt"), Path("/run/checkpoints/step-400"), named=False
        )

    monkeypatch.setattr(entry, "application", full)
    said = call("checkpoint", "publish", "checkpoint-400").err.replace("/run/", "…/")
    assert said in (Path(__file__).resolve().parents[2] / "docs/guide/publishing.md").read_text(encoding="utf-8"), said


def test_an_answer_that_is_no_refusal_prints_no_defects(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        def main(self, *args: object, **options: object) -> Answer:
            return Answer({"n": 2**53 - 1})

    monkeypatch.setattr(entry, "application", Group)
    assert call("x", "--json").document() == {"ok": True, "n": 2**53 - 1, "defects": [], "warnings": []}


def test_a_reader_that_goes_away_ends_the_call_in_silence(here: Path) -> None:
    write_recipe(here)
    read, write = os.pipe()
    os.close(read)
    called = spawn("resolve", "recipe.toml", cwd=here, stdout=write)
    os.close(write)
    assert (called.code, called.err) == (141, "")


def test_an_output_that_is_full_is_said(here: Path) -> None:
    write_recipe(here)
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        called = spawn("resolve", "recipe.toml", cwd=here, stdout=full.fileno())
    assert called.code == 3
    assert called.err == "countermark: the output could not be written: No space left on device\n"


@pytest.mark.parametrize(
    ("args", "closed", "code"), [(("resolve", "recipe.toml"), ">&-", 0), (("resolv",), "2>&-", 2), (("resolv",), ">&- 2>&-", 2)]
)
def test_a_closed_stream_changes_no_answer_and_no_exit_code(args: tuple[str, ...], closed: str, code: int, here: Path) -> None:
    write_recipe(here)
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *PROGRAM, *args]
    done = subprocess.run(shell, cwd=here, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_no_file_takes_the_number_of_a_closed_stream(here: Path) -> None:
    write_recipe(here)
    numbers = "import os, sys; sys.exit(0 if all(os.readlink(f'/proc/self/fd/{n}') == '/dev/null' for n in range(3)) else 9)"
    program = f"from countermark.cli.main import main; main(['key', 'recipe.toml']); {numbers}"
    shell = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(shell, cwd=here, timeout=60, check=False).returncode == 0


def test_an_interrupted_watch_ends_with_130_and_a_clean_line_and_the_attempt_goes_on(here: Path) -> None:
    write_recipe(here)
    command = [*PROGRAM, "run", "recipe.toml", "--", "sh", "-c", "touch started; sleep 45"]
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 30
        while not (here / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1].startswith("countermark: interrupted; nothing is half done")
    assert b"Traceback" not in err
    run = spawn("runs", cwd=here).out.splitlines()[1].split("\t")[0]
    assert "InProgress" in spawn("status", run, cwd=here).out
    again = spawn("run", "recipe.toml", "--no-wait", "--json", "--", "true", cwd=here).document()
    attempts = spawn("attempts", run, "--json", cwd=here).document()["attempts"]
    assert (again["run"][:8], again["verdict"], len(attempts)) == (run, "InProgress", 1)
