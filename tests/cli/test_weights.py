"""Differences of weights and edits that compose, called as a person would: situations met in the field."""

import importlib.util
import json
import math
import os
import pty
import random
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.cli import progress
from countermark.files import comparing, spectra
from countermark.lines import weights as lines
from countermark.lines.weights import COLUMNS
from countermark.weights import difference, edits, statistics
from countermark.weights.refusals import FileChanged
from tests.cli.called import PROGRAM, Called, Caller, spawn
from tests.faults import planted, proven_by
from tests.files.tensors import Tensor, encoded, f32, write
from tests.lines.samples import HOSTILE


def bf16(*values: float) -> bytes:
    """Rounded to the nearest, ties to even."""
    found = b""
    for value in values:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        found += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return found


def pair(here: Path, a: Mapping[str, Tensor], b: Mapping[str, Tensor], **metadata: str) -> tuple[str, str]:
    write(here / "a.safetensors", encoded(a))
    write(here / "b.safetensors", encoded(b, metadata or None))
    return "a.safetensors", "b.safetensors"


def tensors(called: Called) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in called.document()["tensors"]}


NUMBERS: Final = ("changed", "valueChanged", "l2", "maxAbs", "nonFiniteCreated", "nonFiniteCleared")


def numbers(row: Mapping[str, Any]) -> list[object]:
    return [row[key] for key in NUMBERS]


def bits_for_values() -> AbstractContextManager[object]:
    """Values that differ are those whose bits differ."""
    real = statistics.Comparison.result

    def result(self: statistics.Comparison) -> object:
        self.value_changed = self.changed
        return real(self)

    return planted(statistics.Comparison, "result", result)()


@proven_by(bits_for_values)
def test_the_six_numbers_of_the_definition_are_on_every_surface(here: Path, call: Caller) -> None:
    nan, inf = float("nan"), float("inf")
    paths = pair(here, {"w": f32(0.0, 1, nan, inf, 2, 3)}, {"w": f32(-0.0, 1.5, nan, inf, nan, 3)})
    assert numbers(tensors(call("weights", "diff", *paths, "--json"))["w"]) == [3, 2, 0.5, 0.5, 1, 0]
    called = call("weights", "diff", *paths, "--record-to", "edits.jsonl")
    assert "w\tchanged\tF32\t[6]\t3\t50.0 %\t0.500\t0.500\t" in called.out
    payload = json.loads((here / "edits.jsonl").read_text())["payload"]
    assert [payload[key] for key in NUMBERS] == [3, 2, 0.5, 0.5, 1, 0]


def test_a_saved_edit_that_is_the_base_is_found_out(here: Path, call: Caller) -> None:
    same = {"layers.0.w": f32(1, 2, 3), "layers.1.w": f32(4)}
    paths = pair(here, same, same, edited="yes")
    document = call("weights", "diff", *paths, "--json").document()
    assert (document["totals"]["byStatus"], document["totals"]["changed"]) == ({"equal": 2}, 0)
    assert document["roots"]["a"] == document["roots"]["b"]
    assert "0 of 2 tensors changed, same tensor root" in call("weights", "diff", *paths).out
    other = write(here / "claimed.safetensors", encoded({**same, "layers.0.w": f32(9, 2, 3)}))
    assert call("weights", "diff", paths[0], other.name, "--record-to", "edits.jsonl").code == 0
    called = call("weights", "diff", *paths, "--edits", "edits.jsonl", "--json")
    assert (called.code, called.codes()) == (1, ["EditNotInArtifact"])
    assert called.document()["defects"][0]["tensor"] == "layers.0.w"
    assert call("weights", "diff", paths[0], other.name, "--edits", "edits.jsonl").code == 0


def test_values_that_became_infinite_are_counted_and_the_document_stays_json(here: Path, call: Caller) -> None:
    paths = pair(here, {"w": ("F16", [2], struct.pack("<2e", 65000, 1))}, {"w": ("F16", [2], struct.pack("<2e", float("inf"), 1.5))})
    called = call("weights", "diff", *paths, "--json")
    assert numbers(tensors(called)["w"]) == [2, 2, 0.5, 0.5, 1, 0]
    assert [word for word in ("NaN", "Infinity") if word in called.out] == []
    assert "\t+1" in call("weights", "diff", *paths).out
    assert call("weights", "diff", *paths).code == 0
    failed = call("weights", "diff", *paths, "--fail-on", "non-finite", "--json")
    assert [(each["code"], each["rule"], each["tensors"]) for each in failed.document()["defects"]] == [
        ("DifferenceFailsOn", "non-finite", ["w"])
    ]


def test_a_grown_embedding_says_its_common_rows_and_the_rest_is_compared(here: Path, call: Caller) -> None:
    others = {f"t{number}": f32(number) for number in range(100)}
    embed = {"embed": ("F32", [4, 2], f32(*range(8))[2])}
    grown = {"embed": ("F32", [6, 2], f32(*range(12))[2])}
    paths = pair(here, {**embed, **others}, {**grown, **others, "t7": f32(70)})
    rows = tensors(call("weights", "diff", *paths, "--json"))
    assert (rows["embed"]["status"], rows["embed"]["l2"], rows["embed"]["commonRows"]) == ("reshaped", None, {"rows": 4, "changed": 0})
    assert [name for name, row in rows.items() if row["status"] == "changed"] == ["t7"]
    called = call("weights", "diff", *paths)
    assert "embed\treshaped: common rows equal, 2 rows added\tF32\t[4,2] → [6,2]" in called.out
    assert called.err == "headers: embed [4,2] → [6,2]\n"


def test_an_edit_that_rounding_swallowed_shows_what_was_applied(here: Path, call: Caller) -> None:
    delta = [2.0**-9, 2.0**-8, 3 * 2.0**-9, -(2.0**-9)]
    after = bf16(*(1 + each for each in delta))
    paths = pair(here, {"w": ("BF16", [4], bf16(1, 1, 1, 1))}, {"w": ("BF16", [4], after)})
    row = tensors(call("weights", "diff", *paths, "--json"))["w"]
    # 1 + 2^-8 and 1 - 2^-9 are ties and round to the even 1; only 1 + 3·2^-9 reaches the next value.
    assert (row["changed"], row["l2"], row["maxAbs"]) == (1, 0.0078125, 0.0078125)


def removed_folded_into_nothing() -> AbstractContextManager[object]:
    """A tensor that one side dropped fails nothing."""
    return planted(difference, "failing", lambda rows, rules, surprises: ())()


@proven_by(removed_folded_into_nothing)
def test_a_dropped_tensor_is_said_and_fails(here: Path, call: Caller) -> None:
    paths = pair(here, {"w": f32(1), "mtp.0.w": f32(2)}, {"w": f32(1)})
    called = call("weights", "diff", *paths, "--json")
    assert (called.code, called.codes()) == (1, ["DifferenceFailsOn"])
    assert (called.document()["defects"][0]["rule"], called.document()["defects"][0]["tensors"]) == ("removed", ["mtp.0.w"])
    assert "removed: 1" in call("weights", "diff", *paths).out
    assert "same tensor root" not in call("weights", "diff", *paths).out


def test_packed_codes_are_compared_by_bits_and_have_no_norm(here: Path, call: Caller) -> None:
    paths = pair(here, {"w": ("U8", [3, 1], b"\1\2\3"), "v": f32(0)}, {"w": ("U8", [3, 1], b"\1\2\4"), "v": f32(2)})
    document = call("weights", "diff", *paths, "--json").document()
    row = next(each for each in document["tensors"] if each["name"] == "w")
    assert (row["domain"], numbers(row)) == ("raw", [1, None, None, None, 0, 0])
    assert (document["totals"]["l2"], document["totals"]["withoutL2"]) == (2.0, 1)
    assert "changed (by bits alone)" in call("weights", "diff", *paths).out


def test_an_incomplete_folder_is_refused_with_every_defect_and_compared_where_asked(here: Path, call: Caller) -> None:
    write(here / "a.safetensors", encoded({"a.weight": f32(1), "b.weight": f32(2)}))
    folder = here / "model"
    names = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
    write(folder / names[0], encoded({"a.weight": f32(1)}))
    write(folder / names[1], encoded({"other": f32(2)}))
    write(folder / "model-extra.safetensors", encoded({"a.weight": f32(3)}))
    weight_map = dict(zip(("a.weight", "b.weight", "c.weight"), names, strict=True))
    write(folder / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": weight_map}).encode())
    refused = call("weights", "diff", "a.safetensors", "model", "--json")
    assert refused.code == 1
    assert set(refused.codes()) == {"ShardMissing", "ShardDisagrees", "TensorsInTwoShards"}
    assert [names[2] in each["message"] for each in refused.document()["defects"] if each["code"] == "ShardMissing"] == [True]
    partly = call("weights", "diff", "a.safetensors", "model", "--partial", "--json").document()
    assert (partly["complete"], {each["code"] for each in partly["warnings"]}) == (False, set(refused.codes()))
    assert {row["name"]: row["status"] for row in partly["tensors"]}["a.weight"] == "equal"


def test_names_that_differ_by_a_prefix_are_told_as_renamed(here: Path, call: Caller) -> None:
    names = ("layers.0.w", "layers.1.w", "head")
    a = {f"model.{name}": f32(number) for number, name in enumerate(names)}
    paths = pair(here, a, {name: f32(number) for number, name in enumerate(names)})
    document = call("weights", "diff", *paths, "--json").document()
    assert {row["name"]: (row["nameB"], row["status"]) for row in document["tensors"]} == {
        f"model.{name}": (name, "renamed") for name in names
    }
    assert document["prefixes"] == [{"a": "model.", "b": ""}]
    assert "names differ by model. → (nothing)" in call("weights", "diff", *paths).out
    failed = call("weights", "diff", *paths, "--fail-on", "renamed", "--json")
    assert [(each["rule"], each["tensors"]) for each in failed.document()["defects"]] == [("renamed", sorted(a))]


def test_a_merge_that_changes_nothing_has_the_same_root(here: Path, call: Caller) -> None:
    chance = random.Random(3)
    values = [chance.gauss(0, 1) for _ in range(64)]
    paths = pair(here, {"w": f32(*values)}, {"w": f32(*(value * 0.5 / 0.5 for value in values))})
    document = call("weights", "diff", *paths, "--json").document()
    assert document["roots"]["a"] == document["roots"]["b"]


def test_expected_patterns_say_what_did_not_change_and_what_did(here: Path, call: Caller) -> None:
    before = {"layers.0.w": f32(1), "layers.1.w": f32(1), "head": f32(1)}
    paths = pair(here, before, {"layers.0.w": f32(2), "layers.1.w": f32(1), "head": f32(2)})
    called = call("weights", "diff", *paths, "--expect", "layers.*", "--fail-on", "unexpected", "--fail-on", "unchanged", "--json")
    assert [(each["rule"], each["tensors"]) for each in called.document()["defects"]] == [
        ("unexpected", ["head"]),
        ("unchanged", ["layers.1.w"]),
    ]
    assert "expected and unchanged: 1; changed and not expected: 1" in call("weights", "diff", *paths, "--expect", "layers.*").out
    wrong = call("weights", "diff", *paths, "--fail-on", "surprise")
    assert (wrong.code, "is nothing to fail on" in wrong.err) == (2, True)


# --------------------------------------------------------------------------------------------------------- edits compose


def chain(here: Path, call: Caller) -> tuple[str, str]:
    """Three versions of weights and the records of both steps; the roots of the last one."""
    versions = [{"w": f32(1, 2), "v": f32(3)}, {"w": f32(1, 5), "v": f32(3)}, {"w": f32(7, 5), "v": f32(4)}]
    for number, each in enumerate(versions):
        write(here / f"v{number}.safetensors", encoded(each))
    for number in (0, 1):
        call("weights", "diff", f"v{number}.safetensors", f"v{number + 1}.safetensors", "--record-to", f"step{number}.jsonl")
    roots = [call("weights", "root", f"v{number}.safetensors", "--json").document()["root"] for number in (0, 2)]
    return roots[0], roots[1]


def edits_in_any_order() -> AbstractContextManager[object]:
    """An edit is taken wherever it began."""
    return planted(edits, "_against", lambda line, edit: ())()


@proven_by(edits_in_any_order)
def test_recorded_edits_give_the_root_without_the_edited_model(here: Path, call: Caller) -> None:
    base, last = chain(here, call)
    os.remove("v1.safetensors")
    os.remove("v2.safetensors")
    document = call("weights", "apply-root", "v0.safetensors", "step0.jsonl", "step1.jsonl", "--json").document()
    assert (document["base"], document["root"], document["edits"], document["edited"]) == (base, last, 3, 2)
    turned = call("weights", "apply-root", "v0.safetensors", "step1.jsonl", "step0.jsonl", "--json")
    assert [(each["code"], each["edit"], each["tensor"]) for each in turned.document()["defects"]] == [
        ("EditDoesNotFit", "step1.jsonl:2", "w"),
    ]


def test_the_lines_of_a_base_are_enough_to_derive_the_root(here: Path, call: Caller) -> None:
    base, last = chain(here, call)
    call("weights", "root", "v0.safetensors", "--lines", "base.lines")
    for number in range(3):
        os.remove(f"v{number}.safetensors")
    document = call("weights", "apply-root", "base.lines", "step0.jsonl", "step1.jsonl", "--json").document()
    assert (document["base"], document["root"]) == (base, last)
    (here / "torn.lines").write_bytes((here / "base.lines").read_bytes()[:-1])
    assert call("weights", "apply-root", "torn.lines", "step1.jsonl", "--json").codes() == ["RootLineUnreadable"]


def test_every_edit_and_every_line_that_does_not_fit_is_named(here: Path, call: Caller) -> None:
    chain(here, call)
    event = json.loads((here / "step0.jsonl").read_text())
    other = {**event, "payload": {**event["payload"], "tensor": "gone"}}
    lost = {**event, "payload": {key: value for key, value in event["payload"].items() if key != "sha256After"}}
    grown = {**event, "payload": {**event["payload"], "shape": [3]}}
    lines = [json.dumps(each) for each in (other, lost, grown)]
    (here / "odd.jsonl").write_text("\n".join(lines))
    codes = call("weights", "apply-root", "v0.safetensors", "odd.jsonl", "--json").codes()
    assert codes == ["EditOfUnknownTensor", "EditUnhashed", "EditOfOtherTensor"]
    (here / "torn.jsonl").write_text("{\n" + json.dumps({**event, "payload": {**event["payload"], "changed": -1}}) + "\n[]\n")
    torn = call("weights", "apply-root", "v0.safetensors", "torn.jsonl", "--json")
    assert [(each["code"], each["edit"]) for each in torn.document()["defects"]] == [
        ("EditUnreadable", f"torn.jsonl:{number}") for number in (1, 2, 3)
    ]


def test_a_record_is_never_written_over(here: Path, call: Caller) -> None:
    paths = pair(here, {"w": f32(1)}, {"w": f32(2)})
    (here / "mine.jsonl").write_text("precious")
    called = call("weights", "diff", *paths, "--record-to", "mine.jsonl")
    assert (called.code, (here / "mine.jsonl").read_text()) == (2, "precious")
    assert "is there already" in called.err


def test_names_from_outside_reach_no_terminal_raw(here: Path, call: Caller) -> None:
    name = HOSTILE.replace("\udcff", "")
    paths = pair(here, {name: f32(1), "v": f32(1)}, {name: f32(2)})
    for more in ((), ("--json",), ("--fail-on", "changed")):
        called = call("weights", "diff", *paths, *more)
        assert [each for each in called.out + called.err if not each.isprintable() and each not in "\n\t"] == []
    document = call("weights", "diff", *paths, "--json").document()
    assert document["roots"] == {"a": None, "b": None}
    assert {row["name"] for row in document["tensors"]} == {name, "v"}


def test_a_big_pair_is_compared_in_a_process_that_stays_small(here: Path) -> None:
    size = 96 << 20
    for name, last in (("a", b"\0"), ("b", b"\1")):
        header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        with open(here / f"{name}.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + size - 1)
            file.seek(0, os.SEEK_END)
            file.write(last)
    script = (
        "import sys; from countermark.cli.main import main; code = main(sys.argv[1:]);"
        # The peak of this program alone: what getrusage tells begins with the process that made this one.
        " peak = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1];"
        " print(int(peak) // 1024, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "weights", "diff", "a.safetensors", "b.safetensors"], cwd=here, capture_output=True, text=True
    )
    assert (done.returncode, "1 of 1 tensor changed" in done.stdout) == (0, True), done.stderr
    assert int(done.stderr.split()[-1]) < 80


def test_without_numpy_the_extra_is_named(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = pair(here, {"w": f32(1)}, {"w": f32(2)})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    called = call("weights", "diff", *paths)
    assert (called.code, called.out) == (3, "")
    assert "pip install 'countermark[weights]'" in called.err


def test_an_unreadable_pair_shows_no_traceback(here: Path) -> None:
    write(here / "a.safetensors", b"version https://git-lfs.github.com/spec/v1\n")
    write(here / "b.safetensors", encoded({"w": f32(1)}))
    called = spawn("weights", "diff", "a.safetensors", "b.safetensors", cwd=here)
    assert (called.code, "Traceback" in called.err) == (1, False)
    assert "git-lfs" in called.err or "Git LFS" in called.err


def adapted(here: Path, rank: int) -> tuple[str, str]:
    """Two matrices of 64×64, of which one got a rank-``rank`` update."""
    chance = random.Random(4)
    before = [[chance.gauss(0, 0.02) for _ in range(64)] for _ in range(64)]
    left, right = ([[chance.gauss(0, 0.05) for _ in range(rank)] for _ in range(64)] for _ in range(2))
    after = [[before[row][at] + sum(x * y for x, y in zip(left[row], right[at], strict=True)) for at in range(64)] for row in range(64)]
    data = [("BF16", [64, 64], bf16(*(each for row in matrix for each in row))) for matrix in (before, after)]
    return pair(here, {"q.weight": data[0], "norm": f32(1)}, {"q.weight": data[1], "norm": f32(1)})


@proven_by(planted(spectra, "UNASKED_ELEMENTS", 0))
def test_an_adapter_that_was_merged_is_seen_through_its_rounding(here: Path, call: Caller) -> None:
    paths = adapted(here, 4)
    called = call("weights", "diff", *paths)
    assert "1 of 2 tensors changed" in called.out
    assert "energy in rank 4: 0.99: looks like a rank-4 adapter" in called.out
    document = call("weights", "diff", *paths, "--json").document()
    assert (document["spectrum"]["rank"], document["spectrum"]["measured"]) == (4, 1)
    assert tensors(call("weights", "diff", *paths, "--json"))["q.weight"]["spectrum"]["rank"] == 4
    silent = call("weights", "diff", *paths, "--no-spectrum")
    assert [word for word in ("energy", "spectrum of") if word in silent.out] == []


def test_what_is_too_much_to_measure_unasked_is_said(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectra, "UNASKED_ELEMENTS", 1)
    paths = adapted(here, 4)
    assert "the spectrum of 1 changed matrix (4,096 numbers) was not measured: --spectrum does" in call("weights", "diff", *paths).out
    assert "looks like a rank-4 adapter" in call("weights", "diff", *paths, "--spectrum").out


def mapped(here: Path) -> tuple[str, str]:
    before = {f"h.{layer}.{name}.weight": f32(1, 2) for layer in range(3) for name in "qk"}
    return pair(here, before, before | {"h.0.q.weight": f32(1, 2.5), "h.2.q.weight": f32(float("nan"), 2)})


def test_a_map_shows_where_it_changed_and_what_should_have(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    paths = mapped(here)
    lines = call("weights", "diff", *paths, "--map", "--expect", "*.q.*").out.splitlines()
    at = lines.index("h    0")
    assert lines[at + 1 : at + 3] == ["  k  ···", "  q  ▆╱!"]
    assert max(map(len, lines[at : lines.index("tensor\t" + "\t".join(COLUMNS[1:]))])) <= 60
    called = call("weights", "diff", *paths, "--svg", "map.svg")
    svg = (here / "map.svg").read_text()
    assert (called.code, svg.startswith("<svg "), "h.0.q.weight, changed, relative change 0.224" in svg) == (0, True, True)
    again = call("weights", "diff", *paths, "--svg", "map.svg")
    assert (again.code, "is there already" in again.err, (here / "map.svg").read_text()) == (2, True, svg)
    call("weights", "diff", *paths, "--map", "--json").document()


def test_an_output_without_block_characters_has_another_map(here: Path) -> None:
    called = spawn("weights", "diff", *mapped(here), "--map", cwd=here, env={"PYTHONIOENCODING": "ascii"})
    assert (called.code, "  q  6.!" in called.out.splitlines(), called.out.isascii(), "Traceback" in called.err) == (0, True, True, False)


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colours_unless_it_asks_for_none(here: Path, more: dict[str, str], coloured: bool) -> None:
    parent, child = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **more}
    command = [*PROGRAM, "weights", "diff", *mapped(here), "--map"]
    with subprocess.Popen(command, cwd=here, stdout=child, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment) as process:
        os.close(child)
        said = b""
        try:
            while part := os.read(parent, 65536):
                said += part
        except OSError:
            pass  # the other side was closed: that is how a terminal ends
        assert process.wait(60) == 0
    os.close(parent)
    assert "╱" not in said.decode()
    assert ("\x1b[38;5;" in said.decode(), "▆" in said.decode()) == (coloured, True)


@proven_by(planted(lines, "preflight_lines", lambda pairing: ()))
def test_headers_are_told_in_milliseconds_before_anything_is_read(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten gigabytes of which no byte is read: shapes, types and names are said first."""
    for name, shape, dtype in (("a", [1 << 20, 1280], "F32"), ("b", [1 << 21, 640], "F32")):
        spans = {"w": (dtype, shape), "c": ("BF16" if name == "a" else "I16", [4]), name: ("F32", [1])}
        header, at = {}, 0
        for each, (kind, sizes) in spans.items():
            size = math.prod(sizes) * (4 if kind == "F32" else 2)
            header[each] = {"dtype": kind, "shape": sizes, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        with open(here / f"{name}.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + at)

    said: list[str] = []
    at_first: list[tuple[list[str], float]] = []
    began = time.process_time()

    def unread(*_: object) -> None:
        at_first.append((list(said), time.process_time() - began))
        raise comparing.Unread(FileChanged("a.safetensors"))

    monkeypatch.setattr(progress, "say", said.append)
    monkeypatch.setattr(comparing, "_fill", unread)
    assert call("weights", "diff", "a.safetensors", "b.safetensors", "--json").codes() == ["FileChanged"]
    # The time includes what this process imports for its first comparison.
    assert at_first[0][1] < 1
    assert at_first[0][0] == [
        "headers: w [1048576,1280] → [2097152,640]",
        "headers: 1 tensor of another type: c",
        "headers: 1 tensor only in A: a",
        "headers: 1 tensor only in B: b",
    ]
