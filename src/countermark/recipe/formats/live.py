"""Reads live Transformers, TRL and PEFT configurations: what a training script really holds in its hands.

Rules kept here:

1. Nothing of the libraries is imported: the caller hands over each object's fields (``dataclasses.fields`` with ``getattr``) and what it
   measured; the same fields give the same observations in a replay.
2. Every field of the three configurations is in a closed table. One in none is unknown and refused; a refused one is named with its value.
3. A value is read as the trainer computes with it: a ratio of warm-up steps is rounded as the Trainer rounds it, alpha becomes the float64
   that multiplies, an absent data seed is the seed, a schedule without warm-up has none.
4. What the trainer would decide later (``completion_only_loss`` None, an unknown number of rows) is observed as deferred, with its field.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Final, cast, final

from countermark.recipe.formats.live_schedules import Schedule, ScheduleInput, read_schedule
from countermark.recipe.formats.live_tables import ACCELERATOR_CONFIG, LORA_CONFIG, SFT_CONFIG, TRAINING_ARGUMENTS
from countermark.recipe.formats.rules import FieldRule, Refuses, is_neutral, nearest, plain
from countermark.recipe.modules import selecting_names
from countermark.recipe.resolve import Layer, Observation, Observations, Receipt, ResolveDefect, UnknownField, UnsupportedSemanticField
from countermark.values import PerMille, Sha256, Unreadable, shown


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured beside the configurations. None: it was not, and what depends on it stays open.

    ``rows``: rows that are fed in one epoch, after packing. ``adapted``: full names, in the base, of the modules that PEFT adapts, and
    ``modules`` those of all its modules. ``storage``, ``adapter_storage``: the dtypes of base and adapter as torch names them (an adapter
    beside a float32 base is in float32, measured or not); ``quantization``: empty, ``nf4``, ``nf4dq`` or ``int8``.
    ``packing``, ``loss_mask`` and ``sequence_length`` are those of the dataset where no SFTConfig says them. ``initial_seed``: what
    ``torch.initial_seed()`` gave when the data loader was made. ``workers``: processes times devices in each. ``resume``: the admitted
    checkpoint that this attempt goes on from, which is no change of the computation.
    """

    base_artifact: Sha256 | None = None
    tokenization: Sha256 | None = None
    dataset: Sha256 | None = None
    rows: int | None = None
    adapted: tuple[str, ...] | None = None
    modules: tuple[str, ...] = ()
    storage: str | None = None
    adapter_storage: str | None = None
    quantization: str = ""
    packing: str | None = None
    loss_mask: str | None = None
    sequence_length: int | None = None
    initial_seed: int | None = None
    workers: int = 1
    resume: str | None = None


_SHUFFLE: Final = "torch_randperm_epoch"
_PACKINGS: Final[Mapping[str, str]] = MappingProxyType({"bfd": "bfd", "bfd_split": "bfd_split", "wrapped": "concat_split"})
#: The base's storage, the adapter's, and what autocast computes in. PEFT keeps an adapter in float32 beside a bfloat16 base unless it is
#: told not to, so the two are measured apart.
_FORMATS: Final[Mapping[tuple[str, str, str], str]] = MappingProxyType(
    {
        ("float32", "float32", ""): "fp32",
        ("float32", "float32", "bf16"): "fp32_bf16amp",
        ("bfloat16", "float32", "bf16"): "bf16_bf16amp",
        ("bfloat16", "bfloat16", ""): "bf16_pure",
        ("float32", "float32", "fp16"): "fp32_fp16amp",
    }
)
_QUANTIZED: Final[Mapping[str, str]] = MappingProxyType({"nf4": "nf4_bf16", "nf4dq": "nf4dq_bf16", "int8": "int8_bf16"})


@dataclass(slots=True)
class _Reading:
    """The observations and defects of one reading, while it goes on."""

    arguments: Mapping[str, object]
    lora: Mapping[str, object]
    measured: Measured
    trl: bool
    tool: str
    said: list[Observation] = field(default_factory=list[Observation])
    defects: list[ResolveDefect] = field(default_factory=list[ResolveDefect])

    @property
    def config(self) -> str:
        return "SFTConfig" if self.trl else "TrainingArguments"

    def say(self, axis: str, raw: object, name: str, source: str = "", deferred: bool = False) -> None:
        receipt = Receipt(axis, source or self.config, 0, name, self.tool)
        self.said.append(Observation(axis, raw, receipt, deferred))

    def refuse(self, name: str, found: object, why: str, source: str = "") -> None:
        self.defects.append(UnsupportedSemanticField(name, shown(found), 0, why, source or self.config))


def read_live(arguments: Mapping[str, object], lora: Mapping[str, object], measured: Measured, *, trl: bool, tool: str) -> Observations:
    """The observations of one training script's configurations, as one measured layer.

    ``arguments`` are the fields of a TrainingArguments or (``trl``) of an SFTConfig, ``lora`` those of a LoraConfig; ``tool`` names the
    libraries with their versions, for the receipts.
    """
    reading = _Reading(_plain(arguments), _plain(lora), measured, trl, tool)
    table = {**TRAINING_ARGUMENTS, **SFT_CONFIG} if trl else dict(TRAINING_ARGUMENTS)
    _hold_against(reading, reading.arguments, table, reading.config, "")
    _hold_against(reading, reading.lora, LORA_CONFIG, "LoraConfig", "")
    accelerator = _accelerator(reading)
    _hold_against(reading, accelerator, ACCELERATOR_CONFIG, reading.config, "accelerator_config.")
    if measured.workers != 1:
        reading.refuse("workers", measured.workers, "several workers reduce gradients in an order that no coordinate holds", "measured")
    _content(reading)
    _numbers(reading)
    _order(reading, accelerator)
    _adapter(reading)
    _steps_and_schedule(reading)
    _sequences(reading)
    return Observations((Layer("measured", tuple(reading.said)),), tuple(reading.defects))


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    return {name: plain(value) for name, value in values.items()}


def _hold_against(reading: _Reading, values: Mapping[str, object], table: Mapping[str, FieldRule], source: str, prefix: str) -> None:
    """Every field of a configuration against its table: unknown ones and ones that are not neutral are named."""
    for name, value in values.items():
        rule = table.get(name)
        if rule is None:
            reading.defects.append(UnknownField(prefix + name, shown(value), 0, nearest(name, table), source))
        elif isinstance(rule, Refuses) and not is_neutral(value, rule):
            if name == "resume_from_checkpoint" and value == reading.measured.resume:
                continue
            reading.refuse(prefix + name, value, rule.why, source)


def _accelerator(reading: _Reading) -> dict[str, object]:
    """Accelerate's settings as plain fields, whether they stand there as an object, a table or not at all."""
    raw = reading.arguments.get("accelerator_config")
    if raw is None:
        return {}
    if isinstance(raw, Mapping):
        return _plain(cast("Mapping[str, object]", raw))
    if is_dataclass(raw) and not isinstance(raw, type):
        return {each.name: plain(getattr(raw, each.name)) for each in fields(raw)}
    reading.refuse("accelerator_config", raw, "the settings stand in a file that was not read")
    return {}


def _content(reading: _Reading) -> None:
    measured = reading.measured
    for axis, digest in (("base_artifact", measured.base_artifact), ("tokenization", measured.tokenization), ("dataset", measured.dataset)):
        if digest is not None:
            reading.say(axis, digest.spell(), axis, "measured")


def _numbers(reading: _Reading) -> None:
    """The coordinates that one field says as it stands, and the optimizer."""
    given = reading.arguments
    for axis, name in (
        ("seed", "seed"),
        ("learning_rate", "learning_rate"),
        ("weight_decay", "weight_decay"),
        ("gradient_accumulation", "gradient_accumulation_steps"),
        ("optimizer.beta1", "adam_beta1"),
        ("optimizer.beta2", "adam_beta2"),
        ("optimizer.eps", "adam_epsilon"),
    ):
        if name in given:
            reading.say(axis, given[name], name)
    if "optim" in given:
        # ``adamw_8bit`` is Transformers' second spelling of the same optimizer.
        reading.say("optimizer.implementation", "adamw_bnb_8bit" if given["optim"] == "adamw_8bit" else given["optim"], "optim")
    if given.get("auto_find_batch_size") is True:
        reading.say("micro_batch", True, "auto_find_batch_size", deferred=True)
    elif "per_device_train_batch_size" in given:
        reading.say("micro_batch", given["per_device_train_batch_size"], "per_device_train_batch_size")
    if "max_grad_norm" in given:
        norm = given["max_grad_norm"]
        off = isinstance(norm, int | float) and not isinstance(norm, bool) and norm <= 0
        reading.say("max_grad_norm", "off" if off else norm, "max_grad_norm")
    _numeric_format(reading)


def _numeric_format(reading: _Reading) -> None:
    measured, given = reading.measured, reading.arguments
    name = "bf16" if given.get("fp16") is not True else "fp16"
    if any(given.get(flag) is None for flag in ("bf16", "fp16")):
        name = "bf16" if given.get("bf16") is None else "fp16"
        reading.say("numeric_format", given.get(name), name, deferred=True)
        return
    compute = "bf16" if given["bf16"] is True else "fp16" if given["fp16"] is True else ""
    storage = (measured.quantization or measured.storage or "").removeprefix("torch.")
    adapter = (measured.adapter_storage or ("float32" if storage == "float32" else "")).removeprefix("torch.")
    if not storage or not adapter:
        reading.say("numeric_format", None, "the dtypes of base and adapter", "measured", deferred=True)
        return
    if measured.quantization:
        known = _QUANTIZED.get(measured.quantization) if (adapter, compute) == ("float32", "bf16") else None
    else:
        known = _FORMATS.get((storage, adapter, compute))
    reading.say("numeric_format", known or f"{storage}, the adapter {adapter}, {compute or 'no'} autocast", name)


def _order(reading: _Reading, accelerator: Mapping[str, object]) -> None:
    """How the Trainer draws its rows: one permutation an epoch by Accelerate's seedable sampler, or the dataset's own order."""
    given = reading.arguments
    strategy = given.get("train_sampling_strategy")
    shuffled_before = reading.trl and given.get("shuffle_dataset") is True
    if strategy == "sequential":
        if not shuffled_before:
            reading.say("data_order", "sequential", "train_sampling_strategy")
            return
        if given.get("packing") is True:
            reading.say("data_order", "shuffled before packing and after it", "shuffle_dataset")
            return
        reading.say("data_order.order", "shuffle", "shuffle_dataset")
        reading.say("data_order.algorithm", "numpy_permutation", "shuffle_dataset")
        reading.say("data_order.seed", given.get("seed"), "seed")
        return
    if strategy != "random" or shuffled_before:
        name = "shuffle_dataset" if shuffled_before else "train_sampling_strategy"
        reading.say("data_order", f"{strategy}, of rows that were shuffled before" if shuffled_before else strategy, name)
        return
    if accelerator.get("use_seedable_sampler", True) is not True:
        reading.say("data_order", "drawn from the seed's own stream", "accelerator_config.use_seedable_sampler")
        return
    reading.say("data_order.order", "shuffle", "train_sampling_strategy")
    reading.say("data_order.algorithm", _SHUFFLE, "train_sampling_strategy")
    if given.get("data_seed") is not None:
        reading.say("data_order.seed", given["data_seed"], "data_seed")
    elif reading.measured.initial_seed is not None:
        reading.say("data_order.seed", reading.measured.initial_seed, "torch.initial_seed", "measured")
    else:
        reading.say("data_order.seed", given.get("seed"), "seed")


def _adapter(reading: _Reading) -> None:
    given = reading.lora
    reading.say("method.adapter", "dora" if given.get("use_dora") is True else "lora", "use_dora", "LoraConfig")
    init = given.get("init_lora_weights")
    known = "kaiming" if init is True else "gaussian" if isinstance(init, str) and init.lower() == "gaussian" else init
    reading.say("method.init", known, "init_lora_weights", "LoraConfig")
    rank, alpha = given.get("r"), given.get("lora_alpha")
    reading.say("rank", rank, "r", "LoraConfig")
    if isinstance(rank, int) and rank > 0 and isinstance(alpha, int | float) and not isinstance(alpha, bool):
        root = given.get("use_rslora") is True
        reading.say("scaling", alpha / math.sqrt(rank) if root else alpha / rank, "lora_alpha", "LoraConfig")
    else:
        reading.say("scaling", alpha, "lora_alpha", "LoraConfig", deferred=alpha is None)
    rate = PerMille.of_rate(given.get("lora_dropout"))
    reading.say("dropout", given.get("lora_dropout") if isinstance(rate, Unreadable) else rate.number, "lora_dropout", "LoraConfig")
    targets = given.get("target_modules")
    if isinstance(targets, str) or targets is None:
        adapted = reading.measured.adapted
        names = selecting_names(adapted, reading.measured.modules) if adapted else None
        if names is not None:
            reading.say("target_modules", names.names, "the modules that PEFT adapts", "measured")
        else:
            reading.say("target_modules", targets, "target_modules", "LoraConfig", deferred=True)
    else:
        reading.say("target_modules", targets, "target_modules", "LoraConfig")


def _whole(raw: object) -> int | None:
    """A positive whole number, else None."""
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw > 0 else None


def _steps_and_schedule(reading: _Reading) -> None:
    given = reading.arguments
    total = _total_steps(reading)
    kind = given.get("lr_scheduler_type")
    warmup = _warmup_steps(reading, total, reads_warmup=kind != "constant")
    rate = given.get("learning_rate")
    kwargs = given.get("lr_scheduler_kwargs")
    table: Mapping[str, object] = cast("Mapping[str, object]", kwargs) if isinstance(kwargs, Mapping) else {}
    if kwargs is not None and not isinstance(kwargs, Mapping):
        reading.refuse("lr_scheduler_kwargs", kwargs, "the settings of the schedule are no table")
    numeric = float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) else None
    found = read_schedule(ScheduleInput(kind, table, numeric, warmup, total))
    match found:
        case Schedule(arm, leaves, unsupported):
            reading.say("lr_schedule.schedule", arm, "lr_scheduler_type")
            for leaf, value in leaves.items():
                reading.say(f"lr_schedule.{leaf}", value, f"lr_scheduler_kwargs.{leaf}", deferred=value is None)
            for name in unsupported:
                reading.refuse(f"lr_scheduler_kwargs.{name}", table.get(name), "the schedule takes a shape that no coordinate holds")
        case None:
            reading.say("lr_schedule", kind, "lr_scheduler_type")


def _total_steps(reading: _Reading) -> int | None:
    """The optimizer steps as ``Trainer.set_initial_training_values`` finds them."""
    given = reading.arguments
    most = given.get("max_steps")
    if not (isinstance(most, int) and most < 0):
        reading.say("total_steps", most, "max_steps")
        return _whole(most)
    rows, micro = _whole(reading.measured.rows), _whole(given.get("per_device_train_batch_size"))
    accumulation, epochs = _whole(given.get("gradient_accumulation_steps")), given.get("num_train_epochs")
    known = isinstance(epochs, int | float) and math.isfinite(epochs) and given.get("auto_find_batch_size") is not True
    if rows is None or micro is None or accumulation is None or not known:
        reading.say("total_steps", most, "max_steps", deferred=True)
        return None
    batches = (rows + micro - 1) // micro
    updates = (batches + accumulation - 1) // accumulation
    total = math.ceil(cast("float", epochs) * updates)
    reading.say("total_steps", total, "num_train_epochs")
    return _whole(total)


def _warmup_steps(reading: _Reading, total: int | None, reads_warmup: bool) -> int | None:
    """The warm-up as ``TrainingArguments.get_warmup_steps`` finds it; a schedule that reads none has none."""
    raw = reading.arguments.get("warmup_steps")
    if not reads_warmup:
        reading.say("warmup_steps", 0, "lr_scheduler_type")
        return 0
    if not isinstance(raw, int | float) or isinstance(raw, bool) or not math.isfinite(raw) or raw < 0:
        reading.say("warmup_steps", raw, "warmup_steps")
        return None
    if 0 < raw < 1:
        steps = None if total is None else math.ceil(total * raw)
        reading.say("warmup_steps", raw if steps is None else steps, "warmup_steps", deferred=steps is None)
        return steps
    reading.say("warmup_steps", int(raw), "warmup_steps")
    return int(raw)


def _sequences(reading: _Reading) -> None:
    """Length, packing and loss mask: from an SFTConfig's fields, else from what was measured of the dataset."""
    given, measured = reading.arguments, reading.measured
    if not reading.trl:
        for axis, value in (
            ("sequence_length", measured.sequence_length),
            ("packing", measured.packing),
            ("loss_mask", measured.loss_mask),
        ):
            if value is not None:
                reading.say(axis, value, axis, "measured")
        return
    length = given.get("max_length")
    reading.say("sequence_length", length, "max_length", deferred=length is None)
    _packing(reading)
    completion, assistant = given.get("completion_only_loss"), given.get("assistant_only_loss") is True
    if completion is None:
        reading.say("loss_mask", None, "completion_only_loss", deferred=True)
    elif completion is True:
        both = "completion_only together with assistant_only"
        reading.say("loss_mask", both if assistant else "completion_only", "completion_only_loss")
    else:
        reading.say("loss_mask", "assistant_only" if assistant else "all_tokens", "assistant_only_loss")


def _packing(reading: _Reading) -> None:
    given = reading.arguments
    flat, strategy = given.get("padding_free") is True, given.get("packing_strategy")
    if given.get("packing") is not True:
        reading.say("packing", "flatten" if flat else "none", "padding_free" if flat else "packing")
    elif strategy == "wrapped" and flat:
        reading.say("packing", "wrapped together with padding_free", "packing_strategy")
    else:
        reading.say("packing", _PACKINGS.get(strategy, strategy) if isinstance(strategy, str) else strategy, "packing_strategy")
