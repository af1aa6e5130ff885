"""Trains a tiny whole model for four steps with the real trainer: ``python -m tests.files.layouts.training FOLDER [SHARD]``.

Run by ``torch.distributed.run`` it is one of several workers. ``SHARD`` is the largest size of one file of weights.
"""

import functools
import sys
import warnings
from pathlib import Path
from typing import Any


def train(folder: Path, shard: str | None = None) -> Path:
    """The trainer's ``checkpoint-4``."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2
    )
    model: Any = AutoModelForCausalLM.from_config(config)
    if shard is not None:
        model.save_pretrained = functools.partial(model.save_pretrained, max_shard_size=shard)
    rows: Any = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 64, (22, 8))]
    arguments = TrainingArguments(
        str(folder), max_steps=4, save_steps=4, per_device_train_batch_size=2, learning_rate=0.01, report_to=[], use_cpu=True, seed=17,
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Trainer(model, arguments, train_dataset=rows).train()
    if torch.distributed.is_initialized():
        # Threads of the group that are still there when the interpreter ends abort it.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return folder / "checkpoint-4"


if __name__ == "__main__":
    train(Path(sys.argv[1]), *sys.argv[2:3])
