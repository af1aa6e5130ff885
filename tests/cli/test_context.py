"""The files that a command line names: what cannot be is said before anything is computed, and no half of a file stays."""

import os
import resource
from pathlib import Path

import pytest

from countermark.app import weights
from countermark.cli import context
from tests.cli.called import Caller
from tests.faults import planted, proven_by
from tests.files.tensors import encoded, f32, write


@proven_by(planted(context, "name_to_be", lambda path, option: None))
@pytest.mark.parametrize("option", ["--record-to", "--svg"])
@pytest.mark.parametrize("how", ["taken", "a dangling link", "in no folder"])
def test_a_name_under_which_nothing_can_be_written_is_told_before_anything_is_compared_or_written(
    here: Path, call: Caller, option: str, how: str
) -> None:
    for name in "ab":
        write(here / f"{name}.safetensors", encoded({"w": f32(1)}))
    names = {"--record-to": "edits.jsonl", "--svg": "map.svg"}
    if how == "taken":
        (here / names[option]).touch()
    elif how == "a dangling link":
        (here / names[option]).symlink_to("nowhere")
    else:
        names[option] = f"gone/{names[option]}"
    before = sorted(os.listdir(here))
    asked = [word for pair in names.items() for word in pair]
    with planted(weights, "weights_diff", lambda *given, **more: pytest.fail("it was compared"))():
        called = call("weights", "diff", "a.safetensors", "b.safetensors", *asked)
    assert (called.code, called.err.startswith(f"wrong usage: {option} '{names[option]}' is ")) == (2, True), called.err
    assert sorted(os.listdir(here)) == before


@proven_by(planted(os, "unlink", lambda path: None))
@pytest.mark.parametrize("size", [100, 1 << 20])
def test_of_a_file_for_which_there_is_no_room_nothing_stays(here: Path, size: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            context.new_file("edits.jsonl", "--record-to", bytes(size))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(here) == []
    context.new_file("edits.jsonl", "--record-to", bytes(size))
    assert (here / "edits.jsonl").read_bytes() == bytes(size)
