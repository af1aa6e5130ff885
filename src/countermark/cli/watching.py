"""Advancing a run and watching it, with each act told as it is made."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from countermark.cli.answers import DONE, REFUSED, Answer
from countermark.cli.failures import CallRefused, OfRun
from countermark.cli.progress import say, sweeping
from countermark.cli.running import concluded
from countermark.lines.defects import AnyDefect, known
from countermark.lines.sentence import short
from countermark.values import Refused
from countermark.verdict.kinds import Converged, ExecutionRequired, LaunchDispatchRequired, StopRequired, Verdict

if TYPE_CHECKING:
    from countermark.app.acting import Acted
    from countermark.app.ports import Ports
    from countermark.run.records import RunRecord

    Must = tuple[type[Verdict], ...]


def starts(verdict: Verdict) -> bool:
    """What ``run`` may do without being asked: the first start, and a claim's dispatch that was not made yet."""
    return isinstance(verdict, ExecutionRequired | LaunchDispatchRequired)


def stops(verdict: Verdict) -> bool:
    """What ``cancel`` may do: end what lives of the run."""
    return isinstance(verdict, StopRequired)


def everything(verdict: Verdict) -> bool:
    """What ``reconcile --act`` may do: whatever the verdict asks for."""
    return True


def nothing(verdict: Verdict) -> bool:
    """What ``reconcile`` without ``--act`` may do."""
    return False


@contextmanager
def about(run_id: str) -> Generator[None, None, None]:
    """The environment may fail in here; who is told of it is told of the run as well."""
    from countermark.app.errors import EnvironmentFailed
    from countermark.store import StoreError

    try:
        yield
    except BrokenPipeError:
        raise
    except (StoreError, EnvironmentFailed, OSError) as error:
        raise OfRun(error, short(run_id)) from error


def watched(ports: "Ports", record: "RunRecord", warnings: tuple[AnyDefect, ...], wait: bool) -> Answer:
    """Start what may be started, and watch until a verdict that waiting does not change."""
    return _seen_to(ports, record.run_id, (), starts, warnings, (Converged,), wait)


def decided(
    ports: "Ports",
    run_id: str,
    acted: "Acted | Refused[object]",
    allowed: Callable[[Verdict], bool],
    warnings: tuple[AnyDefect, ...],
    must: "Must",
    wait: bool,
) -> Answer:
    """Say what was done for a person's decision, and see to the run from there on."""
    if isinstance(acted, Refused):
        raise CallRefused(known(acted.defects), run=short(run_id))
    for line in acted.lines:
        say(line)
    return _seen_to(ports, run_id, acted.lines, allowed, warnings, must, wait)


def _seen_to(
    ports: "Ports",
    run_id: str,
    said: tuple[str, ...],
    allowed: Callable[[Verdict], bool],
    warnings: tuple[AnyDefect, ...],
    must: "Must",
    wait: bool,
) -> Answer:
    with about(run_id):
        if wait:
            return followed(ports, run_id, 0, allowed, warnings, must, said)
        answer = once(ports, run_id, 0, allowed, warnings, (), said)
    return Answer({**answer.document, "waited": False}, answer.blocks, (), answer.warnings, DONE, answer.run)


def followed(
    ports: "Ports",
    run_id: str,
    retries: int,
    allowed: Callable[[Verdict], bool],
    warnings: tuple[AnyDefect, ...],
    must: "Must" = (),
    before: tuple[str, ...] = (),
) -> Answer:
    """Advance until there is nothing left to wait for; the answer is the last conclusion. ``before``: what was done already."""
    from countermark.app.patience import patiently
    from countermark.app.running import watch

    said = list(before)
    last = None
    named = ""
    for step in watch(ports, run_id, retries, allowed, sweeping(), told=say):
        if isinstance(step, Refused):
            return patiently(partial(_refused, ports, run_id, known(step.defects), tuple(said), warnings, must), say)
        name = type(step.looked.conclusion.verdict).__name__
        if name != named:
            say(f"run {short(run_id)}: {name}")
            named = name
        for line in step.acted.lines:
            # What does not want to stop is asked again and again, and told of once.
            if line not in said[-1:]:
                say(f"  {line}")
                said.append(line)
        last = step.looked
    assert last is not None, "watching looks at least once"
    return concluded(last, tuple(said), warnings, must)


def once(
    ports: "Ports",
    run_id: str,
    retries: int,
    allowed: Callable[[Verdict], bool],
    warnings: tuple[AnyDefect, ...],
    must: "Must" = (),
    before: tuple[str, ...] = (),
) -> Answer:
    """Look once and do what is allowed. Where something was done, the answer is what a second look found, never what held before."""
    from countermark.app.running import advance, look_at, look_soon

    step = advance(ports, run_id, retries, allowed, sweeping())
    if isinstance(step, Refused):
        return _refused(ports, run_id, known(step.defects), before, warnings, must)
    for line in step.acted.lines:
        say(line)
    if step.acted.lines:
        look_soon(ports, run_id)
    looked = look_at(ports, run_id, sweeping()) if step.acted.lines else step.looked
    if isinstance(looked, Refused):
        raise CallRefused(known(looked.defects))
    return concluded(looked, (*before, *step.acted.lines), warnings, must)


def _refused(
    ports: "Ports",
    run_id: str,
    defects: tuple[AnyDefect, ...],
    said: tuple[str, ...],
    warnings: tuple[AnyDefect, ...],
    must: "Must",
) -> Answer:
    """The answer where acting was refused: why, beside the run as it stands, so that the refusal hides no verdict."""
    from countermark.app.running import look_at

    looked = look_at(ports, run_id)
    if isinstance(looked, Refused):
        raise CallRefused(defects)
    return replace(concluded(looked, said, warnings, must), defects=defects, code=REFUSED, summary=None)
