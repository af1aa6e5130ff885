"""A stored sweep concludes what it concluded, with nothing but the store; whatever is wrong with it is named and concludes nothing."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countermark.app import replay as room
from countermark.app.replay import Replayed
from countermark.lines.rulings import SweepOfAnotherRun, VerdictDiffers
from countermark.lines.surface import SeveralNamed, SweepUndecodable
from countermark.run.claims import SetAside
from countermark.run.demand import subject_of
from countermark.run.records import StoredSweep, SweepDamaged, SweepUnknown
from countermark.values import NonEmpty, Refused
from countermark.verdict import Conclusion, conclude
from countermark.wire.sweep import encode_sweep
from tests.app.bench import HONEST, Bench, names
from tests.app.test_ruling import blocked, ruled
from tests.faults import planted, proven_by
from tests.scenarios.notation import evidence_of, files, read
from tests.verdict.scenes import Scene, sweep

SWEEP = "5" * 32


class Shelf:
    """Sweeps that somebody stored, and their verdicts; whoever asks for anything else asks for too much."""

    def __init__(self, **sweeps: Any) -> None:
        self.sweeps, self.texts = sweeps, dict[str, list[Any]]()

    def find_sweeps(self, prefix: str) -> tuple[str, ...]:
        return tuple(sweep for sweep in self.sweeps if sweep.startswith(prefix))

    def load_sweep(self, sweep_id: str) -> Any:
        return self.sweeps[sweep_id]

    def verdicts(self, sweep_id: str) -> tuple[Any, ...]:
        return tuple(self.texts.get(sweep_id, ()))


class Said:
    def __init__(self, text: bytes) -> None:
        self.text = text


def stored(document: bytes, sweep_id: str = SWEEP, run: str | None = None) -> StoredSweep:
    return StoredSweep(sweep_id, run or record().run_id, document, 1, 2)


def record() -> Any:
    """The run of every scene, as a ledger holds it now."""
    from countermark.run.records import RunContext, RunRecord

    ledger = sweep(Scene()).ledger
    context = RunContext("scene", {}, {}, (), "/", {}, "local")
    return RunRecord(ledger.desired.demand.id.run_id(), ledger, context, 0)


def replayed(shelf: Shelf, text: str = SWEEP) -> Any:
    store: Any = shelf
    return room.replay(store, record(), text)


def shelf_of(document: bytes, *texts: bytes) -> Shelf:
    shelf = Shelf(**{SWEEP: stored(document)})
    shelf.texts[SWEEP] = [Said(text) for text in texts]
    return shelf


# -------------------------------------------------------------------------------------------------------------- the same

SCENES = [pytest.param(scene, id=f"{path.stem}: {scene.title}") for path in files() for scene in read(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("told", SCENES)
def test_every_scenario_that_was_stored_is_concluded_again_byte_for_byte(told: Any) -> None:
    whole = evidence_of(told.evidence)
    conclusion = conclude(whole)
    if isinstance(conclusion, Refused):
        assert replayed(shelf_of(encode_sweep(whole))) == conclusion
        return
    text = room.conclusion_text(conclusion)
    found = replayed(shelf_of(encode_sweep(whole), text))
    assert isinstance(found, Replayed)
    assert (found.replayed, found.conclusion, found.differs()) == (text, conclusion, None)


def forgetful() -> AbstractContextManager[object]:
    """What was read is not what was stored: the rulings are left out."""

    def decoded(data: bytes) -> Any:
        found: Any = decode(data)
        return replace(found, ledger=replace(found.ledger, adjudications=()))

    decode = room.decode_sweep
    return planted(room, "decode_sweep", decoded)()


@proven_by(forgetful)
def test_a_real_run_is_concluded_again_after_everything_else_has_changed(bench: Bench, tmp_path: Path) -> None:
    run = blocked(bench)
    first = bench.look(run)
    assert not isinstance(ruled(bench, run, SetAside()), Refused)
    second = bench.look(run)
    version = bench.record(run).ledger.version
    for looked in (first, second):
        found = room.replay(bench.ports.store, bench.record(run), looked.sweep_id[:8])
        assert isinstance(found, Replayed)
        assert (found.conclusion, found.differs(), found.stored) == (looked.conclusion, None, found.replayed)
    assert bench.record(run).ledger.version == version


def test_where_the_controller_died_before_the_verdict_there_is_nothing_to_compare() -> None:
    found = replayed(shelf_of(encode_sweep(sweep(Scene()))))
    assert isinstance(found, Replayed)
    assert (found.stored, found.differs()) == (None, None)


@proven_by(planted(Replayed, "differs", lambda self: None))
@pytest.mark.parametrize("cut", [slice(0, -1), slice(1, None), slice(0, 0)])
def test_a_difference_is_shown_with_both_texts(cut: slice) -> None:
    conclusion = conclude(sweep(Scene()))
    assert isinstance(conclusion, Conclusion)
    text = room.conclusion_text(conclusion)
    found = replayed(shelf_of(encode_sweep(sweep(Scene())), text, text[cut]))
    assert isinstance(found, Replayed)
    assert found.differs() == VerdictDiffers(SWEEP, text[cut].decode(), text.decode()), "the last stored text counts"
    odd = replayed(shelf_of(encode_sweep(sweep(Scene())), b"\xff\x1b"))
    assert odd.differs().stored == "\\xff\x1b"


# ---------------------------------------------------------------------------------------------------------------- refused


def any_sweep_will_do() -> AbstractContextManager[object]:
    return planted(room, "_named", lambda store, run_id, text: next(iter(store.sweeps.values()), stored(b"")))()


@proven_by(any_sweep_will_do)
def test_a_sweep_is_named_for_its_own_run_or_refused() -> None:
    document = encode_sweep(sweep(Scene()))
    other = SWEEP[:-1] + "6"
    mine, foreign = stored(document), stored(document, other, "e" * 32)
    damaged: Any = Refused(NonEmpty(SweepDamaged(other, "sha256:1", "sha256:2")))
    assert replayed(Shelf()) == Refused(NonEmpty(SweepUnknown(SWEEP)))
    assert replayed(Shelf(**{SWEEP: mine}), SWEEP[:7]) == Refused(NonEmpty(SweepUnknown(SWEEP[:7])))
    assert replayed(Shelf(**{other: foreign}), other) == Refused(NonEmpty(SweepOfAnotherRun(other, "e" * 32, record().run_id)))
    assert replayed(Shelf(**{other: damaged}), other) == damaged
    assert isinstance(replayed(Shelf(**{SWEEP: mine, other: foreign}), SWEEP[:8]), Replayed)
    assert replayed(Shelf(**{SWEEP: mine, other: stored(document, other)}), SWEEP[:8]) == Refused(
        NonEmpty(SeveralNamed(SWEEP[:8], (SWEEP, other)))
    )
    both = replayed(Shelf(**{other: foreign, other[:-1] + "7": damaged}), other[:8])
    assert names(both) == ["SweepOfAnotherRun", "SweepDamaged"]


def test_a_document_that_cannot_be_read_is_refused_with_the_reason() -> None:
    answer = replayed(shelf_of(b"{}"))
    assert isinstance(answer, Refused)
    (defect,) = answer.defects
    assert isinstance(defect, SweepUndecodable) and defect.sweep == SWEEP and defect.why


@proven_by(planted(room, "subject_of", lambda desired: None))
def test_a_document_of_another_run_under_this_runs_name_is_refused() -> None:
    from tests.run import examples
    from tests.verdict import scenes

    desired = examples.desired(request="another")
    assert subject_of(desired) != subject_of(scenes.desired())
    whole = sweep(Scene())
    strange = replace(whole, ledger=replace(whole.ledger, desired=desired))
    expected = SweepOfAnotherRun(SWEEP, desired.demand.id.run_id(), record().run_id)
    assert replayed(shelf_of(encode_sweep(strange))) == Refused(NonEmpty(expected))


def test_a_sweep_whose_parts_do_not_fit_concludes_nothing(bench: Bench) -> None:
    """What is stored was concluded from; where that is not so any more, every defect is named."""
    run = bench.told(HONEST)
    looked = bench.look(run)
    whole = replace(
        looked.sweep,
        reads=replace(looked.sweep.reads, terminals=replace(looked.sweep.reads.terminals, subject=subject_of(record().ledger.desired))),
    )
    shelf: Any = Shelf(**{SWEEP: StoredSweep(SWEEP, run, encode_sweep(whole), 1, 2)})
    answer = room.replay(shelf, bench.record(run), SWEEP)
    assert set(names(answer)) == {"SubjectMismatch"}
