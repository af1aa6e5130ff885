"""A tiny model, tokenizer and dataset made on the spot, and attempts over them: everything that a trainer's process is handed.

``Tiny.attempt`` makes the folder of an attempt whose manifest is the clean one with single spellings replaced; ``train`` runs an honest
script over it, or one that ``lie`` has changed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from countermark.evidence.members import Read, Unread
from countermark.files.dataset_file import MeasuredDataset, measure_dataset
from countermark.files.model_folder import MeasuredBase, measure_base
from countermark.files.tokenizer_folder import MeasuredTokenizer, measure_tokenizer
from countermark.recipe import ROSTER
from countermark.train import Training
from countermark.train.assignment import read_assignment
from countermark.wire.effective import EffectiveManifest, decode_effective

WORDS: Final = 120
ROWS: Final = 9
#: The clean computation, beside the three hashes: more than one epoch of an odd number of micro batches, a warm-up, a schedule, dropout.
CLEAN: Final = {
    "data_order": "shuffle(algorithm=torch_randperm_epoch,seed=3)",
    "seed": "17",
    "method": "lora(init=kaiming)",
    "target_modules": "q_proj,v_proj",
    "rank": "4",
    "scaling": "2",
    "dropout": "100",
    "optimizer": "adamw_torch(beta1=0.9,beta2=0.999,eps=1e-8)",
    "weight_decay": "0.01",
    "learning_rate": "0.002",
    "lr_schedule": "cosine",
    "warmup_steps": "2",
    "total_steps": "8",
    "max_grad_norm": "1",
    "numeric_format": "fp32",
    "sequence_length": "16",
    "packing": "none",
    "loss_mask": "all_tokens",
    "micro_batch": "2",
    "gradient_accumulation": "2",
}
SETTINGS: Final = {"save_steps": 2, "logging_steps": 4, "threads": 1, "keep_checkpoints": 9}
WORK_KEY: Final = "wk1:" + "5" * 64


def text_rows(count: int = ROWS) -> list[dict[str, str]]:
    """Rows of different lengths, some beyond the sequence length."""
    return [{"text": " ".join(f"w{(7 * row + 3 * word) % WORDS}" for word in range(6 + 3 * row))} for row in range(count)]


def prompt_rows(count: int = ROWS) -> list[dict[str, str]]:
    """Rows with a prompt and a completion; the last prompt fills the sequence and leaves nothing to learn."""
    rows = [{"prompt": f"w{row} w{row + 1} w{row + 2}", "completion": f" w{row + 3} w{row + 4}"} for row in range(count - 1)]
    return [*rows, {"prompt": " ".join(f"w{word}" for word in range(30)), "completion": " w1"}]


def make_model(folder: Path, *, seed: int = 0, tied: bool = True) -> None:
    """A Llama of two layers, with a tokenizer of words, as ``save_pretrained`` writes them."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<unk>", "<end>", "<pad>", *(f"w{number}" for number in range(WORDS))]
    backend = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<pad>", unk_token="<unk>")
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@final
@dataclass(frozen=True)
class Attempt:
    """The folder of an attempt, and the environment that its COMMAND gets."""

    folder: Path
    environment: Mapping[str, str]
    desired: Mapping[str, str]

    def training(self) -> Training:
        return Training(read_assignment(self.environment))

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def published(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())

    def effective(self) -> dict[str, Read | Unread]:
        document = decode_effective((self.folder / "effective.json").read_bytes())
        assert isinstance(document, EffectiveManifest), document
        assert document.attempt == self.folder.name
        return document.readings()

    def differing(self) -> dict[str, str]:
        """What does not agree with the desired manifest: the value that was read, or its reason."""
        return {
            name: said.value if isinstance(said, Read) else f"unread: {said.reason}"
            for name, said in self.effective().items()
            if not (isinstance(said, Read) and said.value == self.desired[name] and said.how != "passed_through")
        }


@final
@dataclass(frozen=True)
class Tiny:
    """The sources, measured."""

    root: Path
    model: Path
    hashes: Mapping[str, str]
    names: Iterator[int]

    def attempt(
        self,
        *,
        rows: list[dict[str, str]] | None = None,
        resume: Path | None = None,
        settings: Mapping[str, object] | None = None,
        sources: Mapping[str, str] | None = None,
        **spellings: str,
    ) -> Attempt:
        """A new attempt whose manifest is the clean one with these spellings."""
        nonce = f"{next(self.names):032x}"
        folder = self.root / nonce
        folder.mkdir()
        dataset = self.root / f"rows-{nonce}.jsonl"
        dataset.write_text("".join(json.dumps(row) + "\n" for row in (text_rows() if rows is None else rows)))
        measured = measure_dataset(dataset)
        assert isinstance(measured, MeasuredDataset)
        desired = {**CLEAN, **self.hashes, "dataset": measured.dataset.spell(), **spellings}
        document = {
            "countermark": 1,
            "kind": "desired-manifest",
            "attempt": nonce,
            "workKey": WORK_KEY,
            "manifest": {name: desired[name] for name in ROSTER},
            "sources": {"model": str(self.model), "tokenizer": str(self.model), "dataset": str(dataset), **(sources or {})},
            "trainer": {**SETTINGS, **(settings or {})},
        }
        (folder / "manifest.json").write_text(json.dumps(document))
        environment = {
            "COUNTERMARK_MANIFEST": str(folder / "manifest.json"),
            "COUNTERMARK_ATTEMPT": str(folder),
            "COUNTERMARK_OUTPUT": str(folder / "output"),
            "COUNTERMARK_RESUME": "" if resume is None else str(resume),
        }
        return Attempt(folder, environment, desired)


def make_tiny(root: Path, names: Iterator[int]) -> Tiny:
    """The sources under a folder."""
    model = root / "model"
    make_model(model)
    base, tokenizer = measure_base(model), measure_tokenizer(model)
    assert isinstance(base, MeasuredBase) and isinstance(tokenizer, MeasuredTokenizer)
    hashes = {"base_artifact": base.base_artifact.spell(), "tokenization": tokenizer.tokenization.spell()}
    return Tiny(root, model, hashes, names)


@final
@dataclass
class Parts:
    """What an honest script hands to a trainer; a lie changes some of it."""

    training: Training
    tokenizer: Any
    model: Any
    args: Any
    dataset: Any
    collator: Any
    callbacks: list[Any]
    kind: Any
    more: dict[str, Any]

    def trainer(self) -> Any:
        return self.kind(
            model=self.model,
            args=self.args,
            train_dataset=self.dataset,
            data_collator=self.collator,
            processing_class=self.tokenizer,
            callbacks=self.callbacks,
            **self.more,
        )


def honest(training: Training) -> Parts:
    """The parts as ``countermark.train.finetune`` puts them together."""
    from transformers import Trainer

    tokenizer = training.tokenizer()
    model, args = training.adapted_model(), training.training_arguments()
    return Parts(training, tokenizer, model, args, training.dataset(tokenizer), training.collator(tokenizer), [], Trainer, {})


def train(attempt: Attempt, lie: Callable[[Parts], None] | None = None) -> Any:
    """Run a script over an attempt; returns its trainer."""
    training = attempt.training()
    parts = honest(training)
    if lie is not None:
        lie(parts)
    trainer = parts.trainer()
    training.run(trainer)
    return trainer


def adapter_bits(folder: Path) -> dict[str, bytes]:
    """The bytes of every tensor of a published adapter."""
    from safetensors.torch import load_file

    return {name: tensor.numpy().tobytes() for name, tensor in load_file(folder / "adapter_model.safetensors").items()}
