"""What a training script can do otherwise than it was told: each lie changes one thing, and says what the effective manifest must show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

from tests.train.tiny import Parts, text_rows


@final
@dataclass(frozen=True)
class Lie:
    """A change of the honest parts, and the coordinates that then differ: their values, or how the reason begins."""

    tell: Callable[[Parts], None]
    shows: dict[str, str]


def argument(name: str, value: Any) -> Callable[[Parts], None]:
    """Set one of the training arguments."""

    def tell(parts: Parts) -> None:
        assert hasattr(parts.args, name)
        setattr(parts.args, name, value)

    return tell


def adapter(**changed: Any) -> Callable[[Parts], None]:
    """Draw another adapter from the same seed."""

    def tell(parts: Parts) -> None:
        import peft
        import transformers

        config = parts.training.lora_config()
        for name, value in changed.items():
            setattr(config, name, value)
        transformers.set_seed(17)
        parts.model = peft.get_peft_model(parts.training.model(), config)

    return tell


def schedule(name: str, **details: Any) -> Callable[[Parts], None]:
    def tell(parts: Parts) -> None:
        from transformers import SchedulerType

        parts.args.lr_scheduler_type = SchedulerType(name)
        parts.args.lr_scheduler_kwargs = details

    return tell


def unseeded_adapter(parts: Parts) -> None:
    import peft

    parts.model = peft.get_peft_model(parts.training.model(), parts.training.lora_config())


def other_base(parts: Parts) -> None:
    """Another base under the same configuration: one weight is another."""
    import torch

    with torch.no_grad():
        parts.model.get_base_model().model.layers[1].mlp.up_proj.weight[3, 5] += 1.0


def other_configuration(parts: Parts) -> None:
    parts.model.config.attention_dropout = 0.25


def other_rows(parts: Parts) -> None:
    parts.dataset = parts.training.dataset(parts.tokenizer, list(reversed(text_rows())))


def other_template(parts: Parts) -> None:
    parts.tokenizer.chat_template = "{{ messages }}"


def other_dropout(parts: Parts) -> None:
    import torch

    for module in parts.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2


def trained_beside(parts: Parts) -> None:
    parts.model.get_base_model().model.norm.weight.requires_grad_(True)


def frozen_part(parts: Parts) -> None:
    next(tensor for tensor in parts.model.parameters() if tensor.requires_grad).requires_grad_(False)


def other_loss(parts: Parts) -> None:
    base = parts.kind

    class MyTrainer(base):  # type: ignore[misc, valid-type]
        def compute_loss(self, *args: Any, **more: Any) -> Any:
            return super().compute_loss(*args, **more)

    parts.kind = MyTrainer


def harmless_subclass(parts: Parts) -> None:
    base = parts.kind

    class Quiet(base):  # type: ignore[misc, valid-type]
        def log(self, *args: Any, **more: Any) -> None:
            return None

    parts.kind = Quiet


def loss_function(parts: Parts) -> None:
    parts.more["compute_loss_func"] = lambda outputs, labels, num_items_in_batch=None: outputs.logits.mean()


def masking_collator(parts: Parts) -> None:
    """The library's collator takes no loss over padding tokens; here it is told to pad with the end of a sequence."""
    from transformers import DataCollatorForLanguageModeling

    parts.tokenizer.pad_token = parts.tokenizer.eos_token
    inner = DataCollatorForLanguageModeling(parts.tokenizer, mlm=False)
    parts.collator = lambda rows: inner([{"input_ids": row["input_ids"]} for row in rows])


def during(act: Callable[[Any, dict[str, Any]], None], step: int = 3) -> Callable[[Parts], None]:
    """Do something to the live objects in the middle of the training."""

    def tell(parts: Parts) -> None:
        from transformers import TrainerCallback

        class Meddle(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
                if state.global_step == step:
                    act(control, {"args": args, **seen})

        parts.callbacks.append(Meddle())

    return tell


def stop(control: Any, seen: dict[str, Any]) -> None:
    control.should_training_stop = True


def slow_down(control: Any, seen: dict[str, Any]) -> None:
    seen["lr_scheduler"].base_lrs = [0.001 for _ in seen["lr_scheduler"].base_lrs]


def no_dropout(control: Any, seen: dict[str, Any]) -> None:
    import torch

    for module in seen["model"].modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def clip_harder(control: Any, seen: dict[str, Any]) -> None:
    seen["args"].max_grad_norm = 0.25


def _sgd(parts: Parts) -> None:
    import torch

    trained = [tensor for tensor in parts.model.parameters() if tensor.requires_grad]
    parts.more["optimizers"] = (torch.optim.SGD(trained, lr=0.002, weight_decay=0.01), None)


LIES: Final = {
    "learning rate": Lie(argument("learning_rate", 1e-3), {"learning_rate": "0.001"}),
    "weight decay": Lie(argument("weight_decay", 0.0), {"weight_decay": "0"}),
    "beta": Lie(argument("adam_beta1", 0.8), {"optimizer": "adamw_torch(beta1=0.8,beta2=0.999,eps=1e-8)"}),
    "fused": Lie(argument("optim", "adamw_torch_fused"), {"optimizer": "adamw_torch_fused(beta1=0.9,beta2=0.999,eps=1e-8)"}),
    "another optimizer": Lie(_sgd, {"optimizer": "unread: it is a torch.optim.sgd.SGD"}),
    "schedule": Lie(schedule("linear"), {"lr_schedule": "linear"}),
    "schedule's leaf": Lie(schedule("cosine", num_cycles=1.5), {"lr_schedule": "unread: it goes through 1.5 waves"}),
    "warm-up": Lie(argument("warmup_steps", 0), {"warmup_steps": "0"}),
    "length": Lie(argument("max_steps", 6), {"total_steps": "6"}),
    "clipping": Lie(argument("max_grad_norm", 0.5), {"max_grad_norm": "0.5"}),
    "no clipping": Lie(argument("max_grad_norm", 0), {"max_grad_norm": "off"}),
    "micro batch": Lie(argument("per_device_train_batch_size", 3), {"micro_batch": "3"}),
    "accumulation": Lie(argument("gradient_accumulation_steps", 1), {"gradient_accumulation": "1"}),
    "seed": Lie(argument("seed", 18), {"seed": "18"}),
    "data seed": Lie(argument("data_seed", 4), {"data_order": "shuffle(algorithm=torch_randperm_epoch,seed=4)"}),
    "no shuffle": Lie(argument("train_sampling_strategy", "sequential"), {"data_order": "sequential"}),
    "rank": Lie(adapter(r=8, lora_alpha=16), {"rank": "8"}),
    "scaling": Lie(adapter(lora_alpha=4), {"scaling": "1"}),
    "rank-stabilized": Lie(adapter(use_rslora=True), {"scaling": "4"}),
    "targets": Lie(adapter(target_modules={"q_proj"}), {"target_modules": "q_proj"}),
    "some layers": Lie(
        adapter(layers_to_transform=[0], layers_pattern="layers"),
        {
            "target_modules": "model.layers.0.self_attn.q_proj,model.layers.0.self_attn.v_proj",
            "method": "unread: field 'layers_to_transform'",
        },
    ),
    "initialization": Lie(adapter(init_lora_weights="gaussian"), {"method": "lora(init=gaussian)"}),
    "decomposed": Lie(adapter(use_dora=True), {"method": "dora(init=kaiming)"}),
    "dropout": Lie(other_dropout, {"dropout": "200"}),
    "adapter of no seed": Lie(unseeded_adapter, {"seed": "unread: the adapter's first weights"}),
    "base": Lie(other_base, {"base_artifact": "sha256:"}),
    "base's configuration": Lie(other_configuration, {"base_artifact": "sha256:"}),
    "rows": Lie(other_rows, {"dataset": "sha256:"}),
    "template": Lie(other_template, {"tokenization": "sha256:"}),
    "trained beside": Lie(
        trained_beside, {"method": "unread: 1 tensors are trained beside", "weight_decay": "unread: the optimizer's groups"}
    ),
    "frozen part": Lie(frozen_part, {"method": "unread: 1 of the adapter's tensors are not trained"}),
    "loss of a subclass": Lie(other_loss, {"method": "unread: MyTrainer has its own compute_loss"}),
    "loss function": Lie(loss_function, {"method": "unread: the trainer was handed a loss of its own"}),
    "label smoothing": Lie(argument("label_smoothing_factor", 0.1), {"method": "unread: "}),
    "short epochs": Lie(argument("dataloader_drop_last", True), {"micro_batch": "unread: the last rows", "method": "unread: "}),
    "mask of the collator": Lie(
        masking_collator,
        dict.fromkeys(("tokenization", "dataset", "sequence_length", "packing", "loss_mask"), "unread: the collator makes something else"),
    ),
    "stopped early": Lie(during(stop), {"total_steps": "3"}),
    "slowed down": Lie(during(slow_down), {"learning_rate": "unread: it was 0.002 when training began and unread"}),
    "dropout turned off": Lie(during(no_dropout), {"dropout": "unread: it was 100 when training began and 0 when it ended"}),
    "clipped harder": Lie(during(clip_harder), {"max_grad_norm": "unread: it was 1 when training began and 0.25 when it ended"}),
}
