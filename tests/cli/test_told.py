"""What the answer about a run always says: how it stands as an exit code, what keeps it from converging, and how fresh the look is."""

import re
from pathlib import Path
from typing import Any

from countermark.cli import running
from countermark.recipe import ROSTER
from tests.cli.called import Caller
from tests.cli.recipes import write_recipe
from tests.faults import planted, proven_by

#: A command without any integration: it publishes something and ends in success.
FOREIGN = ("sh", "-c", 'mkdir "$COUNTERMARK_OUTPUT" && echo 42 > "$COUNTERMARK_OUTPUT/answer.txt"')
LOOKED = re.compile(r"^looked from \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ to \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$", re.MULTILINE)


def no_refusal() -> Any:
    """Every answer about a run is a success."""
    return planted(running, "REFUSED", 0)()


def verdict_alone() -> Any:
    """The verdict and what to do are told, and nothing of why."""
    told = running.conclusion_lines
    return planted(running, "conclusion_lines", lambda *given: told(*given)[:2])()


@proven_by(no_refusal, verdict_alone)
def test_a_foreign_command_that_succeeded_ends_with_1_unverified_in_every_coordinate(here: Path, call: Caller) -> None:
    write_recipe(here)
    called = call("run", "recipe.toml", "--", *FOREIGN)
    (line,) = [line for line in called.out.splitlines() if " succeeded, unverified: " in line] or [""]
    _, _, coordinates = line.partition(": coordinates ")
    assert called.code == 1
    assert coordinates.removesuffix(" (nobody read it)").split(", ") == list(ROSTER)


def nothing_fresh() -> Any:
    return planted(running, "freshness_line", lambda reads: "looked")()


def another_sweep() -> Any:
    """The document carries a sweep without its times."""
    told = running.sweep_document
    return planted(running, "sweep_document", lambda *given: told(*given) | {"freshness": {"beganMs": None, "endedMs": None}})()


@proven_by(nothing_fresh, another_sweep)
def test_a_status_says_how_fresh_its_sweep_is(here: Path, call: Caller) -> None:
    write_recipe(here)
    call("run", "recipe.toml", "--", "sh", "-c", "exit 3")
    run = str(call("runs", "--json").document()["runs"][0]["run"])
    assert LOOKED.search(call("status", run).out)
    one, other = (call("status", run, "--json").document()["sweep"]["freshness"] for _ in range(2))
    assert isinstance(one["beganMs"], int), one
    assert one["beganMs"] <= one["endedMs"] <= other["beganMs"], "each status looks anew"
