"""What is said of one attempt, to the word: outcomes, contradictions, traces, differences and reasons."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from countermark.evidence.cut import Stage
from countermark.evidence.members import CancelledByRequest, Killed, NotExecuted, Outcome, Preempted, Read, Succeeded, Unread
from countermark.run.claims import BelieveSource, ControlState, Dispatched, DispatchOutcome, DispatchRefused, DispatchUnknown, LaunchResult
from countermark.values import NonEmpty
from countermark.verdict.kinds import (
    Blocked,
    ContradictoryTerminals,
    Converged,
    CoordinatesUnread,
    EffectiveManifestDiverges,
    EvidenceOnRefusedDispatch,
    LaunchDispatchRequired,
    Lost,
    ObservationRequired,
    RetryRequired,
)
from countermark.verdict.standing import Standing, outcome_text
from tests.verdict.scenes import Scene, Try, changed, checkpoint, concluded, ended, failed, key, manifest, output, process, ruled

STARTED = Dispatched("started")
REFUSED = DispatchRefused("no such host")
COMPLETED = Scene(
    (Try(1, STARTED),),
    terminals={"supervisor": (ended(1),)},
    outputs={"local": (output(1),)},
    manifests={"local": (manifest(1),)},
)


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Succeeded(), "succeeded"),
        (NotExecuted(127, "not found"), "never executed (exit code 127): not found"),
        (Killed(9), "killed by signal 9"),
        (CancelledByRequest(), "cancelled"),
        (Preempted(), "preempted"),
    ],
)
def test_an_outcome_by_its_name(outcome: Outcome, text: str) -> None:
    assert outcome_text(outcome) == text


@pytest.mark.parametrize("said", list(permutations((REFUSED, DispatchUnknown("timed out"), STARTED))))
def test_the_strongest_answer_of_a_launcher_counts_in_whatever_order_they_came(said: tuple[LaunchResult, ...]) -> None:
    def standing(*results: LaunchResult) -> Standing:
        outcomes = tuple(DispatchOutcome(key(1), result, 5) for result in results)
        return Standing(key(1), ControlState(None, (), outcomes, False))

    assert standing().launch_result() is None
    assert standing(*said).launch_result() == STARTED
    weaker = tuple(result for result in said if result != STARTED)
    assert standing(*weaker).launch_result() == DispatchUnknown("timed out")
    assert [standing(*results).dispatch_refused() for results in ((), (REFUSED,), weaker, said)] == [False, True, False, False]


# --------------------------------------------------------------------------------------------------------- terminals


def test_one_word_of_each_reading_can_contradict_the_other() -> None:
    scene = changed(COMPLETED, terminals={"supervisor": (failed(1),)}, again={"supervisor": (ended(1),)})
    blocked = concluded(scene).verdict
    assert blocked == Blocked(NonEmpty(ContradictoryTerminals(key(1), ("supervisor: failed with exit code 1", "supervisor: succeeded"))))


CONTRADICTED = changed(COMPLETED, terminals={"supervisor": (ended(1),), "launcher": (failed(1, "launcher"),)}, outputs={"local": ()})


def gone_silent(result: LaunchResult | None) -> Scene:
    """A person believed the supervisor; since then its word is not to be had, and only the launcher's is seen."""
    believed = ruled(changed(CONTRADICTED, tries=(Try(1, result),)), 1, BelieveSource("supervisor"))
    assert believed.adjudications
    return changed(believed, terminals={"supervisor": (), "launcher": (failed(1, "launcher"),)}, manifests={"local": ()})


def test_what_was_not_believed_still_shows_that_the_attempt_was_started() -> None:
    assert concluded(gone_silent(None)).verdict == Lost(NonEmpty(key(1)))
    unseen = changed(gone_silent(None), terminals={"supervisor": (), "launcher": ()})
    assert concluded(unseen).verdict == LaunchDispatchRequired(NonEmpty(key(1)))


def test_what_was_not_believed_is_still_evidence_on_a_dispatch_that_was_refused() -> None:
    assert concluded(gone_silent(REFUSED)).verdict == Blocked(NonEmpty(EvidenceOnRefusedDispatch(key(1), ("terminals",))))


# ------------------------------------------------------------------------------------------------------------ traces


@pytest.mark.parametrize(
    ("axis", "member", "stage"),
    [
        ("terminals", failed(1), "terminals"),
        ("processes", process(1, "dead"), "processes"),
        ("outputs", output(1), "outputs"),
        ("checkpoints", checkpoint(1), "checkpoints"),
        ("manifests", manifest(1), "manifests"),
    ],
)
def test_every_trace_of_a_refused_dispatch_is_named(axis: str, member: Any, stage: Stage) -> None:
    refused = Scene((Try(1, REFUSED),))
    assert concluded(refused).verdict == RetryRequired(NonEmpty(key(1)))
    verdict = concluded(changed(refused, **{axis: {"local": (member,)}})).verdict
    assert verdict == Blocked(NonEmpty(EvidenceOnRefusedDispatch(key(1), (stage,))))


def test_one_dead_process_that_two_sources_saw_is_one_execution() -> None:
    scene = changed(COMPLETED, processes={"local": (process(1, "dead"),), "other": (process(1, "dead"),)})
    assert isinstance(concluded(scene).verdict, Converged)


# --------------------------------------------------------------------------------------------------------- manifests


def test_every_source_that_read_another_value_is_named_with_it() -> None:
    other = {
        "trainer": (manifest(1, seed=Read("18", "live_object"), rank=Read("8", "artifact")),),
        "artifacts": (manifest(1, "artifacts", seed=Read("19", "file_hash")),),
    }
    said = ("seed: 17 → 18 (trainer), 19 (artifacts)", "rank: 4 → 8 (trainer)")
    assert concluded(changed(COMPLETED, manifests=other)).verdict == Blocked(NonEmpty(EffectiveManifestDiverges(key(1), said)))


def test_every_reason_for_which_a_coordinate_was_not_read_is_named() -> None:
    silent = {
        "trainer": (manifest(1, seed=Unread("no key"), rank=Read("4", "passed_through"), dropout=None),),
        "artifacts": (manifest(1, "artifacts", seed=Unread("no file"), rank=None, dropout=None),),
    }
    unread = CoordinatesUnread(key(1), ("seed: no file; no key", "rank: passed through, which is no reading", "dropout: nobody read it"))
    assert concluded(changed(COMPLETED, manifests=silent)).verdict == ObservationRequired((), (), (unread,), ())
    one = {"trainer": silent["trainer"]}
    lone = replace(unread, coordinates=("seed: no key", *unread.coordinates[1:]))
    assert concluded(changed(COMPLETED, manifests=one)).verdict == ObservationRequired((), (), (lone,), ())
