"""The command of a run is stored with its demand, on either ledger: who attaches with another one is told so, and the first runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from countermark.app import acting
from countermark.app.running import Demanded, demand_run
from countermark.files.attempt_folder import ReceiptRead, read_claim
from countermark.recipe import Requirements, contract_of, derive_work_key
from countermark.run.records import RunContext
from countermark.values import Principal
from tests.app.bench import BOTH_LEDGERS, Bench, starts
from tests.faults import planted, proven_by

pytestmark = BOTH_LEDGERS

#: What another caller may say otherwise.
OTHERS: dict[str, dict[str, Any]] = {
    "argv": {"argv": ("sh", "-c", "exit 0")},
    "cwd": {"cwd": "/"},
    "env": {"env": {"NAMED": "others"}},
    "one variable more": {"env": {"NAMED": "first", "MORE": "1"}},
    "no variable": {"env": {}},
    "all of it": {"argv": ("true",), "cwd": "/", "env": {}},
}


def demanded(bench: Bench, context: RunContext) -> Demanded:
    work = derive_work_key(Principal("local"), contract_of(bench.resolution), Requirements())
    answer = demand_run(bench.ports, bench.resolution, work, Principal("tester"), None, context)
    assert isinstance(answer, Demanded), answer
    return answer


def test_another_command_on_attach_is_a_warning_whatever_of_it_differs(bench: Bench) -> None:
    context = RunContext("topics-lora", {}, {}, ("sh", "-c", "exit 3"), str(bench.root), {"NAMED": "first"}, "local")
    first = demanded(bench, context)
    assert (first.attached, first.other_command) == (False, False)
    told = {name: demanded(bench, replace(context, **changes)) for name, changes in OTHERS.items()}
    assert {name: (answer.attached, answer.other_command) for name, answer in told.items()} == dict.fromkeys(OTHERS, (True, True))
    assert {answer.record.run_id for answer in told.values()} == {first.record.run_id}
    assert all(answer.record.context == context for answer in told.values()), "the first one stands"
    assert demanded(bench, context).other_command is False


def run_as_it_is_here() -> Any:
    """The fault: a controller dispatches the folder and the variables that it has itself."""
    honest = acting.LaunchOrder
    return planted(acting, "LaunchOrder", lambda **order: honest(**(order | {"cwd": str(Path.cwd()), "env": {}})))()


@proven_by(run_as_it_is_here)
def test_what_was_stored_is_run_by_whichever_controller_dispatches_it(bench: Bench) -> None:
    """From another folder, with other variables, and after somebody attached with another command."""
    script = "echo $PWD $NAMED > $COUNTERMARK_ATTEMPT/said"
    below = bench.root / "below"
    below.mkdir()
    context = RunContext("topics-lora", {}, {}, ("sh", "-c", script), str(below), {"NAMED": "first"}, "local")
    run = demanded(bench, context).record.run_id
    demanded(bench, replace(context, argv=("sh", "-c", "exit 9"), env={"NAMED": "others"}))
    assert bench.acted(run)
    bench.ended(run, 0, starts)
    claim = read_claim(bench.folder(run))
    assert isinstance(claim, ReceiptRead)
    assert (claim.receipt.argv, claim.receipt.cwd, claim.receipt.env) == (context.argv, str(below), {"NAMED": "first"})
    assert (bench.folder(run) / "said").read_text(encoding="utf-8") == f"{below} first\n"
