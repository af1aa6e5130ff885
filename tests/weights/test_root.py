"""The weights root against its recorded vectors, and what it refuses."""

import hashlib
import json
import random
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.values import Refused, Sha256, WeightsRoot
from countermark.weights import (
    DTYPE_BITS,
    NameDefect,
    TensorLine,
    TensorNameUnprintable,
    TensorRepeated,
    name_defects,
    read_root_text,
    root,
    root_text,
    weights_root,
)
from tests.faults import planted, proven_by

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "contract/fixtures/wr1_vectors.json").read_text())


def line(name: str, data: bytes = b"\0\0\0\0", dtype: str = "F32", shape: tuple[int, ...] = (1,)) -> TensorLine:
    return TensorLine(name, dtype, shape, Sha256(hashlib.sha256(data).hexdigest()))


def recorded() -> dict[str, TensorLine]:
    return {
        name: line(name, bytes.fromhex(tensor["data_hex"]), tensor["dtype"], tuple(tensor["shape"]))
        for name, tensor in VECTORS["tensors"].items()
    }


def unsorted_text(lines: object) -> str:
    assert isinstance(lines, tuple)
    return "wr1\n" + "".join(one.text() for one in lines)


def by_number(one: TensorLine) -> list[int]:
    return [int(part) if part.isdigit() else -1 for part in one.name.split(".")]


def sorted_by_number(lines: object) -> str:
    assert isinstance(lines, tuple)
    return "wr1\n" + "".join(one.text() for one in sorted(lines, key=by_number))


def test_the_recorded_hashes_are_of_the_recorded_bytes() -> None:
    assert {name: one.sha256.hex for name, one in recorded().items()} == {name: t["sha256"] for name, t in VECTORS["tensors"].items()}


@proven_by(planted(root, "root_text", unsorted_text), planted(root, "root_text", sorted_by_number))
def test_the_recorded_root() -> None:
    assert weights_root(recorded().values()) == WeightsRoot(VECTORS["root"])


def test_the_recorded_text() -> None:
    assert root_text(recorded().values()) == VECTORS["manifest_text"]


def test_the_order_of_the_tensors_is_no_part_of_it() -> None:
    lines = list(recorded().values())
    random.Random(3).shuffle(lines)
    assert weights_root(lines) == WeightsRoot(VECTORS["root"])


def test_an_edit_moves_the_root_to_the_recorded_one() -> None:
    edit = VECTORS["edit"]
    lines = recorded()
    before = lines[edit["tensor"]]
    assert before.sha256.hex == edit["before_sha256"]
    after = line(before.name, struct.pack("<4e", 0.75, 0.5, 0.5, 0.5), "F16", (2, 2))
    assert after.sha256.hex == edit["after_sha256"]
    assert weights_root((lines | {before.name: after}).values()) == WeightsRoot(VECTORS["root_after_edit"])


def cast(lines: dict[str, TensorLine]) -> dict[str, TensorLine]:
    """Every F16 tensor widened to F32."""
    wide = {}
    for name, tensor in VECTORS["tensors"].items():
        if tensor["dtype"] == "F16":
            data = bytes.fromhex(tensor["data_hex"])
            numbers = struct.unpack(f"<{len(data) // 2}e", data)
            wide[name] = line(name, struct.pack(f"<{len(numbers)}f", *numbers), "F32", tuple(tensor["shape"]))
    return lines | wide


@pytest.mark.parametrize("change", ["root_cast_f32", "root_negzero", "root_renamed"])
def test_what_it_is_on_purpose_not_invariant_under(change: str) -> None:
    roots = {VECTORS["root"], VECTORS["root_after_edit"], *(VECTORS[key] for key in ("root_cast_f32", "root_negzero", "root_renamed"))}
    assert len(roots) == 5
    assert VECTORS[change] in changed_roots(change)


def changed_roots(change: str) -> set[str]:
    """The roots of every way to make the change to one tensor (or to all, for the cast): the vectors do not say which tensor it was."""
    lines = recorded()
    candidates: list[dict[str, TensorLine]] = []
    if change == "root_cast_f32":
        candidates = [cast(lines)] + [lines | {name: cast(lines)[name]} for name in lines]
    for name, tensor in VECTORS["tensors"].items():
        data = bytes.fromhex(tensor["data_hex"])
        if change == "root_negzero":
            width = DTYPE_BITS[tensor["dtype"]] // 8
            for at in range(0, len(data), width):
                if data[at : at + width] == bytes(width):
                    negative = data[:at] + bytes(width - 1) + b"\x80" + data[at + width :]
                    candidates.append(lines | {name: line(name, negative, tensor["dtype"], tuple(tensor["shape"]))})
        if change == "root_renamed":
            rest = {key: one for key, one in lines.items() if key != name}
            candidates.append(rest | {"x": TensorLine("x", lines[name].dtype, lines[name].shape, lines[name].sha256)})
    roots = [weights_root(candidate.values()) for candidate in candidates]
    return {found.hex for found in roots if isinstance(found, WeightsRoot)}


def only_the_first(names: Iterable[str]) -> tuple[NameDefect, ...]:
    return name_defects(names)[:1]


def nothing_repeated(names: Iterable[str]) -> tuple[NameDefect, ...]:
    return name_defects(set(names))


def refused(*names: str) -> Counter[NameDefect]:
    answer = weights_root(line(name) for name in names)
    return Counter(answer.defects) if isinstance(answer, Refused) else Counter()


@proven_by(planted(root, "name_defects", nothing_repeated))
def test_a_repeated_name_is_refused_once_with_its_number() -> None:
    assert refused("a", "b", "a", "c", "a") == Counter([TensorRepeated("a", 3)])


@proven_by(planted(root, "_unprintable", lambda name: False))
@pytest.mark.parametrize("name", ["a\n", "a\0b", "\x1b[31m", "b\x7f", "c\x85"])
def test_a_name_with_a_control_character_is_refused(name: str) -> None:
    assert refused("a", name, "b") == Counter([TensorNameUnprintable(name)])


def test_half_of_a_surrogate_pair_is_refused() -> None:
    assert refused("a", "\ud800") == Counter([TensorNameUnprintable("\ud800")])


@proven_by(planted(root, "name_defects", only_the_first))
@pytest.mark.parametrize(
    ("names", "defects"),
    [
        (("a", "b", "a", "b"), [TensorRepeated("a", 2), TensorRepeated("b", 2)]),
        (("a\0", "b", "a\0", "b\x7f"), [TensorRepeated("a\0", 2), TensorNameUnprintable("a\0"), TensorNameUnprintable("b\x7f")]),
    ],
)
def test_several_defects_are_all_named(names: tuple[str, ...], defects: list[NameDefect]) -> None:
    assert refused(*names) == Counter(defects)


@pytest.mark.parametrize("name", ["", " ", "a b", "ü", "层.0", "a\u2028b", "../../etc/passwd", "x" * 10_000])
def test_odd_names_without_control_characters_have_a_root(name: str) -> None:
    assert isinstance(weights_root([line(name)]), WeightsRoot)


def test_no_tensors_have_the_root_of_the_bare_head() -> None:
    assert weights_root(()) == WeightsRoot(hashlib.sha256(b"wr1\n").hexdigest())


@pytest.mark.parametrize(("dtype", "shape"), [("F32 [1] x", (1,)), ("f32", (1,)), ("F32", (-1,)), ("F32", (True,))])
def test_a_line_that_would_read_in_two_ways_cannot_be_made(dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"dtype|shape"):
        line("a", dtype=dtype, shape=shape)


Tensors = st.dictionaries(
    st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=5),
    st.tuples(st.sampled_from(sorted(DTYPE_BITS)), st.lists(st.integers(0, 99), max_size=3), st.binary(max_size=2)),
    max_size=4,
)


@given(Tensors, Tensors)
def test_two_sets_of_tensors_have_one_text_only_if_they_are_one_set(
    first: dict[str, tuple[str, list[int], bytes]], second: dict[str, tuple[str, list[int], bytes]]
) -> None:
    texts = [root_text([line(name, data, dtype, tuple(shape)) for name, (dtype, shape, data) in one.items()]) for one in (first, second)]
    assert (texts[0] == texts[1]) == (first == second)


def any_text_is_a_line() -> AbstractContextManager[object]:
    return planted(root, "_read_line", lambda text: TensorLine(text, "F32", (), Sha256("a" * 64)))()


@proven_by(any_text_is_a_line)
def test_the_text_of_a_root_reads_back_and_any_other_text_is_refused_line_by_line() -> None:
    lines = (TensorLine("b", "F32", (), Sha256("a" * 64)), TensorLine("é [1] x", "BF16", (2, 0, 10), Sha256("b" * 64)))
    text = root_text(lines)
    assert read_root_text("f", text.encode()) == lines
    assert read_root_text("f", b"wr1\n") == ()
    digest = "a" * 64
    odd = [
        f"{digest} F32 [] a",
        f"{digest} f32 [] b",
        f"{digest} F3 [] c",
        f"{digest} F32 [1,] d",
        f"{digest} F32 [01] d",
        f"{digest} F32 [0 0] d",
        f"{digest} F32 [-1] d",
        f"{digest.upper()} F32 [] d",
        f"{digest} F32 [] d\x07",
        f"{digest} F32 [] d\r",
        "",
        f"{digest} F32 [] z",
        f"{digest} F32 [] z",
        f"{digest} F32 [] y",
    ]
    found = read_root_text("f", ("wr1\n" + "".join(f"{line}\n" for line in odd)).encode())
    assert isinstance(found, Refused)
    form, order = "it is not of the form: digest, dtype, [shape], name", "it does not stand in the order of the names"
    control = "its name holds a control character"
    whys = [form, "its dtype is not one that safetensors spells", form, form, form, form, form, control, control, form, order, order]
    numbers = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15]
    assert [(each.line, each.why) for each in found.defects] == [(f"f:{number}", why) for number, why in zip(numbers, whys, strict=True)]
    for content in (b"", b"wr2\n", b"wr1", text.encode()[:-1], text.encode() + b"x"):
        assert isinstance(read_root_text("f", content), Refused)
    both = read_root_text("f", b"wr2\nx")
    assert isinstance(both, Refused) and [each.line for each in both.defects] == ["f:1", "f:2"]
    torn = read_root_text("f", b"wr1\n\xff")
    assert isinstance(torn, Refused) and torn.defects.first.why == "byte 4 is not UTF-8"
