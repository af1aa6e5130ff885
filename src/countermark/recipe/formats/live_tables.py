"""Every field of TrainingArguments (Transformers 5), SFTConfig (TRL 1) and LoraConfig (PEFT 0.21), in one of three ways each.

A test compares these tables with the installed libraries' own field lists, both ways: a new release's field is noticed. Reasons follow
the libraries' source: ``Trainer``, ``get_scheduler``, Accelerate's data loader, ``SFTTrainer`` and PEFT's LoRA layers.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from countermark.recipe.formats.rules import FieldRule, Inert, maps, refuses

_LOGS: Final = Inert("it says what is logged, and when")
_REPORTS: Final = Inert("it says where a run is reported, and under which name")
_HUB: Final = Inert("it says what is uploaded, after it was computed")
_SAVES: Final = Inert("it says when and where states are written; writing draws no random numbers")
_EVALUATES: Final = Inert("only an evaluation reads it, and evaluating while training is refused")
_SCRIPT: Final = Inert("the Trainer does not read it; scripts do")
_ONE_WORKER: Final = Inert("only several workers read it, and those are refused")
_DEVICE: Final = Inert("it belongs to the execution environment, which every attempt records")
_FEEDING: Final = Inert("it says how batches reach the trainer, not which, nor in what order")
_MEMORY: Final = Inert("it trades memory for time: the same numbers are computed again or kept elsewhere")
_METRIC: Final = Inert("only the choice of a best checkpoint reads it, and that is refused")

_WORKERS: Final = "several workers reduce gradients in an order of their own, which this roster has no coordinate for"
_DRAWS: Final = "each evaluation draws from the generator that dropout draws from, so the masks after it are others"
_KERNELS: Final = "it replaces kernels and loss computations by others whose numbers differ"
_RECOMPUTES: Final = "its options can leave out restoring the random state, and then dropout masks differ"
_OTHER_OPTIMIZER: Final = "optimizers get numbers that no coordinate holds"
_OTHER_STATE: Final = "the state that training goes on from is another"
_TRUNCATED_EPOCH: Final = "the last rows of every epoch would be left out"

TRAINING_ARGUMENTS: Final[Mapping[str, FieldRule]] = MappingProxyType(
    {
        "output_dir": _SAVES,
        "per_device_train_batch_size": maps("micro_batch"),
        "num_train_epochs": maps("total_steps"),
        "max_steps": maps("total_steps"),
        "learning_rate": maps("learning_rate"),
        "lr_scheduler_type": maps("lr_schedule"),
        "lr_scheduler_kwargs": maps("lr_schedule"),
        "warmup_steps": maps("warmup_steps"),
        "optim": maps("optimizer"),
        "optim_args": refuses(_OTHER_OPTIMIZER, None, ""),
        "weight_decay": maps("weight_decay"),
        "adam_beta1": maps("optimizer"),
        "adam_beta2": maps("optimizer"),
        "adam_epsilon": maps("optimizer"),
        "optim_target_modules": refuses(_OTHER_OPTIMIZER, None),
        "gradient_accumulation_steps": maps("gradient_accumulation"),
        "average_tokens_across_devices": _ONE_WORKER,
        "max_grad_norm": maps("max_grad_norm"),
        "label_smoothing_factor": refuses("the loss is taken against smoothed labels", 0, 0.0),
        "bf16": maps("numeric_format"),
        "fp16": maps("numeric_format"),
        "bf16_full_eval": refuses("an evaluation casts the model itself to bfloat16", False),
        "fp16_full_eval": refuses("an evaluation casts the model itself to float16", False),
        "tf32": refuses("float32 products are computed with 10 bits of mantissa", None, False),
        "activation_checkpointing": _MEMORY,
        "activation_checkpointing_kwargs": refuses(_RECOMPUTES, None, {}, {"use_reentrant": True}, {"use_reentrant": False}),
        "gradient_checkpointing": _MEMORY,
        "gradient_checkpointing_kwargs": refuses(_RECOMPUTES, None, {}, {"use_reentrant": True}, {"use_reentrant": False}),
        "torch_compile": refuses(_KERNELS, False),
        "torch_compile_backend": refuses(_KERNELS, None),
        "torch_compile_mode": refuses(_KERNELS, None),
        "use_liger_kernel": refuses(_KERNELS, False),
        "liger_kernel_config": Inert("it is read with use_liger_kernel alone, which is refused"),
        "use_cache": Inert("training computes whole sequences and reads no cache"),
        "neftune_noise_alpha": refuses("noise is added to the embeddings", None),
        "torch_empty_cache_steps": _MEMORY,
        "auto_find_batch_size": maps("micro_batch"),
        "logging_strategy": _LOGS,
        "logging_steps": _LOGS,
        "logging_first_step": _LOGS,
        "log_on_each_node": _LOGS,
        "logging_nan_inf_filter": _LOGS,
        "include_num_input_tokens_seen": _LOGS,
        "log_level": _LOGS,
        "log_level_replica": _LOGS,
        "disable_tqdm": _LOGS,
        "report_to": _REPORTS,
        "run_name": _REPORTS,
        "project": _REPORTS,
        "trackio_space_id": _REPORTS,
        "trackio_bucket_id": _REPORTS,
        "trackio_static_space_id": _REPORTS,
        "eval_strategy": refuses(_DRAWS, "no"),
        "eval_steps": _EVALUATES,
        "eval_delay": _EVALUATES,
        "per_device_eval_batch_size": _EVALUATES,
        "prediction_loss_only": _EVALUATES,
        "eval_on_start": refuses(_DRAWS, False),
        "eval_do_concat_batches": _EVALUATES,
        "eval_use_gather_object": _EVALUATES,
        "eval_accumulation_steps": _EVALUATES,
        "include_for_metrics": _EVALUATES,
        "batch_eval_metrics": _EVALUATES,
        "save_only_model": _SAVES,
        "save_strategy": _SAVES,
        "save_steps": _SAVES,
        "save_on_each_node": _SAVES,
        "save_total_limit": _SAVES,
        "enable_jit_checkpoint": _SAVES,
        "push_to_hub": _HUB,
        "hub_token": _HUB,
        "hub_private_repo": _HUB,
        "hub_model_id": _HUB,
        "hub_strategy": _HUB,
        "hub_always_push": _HUB,
        "hub_revision": _HUB,
        "load_best_model_at_end": refuses("the weights that come out are those of another step, chosen by a metric", False),
        "metric_for_best_model": _METRIC,
        "greater_is_better": _METRIC,
        "ignore_data_skip": refuses("after a resume the rows begin from the front again", False),
        "restore_callback_states_from_checkpoint": refuses("after a resume callbacks are replaced by stored ones", False),
        "full_determinism": _DEVICE,
        "seed": maps("seed", "data_order"),
        "data_seed": maps("data_order"),
        "use_cpu": _DEVICE,
        "accelerator_config": maps("data_order"),
        "parallelism_config": refuses(_WORKERS, None),
        "dataloader_drop_last": refuses(_TRUNCATED_EPOCH, False),
        "dataloader_num_workers": _FEEDING,
        "dataloader_pin_memory": _FEEDING,
        "dataloader_persistent_workers": refuses("a loader that lives on draws no new seed in the next epoch, so masks differ", False),
        "dataloader_prefetch_factor": _FEEDING,
        "dataloader_multiprocessing_context": _FEEDING,
        "dataloader_in_order": refuses("batches would come in the order in which workers finish", True),
        "remove_unused_columns": refuses("columns that the model does not name would reach it", True),
        "label_names": refuses("other columns would be taken for labels", None, ("labels",)),
        "train_sampling_strategy": maps("data_order"),
        "length_column_name": Inert("only sampling by length reads it, and that is refused"),
        "ddp_find_unused_parameters": _ONE_WORKER,
        "ddp_bucket_cap_mb": _ONE_WORKER,
        "ddp_broadcast_buffers": _ONE_WORKER,
        "ddp_static_graph": _ONE_WORKER,
        "ddp_backend": _ONE_WORKER,
        "ddp_timeout": _ONE_WORKER,
        "fsdp": refuses(_WORKERS, None, "", (), False),
        "fsdp_config": Inert("it is read with fsdp alone, which is refused"),
        "deepspeed": refuses(_WORKERS, None),
        "debug": _LOGS,
        "skip_memory_metrics": _LOGS,
        "do_train": _SCRIPT,
        "do_eval": _SCRIPT,
        "do_predict": _SCRIPT,
        "resume_from_checkpoint": refuses(_OTHER_STATE, None),
        "local_rank": refuses(_WORKERS, -1, 0),
    }
)

#: What SFTConfig has beside the fields of TrainingArguments.
SFT_CONFIG: Final[Mapping[str, FieldRule]] = MappingProxyType(
    {
        "model_init_kwargs": refuses("the model may be another one than was measured; load it and hand it over", None, {}),
        "trust_remote_code": refuses("the model's code comes from outside and is not part of any coordinate", False),
        "router_aux_loss_coef": refuses("a loss that balances experts is added", None),
        "chat_template_path": refuses("the template that was measured is replaced; set it in the tokenizer", None),
        "dataset_text_field": refuses("the loss is taken over another column", "text"),
        "dataset_kwargs": refuses("the rows would be fed unprepared", None, {}),
        "dataset_num_proc": _FEEDING,
        "eos_token": refuses("the tokenizer that was measured is changed; set it there", None),
        "max_length": maps("sequence_length"),
        "truncation_mode": refuses("long rows lose their beginning instead of their end", "keep_start"),
        "shuffle_dataset": maps("data_order"),
        "packing": maps("packing"),
        "packing_strategy": maps("packing"),
        "padding_free": maps("packing"),
        "pad_to_multiple_of": refuses("batches have other shapes, for which kernels add in another order", None),
        "eval_packing": _EVALUATES,
        "completion_only_loss": maps("loss_mask"),
        "assistant_only_loss": maps("loss_mask"),
        "loss_type": refuses("the loss is another one", "nll"),
        "activation_offloading": _MEMORY,
        "pad_token": refuses("the tokenizer that was measured is changed; set it there", None),
    }
)

_STORED: Final = Inert("it notes where a configuration came from; what was loaded is measured")
_DATA_INIT: Final = "the adapter begins from data or settings that no coordinate holds"
_PARTS: Final = "modules get ranks, scalings or layers of their own, which no coordinate holds"
_MORE: Final = "more than the low-rank matrices is trained"
_VARIANT: Final = "the adapter computes something else than low-rank adaptation"

LORA_CONFIG: Final[Mapping[str, FieldRule]] = MappingProxyType(
    {
        "task_type": refuses("other tasks train a head of their own, and take another loss", None, "CAUSAL_LM"),
        "peft_type": refuses(_VARIANT, "LORA", None),
        "auto_mapping": _STORED,
        "peft_version": _STORED,
        "base_model_name_or_path": _STORED,
        "revision": _STORED,
        "inference_mode": refuses("nothing would be trained", False),
        "r": maps("rank", "scaling"),
        "target_modules": maps("target_modules"),
        "exclude_modules": refuses(_PARTS, None, (), ""),
        "lora_alpha": maps("scaling"),
        "lora_dropout": maps("dropout"),
        "fan_in_fan_out": Inert("PEFT sets it by the kind of each module that it adapts"),
        "bias": refuses(_MORE, "none"),
        "use_rslora": maps("scaling"),
        "modules_to_save": refuses(_MORE, None, ()),
        "init_lora_weights": maps("method"),
        "layers_to_transform": refuses(_PARTS, None, ()),
        "layers_pattern": refuses(_PARTS, None, (), ""),
        "rank_pattern": refuses(_PARTS, None, {}),
        "alpha_pattern": refuses(_PARTS, None, {}),
        "megatron_config": refuses(_WORKERS, None),
        "megatron_core": Inert("it is read with megatron_config alone, which is refused"),
        "trainable_token_indices": refuses(_MORE, None, ()),
        "loftq_config": refuses(_DATA_INIT, None, {}),
        "eva_config": refuses(_DATA_INIT, None),
        "corda_config": refuses(_DATA_INIT, None),
        "lora_ga_config": refuses(_DATA_INIT, None),
        "use_dora": maps("method"),
        "velora_config": refuses(_VARIANT, None),
        "alora_invocation_tokens": refuses(_VARIANT, None),
        "use_qalora": refuses(_VARIANT, False),
        "qalora_group_size": Inert("it is read with use_qalora alone, which is refused"),
        "monteclora_config": refuses(_VARIANT, None),
        "layer_replication": refuses("the model gets layers that its artifact does not have", None),
        "runtime_config": Inert("it says where intermediate results are kept"),
        "lora_bias": refuses(_MORE, False),
        "target_parameters": refuses("parameters are adapted that are no modules", None, ()),
        "use_bdlora": refuses(_VARIANT, None),
        "arrow_config": refuses(_VARIANT, None),
        "kasa_config": refuses(_VARIANT, None),
        "ensure_weight_tying": refuses(_MORE, False),
    }
)

#: Accelerate's settings, which the field ``accelerator_config`` of TrainingArguments holds.
ACCELERATOR_CONFIG: Final[Mapping[str, FieldRule]] = MappingProxyType(
    {
        "split_batches": refuses(_WORKERS, False),
        "dispatch_batches": refuses(_WORKERS, None, False),
        "even_batches": _ONE_WORKER,
        "use_seedable_sampler": maps("data_order"),
        "non_blocking": _DEVICE,
        "gradient_accumulation_kwargs": refuses("gradients would be accumulated by another rule", None, {}),
        "use_configured_state": refuses("settings come from outside the configuration", False),
    }
)
