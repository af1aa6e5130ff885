"""An adapter's configuration beside the weights of another: each break alone, two together, and what only the base could tell."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from countermark.files.adapter import adapter_config as config_of
from countermark.files.layouts import weights
from countermark.files.layouts.targets import adapted, disagreements, unused
from countermark.run.checkpoint import CheckpointDefect, ComponentForeign, ComponentUnread, ManifestDiverges, PublicationIncomplete
from tests.faults import planted, proven_by
from tests.files.folders import adapter_config, checkpoint
from tests.files.layouts.breaking import OPTIMIZER, WEIGHTS, defects, read
from tests.files.tensors import encoded

MODULE = "model.layers.{}.self_attn.{}"
TENSORS = [
    f"base_model.model.{MODULE.format(at, one)}.lora_{side}.weight" for at in (0, 1) for one in ("q_proj", "v_proj") for side in "AB"
]


def beside(parent: Path, **changes: Any) -> Path:
    """A clean checkpoint but for its adapter's configuration."""
    return checkpoint(parent, 4, adapter_config_json=json.dumps(adapter_config(**changes)).encode())


def unexplained(*modules: str) -> str:
    told = ", ".join(f"'{module}'" for module in modules)
    return f"the weights hold {told}, which its target_modules do not select"


def of_weights(path: Path) -> Counter[CheckpointDefect]:
    """Everything that admission says against a vouched checkpoint, but that the configuration is of another computation."""
    found = defects(path, vouched=True)
    return Counter({one: times for one, times in found.items() if not isinstance(one, ManifestDiverges)})


NONE_OF_V = unexplained(*(MODULE.format(at, "v_proj") for at in (0, 1)))
NONE_OF_LAYER_0 = unexplained(*(MODULE.format(0, one) for one in ("q_proj", "v_proj")))


@proven_by(planted(weights, "disagreements", lambda config, tensors: ()))
def test_weights_that_no_target_explains_are_refused_as_the_models(tmp_path: Path) -> None:
    incomplete = PublicationIncomplete(("model_weights is unreadable",))
    assert of_weights(beside(tmp_path / "clean")) == Counter()
    one = beside(tmp_path / "one", target_modules=["q_proj"])
    assert of_weights(one) == Counter([ComponentUnread(WEIGHTS, f"adapter_config.json: {NONE_OF_V}"), incomplete])
    two = beside(tmp_path / "two", target_modules=["q_proj"], layers_to_transform=[1])
    both = unexplained(MODULE.format(0, "q_proj"), MODULE.format(0, "v_proj"), MODULE.format(1, "v_proj"))
    assert of_weights(two) == Counter([ComponentUnread(WEIGHTS, f"adapter_config.json: {both}"), incomplete])


@proven_by(planted(weights, "unused", lambda config, tensors: ()))
def test_what_only_the_base_could_tell_is_noted(tmp_path: Path) -> None:
    path = beside(tmp_path, target_modules=["q_proj", "v_proj", "k_proj"], modules_to_save=["lm_head"])
    assert of_weights(path) == Counter()
    told = "adapter_config.json has {}, and the weights hold nothing of that"
    assert read(path).notes == (told.format("target_modules 'k_proj'"), told.format("modules_to_save 'lm_head'"))


def with_more(parent: Path, names: list[str], **changes: Any) -> Path:
    """A clean checkpoint whose adapter holds whole weights besides."""
    shapes = {name: [4, 6] if name.endswith("A.weight") else [6, 4] for name in TENSORS} | {name: [8, 6] for name in names}
    held = encoded({name: ("F32", shape, bytes(4 * shape[0] * shape[1])) for name, shape in shapes.items()}, {"format": "pt"})
    document = json.dumps(adapter_config(**changes)).encode()
    return checkpoint(parent, 4, adapter_model_safetensors=held, adapter_config_json=document)


@proven_by(planted(weights, "trained", lambda config, tensors: tensors))
def test_embeddings_that_peft_writes_and_does_not_train_are_none_of_the_optimizers(tmp_path: Path) -> None:
    """It writes the layers that it adapts, and those that were resized; what it was told to save whole, it trains."""
    whole = ["base_model.model.lm_head.base_layer.weight", "base_model.model.model.embed_tokens.weight"]
    assert of_weights(with_more(tmp_path / "frozen", whole)) == Counter()
    saved = with_more(tmp_path / "saved", whole, modules_to_save=["embed_tokens"])
    assert of_weights(saved) == Counter([ComponentForeign(OPTIMIZER, "it steps 8 tensors and the weights hold 9")])
    biased = with_more(tmp_path / "biased", ["base_model.model.model.layers.0.mlp.bias"], bias="all")
    assert of_weights(biased) == Counter([ComponentForeign(OPTIMIZER, "it steps 8 tensors and the weights hold 9")])


SAID: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"target_modules": ["self_attn.q_proj", MODULE.format(0, "v_proj"), MODULE.format(1, "v_proj")]}, []),
    ({"target_modules": ["attn.q_proj", "v_proj"]}, [unexplained(*(MODULE.format(at, "q_proj") for at in (0, 1)))]),
    ({"layers_to_transform": [0, 1], "layers_pattern": ["layers"]}, []),
    ({"layers_to_transform": 1}, [NONE_OF_LAYER_0]),
    ({"layers_to_transform": []}, []),
    ({"exclude_modules": ["v_proj"]}, [NONE_OF_V]),
    ({"exclude_modules": ".*v_proj"}, []),
    ({"target_modules": ".*nothing"}, []),
    ({"target_modules": "all-linear"}, []),
    ({"target_modules": ["nothing"], "target_parameters": ["experts.up"]}, []),
    ({"target_modules": ["nothing"], "ensure_weight_tying": True}, []),
    ({"target_modules": ["nothing"], "peft_type": "VERA"}, []),
    ({"target_modules": ["q_proj", 7]}, []),
]


@pytest.mark.parametrize(("changes", "expected"), SAID)
def test_each_form_of_targets_is_judged_as_far_as_it_tells(changes: dict[str, Any], expected: list[str]) -> None:
    assert list(disagreements(config_of(adapter_config(**changes)), TENSORS)) == expected


def test_a_configuration_without_a_single_adapted_module_is_refused() -> None:
    held = ["base_model.model.lm_head.weight"]
    config = config_of(adapter_config(modules_to_save=["lm_head"]))
    assert list(disagreements(config, held)) == ["its target_modules are adapted, and the weights hold nothing of any"]
    assert list(unused(config, held)) == ["target_modules 'q_proj', 'v_proj'"]
    assert adapted(TENSORS) == tuple(MODULE.format(at, one) for at in (0, 1) for one in ("q_proj", "v_proj"))


def test_names_that_no_model_has_are_looked_through_once() -> None:
    """A header may hold a million names, and a name a million dots."""
    long = "base_model.model." + "a." * 1_000_000 + "q_proj.lora_A.weight"
    many = [f"base_model.model.{at}.x.lora_A.weight" for at in range(20_000)]
    config = config_of(adapter_config(target_modules=[f"target{at}" for at in range(20_000)]))
    (why,) = disagreements(config, [long, *many])
    assert why.endswith("and 19997 more, which its target_modules do not select")
