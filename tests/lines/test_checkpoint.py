"""A checkpoint's document and lines say what was read, and decide nothing."""

from dataclasses import replace
from typing import Any

import pytest

from countermark.lines import defects
from countermark.lines.checkpoint import (
    FolderListed,
    Inspected,
    Inspection,
    checkpoint_document,
    component_rows,
    document_of,
    folder_lines,
    publication_word,
    summary_rows,
    verdict_lines,
)
from countermark.run.checkpoint import (
    COMPONENTS,
    Atomic,
    CheckpointNotThere,
    CheckpointReadback,
    Component,
    ComponentAbsent,
    ComponentChanging,
    ComponentRead,
    ComponentUnreadable,
    FileReading,
    Incomplete,
    PublicationIncomplete,
    PublicationUnobserved,
    StepWitness,
    Unobserved,
    admit_checkpoint,
    admit_weights_only,
    sound_checkpoint,
)
from countermark.values import Sha256
from tests.faults import planted, proven_by
from tests.lines.samples import HOSTILE
from tests.verdict.scenes import checkpoint, desired, key


def inspected(vouched: bool = False, **components: Any) -> Inspected:
    readback = checkpoint(1, 8, "/c/step-8", **components).readback
    members = frozenset({key(1).nonce.hex})
    return Inspected(readback, admit_checkpoint(readback, desired().manifest, members, vouched=vouched), admit_weights_only(readback))


def test_a_whole_checkpoint_is_admissible_both_ways() -> None:
    document: Any = checkpoint_document(inspected())
    assert (document["layout"], document["step"], document["publication"]) == ("transformers-peft", 8, "atomic")
    assert list(document["components"]) == [component.value for component in COMPONENTS]
    assert {each["state"] for each in document["components"].values()} == {"read"}
    assert [each["step"] for each in document["components"].values()] == [8] * 5
    assert document["components"]["rng_state"]["digest"].startswith("sha256:")
    assert document["components"]["rng_state"]["files"] == [{"name": "rng_state.bin", "sha256": f"sha256:{8:064x}", "bytes": 10}]
    assert len(document["witnesses"]) == 5
    assert (document["admissible"]["resume"], document["admissible"]["weightsOnly"]) == (True, True)
    assert [line.split()[0] for line in verdict_lines(inspected())] == ["checkpoint", "layout", "publication", "resume", "weights"]


def test_each_component_says_what_state_it_is_in() -> None:
    seen = inspected(
        optimizer_state=ComponentAbsent(("optimizer.pt",)),
        scheduler_state=ComponentUnreadable(("it was cut",)),
        rng_state=ComponentChanging(("rng_state.pth",)),
    )
    document: Any = checkpoint_document(seen)
    assert {name: each["state"] for name, each in document["components"].items()} == {
        "model_weights": "read", "optimizer_state": "missing", "scheduler_state": "unread", "rng_state": "unread", "data_position": "read",
    }  # fmt: skip
    assert document["publication"] == "incomplete"
    assert document["digest"] is None
    assert (document["admissible"]["resume"], document["admissible"]["weightsOnly"]) == (False, True)
    readback = seen.readback
    assert isinstance(readback, CheckpointReadback)
    assert [row[:3] for row in component_rows(readback)] == [
        ("model_weights", "read", "8"), ("optimizer_state", "missing", "-"), ("scheduler_state", "unread", "-"),
        ("rng_state", "unread", "-"), ("data_position", "read", "8"),
    ]  # fmt: skip
    assert "resume       not admissible (ComponentMissing, ComponentUnread and PublicationIncomplete)" in verdict_lines(seen)


def test_what_is_not_there_has_the_same_fields() -> None:
    gone = CheckpointNotThere(HOSTILE, "nothing is there")
    seen = Inspected(gone, admit_checkpoint(gone, desired().manifest, frozenset()), admit_weights_only(gone))
    document = checkpoint_document(seen)
    assert {"layout", "step", "publication", "components", "witnesses", "admissible"} <= document.keys()
    assert all(line.isprintable() for line in verdict_lines(seen))


def test_one_checkpoint_stands_at_the_top_and_several_do_not() -> None:
    one: Any = document_of(Inspection((inspected(),)), {}, 7)
    both = Inspection((inspected(), inspected(rng_state=ComponentAbsent(()))))
    two: Any = document_of(both, {1: [{"code": "ComponentMissing"}]}, 0)
    assert (one["step"], one["hashedBytes"]) == (8, 7)
    assert "step" not in two
    assert [(each["ok"], each["defects"]) for each in two["checkpoints"]] == [(True, []), (False, [{"code": "ComponentMissing"}])]


def test_a_row_says_what_a_checkpoint_is_good_for() -> None:
    gone = CheckpointNotThere("/gone", "nothing is there")
    absent = Inspected(gone, admit_checkpoint(gone, desired().manifest, frozenset()), admit_weights_only(gone))
    torn = inspected(rng_state=ComponentAbsent(()))
    rows = summary_rows((inspected(), torn, absent))
    assert [row[1:] for row in rows] == [
        ("8", "transformers-peft", "atomic", "yes", "yes"),
        ("8", "transformers-peft", "incomplete", "no", "yes"),
        ("-", "-", "-", "no", "no"),
    ]


def test_a_folder_tells_the_steps_that_several_names_share_and_which_paths_are_meant() -> None:
    folder = FolderListed(
        "/", ((4, "checkpoint-4"), (4, "step-4"), (None, "epoch_4"), (8, "step-8"), (None, "epoch_5")), ("tmp-1", HOSTILE)
    )
    assert folder.shared == ((4, ("checkpoint-4", "step-4")),)
    assert folder.places(8) == ("/step-8",) and len(folder.places(None)) == 5
    assert all(line.isprintable() for line in folder_lines((folder,)))
    assert folder_lines((FolderListed("/", (), ()),)) == ()


def test_held_against_nothing_it_is_whole_in_itself_and_not_admitted() -> None:
    readback = checkpoint(1).readback
    seen = Inspected(readback, sound_checkpoint(readback), admit_weights_only(readback))
    assert any("whole in itself" in line and "--for" in line for line in verdict_lines(seen))


@pytest.mark.parametrize(
    ("publication", "word"), [(Atomic("renamed"), "atomic"), (Incomplete(("x",)), "incomplete"), (Unobserved(("x",)), "unobserved")]
)
def test_publications_have_one_word(publication: Any, word: str) -> None:
    assert publication_word(publication) == word


def test_the_roster_of_components_is_the_spec_s() -> None:
    assert [component.value for component in Component] == [
        "model_weights", "optimizer_state", "scheduler_state", "rng_state", "data_position",
    ]  # fmt: skip


def test_a_component_that_tells_two_steps_is_shown_with_none_and_each_witness_with_its_own() -> None:
    told = ComponentRead((FileReading("a", Sha256("1" * 64), 10),), (StepWitness("a", 8), StepWitness("b", 6), StepWitness("c", 8)))
    seen = inspected(optimizer_state=told, scheduler_state=replace(told, steps=()))
    document: Any = checkpoint_document(seen)
    assert {name: each["step"] for name, each in document["components"].items() if name.endswith("_state")} == {
        "optimizer_state": None,
        "scheduler_state": None,
        "rng_state": 8,
    }
    own = [(one["source"], one["step"]) for one in document["witnesses"] if one["component"] == "optimizer_state"]
    assert own == [("a", 8), ("b", 6), ("c", 8)]


@pytest.mark.parametrize("vouched", [False, True])
def test_whose_word_stands_in_for_a_publication_is_told_whatever_the_checkpoint_is_held_against(vouched: bool) -> None:
    readback = replace(checkpoint(1, 8).readback, marker=Unobserved(("written in place",)))
    members = frozenset({key(1).nonce.hex})
    resumed = admit_checkpoint(readback, desired().manifest, members, vouched=vouched)
    sound = sound_checkpoint(readback, vouched=vouched)
    told = [checkpoint_document(Inspected(readback, answer, admit_weights_only(readback)))["admissible"] for answer in (resumed, sound)]
    assert [(one["resume"], one["vouched"]) for one in told] == [(vouched, vouched)] * 2  # type: ignore[index, call-overload]


def one_remedy() -> Any:
    """Whatever keeps a checkpoint from being resumed from, the remedy is an older one."""
    told = defects.checkpoint_sentence
    older = told(PublicationIncomplete(("torn",))).remedy
    return planted(defects, "checkpoint_sentence", lambda defect: replace(told(defect), remedy=older))()


@proven_by(one_remedy)
def test_an_incomplete_publication_and_one_that_nobody_saw_have_remedies_of_their_own() -> None:
    """What is torn stays torn; what nobody saw is a person's to vouch for."""
    torn, unseen = (defects.sentence(kind(("why",))).remedy for kind in (PublicationIncomplete, PublicationUnobserved))
    assert ("--vouch" in torn, "--vouch" in unseen) == (False, True)
    assert ("older checkpoint" in torn, "older checkpoint" in unseen) == (True, False)
