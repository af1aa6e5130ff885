"""A conclusion as lines and as a document: every arm with its next step, nothing left out, nothing that a terminal would obey."""

import json
from typing import Any, get_args

import pytest

from countermark.evidence.members import Killed, NotAttempted, Unread
from countermark.lines import conclusion as room
from countermark.lines.conclusion import conclusion_document, conclusion_lines
from countermark.run.attempts import RequestedReexecution
from countermark.run.claims import Dispatched
from countermark.values import NonEmpty
from countermark.verdict import Conclusion, Verdict
from countermark.verdict.kinds import Blocked, CoordinatesUnread, ObservationRequired, WhyNot
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE, sample
from tests.verdict.scenes import Scene, Try, changed, checkpoint, concluded, ended, failed, key, manifest, output, process
from tests.verdict.test_verdicts import NEIGHBOURS

ARMS = get_args(Verdict)
SCENES = {higher: scene for (higher, _), scene in NEIGHBOURS.items()} | {"ExecutionRequired": Scene()}
COMMANDS = {
    "Blocked": "countermark evidence RUN",
    "StopRequired": "countermark reconcile RUN --act",
    "Cancelled": "countermark run RECIPE --request NAME",
    "InProgress": "countermark reconcile RUN --watch",
    "ObservationRequired": "countermark reconcile RUN",
    "LaunchDispatchRequired": "countermark reconcile RUN --act",
    "LaunchPending": "countermark reconcile RUN --watch",
    "Lost": "countermark reconcile RUN --act",
    "SeveralCandidates": "countermark evidence RUN",
    "Converged": "countermark weights root PATH",
    "ResumeAvailable": "countermark resume RUN",
    "RetryRequired": "countermark reconcile RUN --act --retries 1",
    "ExecutionRequired": "countermark reconcile RUN --act",
}


def test_every_arm_of_the_verdict_is_told() -> None:
    assert [arm.__name__ for arm in ARMS] == list(COMMANDS) == list(SCENES)


@pytest.mark.parametrize("arm", list(SCENES))
def test_the_first_line_is_the_verdict_and_the_second_what_to_do(arm: str) -> None:
    lines = conclusion_lines(concluded(SCENES[arm]))
    assert lines[0].startswith(f"{arm}: ")
    assert lines[1].startswith("next: ")
    assert COMMANDS[arm] in lines[1]


@pytest.mark.parametrize("arm", list(SCENES))
def test_commands_name_the_run_where_it_is_known(arm: str) -> None:
    lines = conclusion_lines(concluded(SCENES[arm]), "4fa0c3d2")
    assert "RUN" not in lines[1]
    assert ("4fa0c3d2" in lines[1]) is ("RUN" in COMMANDS[arm])


@pytest.mark.parametrize("arm", list(SCENES))
def test_every_member_of_every_population_is_named(arm: str) -> None:
    conclusion = concluded(SCENES[arm])
    document = conclusion_document(conclusion)
    assert document["verdict"] == arm
    first = conclusion_lines(conclusion)[0]
    members = document["members"]
    assert isinstance(members, dict)
    attempts: Any = members.get("attempts", [])
    assert all(nonce[:8] in first for nonce in attempts)
    assert bool(document["blockers"]) is isinstance(conclusion.verdict, Blocked)


def as_members(*kinds: Any) -> Any:
    """One hostile instance of each kind."""
    return tuple(sample(kind) for kind in kinds)


@proven_by(planted(room, "plain", lambda text, length_max=0: text))
@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.__name__)
def test_nothing_that_a_terminal_would_obey_reaches_a_line(arm: Any) -> None:
    """Every text of every population is hostile; the paths of candidates and checkpoints included."""
    hostile: Any = Conclusion(hostile_verdict(arm), as_members(*get_args(WhyNot)), ())
    unread = ObservationRequired((), (), (CoordinatesUnread(key(1), (f"seed: {HOSTILE}",)),), ())
    for conclusion in (hostile, Conclusion(unread, (), ())):
        lines = conclusion_lines(conclusion)
        assert all(line.isprintable() for line in lines), lines
        assert json.loads(json.dumps(conclusion_document(conclusion)))


def hostile_verdict(arm: Any) -> Any:
    """A verdict of this arm whose texts are hostile; sealed values are taken from a scene and changed past their seals."""
    verdict = concluded(SCENES[arm.__name__]).verdict
    for name in ("candidate", "candidates", "checkpoints"):
        population = getattr(verdict, name, ())
        for one in population if isinstance(population, NonEmpty) else (population,) if population else ():
            object.__setattr__(one, "path", HOSTILE)
    return verdict


def test_a_foreign_command_is_told_as_succeeded_and_unverified_with_its_coordinates() -> None:
    scene = Scene(
        (Try(1, Dispatched("started")),),
        terminals={"supervisor": (ended(1),)},
        processes={"local": (process(1, "dead"),)},
        outputs={"local": (output(1),)},
        manifests={"local": (manifest(1, seed=None, rank=None),)},
    )
    lines = conclusion_lines(concluded(scene))
    assert "attempt 00000001 succeeded, unverified: coordinates seed, rank (nobody read it)" in lines
    assert not any(line.startswith("not yet: ") for line in lines), "it is said once"
    document: Any = conclusion_document(concluded(scene))
    assert [one["code"] for one in document["members"]["coordinatesUnread"]] == ["CoordinatesUnread"]
    assert [one["code"] for one in document["whyNot"]] == ["CoordinatesUnread"]


def test_a_blocker_stands_in_the_document_with_code_values_message_and_remedy() -> None:
    scene = changed(SCENES["Converged"], outputs={"local": ()})
    document: Any = conclusion_document(concluded(scene))
    blocker = document["blockers"][0]
    assert (blocker["code"], blocker["attempt"]) == ("SuccessWithoutOutput", key(1).nonce.hex)
    assert blocker["message"] and blocker["remedy"]


def test_two_successes_of_which_nobody_read_everything_are_told_apart_each_with_its_reasons() -> None:
    scene = Scene(
        (Try(1, Dispatched("started")), Try(2, Dispatched("started"), RequestedReexecution("again"))),
        terminals={"supervisor": (ended(1), ended(2))},
        outputs={"local": (output(1), output(2))},
        manifests={"local": (manifest(1, seed=Unread("no key"), rank=None), manifest(2, dropout=None))},
    )
    lines = conclusion_lines(concluded(scene))
    assert lines[0] == "ObservationRequired: a conclusion needs what was not observed: 3 coordinates unread"
    assert [line for line in lines if "unverified" in line] == [
        "attempt 00000001 succeeded, unverified: coordinates seed (no key); rank (nobody read it)",
        "attempt 00000002 succeeded, unverified: coordinates dropout (nobody read it)",
    ]


def test_every_command_of_every_conflict_names_the_run_and_what_was_found_is_left_as_it_was() -> None:
    """A path that holds the word for the run is no command."""
    scene = changed(
        SCENES["Converged"],
        processes={"local": (process(1),)},
        outputs={"local": (output(1, path="/RUN/a"), output(1, "e", "/RUN/b"))},
        terminals={"supervisor": (ended(1),), "RUN": (ended(1, Killed(9), "RUN"),)},
    )
    blocked = [line for line in conclusion_lines(concluded(scene), "4fa0c3d2") if line.startswith("blocked: ")]
    assert len(blocked) == 3
    assert all("4fa0c3d2" in line and "countermark" in line and " RUN" not in line.partition("; ")[2] for line in blocked), blocked
    assert any("RUN: killed by signal 9" in line for line in blocked)
    done = conclusion_lines(concluded(changed(SCENES["Converged"], outputs={"local": (output(1, path="/RUN/a"),)})), "4fa0c3d2")
    assert "with /RUN/a (" in done[0]


def codes(population: Any) -> list[str]:
    return [one["code"] for one in population]


def test_what_needs_an_observation_stands_in_the_document_by_who_mends_it() -> None:
    scene = Scene(
        (Try(1, Dispatched("started")), Try(2, Dispatched("started"), RequestedReexecution("again"))),
        terminals={"supervisor": (ended(1), ended(2))},
        outputs={"local": (output(1),), "other": "the disk failed", "third": NotAttempted("on n2")},
        manifests={"local": (manifest(1, seed=None), manifest(2))},
    )
    late = changed(
        scene, terminals={"supervisor": (ended(1),)}, again={"supervisor": (ended(1), ended(2))}, outputs={"local": (output(1),)}
    )
    document: Any = conclusion_document(concluded(scene))
    assert {name: codes(population) for name, population in document["members"].items()} == {
        "notAttempted": ["AxisNotAttempted"],
        "refused": ["AxisRefused"],
        "coordinatesUnread": ["CoordinatesUnread"],
        "ordersMissing": [],
    }
    missing: Any = conclusion_document(concluded(late))
    (order,) = missing["members"]["ordersMissing"]
    assert (order["code"], order["rule"], order["earlier"], order["later"]) == (
        "OrderMissing",
        "SuccessWithoutOutput",
        "terminals_again",
        "outputs",
    )


def test_every_candidate_and_every_checkpoint_stands_in_the_document_by_its_whole_name() -> None:
    several: Any = conclusion_document(concluded(SCENES["SeveralCandidates"]))["members"]
    assert [(one["attempt"], one["output"], one["path"]) for one in several["candidates"]] == [
        (key(number).nonce.hex, "sha256:" + "d" * 64, f"/store/{number}/output") for number in (1, 2)
    ]
    assert several["equalWeights"] is True
    scene = Scene(
        (Try(1, Dispatched("started")),),
        terminals={"supervisor": (failed(1),)},
        checkpoints={"local": (checkpoint(1, 5), checkpoint(1, 9))},
    )
    resumable: Any = conclusion_document(concluded(scene))["members"]
    assert resumable["attempt"] == key(1).nonce.hex
    assert [(one["attempt"], one["step"], one["path"]) for one in resumable["checkpoints"]] == [
        (key(1).nonce.hex, step, f"/store/1/checkpoints/step-{step}") for step in (9, 5)
    ]
