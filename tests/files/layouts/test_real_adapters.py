"""Adapters that PEFT itself wrote: none is refused, whatever form its targets have, and what is refused PEFT leaves out or refuses too."""

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from countermark.files.adapter import adapter_config
from countermark.files.layouts import targets
from countermark.files.layouts.targets import disagreements, unused

pytestmark = pytest.mark.torch

WEIGHTS = "adapter_model.safetensors"

#: Configurations that PEFT takes, and what each names that its weights hold nothing of.
VALID: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "last parts of names": ({"target_modules": ["q_proj", "v_proj"]}, ()),
    "longer names": ({"target_modules": ["self_attn.q_proj", "model.layers.0.mlp.up_proj"]}, ()),
    "one whole name": ({"target_modules": ["model.layers.1.self_attn.k_proj"]}, ()),
    "names that the base lacks": (
        {"target_modules": ["q_proj", "query_key_value", "c_attn"]},
        ("target_modules 'c_attn', 'query_key_value'",),
    ),
    "a module to save that the base lacks": (
        {"target_modules": ["q_proj"], "modules_to_save": ["nothing"]},
        ("modules_to_save 'nothing'",),
    ),
    "a pattern": ({"target_modules": r".*\.(q|v)_proj"}, ()),
    "all linear layers": ({"target_modules": "all-linear"}, ()),
    "some layers": ({"target_modules": ["q_proj"], "layers_to_transform": [1]}, ()),
    "one layer, under its pattern": ({"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}, ()),
    "a module left out": ({"target_modules": ["q_proj", "k_proj"], "exclude_modules": ["layers.0.self_attn.k_proj"]}, ()),
    "modules left out by a pattern": ({"target_modules": ["q_proj", "k_proj"], "exclude_modules": r".*\.0\..*"}, ()),
    "a module saved whole": ({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, ()),
    "saved modules of which one is there": ({"target_modules": ["q_proj"], "modules_to_save": ["classifier", "head"]}, ()),
    "a saved layer that is targeted too": ({"target_modules": ["q_proj", "o_proj"], "modules_to_save": ["layers.0.mlp"]}, ()),
    "weights decomposed": ({"target_modules": ["q_proj"], "use_dora": True}, ()),
    "ranks by pattern": ({"target_modules": ["q_proj", "v_proj"], "rank_pattern": {"layers.0.self_attn.q_proj": 2}}, ()),
    "an embedding": ({"target_modules": ["embed_tokens", "q_proj"]}, ()),
    "tied weights": ({"target_modules": ["embed_tokens"], "ensure_weight_tying": True}, ()),
    "tokens": ({"target_modules": ["q_proj"], "trainable_token_indices": [1, 2]}, ()),
    "biases": ({"target_modules": ["q_proj"], "bias": "all"}, ()),
    "biases of their own": ({"target_modules": ["q_proj"], "lora_bias": True}, ()),
    "parameters": ({"target_modules": [], "target_parameters": ["q_proj.weight"]}, ()),
    "a head that the task saves": ({"target_modules": ["q_proj"], "task_type": "SEQ_CLS"}, ()),
    "layers that are repeated": ({"target_modules": ["q_proj"], "layer_replication": [[0, 2], [0, 2]]}, ()),
}


def base(task: str = "CAUSAL_LM") -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    kind: Any = AutoModelForCausalLM if task == "CAUSAL_LM" else AutoModelForSequenceClassification
    return kind.from_config(LlamaConfig(vocab_size=64, tie_word_embeddings=True, **sizes))


def written(folder: Path, **given: Any) -> Path:
    """The adapter that PEFT saves."""
    adapted(**given).save_pretrained(folder)
    return folder


def adapted(**given: Any) -> Any:
    """A model with the adapter that PEFT makes."""
    import peft

    config = peft.LoraConfig(**{"r": 4, "task_type": "CAUSAL_LM"} | given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peft.get_peft_model(base(given.get("task_type", "CAUSAL_LM")), config)


def said(folder: Path, **changes: Any) -> tuple[list[str], tuple[str, ...]]:
    """What speaks against an adapter whose configuration is changed like this, and what of it is unused."""
    document = json.loads((folder / "adapter_config.json").read_text()) | changes
    names = load_file(folder / WEIGHTS).keys()
    config = adapter_config(document)
    return list(disagreements(config, names)), tuple(unused(config, names))


@pytest.mark.parametrize("name", VALID)
def test_no_adapter_that_peft_wrote_is_refused(tmp_path: Path, name: str) -> None:
    assert said(written(tmp_path, **VALID[name][0])) == ([], VALID[name][1])


@pytest.mark.parametrize("name", VALID)
def test_what_an_optimizer_steps_is_what_peft_trains(tmp_path: Path, name: str) -> None:
    model = adapted(**VALID[name][0])
    model.save_pretrained(tmp_path)
    held = load_file(tmp_path / WEIGHTS)
    config = adapter_config(json.loads((tmp_path / "adapter_config.json").read_text()))
    stepped = Counter(tuple(parameter.shape) for parameter in model.parameters() if parameter.requires_grad)
    assert Counter(tuple(held[one].shape) for one in targets.trained(config, held)) == stepped


def dropped(folder: Path) -> set[str]:
    """The modules whose weights PEFT leaves out when it loads an adapter, which it does with a warning."""
    import peft

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = peft.PeftModel.from_pretrained(base(), str(folder))
    held = peft.get_peft_model_state_dict(model)
    return {name.split(".lora_")[0].removeprefix("base_model.model.") for name in load_file(folder / WEIGHTS) if name not in held}


LAYER = "model.layers.{}.self_attn.{}"
#: What is changed in the configuration of an adapter of q_proj and v_proj, and the modules that are left without an explanation.
BROKEN: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a target left out": ({"target_modules": ["q_proj"]}, {LAYER.format(at, "v_proj") for at in (0, 1)}),
    "another target": ({"target_modules": ["v_proj", "k_proj"]}, {LAYER.format(at, "q_proj") for at in (0, 1)}),
    "fewer layers": ({"layers_to_transform": [1]}, {LAYER.format(0, one) for one in ("q_proj", "v_proj")}),
    "a module left out": ({"exclude_modules": ["layers.1.self_attn.v_proj"]}, {LAYER.format(1, "v_proj")}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_refused_peft_leaves_out(tmp_path: Path, name: str) -> None:
    changes, modules = BROKEN[name]
    folder = written(tmp_path, target_modules=["q_proj", "v_proj"])
    assert dropped(folder) == set()
    told = ", ".join(f"'{module}'" for module in sorted(modules))
    assert said(folder, **changes)[0] == [f"the weights hold {told}, which its target_modules do not select"]
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert dropped(folder) == modules


def test_targets_that_select_nothing_peft_refuses(tmp_path: Path) -> None:
    import peft

    folder = written(tmp_path, target_modules=["q_proj"])
    modules = ", ".join(f"'{LAYER.format(at, 'q_proj')}'" for at in (0, 1))
    why = f"the weights hold {modules}, which its target_modules do not select"
    assert said(folder, target_modules=["c_attn"]) == ([why], ("target_modules 'c_attn'",))
    with pytest.raises(ValueError, match="not found in the base model"):
        peft.get_peft_model(base(), peft.LoraConfig(target_modules=["c_attn"], task_type="CAUSAL_LM"))
