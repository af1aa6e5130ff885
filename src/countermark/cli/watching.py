"""Advancing a run and watching it, with each act told as it is made."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from countermark.cli.answers import DONE, Answer
from countermark.cli.failures import CallRefused
from countermark.cli.progress import say
from countermark.cli.running import concluded
from countermark.lines.defects import AnyDefect, known
from countermark.lines.sentence import short
from countermark.values import Refused
from countermark.verdict.kinds import ExecutionRequired, LaunchDispatchRequired, Verdict

if TYPE_CHECKING:
    from countermark.app.ports import Ports
    from countermark.run.records import RunRecord


def starts(verdict: Verdict) -> bool:
    """What ``run`` may do without being asked: the first start, and a claim's dispatch that was not made yet."""
    return isinstance(verdict, ExecutionRequired | LaunchDispatchRequired)


def everything(verdict: Verdict) -> bool:
    """What ``reconcile --act`` may do: whatever the verdict asks for."""
    return True


def nothing(verdict: Verdict) -> bool:
    """What ``reconcile`` without ``--act`` may do."""
    return False


def watched(ports: "Ports", record: "RunRecord", warnings: tuple[AnyDefect, ...], wait: bool) -> Answer:
    """Start what may be started, and watch until a verdict that waiting does not change."""
    if wait:
        return followed(ports, record.run_id, 0, starts, warnings, must_converge=True)
    answer = once(ports, record.run_id, 0, starts, warnings, must_converge=False)
    return Answer({**answer.document, "waited": False}, answer.blocks, (), answer.warnings, DONE, answer.run)


def followed(
    ports: "Ports", run_id: str, retries: int, allowed: Callable[[Verdict], bool], warnings: tuple[AnyDefect, ...], must_converge: bool
) -> Answer:
    """Advance until there is nothing left to wait for; the answer is the last conclusion."""
    from countermark.app.running import watch

    said: list[str] = []
    last = None
    before = ""
    for step in watch(ports, run_id, retries, allowed):
        if isinstance(step, Refused):
            raise CallRefused(known(step.defects))
        name = type(step.looked.conclusion.verdict).__name__
        if name != before:
            say(f"run {short(run_id)}: {name}")
            before = name
        for line in step.acted.lines:
            say(f"  {line}")
            said.append(line)
        last = step.looked
    assert last is not None, "watching looks at least once"
    return concluded(last, tuple(said), warnings, must_converge)


def once(
    ports: "Ports", run_id: str, retries: int, allowed: Callable[[Verdict], bool], warnings: tuple[AnyDefect, ...], must_converge: bool
) -> Answer:
    """Look once, and do what is allowed; what was done shows at the next look."""
    from countermark.app.running import advance

    step = advance(ports, run_id, retries, allowed)
    if isinstance(step, Refused):
        raise CallRefused(known(step.defects))
    for line in step.acted.lines:
        say(line)
    return concluded(step.looked, step.acted.lines, warnings, must_converge)
