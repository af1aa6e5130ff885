"""Scripts over Lightning and over Accelerate: the parts that an honest one is made of, and what a lying one can change of them.

``run(kind, attempt)`` runs an honest script over an attempt; a lie changes its parts first.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

from countermark.train import Training, build
from tests.train.tiny import Attempt, text_rows

Kind = Literal["lightning", "pytorch_lightning", "accelerate"]
#: Micro batches that are steps of their own weigh by their tokens whatever averages them.
ALONE: Final = {"gradient_accumulation": "1"}


@final
class Stopped(Exception):
    """Raised by a script in the middle of its training."""


@final
@dataclass
class Loop:
    """What an honest script hands to its library; a lie changes some of it."""

    training: Training
    tokenizer: Any
    model: Any
    loader: Any
    optimizer: Any
    scheduler: Any
    arguments: dict[str, Any]
    clip: float | None
    loss: Callable[[Any, Any], Any] = lambda model, batch: model(**batch).loss
    meddle: Callable[["Loop", int], None] = lambda loop, step: None
    stepped: bool = True
    methods: dict[str, Any] = field(default_factory=dict)
    callbacks: list[Any] = field(default_factory=list)
    evaluates: bool = False

    def optimize(self, **changed: Any) -> None:
        """Make the optimizer with other arguments, and its schedule anew."""
        import torch

        trained = [tensor for tensor in self.model.parameters() if tensor.requires_grad]
        arguments: Any = {**build.optimizer_arguments(self.training.assignment.manifest), **changed}
        self.optimizer = torch.optim.AdamW(trained, **arguments)
        self.scheduler = self.training.scheduler(self.optimizer)

    def feed(self, rows: Any = None, **changed: Any) -> None:
        """Make another loader."""
        from torch.utils.data import DataLoader

        training = self.training
        dataset = training.dataset(self.tokenizer, rows)
        self.loader = training.loader(dataset, training.collator(self.tokenizer))
        if changed:
            plain: Any = DataLoader(dataset, collate_fn=self.loader.collate_fn, **{"sampler": self.loader.sampler, **changed})
            plain.state_dict, plain.load_state_dict = dict, lambda state: None
            self.loader = plain


def honest(kind: Kind, training: Training) -> Loop:
    """The parts as the guide puts them together."""
    tokenizer, model = training.tokenizer(), training.adapted_model()
    model.train()
    loader = training.loader(training.dataset(tokenizer), training.collator(tokenizer))
    optimizer = training.optimizer(model)
    arguments: dict[str, Any] = training.accelerator_arguments() if kind == "accelerate" else training.lightning_arguments()
    clip = training.assignment.manifest.max_grad_norm
    scheduler = training.scheduler(optimizer)
    return Loop(
        training, tokenizer, model, loader, optimizer, scheduler, arguments, float(str(clip.spell())) if clip.spell() != "off" else None
    )


def run(kind: Kind, attempt: Attempt, lie: Callable[[Loop], None] | None = None) -> None:
    """Run a script over an attempt, from its base or from the checkpoint that it is told to go on from."""
    loop = honest(kind, attempt.training())
    if lie is not None:
        lie(loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        over_accelerate(loop) if kind == "accelerate" else over_lightning(loop, kind)


def over_lightning(loop: Loop, package: str) -> None:
    """The script over Lightning."""
    import importlib
    import logging

    for name in ("lightning.pytorch", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    pl = importlib.import_module("lightning.pytorch" if package == "lightning" else package)

    class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = loop.model

        def training_step(self, batch: Any, at: int) -> Any:
            loop.meddle(loop, self.global_step)
            return loop.loss(self.model, batch)

        def configure_optimizers(self) -> Any:
            how = {"scheduler": loop.scheduler, "interval": "step" if loop.stepped else "epoch"}
            return {"optimizer": loop.optimizer, "lr_scheduler": how}

    if loop.evaluates:
        loop.methods["validation_step"] = lambda self, batch, at: None
        loop.arguments |= {"val_check_interval": 1, "num_sanity_val_steps": 1}
    kind = type("Module", (Module,), loop.methods)
    trainer = pl.Trainer(**loop.arguments, callbacks=loop.callbacks)
    if loop.evaluates:
        trainer.fit = _evaluating(trainer.fit, loop)
    loop.training.fit(trainer, kind(), loop.loader, loop.tokenizer)


def _evaluating(fit: Any, loop: Loop) -> Any:
    from torch.utils.data import DataLoader

    rows: Any = list(range(4))
    return lambda module, **more: fit(module, val_dataloaders=DataLoader(rows, shuffle=True), **more)


def over_accelerate(loop: Loop) -> None:
    """The script over Accelerate, with the loop that everybody writes."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    training = loop.training
    tracker = training.tracker(loop.tokenizer)
    accelerator = Accelerator(log_with=tracker, **loop.arguments)
    model, optimizer, _, scheduler = accelerator.prepare(loop.model, loop.optimizer, loop.loader, loop.scheduler)
    accelerator.init_trackers("topics")
    for batch in tracker.batches():
        with accelerator.accumulate(model):
            loop.meddle(loop, tracker.tracker.step)
            loss = loop.loss(model, batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients and loop.clip is not None:
                loop.methods.get("clip", accelerator.clip_grad_norm_)(model.parameters(), loop.clip)
            optimizer.step()
            if loop.stepped:
                scheduler.step()
            optimizer.zero_grad()
        if loop.arguments.get("stop") == tracker.tracker.step:
            break
    accelerator.end_training()
    training.publish(accelerator.unwrap_model(model))


# ---------------------------------------------------------------------------------------------------------------- the lies


@final
@dataclass(frozen=True)
class Lie:
    """A change of the honest parts, and the coordinates that then differ: their values, or how the reason begins. ``alone``: it leaves
    nothing for another one to show."""

    tell: Callable[[Loop], None]
    shows: Mapping[str, str]
    kinds: tuple[Kind, ...] = ("lightning", "accelerate")
    alone: bool = False


def setting(lightning: str, accelerate: str, value: Any) -> Callable[[Loop], None]:
    def tell(loop: Loop) -> None:
        loop.arguments[lightning if lightning in loop.arguments else accelerate] = value

    return tell


def clipped(value: float | None) -> Callable[[Loop], None]:
    def tell(loop: Loop) -> None:
        loop.clip = value
        if "gradient_clip_val" in loop.arguments:
            loop.arguments["gradient_clip_val"] = value

    return tell


def another_schedule(loop: Loop) -> None:
    import transformers

    loop.scheduler = transformers.get_linear_schedule_with_warmup(loop.optimizer, 2, 8)


def other_dropout(loop: Loop) -> None:
    import torch

    for module in loop.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2


def reseeded(loop: Loop) -> None:
    import torch

    torch.manual_seed(18)


def evaluating(loop: Loop) -> None:
    loop.model.eval()


def attribute(name: str, value: Any) -> Callable[[Loop], None]:
    return lambda loop: setattr(loop, name, value)


def without_masks(model: Any, batch: Any) -> Any:
    return model(input_ids=batch["input_ids"], labels=batch["input_ids"].clone(), attention_mask=batch["attention_mask"]).loss


def by_torch(loop: Loop) -> None:
    import torch

    loop.methods["clip"] = torch.nn.utils.clip_grad_norm_


def own_step(loop: Loop) -> None:
    loop.methods["on_after_backward"] = lambda self: None


def averaged_weights(loop: Loop) -> None:
    from lightning.pytorch.callbacks import StochasticWeightAveraging

    loop.callbacks.append(StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=100))


LIES: Final = {
    "learning rate": Lie(lambda loop: loop.optimize(lr=0.001), {"learning_rate": "0.001"}),
    "weight decay": Lie(lambda loop: loop.optimize(weight_decay=0.0), {"weight_decay": "0"}),
    "beta": Lie(lambda loop: loop.optimize(betas=(0.8, 0.999)), {"optimizer": "adamw_torch(beta1=0.8,beta2=0.999,eps=1e-8)"}),
    "schedule": Lie(another_schedule, {"lr_schedule": "linear"}),
    "schedule not stepped": Lie(attribute("stepped", False), {"lr_schedule": "unread: it was cosine when training began"}, ("lightning",)),
    "schedule never stepped": Lie(
        attribute("stepped", False), {"lr_schedule": "unread: it was stepped 0 times in 8 steps"}, ("accelerate",)
    ),
    "micro batch": Lie(lambda loop: loop.feed(batch_size=3), {"micro_batch": "3"}),
    "no shuffle": Lie(lambda loop: loop.feed(batch_size=2, sampler=None), {"data_order": "sequential"}),
    "rows": Lie(lambda loop: loop.feed(list(reversed(text_rows()))), {"dataset": "sha256:"}),
    "dropout": Lie(other_dropout, {"dropout": "200"}),
    "seed": Lie(reseeded, {"seed": "18"}),
    "accumulation": Lie(
        setting("accumulate_grad_batches", "gradient_accumulation_steps", 2),
        {"gradient_accumulation": "unread: "},
        alone=True,
    ),
    "clipping": Lie(clipped(0.5), {"max_grad_norm": "0.5"}),
    "no clipping": Lie(clipped(None), {"max_grad_norm": "off"}),
    "another loss": Lie(
        attribute("loss", lambda model, batch: 2 * model(**batch).loss),
        {"method": "unread: the loss is not the one that the model computes in step 1"},
    ),
    "other rows in a step": Lie(
        attribute("loss", without_masks), {"method": "unread: the model was handed something else than the loader's micro batch in step 1"}
    ),
    "evaluating": Lie(evaluating, {"method": "unread: the model was not in training mode in step 1"}),
    "clipped by value": Lie(
        setting("gradient_clip_algorithm", "", "value"), {"max_grad_norm": "unread: gradients are clipped by value"}, ("lightning",)
    ),
    "own hook": Lie(own_step, {"method": "unread: Module has its own on_after_backward"}, ("lightning",)),
    "averaged weights": Lie(
        averaged_weights, {"method": "unread: callbacks change what is trained: StochasticWeightAveraging"}, ("lightning",), alone=True
    ),
    "clipped by torch": Lie(by_torch, {"max_grad_norm": "unread: the gradients were changed before a step"}, ("accelerate",)),
}
