"""A person's ruling settles just the blockers that it names, is always named itself, and is taken back by nothing but a later ruling."""

from dataclasses import replace
from itertools import combinations
from typing import Any, get_args

import pytest

from countermark.evidence.cut import OutOfOrder
from countermark.run.attempts import AttemptKey, InfrastructureRetry, RequestedReexecution
from countermark.run.claims import Adjudication, BelieveSource, Dispatched, SetAside
from countermark.verdict import fold as room
from countermark.verdict import places, rulings
from countermark.verdict.kinds import (
    AttemptWithoutExecutionClaim,
    AxisRefused,
    Blocked,
    Blocker,
    BlockerAdjudicated,
    Cancelled,
    ContradictoryTerminals,
    Converged,
    EffectiveManifestDiverges,
    EvidenceOnRefusedDispatch,
    InProgress,
    LiveProcessAfterTerminal,
    Lost,
    NoSuccess,
    ObservationRequired,
    OrderMissing,
    OrphanOutput,
    ResumeAvailable,
    RetryRequired,
    SetAsideByPerson,
    SeveralCandidates,
    SeveralExecutions,
    SeveralLiveProcesses,
    SeveralOutputs,
    SharedLocation,
    StopRequired,
    SuccessWithoutOutput,
)
from countermark.verdict.rulings import blocker_text
from tests.faults import planted, proven_by
from tests.verdict.scenes import (
    Scene,
    Try,
    changed,
    checkpoint,
    concluded,
    ended,
    failed,
    key,
    manifest,
    output,
    plus,
    process,
    ruled,
    unidentified,
)
from tests.verdict.test_blockers import ENDED, FIRST, ON_ENDED, OTHER, broken

STARTED = Dispatched("started")
ASIDE = SetAside()
#: One attempt that completed as it should.
ALONE = Scene(
    (Try(1, STARTED),),
    terminals={"supervisor": (ended(1),)},
    processes={"local": (process(1, "dead"),)},
    outputs={"local": (output(1),)},
    manifests={"local": (manifest(1),)},
)
DISPUTED = changed(ALONE, terminals={"supervisor": (ended(1),), "launcher": (failed(1, "launcher"),)})
NO_OUTPUT = changed(ALONE, outputs={"local": ()})
#: One attempt under way in two places.
DOUBLED = changed(ALONE, terminals={"supervisor": ()}, outputs={"local": ()}, processes={"local": (process(1), process(1, pid=200))})


def at(scene: Scene) -> Any:
    return concluded(scene).verdict


def blockers(scene: Scene) -> tuple[Blocker, ...]:
    verdict = at(scene)
    return tuple(verdict.blockers) if isinstance(verdict, Blocked) else ()


def effects(scene: Scene) -> list[tuple[str, str, str]]:
    """What is noted of each ruling: the kind of its blocker, the ruling, and its effect."""
    notes = (note for note in concluded(scene).notes if isinstance(note, BlockerAdjudicated))
    return [(note.blocker.split(" ")[0], type(note.ruling).__name__, note.effect) for note in notes]


def ruling(number: int, given: Any, *texts: str) -> Adjudication:
    return Adjudication(key(number), given, texts, "ada", "seen to", 60_000)


# --------------------------------------------------------------------------------------------------------------- the texts

N1, N2 = key(1).nonce.hex, key(2).nonce.hex
#: What a ledger keeps for years: these spellings never change.
TEXTS = {
    ContradictoryTerminals(key(1), ("a: failed", "b: ok")): f'ContradictoryTerminals {N1} ["a: failed", "b: ok"]',
    LiveProcessAfterTerminal(key(1)): f"LiveProcessAfterTerminal {N1}",
    SeveralLiveProcesses(key(1), ("p", "q")): f'SeveralLiveProcesses {N1} ["p", "q"]',
    SeveralExecutions(key(1), ("p", "q")): f'SeveralExecutions {N1} ["p", "q"]',
    SuccessWithoutOutput(key(1)): f"SuccessWithoutOutput {N1}",
    SeveralOutputs(key(1), ("d", "e")): f'SeveralOutputs {N1} ["d", "e"]',
    EffectiveManifestDiverges(key(1), ("seed: 1 → 2",)): f'EffectiveManifestDiverges {N1} ["seed: 1 \\u2192 2"]',
    AttemptWithoutExecutionClaim(key(1)): f"AttemptWithoutExecutionClaim {N1}",
    EvidenceOnRefusedDispatch(key(1), ("processes",)): f'EvidenceOnRefusedDispatch {N1} ["processes"]',
    SharedLocation("/s \udcff", (key(1), key(2))): f'SharedLocation {N1},{N2} "/s \\udcff"',
}


def test_every_blocker_has_the_text_that_it_always_had() -> None:
    assert {type(blocker) for blocker in TEXTS} == set(get_args(Blocker))
    for blocker, text in TEXTS.items():
        assert blocker_text(blocker) == text


@proven_by(planted(rulings, "_found", lambda blocker: ()))
def test_what_a_blocker_found_is_part_of_its_text() -> None:
    others = [
        ContradictoryTerminals(key(1), ("a: failed, b: ok",)),
        ContradictoryTerminals(key(1), ("a: failed", "b: ok", "c: ok")),
        SeveralOutputs(key(1), ("d", "f")),
        SharedLocation("/t", (key(1), key(2))),
        SharedLocation("/s \udcff", (key(1), key(3))),
        SuccessWithoutOutput(key(2)),
    ]
    texts = {blocker_text(blocker) for blocker in (*TEXTS, *others)}
    assert len(texts) == len(TEXTS) + len(others)


# ------------------------------------------------------------------------------------------------------------- set aside


def unsettled() -> Any:
    return planted(rulings.Rulings, "settles", lambda self, blocker: False)()


def everything_settled() -> Any:
    """A ruling on anything settles all that is found of the attempt."""
    return planted(rulings.Rulings, "settles", lambda self, blocker: bool(self.given))()


@proven_by(unsettled)
@pytest.mark.parametrize("name", list(ON_ENDED))
def test_an_attempt_that_is_set_aside_blocks_no_more_and_leaves_the_other(name: str) -> None:
    scene, expected = broken((name, 1))
    conclusion = concluded(ruled(scene, 1, ASIDE, by="ben", reason="torn"))
    wanted = StopRequired if name == "alive after its terminal" else Converged
    assert isinstance(conclusion.verdict, wanted)
    if isinstance(conclusion.verdict, Converged):
        assert conclusion.verdict.candidate.attempt == key(2)
    (blocker,) = expected
    assert BlockerAdjudicated(key(1), blocker_text(blocker), ASIDE, "ben", "torn", "settled") in conclusion.notes


@proven_by(everything_settled)
@pytest.mark.parametrize(("one", "other"), [(a, b) for a, b in combinations(ON_ENDED, 2) if ON_ENDED[a].touches != ON_ENDED[b].touches])
def test_a_ruling_on_one_of_two_blockers_leaves_the_other(one: str, other: str) -> None:
    scene, expected = broken((one, 1), (other, 1))
    first = ON_ENDED[one].blocker(scene, 1)
    assert len(expected) == 2
    left = blockers(changed(scene, adjudications=(ruling(1, ASIDE, blocker_text(first)),)))
    assert set(left) == set(blockers(scene)) - {first}


@proven_by(planted(rulings.Rulings, "settles", lambda self, blocker: True))
@pytest.mark.parametrize("name", list(ON_ENDED))
def test_the_same_blocker_of_another_attempt_is_another_one(name: str) -> None:
    scene, _ = broken((name, 1), (name, 2))
    left = blockers(ruled(scene, 1, ASIDE))
    assert left == (ON_ENDED[name].blocker(scene, 2),)


def test_a_fact_that_comes_to_light_later_blocks_again() -> None:
    settled = ruled(DISPUTED, 1, ASIDE)
    assert isinstance(at(settled), RetryRequired)
    third = changed(settled, terminals={**DISPUTED.terminals, "scheduler": (failed(1, "scheduler", 137),)})
    (blocker,) = blockers(third)
    assert isinstance(blocker, ContradictoryTerminals) and len(blocker.sources) == 3
    assert effects(third) == [("ContradictoryTerminals", "SetAside", "not seen")]
    assert isinstance(at(ruled(third, 1, ASIDE)), RetryRequired)


@proven_by(planted(rulings.Rulings, "set_aside", lambda self: None))
def test_what_was_set_aside_is_nobodys_result_and_why_is_said() -> None:
    conclusion = concluded(ruled(NO_OUTPUT, 1, ASIDE, by="ben", reason="never wrote"))
    assert isinstance(conclusion.verdict, RetryRequired)
    assert conclusion.why_not == (SetAsideByPerson(key(1), "ben", "never wrote"),)
    late = changed(ruled(NO_OUTPUT, 1, ASIDE), outputs={"local": (output(1),)})
    conclusion = concluded(late)
    assert isinstance(conclusion.verdict, RetryRequired), "its output turned up after it was set aside"
    assert any(isinstance(note, OrphanOutput) for note in conclusion.notes)
    assert effects(late) == [("SuccessWithoutOutput", "SetAside", "not seen")]


def test_an_attempt_set_aside_goes_on_as_any_that_failed() -> None:
    resumable = changed(ruled(NO_OUTPUT, 1, ASIDE), checkpoints={"local": (checkpoint(1, 5),)})
    assert isinstance(at(resumable), ResumeAvailable)
    blind = at(changed(ruled(NO_OUTPUT, 1, ASIDE), processes={"local": "down"}))
    assert blind == ObservationRequired((), (AxisRefused("processes", "local", "down"),), (), ())
    followed = changed(ruled(NO_OUTPUT, 1, ASIDE), tries=(Try(1, STARTED), Try(2, STARTED, InfrastructureRetry(key(1)))))
    assert isinstance(at(changed(followed, processes={"local": (process(1, "dead"), process(2))})), InProgress)


# ------------------------------------------------------------------------------------------------- what lives is stopped


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_lives_beside_its_terminal_is_stopped_once_it_is_set_aside(cancelled: bool) -> None:
    scene = changed(ALONE, processes={"local": (process(1),)}, cancelled=cancelled)
    assert blockers(scene) == (LiveProcessAfterTerminal(key(1)),)
    verdict = at(ruled(scene, 1, ASIDE))
    assert isinstance(verdict, StopRequired) and tuple(verdict.attempts) == (key(1),)
    gone = changed(ruled(scene, 1, ASIDE), processes={"local": (process(1, "dead"),)})
    assert isinstance(at(gone), Cancelled if cancelled else RetryRequired), "stopping it makes its output nobody's result"
    assert effects(gone) == [("LiveProcessAfterTerminal", "SetAside", "not seen")]


def test_a_supervisor_that_settles_beside_its_terminal_ends_by_itself() -> None:
    scene = ruled(changed(NO_OUTPUT, processes={"local": (process(1, "settling"),)}), 1, ASIDE)
    assert isinstance(at(scene), RetryRequired)


def test_two_live_processes_are_stopped_and_then_block_as_two_executions() -> None:
    scene = ruled(DOUBLED, 1, ASIDE)
    assert isinstance(at(scene), StopRequired)
    dead = changed(scene, processes={"local": (process(1, "dead"), process(1, "dead", pid=200))})
    assert blockers(dead) == (SeveralExecutions(key(1), (FIRST, OTHER)),)
    assert effects(dead) == [("SeveralLiveProcesses", "SetAside", "not seen")]
    again = ruled(dead, 1, ASIDE)
    assert isinstance(at(again), Lost), "it has no terminal"
    assert effects(again) == [("SeveralLiveProcesses", "SetAside", "not seen"), ("SeveralExecutions", "SetAside", "settled")]


DEAD = changed(DOUBLED, processes={"local": (process(1, "dead"), process(1, "dead", pid=200))}, grace_ms=10**9)


@proven_by(planted(places, "_lost_order", lambda fold, standing: ()))
def test_set_aside_without_a_terminal_is_lost_once_it_is_seen_that_nothing_lives() -> None:
    """Its grace does not matter: that it was started was seen. That it does not live is looked at and not believed."""
    scene = ruled(DEAD, 1, ASIDE)
    assert isinstance(at(scene), Lost)
    for axis, stage in (("processes", "processes"), ("again", "terminals_again")):
        source = "local" if axis == "processes" else "supervisor"
        given = {**scene.processes, "other": "down"} if axis == "processes" else {source: "down"}
        verdict = at(changed(scene, **{axis: given}))
        assert isinstance(verdict, ObservationRequired)
        assert [one.stage for one in verdict.refused] == [stage]
    turned = ("terminals_again", "processes", "outputs", "checkpoints", "manifests", "terminals")
    verdict = at(changed(scene, order=turned))
    missing = OrderMissing(key(1), "Lost", "processes", "terminals_again", OutOfOrder())
    assert verdict == ObservationRequired((), (), (), (missing,))


# --------------------------------------------------------------------------------------------------------- believing one


@proven_by(planted(rulings.Rulings, "believed", lambda self, terminals, contradictions: None))
def test_the_believed_source_says_how_the_attempt_ended() -> None:
    success = concluded(ruled(DISPUTED, 1, BelieveSource("supervisor")))
    assert isinstance(success.verdict, Converged)
    assert success.verdict.candidate.attempt == key(1)
    (note,) = success.notes
    assert isinstance(note, BlockerAdjudicated)
    assert "launcher: failed with exit code 1" in note.blocker, "what was not believed stays named"
    failure = concluded(ruled(DISPUTED, 1, BelieveSource("launcher")))
    assert isinstance(failure.verdict, RetryRequired)
    assert failure.why_not == (NoSuccess(key(1), "failed with exit code 1"),)
    assert [type(note) for note in failure.notes] == [OrphanOutput, BlockerAdjudicated]


@pytest.mark.parametrize(("axes", "verdict"), [
    ({"outputs": {"local": ()}}, Blocked),
    ({"outputs": {"local": "down"}}, ObservationRequired),
    ({"manifests": {"local": ()}}, ObservationRequired),
    ({"processes": {"local": (process(1),)}}, Blocked),
    ({"outputs": {"local": (output(1), output(1, "e", "/elsewhere"))}}, Blocked),
])  # fmt: skip
def test_a_candidate_still_needs_everything_else(axes: Any, verdict: Any) -> None:
    scene = changed(ruled(DISPUTED, 1, BelieveSource("supervisor")), **axes)
    assert isinstance(at(scene), verdict)
    assert not any(isinstance(blocker, ContradictoryTerminals) for blocker in blockers(scene))


def test_a_success_that_is_not_believed_needs_no_output() -> None:
    scene = changed(DISPUTED, outputs={"local": ()})
    assert {type(one) for one in blockers(scene)} == {ContradictoryTerminals, SuccessWithoutOutput}
    assert isinstance(at(ruled(scene, 1, BelieveSource("launcher"))), RetryRequired)
    assert blockers(ruled(scene, 1, BelieveSource("supervisor"))) == (SuccessWithoutOutput(key(1)),)


def test_a_process_is_held_against_the_terminals_that_stand() -> None:
    """The launcher's word stood before processes were read, the supervisor's came after."""
    scene = changed(
        DISPUTED,
        terminals={"launcher": (failed(1, "launcher"),)},
        again={"supervisor": (ended(1),), "launcher": (failed(1, "launcher"),)},
        processes={"local": (process(1),)},
    )
    assert {type(one) for one in blockers(scene)} == {ContradictoryTerminals, LiveProcessAfterTerminal}
    assert blockers(ruled(scene, 1, BelieveSource("launcher"))) == (LiveProcessAfterTerminal(key(1)),)
    believed = concluded(ruled(scene, 1, BelieveSource("supervisor")))
    assert OrderMissing(key(1), "LiveProcessAfterTerminal", "terminals_again", "processes", OutOfOrder()) in believed.why_not


@proven_by(planted(rulings, "said_one_thing", lambda terminals, source: True))
def test_who_said_nothing_or_two_things_cannot_be_believed() -> None:
    (disputed,) = blockers(DISPUTED)
    silent = changed(DISPUTED, adjudications=(ruling(1, BelieveSource("scheduler"), blocker_text(disputed)),))
    assert blockers(silent) == (disputed,)
    assert effects(silent) == [("ContradictoryTerminals", "BelieveSource", "not enough")]
    itself = changed(ALONE, terminals={"supervisor": (ended(1), failed(1))})
    assert blockers(ruled(itself, 1, BelieveSource("supervisor"))) == blockers(itself) != ()


def test_believing_settles_nothing_but_contradictory_terminals() -> None:
    texts = [blocker_text(one) for one in blockers(NO_OUTPUT)]
    scene = changed(NO_OUTPUT, adjudications=(ruling(1, BelieveSource("supervisor"), *texts),))
    assert blockers(scene) == (SuccessWithoutOutput(key(1)),)
    assert effects(scene) == [("SuccessWithoutOutput", "BelieveSource", "not enough")]


def test_who_was_not_believed_is_not_believed_for_want_of_the_other() -> None:
    """The believed source does not answer any more: what the other one says does not become the truth by that."""
    scene = ruled(DISPUTED, 1, BelieveSource("launcher"))
    blind = changed(scene, terminals={"supervisor": (ended(1),), "launcher": "down"})
    verdict = at(blind)
    assert verdict == ObservationRequired((), (AxisRefused("terminals_again", "launcher", "down"),), (), ())
    assert isinstance(at(changed(scene, terminals={"supervisor": (ended(1),), "launcher": ()})), Lost)
    assert isinstance(at(changed(DISPUTED, terminals={"supervisor": (ended(1),), "launcher": ()})), Converged)


# ----------------------------------------------------------------------------------------------------- several rulings


def first_decides() -> Any:
    return planted(rulings, "deciding", lambda given: {text: one for one in reversed(given) for text in one.blockers})()


@proven_by(first_decides)
@pytest.mark.parametrize("first", [ASIDE, BelieveSource("supervisor"), BelieveSource("launcher")])
@pytest.mark.parametrize(("last", "verdict"), [(ASIDE, RetryRequired), (BelieveSource("supervisor"), Converged)])
def test_the_last_of_two_rulings_decides_and_both_are_named(first: Any, last: Any, verdict: Any) -> None:
    if first == last:
        first = BelieveSource("launcher")
    (text,) = map(blocker_text, blockers(DISPUTED))
    scene = changed(DISPUTED, adjudications=(ruling(1, first, text), ruling(1, last, text)))
    assert isinstance(at(scene), verdict)
    assert [effect for _, _, effect in effects(scene)] == ["overruled", "settled"]


def test_a_later_ruling_decides_only_on_what_it_names() -> None:
    """Set aside for two blockers; then one of them is ruled on otherwise: the attempt stays set aside for the other."""
    scene, _ = broken(("terminals disagree", 1), ("two outputs", 1))
    aside = ruled(scene, 1, ASIDE)
    (text,) = (blocker_text(one) for one in blockers(scene) if isinstance(one, ContradictoryTerminals))
    both = changed(aside, adjudications=(*aside.adjudications, ruling(1, BelieveSource("supervisor"), text)))
    verdict = at(both)
    assert isinstance(verdict, Converged) and verdict.candidate.attempt == key(2)
    assert sorted(effects(both)) == [
        ("ContradictoryTerminals", "BelieveSource", "settled"),
        ("ContradictoryTerminals", "SetAside", "overruled"),
        ("SeveralOutputs", "SetAside", "settled"),
    ]


@pytest.mark.parametrize("texts", [(), ("SuccessWithoutOutput " + key(1).nonce.hex,), ("nonsense",)])
def test_a_ruling_settles_no_blocker_that_it_does_not_name(texts: tuple[str, ...]) -> None:
    scene = changed(DISPUTED, adjudications=(ruling(1, ASIDE, *texts),))
    assert blockers(scene) == blockers(DISPUTED)
    assert [effect for _, _, effect in effects(scene)] == ["not seen"] * len(texts)


def test_a_ruling_that_names_no_blocker_changes_nothing() -> None:
    for given in (ASIDE, BelieveSource("nobody")):
        assert concluded(changed(ALONE, adjudications=(ruling(1, given),))) == concluded(ALONE)


def test_a_ruling_on_one_attempt_does_not_reach_another() -> None:
    scene, _ = broken(("no output", 1))
    text = blocker_text(SuccessWithoutOutput(key(1)))
    assert blockers(changed(scene, adjudications=(ruling(2, ASIDE, text),))) == (SuccessWithoutOutput(key(1)),)


# -------------------------------------------------------------------------------------------------------- one shared place

THREE = changed(
    ENDED,
    tries=(*ENDED.tries, Try(3, STARTED, RequestedReexecution("third"))),
    terminals=plus(ENDED.terminals, ended(3)),
    processes=plus(ENDED.processes, process(3, "dead")),
    outputs={"local": tuple(output(number, path="/shared") for number in (1, 2, 3))},
    manifests=plus(ENDED.manifests, manifest(3)),
)


def one_is_enough() -> Any:
    return planted(room, "location_settled", lambda blocker, given: bool(given))()


@proven_by(one_is_enough)
def test_a_shared_place_is_settled_when_one_possible_writer_is_left() -> None:
    shared = SharedLocation("/shared", (key(1), key(2), key(3)))
    assert blockers(THREE) == (shared,)
    one = ruled(THREE, 1, ASIDE)
    assert blockers(one) == (shared,)
    assert effects(one) == [("SharedLocation", "SetAside", "not enough")]
    two = ruled(one, 3, ASIDE)
    verdict = at(two)
    assert isinstance(verdict, Converged) and verdict.candidate.attempt == key(2)
    assert effects(two) == [("SharedLocation", "SetAside", "settled")] * 2
    three = ruled(one, 2, ASIDE)
    three = changed(three, adjudications=(*three.adjudications, ruling(3, ASIDE, blocker_text(shared))))
    assert isinstance(at(three), RetryRequired)


def test_another_writer_of_the_place_makes_another_blocker() -> None:
    two = changed(ENDED, outputs={"local": (output(1, path="/shared"), output(2, path="/shared"))})
    settled = ruled(two, 1, ASIDE)
    assert isinstance(at(settled), Converged)
    grown = changed(THREE, adjudications=settled.adjudications)
    assert blockers(grown) == (SharedLocation("/shared", (key(1), key(2), key(3))),)


def test_believing_a_source_does_not_tell_who_wrote_a_place() -> None:
    (shared,) = blockers(THREE)
    rulings_on_it = tuple(ruling(number, BelieveSource("supervisor"), blocker_text(shared)) for number in (1, 2, 3))
    assert blockers(changed(THREE, adjudications=rulings_on_it)) == (shared,)


# -------------------------------------------------------------------------------------------------------------- candidates


def test_of_two_completions_the_one_that_is_set_aside_is_none() -> None:
    scene = changed(ENDED, terminals=plus(ENDED.terminals, failed(1, "launcher")))
    assert isinstance(at(ENDED), SeveralCandidates)
    verdict = at(ruled(scene, 1, ASIDE))
    assert isinstance(verdict, Converged) and verdict.candidate.attempt == key(2)
    assert isinstance(at(ruled(scene, 1, BelieveSource("supervisor"))), SeveralCandidates)


def test_rulings_are_in_no_place_but_the_ledger() -> None:
    """Taking the rulings out again gives what was concluded before them: nothing was erased."""
    scene, expected = broken(*((name, 1) for name in ON_ENDED if name not in ("no output", "nobody claimed it")))
    again = replace(ruled(scene, 1, ASIDE), adjudications=())
    assert frozenset(blockers(again)) == expected


def test_an_unidentified_process_of_an_attempt_set_aside_is_stopped_too() -> None:
    scene = ruled(DEAD, 1, ASIDE)
    verdict = at(changed(scene, processes=plus(scene.processes, unidentified(1))))
    assert isinstance(verdict, StopRequired)
    found: tuple[AttemptKey, ...] = tuple(verdict.attempts)
    assert found == (key(1),)
