"""Dispatch over real processes: a claim is started once, whoever asks, and everything COMMAND needs reaches it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from countermark.files.attempt_folder import ReceiptRead, read_claim
from countermark.launch.local import Dispatched, DispatchRefused, DispatchUnknown, LocalLauncher
from countermark.wire.receipts import Exited, Failed, Killed, NotExecuted, Signalled, Succeeded
from tests.faults import proven_by
from tests.launch.conftest import Place
from tests.launch.planting import in_supervisor

#: A COMMAND that writes down everything that it was given.
_REPORT = """
import json, os, signal, sys
open_ones = [number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")]
seen = {
    "argv": sys.argv[1:],
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "fds": {number: os.readlink(f"/proc/self/fd/{number}") for number in open_ones},
    "sid": os.getsid(0),
    "pid": os.getpid(),
    "stdin": sys.stdin.read(),
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": [int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith("SigIgn")],
}
with open("report", "w") as file:
    json.dump(seen, file)
"""


def test_a_command_runs_once_and_its_end_is_recorded(place: Place) -> None:
    launcher = place.launcher()
    order = place.order("echo hello; echo trouble >&2")
    assert launcher.dispatch(order) == Dispatched("started")
    terminal = place.terminal()
    assert (terminal.outcome, terminal.main, terminal.attempt) == (Succeeded(), Exited(0), order.nonce)
    assert terminal.by.pid == place.supervisor_pid()
    assert terminal.started_ms <= terminal.ended_ms
    assert place.log() == "hello\ntrouble\n"
    assert launcher.dispatch(order) == Dispatched("already started")
    assert place.runs() == 1
    names = {path.name for path in place.folder().iterdir()}
    assert names == {"claim.json", "manifest.json", "lock", "start.json", "process.json", "terminal.json", "log.txt", "work"}


@pytest.mark.parametrize(
    ("script", "outcome", "main"),
    [
        ("exit 3", Failed(3), Exited(3)),
        ("kill -9 $$", Killed(9), Signalled(9)),
        ("kill -TERM $$", Killed(15), Signalled(15)),
    ],
)
@proven_by(in_supervisor("every_end_is_a_success"))
def test_how_the_main_process_ended_is_told_apart(place: Place, script: str, outcome: object, main: object) -> None:
    place.launcher().dispatch(place.order(script))
    terminal = place.terminal()
    assert (terminal.outcome, terminal.main) == (outcome, main)


@proven_by(in_supervisor("signals_stay_ignored"))
def test_a_command_is_not_deaf_to_what_the_supervisor_ignores(place: Place) -> None:
    place.launcher().dispatch(place.order("kill -HUP $$; kill -INT $$; exit 7"))
    assert place.terminal().outcome == Killed(1)


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"argv": ("no-such-command-anywhere", "x")}, 127, "was not found"),
        ({"argv": ("./not/here",)}, 127, "was not found"),
        ({"argv": ("./plain",)}, 126, "cannot be executed: Permission denied"),
        ({"argv": ("./garbage",)}, 126, "cannot be executed: Exec format error"),
        ({"argv": ("./lost",)}, 127, "the interpreter that its first line names, was not found"),
        ({"argv": ("/etc",)}, 126, "cannot be executed: Permission denied"),
        ({"cwd": "/not/here"}, 126, "the working folder /not/here: No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_executed_ends_with_a_terminal_that_says_why(
    place: Place, changes: dict[str, object], code: int, word: str
) -> None:
    for name, content, mode in (("plain", "#!/bin/sh\n", 0o644), ("garbage", "garbage", 0o755), ("lost", "#!/no/such/shell\n", 0o755)):
        (place.root / name).write_text(content)
        (place.root / name).chmod(mode)
    assert place.launcher().dispatch(place.order(**changes)) == Dispatched("started")
    terminal = place.terminal()
    assert isinstance(terminal.main, NotExecuted)
    assert (terminal.outcome, terminal.main.code) == (Failed(code), code)
    assert word in terminal.main.why
    assert f"COMMAND was not executed: {terminal.main.why}" in place.log()
    assert place.runs() == 0


def test_the_command_gets_its_environment_its_placeholders_and_nothing_of_the_controller(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("NAMED", "no")
    monkeypatch.setenv("COUNTERMARK_MANIFEST", "/of/an/outer/attempt")
    (place.root / "report.py").write_text(_REPORT)
    argv = ("python3", "-S", "report.py", "--manifest={manifest}", "{output}", "{resume}", "{other}", "{{manifest}}")
    resume = str(place.root / "{output}")
    held = os.open(place.root, os.O_RDONLY)
    os.set_inheritable(held, True)
    place.launcher().dispatch(place.order(argv=argv, env={"NAMED": "ünïcode"}, resume=resume))
    os.close(held)
    assert place.terminal().outcome == Succeeded(), place.log()
    seen = json.loads((place.root / "report").read_text())
    folder = str(place.folder())
    manifest, output = f"{folder}/manifest.json", f"{folder}/output"
    assert seen["argv"] == [f"--manifest={manifest}", output, resume, "{other}", "{" + manifest + "}"]
    ours = {name: value for name, value in seen["env"].items() if name.startswith("COUNTERMARK_")}
    assert ours == {
        "COUNTERMARK_MANIFEST": manifest,
        "COUNTERMARK_ATTEMPT": folder,
        "COUNTERMARK_OUTPUT": output,
        "COUNTERMARK_RESUME": resume,
    }
    assert (seen["env"]["INHERITED"], seen["env"]["NAMED"]) == ("yes", "ünïcode")
    assert (seen["cwd"], seen["stdin"], seen["mask"]) == (str(place.root), "", [])
    assert seen["sid"] == seen["pid"] == place.trainer_pid()
    # Python itself ignores SIGPIPE and SIGXFSZ, and so hides what it inherited of those two. Signals 32 and 33 are the C library's own:
    # no process can change what it inherited of them.
    assert [ignored & ~(1 << 31 | 1 << 32) for ignored in seen["ignored"]] == [1 << 12 | 1 << 24]
    log = f"{folder}/log.txt"
    kept = seen["fds"]
    assert sorted(kept.values()) == sorted(["/dev/null", log, log, f"{folder}/lock"])
    assert next(int(number) for number, path in kept.items() if path.endswith("/lock")) >= 500
    assert Path(manifest).read_bytes() == b"{}\n"


def test_a_claim_that_says_something_else_is_refused_and_changes_nothing(place: Place) -> None:
    order = place.order("exit 0")
    place.launcher().dispatch(order)
    place.terminal()
    before = {path.name: path.read_bytes() for path in place.folder().iterdir() if path.is_file()}
    others = {
        "argv": place.order("exit 1"),
        "cwd": place.order("exit 0", cwd="/"),
        "env": place.order("exit 0", env={"A": "1"}),
        "beginning": place.order("exit 0", resume="/a/checkpoint"),
        "manifest_sha256": place.order("exit 0", manifest=b"{ }\n"),
        "demand": place.order("exit 0", demand="another"),
        "work_key": place.order("exit 0", work_key="wk1:" + "1" * 64),
        "demand, argv": place.order("exit 1", demand="another"),
    }
    found = {what: place.launcher().dispatch(other) for what, other in others.items()}
    assert found == {what: DispatchRefused(f"the claim folder holds another claim: {what}") for what in others}
    assert {path.name: path.read_bytes() for path in place.folder().iterdir() if path.is_file()} == before
    assert place.runs() == 1


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100, b"{}" * 3_000_000])
def test_a_torn_claim_is_refused(place: Place, content: bytes) -> None:
    place.folder().mkdir(parents=True)
    (place.folder() / "claim.json").write_bytes(content)
    result = place.launcher().dispatch(place.order())
    assert isinstance(result, DispatchRefused)
    assert result.why.startswith("the claim folder holds something else: claim.json: ")
    assert not (place.folder() / "start.json").exists()


def test_a_folder_that_cannot_be_made_is_refused_and_nothing_is_left(place: Place) -> None:
    (place.root / "attempts").write_text("a file in the way")
    result = place.launcher().dispatch(place.order())
    assert isinstance(result, DispatchRefused)
    assert "cannot be made: File exists" in result.why


def test_a_symbolic_link_in_the_place_of_the_folder_is_not_followed(place: Place) -> None:
    (place.root / "elsewhere").mkdir()
    (place.root / "attempts").mkdir()
    place.folder().symlink_to(place.root / "elsewhere")
    assert isinstance(place.launcher().dispatch(place.order()), DispatchUnknown)
    assert list((place.root / "elsewhere").iterdir()) == []


def test_a_supervisor_that_cannot_start_is_refused_and_a_silent_one_is_unknown(place: Place) -> None:
    """A program that cannot be executed started nothing, which the system says itself; whoever was silent may have started something."""
    launcher = LocalLauncher(place.root / "attempts", supervisor=("/no/such/python",))
    assert launcher.dispatch(place.order()) == DispatchRefused("the supervisor cannot be started: No such file or directory")
    launcher = LocalLauncher(place.root / "attempts", supervisor=("/bin/sh", "-c", "exec sleep 5"), start_timeout_s=0.2)
    assert launcher.dispatch(place.order()) == DispatchUnknown("the supervisor said nothing for 0.2 s")
    # The claim can be carried on all the same: nothing was started.
    assert place.launcher().dispatch(place.order()) == Dispatched("started")
    place.terminal()
    assert place.runs() == 1


@proven_by(in_supervisor("start_is_not_exclusive"))
def test_many_controllers_at_once_start_one_trainer(place: Place) -> None:
    order = place.order("sleep 0.5")
    controllers = [place.begin_controller(order, options=("--meet", "4")) for _ in range(4)]
    said = [controller.communicate(timeout=60) for controller in controllers]
    place.terminal()
    assert all(out.startswith("Dispatched") for out, _ in said), said
    assert place.runs() == 1
    assert sorted(out.split("detail=")[1].strip() for out, _ in said) == sorted(["'already started')"] * 3 + ["'started')"])


def test_the_claim_is_readable_and_says_what_was_ordered(place: Place) -> None:
    order = place.order("exit 0", env={"B": "2", "A": "1"}, resume="/a/checkpoint")
    place.launcher().dispatch(order)
    claim = read_claim(place.folder())
    assert isinstance(claim, ReceiptRead)
    assert (claim.receipt.argv, claim.receipt.env, claim.receipt.cwd) == (order.argv, {"A": "1", "B": "2"}, order.cwd)
    place.terminal()


def test_a_trainer_outlives_its_controller_and_the_interrupt_at_its_terminal(place: Place) -> None:
    order = place.order("until [ -e go ]; do sleep 0.05; done; echo done")
    controller = place.begin_controller(order)
    place.wait(lambda: place.runs() == 1)
    os.kill(controller.pid, signal.SIGINT)
    controller.communicate(timeout=10)
    sessions = {os.getsid(place.supervisor_pid()), os.getsid(place.trainer_pid()), os.getsid(0)}
    assert len(sessions) == 3
    (place.root / "go").touch()
    assert place.terminal().outcome == Succeeded()
    assert "done" in place.log()


def test_a_module_in_the_working_folder_does_not_shadow_the_supervisor(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "msgspec.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(place.root)
    assert LocalLauncher(place.root / "attempts").dispatch(place.order()) == Dispatched("started")
    assert place.terminal().outcome == Succeeded()


def test_the_supervisor_imports_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import countermark.launch.supervisor; "
        "print(' '.join(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"sqlalchemy", "typer", "rich", "torch", "numpy", "transformers", "yaml", "starlette", "asyncio", "sqlite3"}
    assert set(run.stdout.split()) & heavy == set()
