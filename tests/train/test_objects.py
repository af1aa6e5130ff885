"""Live tokenizers and base models against the folders that they come from."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from countermark.files.model_folder import MeasuredBase, measure_base
from countermark.train import objects
from countermark.train.objects import live_base_artifact, tokenization_of, works_alike
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.train.tiny import Tiny, make_model

pytestmark = pytest.mark.torch


def measured(folder: Path) -> str:
    found = measure_base(folder)
    assert isinstance(found, MeasuredBase), found
    return found.base_artifact.spell()


def loaded(folder: Path, **more: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **more)


def adapted(model: Any) -> Any:
    import peft

    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], use_dora=True, task_type="CAUSAL_LM"))


@proven_by(planted(objects, "_ADAPTER_PARTS", ("lora_A",)), planted(objects, "stored_state", objects.base_state))
@pytest.mark.parametrize("tied", [True, False])
def test_a_live_base_is_what_saving_it_gives(tmp_path: Path, tied: bool) -> None:
    """Tied or not, in float32 or bfloat16, plain or under an adapter, in one file or in shards."""
    make_model(tmp_path / "made", tied=tied)
    if not tied:
        make_model(tmp_path / "tied", tied=True)
    import torch

    found: list[tuple[str, str]] = []
    for place in sorted(path for path in tmp_path.iterdir()):
        for dtype in (torch.float32, torch.bfloat16):
            model = loaded(place, dtype=dtype)
            model.save_pretrained(tmp_path / "saved" / f"{place.name}-{dtype}")
            whole = measured(tmp_path / "saved" / f"{place.name}-{dtype}")
            found.append((live_base_artifact(model).spell(), whole))
            found.append((live_base_artifact(adapted(model)).spell(), whole))
    model = loaded(tmp_path / "made")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="8KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    found.append((live_base_artifact(model).spell(), measured(tmp_path / "sharded")))
    assert [live for live, _ in found] == [saved for _, saved in found]


def test_one_weight_or_one_setting_makes_another_base(tiny: Tiny) -> None:
    import torch

    clean = live_base_artifact(loaded(tiny.model))
    assert clean.spell() == tiny.hashes["base_artifact"]
    changed, other = loaded(tiny.model), loaded(tiny.model)
    with torch.no_grad():
        changed.model.norm.weight[0] += 1
    other.config.rms_norm_eps = 0.5
    assert len({clean, live_base_artifact(changed), live_base_artifact(other)}) == 3


def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def used(one: Any) -> None:
    one(["w1 w2", "w3"], padding=True, truncation=True, max_length=2)


def padded(one: Any) -> None:
    one.pad_token = "w7"


def ended(one: Any) -> None:
    one.eos_token = "w7"


def templated(one: Any) -> None:
    one.chat_template = "{{ messages }}"


def grown(one: Any) -> None:
    one.add_tokens(["another"])


@pytest.mark.parametrize(("change", "alike"), [(used, True), (padded, False), (ended, False), (templated, False), (grown, False)])
def test_a_tokenizer_is_known_by_what_it_does(tiny: Tiny, change: Any, alike: bool) -> None:
    live = tokenizer(tiny.model)
    change(live)
    assert works_alike(live, tokenizer(tiny.model)) is alike
    found = tokenization_of(live, tiny.model)
    assert not isinstance(found, Refused)
    assert (found[0].spell() == tiny.hashes["tokenization"], found[1]) == (alike, alike)


def test_padding_with_a_token_that_is_there_changes_no_ids(tiny: Tiny, tmp_path: Path) -> None:
    """What scripts and TRL do for a tokenizer that has nothing to pad with."""
    folder = tmp_path / "unpadded"
    shutil.copytree(tiny.model, folder)
    bare = tokenizer(folder)
    bare.pad_token = None
    bare.save_pretrained(folder)
    live = tokenizer(folder)
    assert live.pad_token is None
    assert objects.padding_of(live) == live.eos_token_id
    live.pad_token = live.eos_token
    assert works_alike(live, tokenizer(folder))


def test_every_dtype_of_torch_that_safetensors_spells_is_spelled() -> None:
    import torch
    from safetensors.torch import save

    from countermark.weights.dtypes import DTYPE_BITS

    assert set(objects.DTYPES.values()) <= DTYPE_BITS.keys()
    for name, spelled in objects.DTYPES.items():
        header = save({"one": torch.zeros(1, dtype=getattr(torch, name))})
        assert f'"dtype":"{spelled}"'.encode() in header[:200], name
