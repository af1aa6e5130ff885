"""``Training``: an attempt's work, for a script of a few lines.

Rules kept here:

1. Everything that a script is handed is built from the manifest, and each thing is as the recipe pins it when it is handed over.
2. The adapter is drawn right after the generator was seeded with the manifest's seed: nothing between the two draws.
3. Threads are set before anything computes, because their number can change bits.
4. A resumed training goes on from the published checkpoint, which is only read.
"""

import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Self, final

from countermark.recipe.coordinates import SeededShuffle
from countermark.train import build
from countermark.train.assignment import Assignment, read_assignment
from countermark.train.feeding import loader_of
from countermark.train.handed_out import Collator, Sequences, hash_rows
from countermark.train.integrations import of_accelerate, of_lightning
from countermark.train.integrations.of_transformers import Followed, NothingLeft, callback_of
from countermark.train.libraries import library
from countermark.train.objects import padding_of, tokenize_with
from countermark.train.publishing import checkpoint_to_go_on_from, publish_adapter
from countermark.train.recorder import Recorder
from countermark.train.sequences import Preparation, Row, prepare
from countermark.train.sources import base_as_pinned, rows_as_pinned, tokenizer_as_pinned


@final
class Training:
    """One attempt's work. Made by ``Training.from_environment()`` in a process that ``countermark run`` started."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self._recorder = Recorder(assignment)
        self._followed = Followed(self._recorder)
        self._callback: Any = None
        self._lightning_callback: Any = None
        library("torch").set_num_threads(assignment.settings.threads)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """The work that the environment names. Raises ``CannotTrain`` with every reason why it names none."""
        return cls(read_assignment(environment))

    # --------------------------------------------------------------------------------------------- what a script is handed

    def training_arguments(self) -> Any:
        """``transformers.TrainingArguments`` of the manifest. Raises ``CannotTrain`` with every reason why there are none."""
        return library("transformers").TrainingArguments(**build.training_arguments(self.assignment, cpu=self._on_cpu()))

    def sft_config(self) -> Any:
        """``trl.SFTConfig`` of the manifest. Raises ``CannotTrain`` with every reason why there is none."""
        return library("trl").SFTConfig(**build.sft_config(self.assignment, cpu=self._on_cpu()))

    def lora_config(self) -> Any:
        """``peft.LoraConfig`` of the manifest. Raises ``CannotTrain`` where PEFT cannot make the scaling, to the bit."""
        return library("peft").LoraConfig(**build.lora_config(self.assignment.manifest))

    def tokenizer(self) -> Any:
        """The tokenizer that the recipe pins. Raises ``CannotTrain``."""
        return tokenizer_as_pinned(self.assignment)

    def model(self) -> Any:
        """The base model that the recipe pins, in the manifest's storage. Raises ``CannotTrain``."""
        return base_as_pinned(self.assignment)

    def adapted_model(self, model: Any = None) -> Any:
        """The base model (this one, or the one that the recipe pins) with a fresh adapter of the manifest. Raises ``CannotTrain``."""
        model = self.model() if model is None else model
        config, numbers = self.lora_config(), build.numbers_of(self.assignment.manifest)
        library("transformers").set_seed(self.assignment.manifest.seed.number)
        return library("peft").get_peft_model(model, config, autocast_adapter_dtype=numbers.adapter_in_float32)

    def rows(self) -> tuple[Row, ...]:
        """The rows that the recipe pins, in their order. Raises ``CannotTrain`` where the file has others now."""
        self._recorder.rows_handed_out = True
        return rows_as_pinned(self.assignment).rows

    def dataset(self, tokenizer: Any, rows: Iterable[Row] | None = None) -> Sequences:
        """The rows (these, or the ones that the recipe pins) as sequences of the manifest's length, packing and loss mask.

        Raises ``CannotTrain`` for what this integration does not build, and for rows that are none.
        """
        manifest = self.assignment.manifest
        how = Preparation(manifest.sequence_length.number, manifest.packing.word, manifest.loss_mask.word)
        listed = self.rows() if rows is None else tuple(rows)
        digest = hash_rows(listed)
        tokens = tuple(prepare(listed, tokenize_with(tokenizer), how))
        order = manifest.data_order
        if isinstance(order, SeededShuffle) and order.algorithm.word == "numpy_permutation":
            places: list[int] = library("numpy").random.default_rng(order.seed.number).permutation(len(tokens)).tolist()
            return Sequences(digest, how, order.spell(), tokenizer, tuple(tokens[place] for place in places))
        return Sequences(digest, how, None, tokenizer, tokens)

    def collator(self, tokenizer: Any) -> Collator:
        """What makes a batch of sequences. Raises ``CannotTrain`` for a tokenizer that has nothing to pad with."""
        return Collator(padding_of(tokenizer))

    def loader(self, dataset: Sequences, collator: Any) -> Any:
        """A data loader of the manifest's order and micro batch over a dataset that was handed out, for loops that are not a Transformers
        trainer's. It can tell where in an epoch it is."""
        return loader_of(self.assignment, dataset, collator)

    def optimizer(self, model: Any) -> Any:
        """The manifest's optimizer over what of a model is trained."""
        trained = [tensor for tensor in model.parameters() if tensor.requires_grad]
        return library("torch").optim.AdamW(trained, **build.optimizer_arguments(self.assignment.manifest))

    def scheduler(self, optimizer: Any) -> Any:
        """The manifest's schedule over an optimizer, to be stepped after each of its steps."""
        return library("transformers").get_scheduler(optimizer=optimizer, **build.scheduler_arguments(self.assignment.manifest))

    def lightning_arguments(self) -> dict[str, object]:
        """The arguments of Lightning's ``Trainer``. Raises ``CannotTrain`` where the manifest has none."""
        return build.lightning_arguments(self.assignment, cpu=self._on_cpu())

    def accelerator_arguments(self) -> dict[str, object]:
        """The arguments of ``accelerate.Accelerator``. Raises ``CannotTrain`` where the manifest has none."""
        return build.accelerator_arguments(self.assignment.manifest, cpu=self._on_cpu())

    def tracker(self, tokenizer: Any) -> Any:
        """The Accelerate tracker that says what is trained and publishes its checkpoints, for ``Accelerator(log_with=…)``. Its
        ``batches()`` are the micro batches of the loop."""
        return of_accelerate.tracker_of(self._recorder, tokenizer)

    def callback(self) -> Any:
        """The Transformers callback that says what is trained and publishes its checkpoints; ``run`` adds it to a trainer that lacks it."""
        if self._callback is None:
            self._callback = callback_of(self._followed)
        return self._callback

    def lightning_callback(self, tokenizer: Any, package: str = of_lightning.PACKAGES[0]) -> Any:
        """The Lightning callback that does the same, of ``lightning.pytorch`` or ``pytorch_lightning``; ``fit`` adds it to a trainer that
        lacks it."""
        if self._lightning_callback is None:
            self._lightning_callback = of_lightning.callback_of(self._recorder, package, tokenizer)
        return self._lightning_callback

    # ------------------------------------------------------------------------------------------------------------ the run

    def run(self, trainer: Any) -> None:
        """Train from the base or from the admitted checkpoint, and publish the adapter at the output place.

        Raises ``CannotTrain`` where a checkpoint or the output cannot be published, and what the trainer raises.
        """
        self._followed.trainer = trainer
        if self.callback() not in trainer.callback_handler.callbacks:
            trainer.add_callback(self.callback())
        resume = checkpoint_to_go_on_from(self.assignment)
        with suppress(NothingLeft):
            trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        self.publish(trainer.model)

    def fit(self, trainer: Any, module: Any, loader: Any, tokenizer: Any) -> None:
        """Train a Lightning module from the base or from the admitted checkpoint, and publish its adapter at the output place.

        Raises ``CannotTrain`` where a checkpoint or the output cannot be published, and what the trainer raises.
        """
        callback = self.lightning_callback(tokenizer, of_lightning.package_of(trainer))
        if callback not in trainer.callbacks:
            trainer.callbacks.append(callback)
        resume = checkpoint_to_go_on_from(self.assignment)
        try:
            trainer.fit(module, train_dataloaders=loader, ckpt_path=None if resume is None else str(of_lightning.file_in(resume)))
        except SystemExit as left:
            # Told to end (SIGTERM), Lightning leaves as if all were done.
            raise SystemExit(left.code or 128 + signal.SIGTERM) from left
        self.publish(of_lightning.adapted_in(module))

    def publish(self, model: Any) -> None:
        """Publish the adapter at the attempt's output place. Raises ``CannotTrain`` where the place is taken."""
        publish_adapter(self.assignment, model)

    def _on_cpu(self) -> bool:
        return not library("torch").cuda.is_available()
