"""Differences of weights that are not safetensors: tied tensors of torch, and blocks of GGUF."""

import struct
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from countermark.files.opened_weights import OpenedWeights
from tests.cli.called import Caller
from tests.faults import planted, proven_by
from tests.files.ggufs import DATA, GOOD, gguf_file, text
from tests.files.tensors import encoded, f32, write


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def tied(torch: Any, here: Path, **changes: float) -> str:
    embed = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    if changes:
        embed[0, 0] = changes["first"]
    torch.save({"embed.weight": embed, "lm_head.weight": embed, "w": torch.ones(2)}, here / f"{len(changes)}.pt")
    return f"{len(changes)}.pt"


def names_of_one_place_are_two() -> AbstractContextManager[object]:
    """Two names of one place are two tensors."""
    return planted(OpenedWeights, "ties", ())()


@proven_by(names_of_one_place_are_two)
def test_a_tied_tensor_is_one_edit_and_its_absent_name_is_not_removed(here: Path, call: Caller, torch: Any) -> None:
    before, after = tied(torch, here), tied(torch, here, first=9)
    document = call("weights", "diff", before, after, "--record-to", "edits.jsonl", "--json").document()
    rows = {row["name"]: row for row in document["tensors"]}
    assert {name: (row["status"], row["aliases"]) for name, row in rows.items()} == {
        "embed.weight": ("changed", ["lm_head.weight"]),
        "w": ("equal", []),
    }
    assert (document["totals"]["changed"], document["totals"]["elements"]) == (1, 8)
    assert '"aliases":["embed.weight","lm_head.weight"]' in (here / "edits.jsonl").read_text()
    assert document["rootless"] == {"a": "pickled", "b": "pickled"}
    assert "embed.weight\tchanged (also called lm_head.weight)\t" in call("weights", "diff", before, after).out
    told = (here / "edits.jsonl").read_text().replace('"tensor":"embed.weight"', '"tensor":"lm_head.weight"')
    (here / "other-name.jsonl").write_text(told)
    assert call("weights", "diff", before, after, "--edits", "other-name.jsonl").code == 0
    assert call("weights", "diff", before, before, "--edits", "other-name.jsonl", "--json").codes() == ["EditNotInArtifact"]
    write(here / "s.safetensors", encoded({"embed.weight": ("F32", [2, 3], f32(*range(6))[2]), "w": f32(1, 1)}))
    called = call("weights", "diff", before, "s.safetensors", "--json")
    assert {row["name"]: (row["status"], row["aliasOf"]) for row in called.document()["tensors"]} == {
        "embed.weight": ("equal", None),
        "lm_head.weight": ("tied", "embed.weight"),
        "w": ("equal", None),
    }
    assert called.code == 0
    text = call("weights", "diff", before, "s.safetensors").out
    assert "lm_head.weight\tabsent in B: an alias of embed.weight in A" in text
    assert "0 of 2 tensors changed, tied and absent: 1" in text
    assert "A has no root: it is a pickle" in text


def test_a_folder_of_one_pickled_file_is_opened_by_it(here: Path, call: Caller, torch: Any) -> None:
    folder = here / "model"
    folder.mkdir()
    torch.save({"w": torch.ones(2)}, folder / "pytorch_model.bin")
    write(here / "s.safetensors", encoded({"w": f32(1, 1)}))
    assert "0 of 1 tensor changed" in call("weights", "diff", "model", "s.safetensors").out


def test_tensors_of_gguf_are_read_with_blocks_by_bits_alone(here: Path, call: Caller) -> None:
    entries = text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 8, 2) + text(b"x") + text(b"y") + text(b"n") + struct.pack("<If", 6, 1)
    write(here / "a.gguf", gguf_file(GOOD, DATA, entries, 2))
    write(here / "b.gguf", gguf_file(GOOD, DATA.replace(b"q" * 34, b"q" * 33 + b"r"), entries, 2))
    document = call("weights", "diff", "a.gguf", "b.gguf", "--json").document()
    assert [(row["name"], row["status"], row["domain"], row["changed"], row["l2"]) for row in document["tensors"]] == [
        ("a", "equal", None, 0, 0.0),
        ("q", "changed", "raw", 1, None),
    ]
    assert document["rootless"] == {"a": "types", "b": "types"}
