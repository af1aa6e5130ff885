"""What a release stored, every later one reads as the same sweep, stores with the same bytes, and concludes the same verdict from."""

import json
from contextlib import AbstractContextManager
from typing import Any, get_args

import pytest

from countermark.evidence.cut import Stage
from countermark.evidence.members import CancelledByRequest, Failed, How, Outcome, Preempted, ProcessState
from countermark.run.checkpoint import AttemptElsewhere, CheckpointAbsent, CheckpointDefect
from countermark.run.claims import Launcher
from countermark.values import Refused
from countermark.verdict import Sweep, conclude
from countermark.verdict.kinds import Blocked, Blocker, CheckpointNotAdmitted, Verdict, WhyNot
from countermark.wire import sweep_members
from countermark.wire.sweep import decode_sweep, encode_sweep
from countermark.wire.sweep_checkpoints import Arm
from tests.faults import planted, proven_by
from tests.wire.recording import numbers, recorded, verdict_text

RECORDED = [(number, one) for number in numbers() for one in recorded(number)]


def again(document: str) -> Sweep:
    found = decode_sweep(document.encode("ascii"))
    assert isinstance(found, Sweep), found
    return found


def preempted_is_cancelled() -> AbstractContextManager[object]:
    """An arm of one release is another one's."""
    original = sweep_members.outcome_of

    def read(text: Any) -> Outcome:
        return CancelledByRequest() if original(text) == Preempted() else original(text)

    return planted(sweep_members, "outcome_of", read)()


def codes_are_lost() -> AbstractContextManager[object]:
    original = sweep_members.outcome_of

    def read(text: Any) -> Outcome:
        return Failed(1) if isinstance(original(text), Failed) else original(text)

    return planted(sweep_members, "outcome_of", read)()


@proven_by(preempted_is_cancelled, codes_are_lost)
def test_every_recorded_sweep_is_read_stored_and_concluded_again_byte_for_byte() -> None:
    assert RECORDED
    for number, one in RECORDED:
        found = again(one["document"])
        assert verdict_text(found) == one["verdict"], (number, one["name"])
        assert encode_sweep(found).decode("ascii") == one["document"], (number, one["name"])


def values(part: Any) -> set[str]:
    """Every text that stands somewhere in a document, and every name of a field."""
    if isinstance(part, dict):
        return {text for name, inner in part.items() for text in (name, *values(inner))}
    if isinstance(part, list):
        return {text for inner in part for text in values(inner)}
    return {part} if isinstance(part, str) else set()


def test_everything_that_a_sweep_can_say_was_recorded() -> None:
    """A new arm of a closed sum shows here: it is recorded by the release that first stores it."""
    found = {text for _, one in RECORDED for text in values(json.loads(one["document"]))}
    arms = [str(arm.__struct_config__.tag) for arm in Arm.__subclasses__()]
    assert len(set(arms)) >= 29
    assert [
        name for name in (*arms, *get_args(Stage), *get_args(ProcessState), *get_args(How), *get_args(Launcher)) if name not in found
    ] == []


def test_everything_that_can_be_concluded_was_recorded() -> None:
    answers = [conclude(again(one["document"])) for _, one in RECORDED]
    conclusions = [answer for answer in answers if not isinstance(answer, Refused)]
    blockers = [one for answer in conclusions if isinstance(answer.verdict, Blocked) for one in answer.verdict.blockers]
    reasons = [why for answer in conclusions for why in answer.why_not]
    defects = [defect for why in reasons if isinstance(why, CheckpointNotAdmitted) for defect in why.defects]
    for kinds, said in (
        (get_args(Verdict), [answer.verdict for answer in conclusions]),
        (get_args(Blocker), blockers),
        (get_args(WhyNot), reasons),
        # Of one that is named and not there, or that says it is another attempt's, only a person's question hears.
        ([kind for kind in get_args(CheckpointDefect) if kind not in (CheckpointAbsent, AttemptElsewhere)], defects),
    ):
        assert [kind.__name__ for kind in kinds if not any(isinstance(one, kind) for one in said)] == []
    assert any(isinstance(answer, Refused) for answer in answers)


@pytest.mark.parametrize("number", numbers())
def test_a_recorded_sweep_is_named_once(number: int) -> None:
    names = [one["name"] for one in recorded(number)]
    assert len(set(names)) == len(names) > (100 if number < 3 else 0), "from the third on, a file holds what none before it did"
