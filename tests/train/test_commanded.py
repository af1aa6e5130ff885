"""The scripts that the guide shows, run by the command that it shows: each converges, and killed it is gone on from to the same bits."""

import os
import signal
import time
from pathlib import Path

import pytest

from countermark.files.attempt_folder import ReceiptRead, read_process_receipt
from tests.cli.called import Caller
from tests.train.commanded import COMMAND, attempts_of, laid_out
from tests.train.test_scripts import EACH, LONG, SCRIPTS
from tests.train.tiny import adapter_bits

pytestmark = [pytest.mark.torch, pytest.mark.slow]

RUN = ("run", "recipe.toml", "--pin", "--json")


def killed_after(attempt: Path, step: int) -> None:
    """Kill the trainer, and nothing else, as soon as its checkpoint of this step is there."""
    deadline = time.monotonic() + 120
    while not (attempt / "checkpoints" / f"step-{step}").exists():
        assert time.monotonic() < deadline and not (attempt / "terminal.json").exists(), (attempt / "log").read_text()
        time.sleep(0.005)
    found = read_process_receipt(attempt)
    assert isinstance(found, ReceiptRead), found
    os.kill(found.receipt.process.pid, signal.SIGKILL)


@EACH
def test_a_script_converges_and_killed_it_is_gone_on_from_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    laid_out(tmp_path, SCRIPTS[name], monkeypatch, {"save_steps": 10}, **LONG)
    call = Caller(capsys)
    whole = call(*RUN, "--request", "whole", "--", *COMMAND)
    assert (whole.code, whole.document()["verdict"]) == (0, "Converged"), whole.err
    (uninterrupted,) = attempts_of(call, whole.document()["run"])

    run = call(*RUN, "--request", "killed", "--no-wait", "--", *COMMAND).document()["run"]
    (first,) = attempts_of(call, run)
    killed_after(first, 10)
    assert call("reconcile", run, "--watch", "--json").document()["verdict"] == "ResumeAvailable"
    shown = call("evidence", run)
    assert "killed by signal 9" in shown.out, shown.out
    assert not (first / "output").exists()

    gone_on = call("resume", run, "--json")
    assert (gone_on.code, gone_on.document()["verdict"]) == (0, "Converged"), gone_on.err
    attempts = call("attempts", run, "--json").document()["attempts"]
    assert [each["cause"][0] for each in attempts] == ["InitialAttempt", "Resume"]
    assert adapter_bits(attempts_of(call, run)[-1] / "output") == adapter_bits(uninterrupted / "output")
