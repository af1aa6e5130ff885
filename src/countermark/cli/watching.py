"""Advancing a run and watching it, with each act told as it is made."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from countermark.cli.answers import DONE, REFUSED, Answer, Lines
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

    Turn = Callable[[Ports, str, int, Callable[[Verdict], bool], tuple[AnyDefect, ...], bool], Answer]


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
            return _refused(ports, run_id, known(step.defects), tuple(said), warnings, must_converge)
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
    """Look once and do what is allowed. Where something was done, the answer is what a second look found, never what held before."""
    from countermark.app.running import advance, look_at

    step = advance(ports, run_id, retries, allowed)
    if isinstance(step, Refused):
        return _refused(ports, run_id, known(step.defects), (), warnings, must_converge)
    said = step.acted.lines
    for line in said:
        say(line)
    looked = look_at(ports, run_id) if said else step.looked
    if isinstance(looked, Refused):
        raise CallRefused(known(looked.defects))
    return concluded(looked, said, warnings, must_converge)


def each_of(ports: "Ports", turn: "Turn", retries: int, allowed: Callable[[Verdict], bool]) -> list[Answer]:
    """One turn for every open run. What is refused for one run, its reading included, is that run's answer and keeps no other waiting."""
    answers: list[Answer] = []
    for run in ports.store.list_runs(open_only=True):
        try:
            answers.append(turn(ports, run.run_id, retries, allowed, (), False))
        except CallRefused as refusal:
            said = Lines((f"run {short(run.run_id)} was refused",))
            answers.append(Answer({"run": run.run_id}, (said,), refusal.defects, (), refusal.code, short(run.run_id)))
    return answers


def _refused(
    ports: "Ports",
    run_id: str,
    defects: tuple[AnyDefect, ...],
    said: tuple[str, ...],
    warnings: tuple[AnyDefect, ...],
    must_converge: bool,
) -> Answer:
    """The answer where acting was refused: why, beside the run as it stands, so that the refusal hides no verdict."""
    from countermark.app.running import look_at

    looked = look_at(ports, run_id)
    if isinstance(looked, Refused):
        raise CallRefused(defects)
    return replace(concluded(looked, said, warnings, must_converge), defects=defects, code=REFUSED, summary=None)
