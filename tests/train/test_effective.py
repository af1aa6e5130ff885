"""What the callback reads off live objects: all of an honest script, and of a lying one exactly what it lies about."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from countermark.evidence.members import Read, Unread
from countermark.recipe import ROSTER
from countermark.train import CannotTrain, build, recorder
from countermark.train.effective import of_steps, whole
from countermark.train.effective.seen import Live, Readings
from tests.faults import planted, proven_by
from tests.train.lies import LIES, Lie, harmless_subclass
from tests.train.tiny import Attempt, Parts, Tiny, prompt_rows, text_rows, train

pytestmark = pytest.mark.torch


def copied(live: Live) -> Readings:
    """What a callback that copies the desired manifest would say."""
    return {name: Read(spelling, "live_object") for name, spelling in live.assignment.desired.items()}


def only_first(live: Live) -> Readings:
    """What a callback would say that stops at the first difference."""
    seen = whole.read_all(live)
    desired = copied(live)
    first = next((name for name in ROSTER if seen[name] != desired[name] and not _agrees(seen[name], live, name)), None)
    return desired | ({} if first is None else {first: seen[first]})


def _agrees(said: Read | Unread, live: Live, name: str) -> bool:
    return isinstance(said, Read) and said.value == live.assignment.desired[name]


def shows(attempt: Attempt, expected: Mapping[str, str]) -> None:
    """The whole set of differing coordinates, and what each shows."""
    found = attempt.differing()
    assert found.keys() == expected.keys(), found
    for name, beginning in expected.items():
        assert found[name].startswith(beginning), (name, found[name])


@proven_by(planted(of_steps, "said", lambda name, raw, how="live_object": Unread("a reader that reads nothing")))
def test_an_honest_script_agrees_in_every_coordinate(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    train(attempt)
    assert attempt.effective() == {
        name: Read(spelling, "file_hash" if name in {"base_artifact", "tokenization"} else "live_object")
        for name, spelling in attempt.desired.items()
    }
    assert not attempt.differing()


HONEST = {
    "sequential": {"data_order": "sequential"},
    "permuted once": {"data_order": "shuffle(algorithm=numpy_permutation,seed=3)"},
    "fused": {"optimizer": "adamw_torch_fused(beta1=0.8,beta2=0.99,eps=1e-7)", "weight_decay": "0"},
    "constant": {"lr_schedule": "constant", "warmup_steps": "0", "max_grad_norm": "off"},
    "constant after a warm-up": {"lr_schedule": "constant"},
    "linear": {"lr_schedule": "linear"},
    "restarts": {"lr_schedule": "cosine_with_restarts(cycles=3)"},
    "lowest rate": {"lr_schedule": "cosine_with_min_lr(min_lr_rate=0.1)"},
    "polynomial": {"lr_schedule": "polynomial(lr_end=0.0001,power=2)"},
    "root": {"lr_schedule": "inverse_sqrt(timescale=4)"},
    "stable": {"lr_schedule": "warmup_stable_decay(decay_steps=3,decay_shape=1-sqrt,min_lr_rate=0.1)"},
    "decomposed, other start": {"method": "dora(init=gaussian)", "dropout": "0"},
    "orthogonal, root of the rank": {"method": "lora(init=orthogonal)", "rank": "6", "scaling": "3.2659863237109046"},
    "whole names": {"target_modules": "layers.0.self_attn.q_proj,layers.1.mlp.up_proj"},
    "joined and cut": {"packing": "concat_split", "gradient_accumulation": "3"},
    "one epoch in a step": {"micro_batch": "4", "gradient_accumulation": "3", "total_steps": "3"},
    "all in bfloat16": {"numeric_format": "bf16_pure"},
}


@pytest.mark.parametrize("spellings", HONEST.values(), ids=HONEST.keys())
def test_every_form_that_is_built_is_read_back(tiny: Tiny, spellings: dict[str, str]) -> None:
    attempt = tiny.attempt(settings={"save_steps": 100}, **spellings)
    train(attempt)
    assert attempt.differing() == {}


def test_completions_alone_are_read_back(tiny: Tiny) -> None:
    attempt = tiny.attempt(rows=prompt_rows(), loss_mask="completion_only")
    train(attempt)
    assert attempt.differing() == {}


def test_a_subclass_that_computes_nothing_changes_nothing(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    train(attempt, harmless_subclass)
    assert attempt.differing() == {}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_shows_in_its_coordinates_and_no_others(tiny: Tiny, lie: Lie) -> None:
    attempt = tiny.attempt(settings={"save_steps": 100})
    # Where the trained tensors are not the adapter's, no checkpoint can be published; what was read before the first step stands.
    with suppress(CannotTrain):
        train(attempt, lie.tell)
    shows(attempt, lie.shows)


#: Lies that leave each other alone, each after another one.
_COMBINED = ("learning rate", "dropout", "micro batch", "warm-up", "clipping", "rows", "seed", "base", "stopped early", "template")


@proven_by(planted(recorder, "read_all", copied), planted(recorder, "read_all", only_first))
def test_lies_together_all_show(tiny: Tiny) -> None:
    chosen = [LIES[name] for name in _COMBINED]

    def tell(parts: Parts) -> None:
        for lie in chosen:
            lie.tell(parts)

    attempt = tiny.attempt(settings={"save_steps": 100})
    train(attempt, tell)
    shows(attempt, {name: value for lie in chosen for name, value in lie.shows.items()})


@pytest.mark.parametrize(("one", "other"), tuple(pairwise(_COMBINED[:6])))
def test_two_lies_both_show(tiny: Tiny, one: str, other: str) -> None:
    def tell(parts: Parts) -> None:
        LIES[one].tell(parts)
        LIES[other].tell(parts)

    attempt = tiny.attempt(settings={"save_steps": 100})
    train(attempt, tell)
    shows(attempt, {**LIES[one].shows, **LIES[other].shows})


@proven_by(planted(recorder, "read_again", lambda live, before: dict(before)))
def test_what_changes_while_training_shows(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    train(attempt, LIES["dropout turned off"].tell)
    shows(attempt, LIES["dropout turned off"].shows)


def own_tokenization(parts: Parts, length: int) -> None:
    """A script that makes its sequences by itself, from the rows that it was handed."""
    end = parts.tokenizer.eos_token
    ids = [parts.tokenizer(f"{row['text']}{end}")["input_ids"][:length] for row in parts.training.rows()]
    parts.dataset = [{"input_ids": one, "labels": one} for one in ids]


def test_a_dataset_of_its_own_that_is_the_same_is_recognized(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    train(attempt, lambda parts: own_tokenization(parts, 16))
    assert attempt.differing() == {}


def test_a_dataset_of_its_own_leaves_open_what_nobody_saw(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    train(attempt, lambda parts: own_tokenization(parts, 15))
    effective = attempt.effective()
    assert {name for name, said in effective.items() if isinstance(said, Unread)} == {"sequence_length", "packing", "loss_mask"}
    passed = {name: said.value for name, said in effective.items() if isinstance(said, Read) and said.how == "passed_through"}
    assert passed == {name: attempt.desired[name] for name in ("tokenization", "dataset")}


def test_a_stream_of_rows_is_trained_on_and_leaves_open_what_it_hides(tiny: Tiny) -> None:
    """A reader that fails does not end the training: its coordinates are unread."""
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset):  # type: ignore[misc, type-arg]
        def __iter__(self) -> Any:
            return iter([{"input_ids": [3, 4, 5], "labels": [3, 4, 5]}] * 40)

    attempt = tiny.attempt(settings={"save_steps": 100})
    train(attempt, lambda parts: setattr(parts, "dataset", Stream()))
    hidden = {"tokenization", "dataset", "sequence_length", "packing", "loss_mask", "data_order", "micro_batch", "gradient_accumulation"}
    shows(attempt, dict.fromkeys(hidden, "unread: it could not be read off the live objects"))


def test_a_script_that_takes_only_the_callback_is_seen_whole(tiny: Tiny) -> None:
    attempt = tiny.attempt()
    training = attempt.training()
    from tests.train.tiny import honest

    parts = honest(training)
    parts.callbacks.append(training.callback())
    parts.trainer().train()
    assert attempt.differing() == {}
    assert not attempt.output.exists()


@pytest.fixture
def accelerator() -> Iterator[Callable[[], None]]:
    """What makes Accelerate forget its one state, which keeps the autocast of the first trainer of a process."""
    from accelerate.state import AcceleratorState

    def forget() -> None:
        AcceleratorState._reset_state(reset_partial_state=True)

    forget()
    yield forget
    forget()


@pytest.mark.parametrize("word", ["fp32_bf16amp", "bf16_bf16amp"])
def test_autocast_is_read_off_the_accelerator(tiny: Tiny, accelerator: Callable[[], None], word: str) -> None:
    from transformers import TrainingArguments

    attempt = tiny.attempt(settings={"save_steps": 100}, numeric_format=word)
    train(attempt)
    assert attempt.differing() == {}
    accelerator()
    stored = {"fp32_bf16amp": "fp32", "bf16_bf16amp": "bf16_pure"}[word]
    lied = tiny.attempt(settings={"save_steps": 100}, numeric_format=stored)
    arguments = build.training_arguments(lied.training().assignment, cpu=True)
    train(lied, lambda parts: setattr(parts, "args", TrainingArguments(**{**arguments, "bf16": True})))
    # A base and an adapter in bfloat16 under autocast have no word: the adapter of bf16_bf16amp stays in float32.
    shows(lied, {"numeric_format": word if stored == "fp32" else "unread: the base is stored in bfloat16, the adapter in bfloat16"})


def sft(attempt: Attempt, **changed: Any) -> None:
    """An honest script of TRL's trainer, or one that changes its configuration."""
    from datasets import Dataset
    from trl import SFTTrainer

    training = attempt.training()
    config = training.sft_config()
    for name, value in changed.items():
        assert hasattr(config, name)
        setattr(config, name, value)
    rows = Dataset.from_list([dict(row) for row in training.rows()])
    trainer = SFTTrainer(
        model=training.model(), args=config, train_dataset=rows, processing_class=training.tokenizer(), peft_config=training.lora_config()
    )
    training.run(trainer)


SFT = {
    "texts": (text_rows(), {}),
    "joined and cut": (text_rows(), {"packing": "concat_split"}),
    "best fit": (text_rows(), {"packing": "bfd"}),
    "completions": (prompt_rows(), {"loss_mask": "completion_only"}),
    "prompts too": (prompt_rows(), {}),
}


@pytest.mark.parametrize(("rows", "spellings"), SFT.values(), ids=SFT.keys())
def test_trl_agrees_in_every_coordinate(tiny: Tiny, rows: list[dict[str, str]], spellings: dict[str, str]) -> None:
    attempt = tiny.attempt(rows=rows, settings={"save_steps": 100}, **spellings)
    sft(attempt)
    assert attempt.differing() == {}


SFT_LIES = {
    "length": ({"max_length": 8}, {"sequence_length": "8"}),
    "packing": ({"packing": True, "packing_strategy": "wrapped"}, {"packing": "concat_split"}),
    "mask": ({"completion_only_loss": True}, {"loss_mask": "completion_only"}),
    "all three": (
        {"max_length": 8, "packing": True, "packing_strategy": "wrapped", "completion_only_loss": True},
        {"sequence_length": "8", "packing": "concat_split", "loss_mask": "completion_only"},
    ),
}


@pytest.mark.parametrize(("changed", "expected"), SFT_LIES.values(), ids=SFT_LIES.keys())
def test_what_trl_is_told_otherwise_shows(tiny: Tiny, changed: dict[str, Any], expected: dict[str, str]) -> None:
    attempt = tiny.attempt(rows=prompt_rows(), settings={"save_steps": 100})
    sft(attempt, **changed)
    shows(attempt, expected)


def test_both_trainers_compute_the_same(tiny: Tiny) -> None:
    """One manifest is one specified computation: the two trainers differ by their kernels' rounding only."""
    from safetensors.torch import load_file

    for rows, mask in ((text_rows(), "all_tokens"), (prompt_rows(), "completion_only")):
        plain, trl = (tiny.attempt(rows=rows, settings={"save_steps": 100}, loss_mask=mask) for _ in range(2))
        train(plain)
        sft(trl)
        ours, theirs = (load_file(attempt.output / "adapter_model.safetensors") for attempt in (plain, trl))
        assert ours.keys() == theirs.keys()
        assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-6
