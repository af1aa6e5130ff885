"""Lightning and loops over Accelerate: what of them is seen, what is published of them, and what they go on to from there."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countermark.evidence.members import Read, Unread
from countermark.files.checkpoints import read_checkpoint
from countermark.run.checkpoint import AdmittedCheckpoint, Atomic, CheckpointReadback, admit_checkpoint
from countermark.train import CannotTrain, feeding, generators, recorder
from countermark.train.effective import whole
from countermark.train.integrations import of_accelerate, of_lightning, watching
from tests.faults import planted, proven_by
from tests.train.loops import ALONE, LIES, Kind, Lie, Loop, Stopped, run
from tests.train.test_effective import only_first, shows
from tests.train.tiny import WORK_KEY, Attempt, Tiny, adapter_bits, train

pytestmark = pytest.mark.torch

BOTH = pytest.mark.parametrize("kind", ["lightning", "accelerate"])
slow = pytest.mark.slow


def finished(tiny: Tiny, kind: Kind, lie: Callable[[Loop], None] | None = None, **spellings: str) -> Attempt:
    attempt = tiny.attempt(**{**ALONE, **spellings})
    run(kind, attempt, lie)
    return attempt


#: An honest script that ran to its end, made once for each kind.
Done = Callable[[Kind], Attempt]


@pytest.fixture(scope="module")
def done(tiny: Tiny) -> Done:
    return cache(lambda kind: finished(tiny, kind))


@BOTH
def test_an_honest_loop_agrees_in_every_coordinate(tiny: Tiny, done: Done, kind: Kind) -> None:
    attempt = done(kind)
    assert attempt.effective() == {
        name: Read(spelling, "file_hash" if name in {"base_artifact", "tokenization"} else "live_object")
        for name, spelling in attempt.desired.items()
    }


@slow
@BOTH
def test_a_loop_computes_what_the_transformers_trainer_does(tiny: Tiny, kind: Kind) -> None:
    """One manifest is one specified computation. Dropout draws from streams that each library uses in its own way."""
    ours = finished(tiny, kind, dropout="0")
    theirs = tiny.attempt(**ALONE, dropout="0")
    train(theirs)
    assert adapter_bits(ours.output) == adapter_bits(theirs.output)


#: Rows that fill their sequences, so that micro batches of a step have equally many tokens.
EVEN = {"rows": [{"text": " ".join(f"w{row + word}" for word in range(15))} for row in range(9)]}
THREE = {"micro_batch": "1", "gradient_accumulation": "3"}


@slow
@BOTH
def test_micro_batches_of_a_step_must_weigh_by_their_tokens(tiny: Tiny, kind: Kind) -> None:
    even = tiny.attempt(**EVEN, **THREE)
    run(kind, even)
    assert even.differing() == {}
    uneven = finished(tiny, kind, gradient_accumulation="2")
    shows(uneven, {"gradient_accumulation": "unread: the micro batches of step 1 have 24, 30 target tokens"})


# -------------------------------------------------------------------------------------------------------------------- lies


def told(lies: Iterable[Lie]) -> tuple[Callable[[Loop], None], dict[str, str]]:
    """Several lies as one."""
    chosen = list(lies)

    def tell(loop: Loop) -> None:
        for lie in chosen:
            lie.tell(loop)

    return tell, {name: value for lie in chosen for name, value in lie.shows.items()}


def lied(tiny: Tiny, kind: Kind, tell: Callable[[Loop], None]) -> Attempt:
    """A script that lied to its end: of what is amiss, it publishes no checkpoint."""
    attempt = tiny.attempt(settings={"save_steps": 100}, **ALONE)
    run(kind, attempt, tell)
    return attempt


_COMBINED = ("learning rate", "dropout", "micro batch", "clipping", "seed", "another loss")


@BOTH
@proven_by(planted(recorder, "read_all", only_first))
def test_lies_together_all_show(tiny: Tiny, kind: Kind) -> None:
    tell, expected = told(LIES[name] for name in _COMBINED)
    shows(lied(tiny, kind, tell), expected)


SINGLE = [(kind, name) for name, lie in LIES.items() for kind in lie.kinds]


@slow
@pytest.mark.parametrize(("kind", "name"), SINGLE)
def test_a_lie_shows_in_its_coordinates_and_no_others(tiny: Tiny, kind: Kind, name: str) -> None:
    shows(lied(tiny, kind, LIES[name].tell), LIES[name].shows)


@slow
@BOTH
def test_two_lies_both_show(tiny: Tiny, kind: Kind) -> None:
    for one, other in pairwise(_COMBINED):
        tell, expected = told((LIES[one], LIES[other]))
        shows(lied(tiny, kind, tell), expected)


@slow
@BOTH
@proven_by(planted(whole, "NOT_YET", Unread("something else")))
def test_what_only_steps_show_is_open_until_they_are_taken(tiny: Tiny, kind: Kind) -> None:
    """A training that is broken off leaves it open; one that ends does not."""

    def broken(loop: Loop) -> None:
        loop.loss = stop_at(loop, 1)

    attempt = tiny.attempt(**ALONE)
    with suppress(Stopped):
        run(kind, attempt, broken)
    only = {"method"} if kind == "lightning" else {"method", "lr_schedule", "total_steps", "max_grad_norm"}
    assert attempt.differing() == dict.fromkeys(only, "unread: no step was seen yet")
    ended = finished(tiny, kind)
    assert ended.differing() == {}


# ------------------------------------------------------------------------------------------------------------- checkpoints


def stop_at(loop: Loop, step: int) -> Callable[[Any, Any], Any]:
    """A loss that ends the script in the micro batch after this many of them."""
    taken = [0]

    def loss(model: Any, batch: Any) -> Any:
        taken[0] += 1
        if taken[0] > step:
            raise Stopped
        return model(**batch).loss

    return loss


LAYOUT: Mapping[str, str] = {"lightning": "lightning", "accelerate": "accelerate"}


@BOTH
def test_every_checkpoint_is_published_whole_and_admitted(tiny: Tiny, done: Done, kind: Kind) -> None:
    attempt = done(kind)
    assignment = attempt.training().assignment
    assert attempt.published() == ["step-2", "step-4", "step-6"]
    for step in (2, 4, 6):
        readback = read_checkpoint(attempt.folder / "checkpoints" / f"step-{step}")
        assert isinstance(readback, CheckpointReadback)
        assert isinstance(readback.publication, Atomic)
        assert (readback.layout, readback.step, readback.micro_batches) == (LAYOUT[kind], step, step)
        assert (readback.attempt, readback.work_key, readback.declared) == (assignment.nonce, WORK_KEY, attempt.desired)
        admitted = admit_checkpoint(readback, assignment.manifest, frozenset({assignment.nonce}))
        assert isinstance(admitted, AdmittedCheckpoint), admitted
    assert [path.name for path in (attempt.folder / "work").iterdir()] == []


@proven_by(planted(generators, "restore", lambda found: None))
def test_lightning_goes_on_to_the_same_bits(tiny: Tiny, done: Done) -> None:
    goes_on_from(tiny, "lightning", done("lightning"), 4)


@proven_by(planted(of_accelerate.Place, "load_state_dict", lambda self, state: None))
def test_a_loop_over_accelerate_goes_on_to_the_same_bits(tiny: Tiny, done: Done) -> None:
    goes_on_from(tiny, "accelerate", done("accelerate"), 4)


@slow
@proven_by(planted(generators, "restore", lambda found: None))
def test_a_loop_with_a_loader_of_its_own_goes_on_to_the_same_bits(tiny: Tiny) -> None:
    """Making its iterator draws from the training's generators, and that is not seen in what follows."""

    def plain(loop: Loop) -> None:
        loop.feed(batch_size=2)

    first = finished(tiny, "accelerate", plain)
    goes_on_from(tiny, "accelerate", first, 4, plain)


@slow
@proven_by(planted(feeding, "place_of", lambda state, length: 0))
def test_lightning_goes_on_where_its_loader_was(tiny: Tiny, done: Done) -> None:
    goes_on_from(tiny, "lightning", done("lightning"), 4)


def goes_on_from(tiny: Tiny, kind: Kind, first: Attempt, step: int, lie: Callable[[Loop], None] | None = None, **more: Any) -> None:
    """From the checkpoint of this step, a script comes to the same bits and is seen whole."""
    again = tiny.attempt(resume=first.folder / "checkpoints" / f"step-{step}", **{**ALONE, **more})
    try:
        run(kind, again, lie)
    except CannotTrain as error:
        pytest.fail(f"from step {step} nothing was published: {error}")
    assert adapter_bits(again.output) == adapter_bits(first.output), step
    assert again.differing() == {}, step


@slow
@pytest.mark.parametrize("kind", ["lightning", "pytorch_lightning", "accelerate"])
def test_every_checkpoint_leads_to_the_same_bits(tiny: Tiny, kind: Kind) -> None:
    """Within epochs and at their ends, each micro batch a step and three of them."""
    forms: tuple[dict[str, Any], ...] = ({}, {**EVEN, **THREE}, {"micro_batch": "5", "total_steps": "9"}, {"data_order": "sequential"})
    for form in forms:
        first = tiny.attempt(**{**ALONE, **form})
        run(kind, first)
        for name in first.published():
            goes_on_from(tiny, kind, first, int(name.removeprefix("step-")), **form)


@slow
@BOTH
def test_a_script_that_fails_publishes_no_output_and_can_be_gone_on_from(tiny: Tiny, done: Done, kind: Kind) -> None:
    failed = tiny.attempt(**ALONE)
    with pytest.raises(Stopped):
        run(kind, failed, lambda loop: setattr(loop, "loss", stop_at(loop, 5)))
    assert failed.published() == ["step-2", "step-4"]
    assert not failed.output.exists()
    again = tiny.attempt(resume=failed.folder / "checkpoints" / "step-4", **ALONE)
    run(kind, again)
    assert adapter_bits(again.output) == adapter_bits(done(kind).output)


@BOTH
def test_a_checkpoint_with_parts_missing_is_not_gone_on_from(tiny: Tiny, done: Done, kind: Kind, tmp_path: Path) -> None:
    import shutil

    import torch

    first = done(kind)
    torn = tmp_path / "step-4"
    shutil.copytree(first.folder / "checkpoints" / "step-4", torn)
    if kind == "accelerate":
        (torn / "custom_checkpoint_0.pkl").unlink()
        missing = r"(?s)data_position"
    else:
        file = of_lightning.file_in(torn)
        held = torch.load(file)
        del held["rng_state"]
        torch.save(held, file)
        missing = r"(?s)rng_state"
    attempt = tiny.attempt(resume=torn, **ALONE)
    with pytest.raises(CannotTrain, match=missing):
        run(kind, attempt)
    assert not attempt.output.exists() and not (attempt.folder / "effective.json").exists()


@slow
@proven_by(planted(of_lightning.Following, "evaluated", lambda self, trainer: None))
def test_evaluation_moves_no_weights(tiny: Tiny, done: Done) -> None:
    """What it draws is given back, also where a training goes on."""

    def evaluates(loop: Loop) -> None:
        loop.evaluates = True

    plain, looked = done("lightning"), finished(tiny, "lightning", evaluates)
    assert adapter_bits(looked.output) == adapter_bits(plain.output)
    assert looked.differing() == {}
    again = tiny.attempt(resume=looked.folder / "checkpoints" / "step-4", **ALONE)
    run("lightning", again, evaluates)
    assert adapter_bits(again.output) == adapter_bits(plain.output)


# ---------------------------------------------------------------------------------------------------------------- refusals


def test_a_loader_that_cannot_tell_its_place_is_refused(tiny: Tiny) -> None:
    from torch.utils.data import DataLoader

    def plain(loop: Loop) -> None:
        loop.loader = DataLoader(loop.loader.dataset, batch_size=2, collate_fn=loop.loader.collate_fn)

    attempt = tiny.attempt(**ALONE)
    with pytest.raises(CannotTrain, match=r"cannot tell where in an epoch it is.*Training\.loader"):
        run("lightning", attempt, plain)
    assert not (attempt.folder / "effective.json").exists()


def test_a_trainer_of_another_library_is_refused(tiny: Tiny) -> None:
    import lightning.pytorch  # noqa: F401

    training = tiny.attempt().training()
    with pytest.raises(CannotTrain, match=r"dict is no Trainer of lightning\.pytorch or of pytorch_lightning"):
        training.fit({}, None, None, None)


def test_a_tracker_says_what_it_needs(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import Accelerator

    attempt = tiny.attempt(**ALONE)
    tracker = attempt.training().tracker(None)
    with pytest.raises(CannotTrain, match="Nothing is followed yet"):
        tracker.batches()
    with pytest.raises(CannotTrain, match="No accelerator starts this tracker"):
        tracker.start()
    accelerator = Accelerator(cpu=True, log_with=tracker)
    with pytest.raises(CannotTrain, match="has prepared 0 models, 0 optimizers, 0 schedulers, 0 data loaders"):
        accelerator.init_trackers("topics")
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with pytest.raises(CannotTrain, match="2 workers train together"):
        accelerator.init_trackers("topics")
    tracker.finish()
    assert sorted(path.name for path in attempt.folder.iterdir()) == ["manifest.json"]


def test_a_loader_without_micro_batches_is_refused_instead_of_asked_for_ever(tiny: Tiny) -> None:
    place, recorder = of_accelerate.Place(), SimpleNamespace(assignment=tiny.attempt().training().assignment)
    loop: Any = SimpleNamespace(place=place, _recorder=recorder, loader=[], _epoch=lambda total: pytest.fail("it was asked"))
    with pytest.raises(CannotTrain, match="has no micro batch"):
        next(of_accelerate.Loop.batches(loop))


def test_only_the_loss_that_the_model_computed_is_its_own() -> None:
    import torch

    watch = watching.StepWatch()
    loss = torch.ones(1, requires_grad=True).sum()
    for divided, given, own in ((2, loss / 2, True), (3, loss / 2, False), (None, loss, True), (None, loss / 1, False)):
        watch.problems.clear()
        watch._passes.append(loss)
        watch.backward(given, divided)
        assert (watch.problems == {}) == own, (divided, given)
    watch.backward(loss, None)
    assert watch.problems == {"loss": watch.problems["loss"], "passes": "a micro batch took 0 passes through the model in step 1"}
