"""``weights composition`` as a person calls it: what moves the digest in folders as PEFT and Transformers leave them, and every refusal."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from countermark.app import composing
from countermark.files import adapter, composition, tokenizer_folder
from countermark.files.model_folder import MeasuredBase, measure_base
from countermark.recipe.canonical import base_artifact_of
from tests.cli.called import Caller
from tests.faults import planted, proven_by
from tests.files.folders import adapter_bytes, adapter_config
from tests.files.ggufs import DATA, GOOD, gguf_file
from tests.files.tensors import encoded, f32, write

MERGED = ("--adapter", "a", "--adapter", "b", "--merge", "active")


def adapters(folder: Path, **changes: Any) -> None:
    write(folder / "adapter_config.json", json.dumps(adapter_config(**changes)).encode())


def base(folder: Path, **config: Any) -> None:
    write(folder / "config.json", json.dumps({"dtype": "bfloat16", **config}).encode())


@pytest.fixture
def scene(here: Path) -> Path:
    """A base with its tokenizer, and two adapters that differ in their weights."""
    write(here / "base/model.safetensors", encoded({"w": f32(1, 2)}))
    base(here / "base")
    write(here / "base/tokenizer.json", json.dumps({"added_tokens": [], "model": {"vocab": {"x": 0}}}).encode())
    write(here / "base/tokenizer_config.json", json.dumps({"chat_template": "{{ m }}"}).encode())
    for fill, name in enumerate("ab"):
        write(here / name / "adapter_model.safetensors", adapter_bytes(fill=fill))
        adapters(here / name)
    return here


def digest(call: Caller, *args: str) -> str:
    called = call("weights", "composition", "base", *args, "--json")
    assert called.code == 0, called.out
    return str(called.document()["digest"])


def values_without_the_table(self: adapter.AdapterConfig) -> Mapping[str, object]:
    return self.values


@proven_by(
    planted(adapter.AdapterConfig, "ran", values_without_the_table),
    planted(adapter.AdapterConfig, "ran", adapter.AdapterConfig.inference),
    planted(adapter, "_sorted_set", lambda key, value: value),
)
def test_what_changes_no_inference_moves_nothing(scene: Path, call: Caller) -> None:
    first = digest(call, *MERGED)
    for change in (
        {"target_modules": ["q_proj", "v_proj"]},
        {"lora_dropout": 0.5},
        {"inference_mode": True},
        {"base_model_name_or_path": "/elsewhere", "revision": "main"},
        {"init_lora_weights": False},
        {"init_lora_weights": "gaussian"},
        {"lora_alpha": 8.0, "fan_in_fan_out": False},
    ):
        adapters(scene / "a", **change)
        assert (change, digest(call, *MERGED)) == (change, first)


def test_what_changes_inference_moves_the_digest(scene: Path, call: Caller) -> None:
    seen = {digest(call, *MERGED): "as it is", digest(call, "--adapter", "b", "--adapter", "a", "--merge", "active"): "the other way round"}
    calls: dict[str, tuple[str, ...]] = {
        "no adapter": (),
        "merged": (*MERGED[:-1], "merged"),
        "combined": (*MERGED[:-1], "linear weights=0.7,0.3"),
        "another type": (*MERGED, "--dtype", "fp16"),
        "quantized": (*MERGED, "--quantization", "nf4"),
    }
    seen |= {digest(call, *args): name for name, args in calls.items()}
    for change in ({"lora_alpha": 16}, {"use_rslora": True}, {"init_lora_weights": "pissa"}, {"rank_pattern": {"q_proj": 2}}):
        adapters(scene / "a", **change)
        seen[digest(call, *MERGED)] = str(change)
    adapters(scene / "a")
    (scene / "t.jinja").write_text("{{ other }}")
    seen[digest(call, *MERGED, "--chat-template", "t.jinja")] = "template"
    assert len(seen) == 12, seen.values()


def template_counts_as_a_file(hashed: Mapping[str, Any], documents: object) -> dict[str, Any]:
    return dict(hashed)


@proven_by(planted(tokenizer_folder, "_without_template", template_counts_as_a_file))
def test_a_template_is_its_text_wherever_it_stands(scene: Path, call: Caller) -> None:
    inside = digest(call)
    write(scene / "base/tokenizer_config.json", b"{}")
    without = digest(call)
    (scene / "mine.jinja").write_text("{{ m }}")
    assert digest(call, "--chat-template", "mine.jinja") == inside != without
    write(scene / "base/chat_template.jinja", b"{{ m }}")
    assert digest(call) == inside


def test_what_the_folders_say_is_taken_and_where_it_was_read_is_told(scene: Path, call: Caller) -> None:
    called = call("weights", "composition", "base", *MERGED)
    head, columns, *rows = called.out.splitlines()
    assert (head, columns) == (digest(call, *MERGED), "part\twhat it is\tfrom")
    assert [row.split("\t")[::2] for row in rows] == [
        ["base", "base"],
        ["adapter 1", "a"],
        ["adapter 2", "b"],
        ["merge", "--merge"],
        ["tokenizer", "base"],
        ["chat template", "base"],
        ["dtype", "config.json"],
        ["quantization", "-"],
        ["base artifact", "base and config.json; not in the digest"],
    ]
    assert digest(call, *MERGED, "--dtype", "torch.bfloat16", "--quantization", "none", "--tokenizer", "base") == head
    stored = {"quant_method": "gptq", "bits": 4}
    base(scene / "base", quantization_config=stored)
    (scene / "q.json").write_text(json.dumps(stored))
    document = call("weights", "composition", "base", "--json").document()
    assert (document["composition"]["quantization"], document["sources"]["quantization"]) == (stored, "config.json")
    assert digest(call, "--quantization", "q.json") == document["digest"]


@proven_by(planted(composition, "base_artifact_of", lambda root, config: base_artifact_of(root, {})))
def test_the_bases_configuration_is_told_beside_the_digest(scene: Path, call: Caller) -> None:
    def told(**config: Any) -> tuple[object, object]:
        base(scene / "base", **config)
        document = call("weights", "composition", "base", "--json").document()
        return document["digest"], document["baseArtifact"]

    first, other, moved = told(rope_theta=10000), told(rope_theta=1000000), told(rope_theta=10000, _name_or_path="/elsewhere")
    assert first[0] == other[0] and first[1] != other[1]
    assert moved == first
    assert measured_base(scene / "base") == first[1]
    (scene / "base/config.json").unlink()
    alone = call("weights", "composition", "base", "--dtype", "bfloat16", "--json").document()
    assert (alone["digest"], alone["baseArtifact"]) == (first[0], None)
    assert "base artifact" not in call("weights", "composition", "base", "--dtype", "bfloat16").out


def measured_base(folder: Path) -> str:
    """The coordinate as a recipe measures it."""
    found = measure_base(folder)
    assert isinstance(found, MeasuredBase), found
    return found.base_artifact.spell()


def roots_alone(path: Path, links_to: object) -> None:
    """Every base is safetensors."""


@proven_by(planted(composition, "form_of", roots_alone))
def test_a_base_without_a_root_is_told_by_its_exact_files(scene: Path, call: Caller) -> None:
    write(scene / "base.gguf", gguf_file(GOOD, DATA))
    write(scene / "base.pt", b"pickled")
    os.mkdir("sharded")
    write(scene / "sharded/pytorch_model.bin", b"pickled")
    write(scene / "sharded/config.json", b'{"dtype": "float32"}')
    for name in ("base.gguf", "base.pt", "sharded"):
        called = call("weights", "composition", name, "--tokenizer", "base", "--dtype", "fp32", "--json")
        document = call("weights", "root", name, "--json").document()
        assert (called.code, document["root"]) == (0, None)
        assert called.document()["composition"]["base"] == document["files"]
    write(scene / "sharded/adapter_model.bin", b"pickled")
    os.remove("sharded/pytorch_model.bin")
    refused = call("weights", "composition", "sharded", "--tokenizer", "base", "--json")
    assert refused.codes() == ["CompositionPartRefused", "WeightsOfOtherKind"]
    unread = call("weights", "composition", "base", "--adapter", "sharded", "--merge", "active", "--json")
    assert unread.codes() == ["CompositionPartRefused", "WeightsAbsent", "FileAbsent"]


def test_a_key_that_nobody_knows_counts_and_is_told(scene: Path, call: Caller) -> None:
    before = digest(call, *MERGED)
    adapters(scene / "b", a_key_of_next_year=1)
    called = call("weights", "composition", "base", *MERGED, "--json")
    assert (called.code, called.document()["digest"] != before) == (0, True)
    assert [(each["code"], each["path"], each["keys"]) for each in called.document()["warnings"]] == [
        ("AdapterKeysUnknown", "b", ["a_key_of_next_year"])
    ]


def test_the_merged_checkpoint_is_another_thing_that_a_record_links(scene: Path, call: Caller) -> None:
    write(scene / "made/model.safetensors", encoded({"w": f32(1, 3)}))
    document = call("weights", "composition", "base", *MERGED, "--made", "made", "--json").document()
    root = call("weights", "root", "made", "--json").document()["root"]
    assert document["derivation"] == {"of": document["digest"], "made": root}
    assert document["digest"].removeprefix("mc1:") != root.removeprefix("wr1:")
    assert f"{root} was made of it (made)" in call("weights", "composition", "base", *MERGED, "--made", "made").out
    assert call("weights", "composition", "base", "--json").document()["derivation"] is None


#: One break each, and exactly the defects that it is.
BREAKS: dict[str, tuple[Any, tuple[str, ...], list[tuple[str, str]]]] = {
    "no type": (lambda scene: base(scene / "base", dtype=None), (), [("CompositionUnsaid", "dtype")]),
    "two types": (lambda scene: base(scene / "base", torch_dtype="float16"), (), [("CompositionContradicts", "dtype")]),
    "no rule": (lambda scene: None, ("--adapter", "a"), [("CompositionUnsaid", "merge")]),
    "a rule for nothing": (lambda scene: None, ("--merge", "active"), [("CompositionUnreadable", "merge")]),
    "auto": (lambda scene: None, ("--dtype", "auto"), [("CompositionUnreadable", "dtype")]),
    "a model as adapter": (
        lambda scene: None,
        ("--adapter", "base", "--merge", "active"),
        [("CompositionPartRefused", "adapter 1"), ("WeightsOfOtherKind", ""), ("FileAbsent", "base/adapter_config.json")],
    ),
    "no tokenizer": (
        lambda scene: None,
        ("--tokenizer", "a"),
        [("CompositionPartRefused", "tokenizer"), ("TokenizerAbsent", "")],
    ),
    "a template that is not there": (
        lambda scene: None,
        ("--chat-template", "gone"),
        [("CompositionPartRefused", "chat template"), ("FileAbsent", "gone")],
    ),
    "a configuration that is none": (
        lambda scene: write(scene / "base/config.json", b"{"),
        ("--dtype", "bf16"),
        [("CompositionPartRefused", "configuration"), ("DocumentUnreadable", "base/config.json")],
    ),
    "a quantization that is none": (
        lambda scene: None,
        ("--quantization", "./gone.json"),
        [("CompositionPartRefused", "quantization"), ("FileAbsent", "./gone.json")],
    ),
}


def first_of_all(loading: Any, progress: Any) -> Any:
    found = REAL(loading, progress)
    if isinstance(found, composition.MeasuredComposition):
        return found
    return composition.Refused(composition.NonEmpty(found.defects.first))


REAL = composition.measure_composition


@proven_by(planted(composing, "measure_composition", first_of_all))
def test_each_break_is_exactly_its_defects_and_two_are_both(scene: Path, call: Caller) -> None:
    def defects(*args: str) -> list[tuple[str, str]]:
        called = call("weights", "composition", "base", *args, "--json")
        assert called.code == 1
        return [(each["code"], each.get("part", each.get("file", ""))) for each in called.document()["defects"]]

    assert call("weights", "composition", "base").code == 0
    for name, (broken, args, wanted) in BREAKS.items():
        broken(scene)
        assert (name, defects(*args)) == (name, wanted)
        base(scene / "base")
    base(scene / "base", dtype=None)
    (scene / "b/adapter_config.json").write_text("[]")
    write(scene / "a/adapter_model.safetensors", b"short")
    assert defects(*MERGED[:-1], "slerp", "--tokenizer", "a") == [
        ("CompositionPartRefused", "adapter 1"),
        ("FileTooShort", "a/adapter_model.safetensors"),
        ("CompositionPartRefused", "adapter 2"),
        ("DocumentUnreadable", "b/adapter_config.json"),
        ("CompositionUnreadable", "merge"),
        ("CompositionPartRefused", "tokenizer"),
        ("TokenizerAbsent", ""),
        ("CompositionUnsaid", "dtype"),
    ]
