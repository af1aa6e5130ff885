"""The safetensors header: every way to break one, each alone and together; the official reader as an oracle."""

import json
import re
import struct
import time
from collections import Counter
from typing import Any

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from countermark.values import Refused
from countermark.weights import (
    HEADER_BYTES_MAX,
    DataHole,
    FileTooShort,
    GitLfsPointer,
    HeaderDefect,
    HeaderKeyRepeated,
    HeaderLengthInvalid,
    HeaderMetadataInvalid,
    HeaderUnparseable,
    TensorEntryInvalid,
    TensorOutOfBounds,
    TensorSizeDisagrees,
    TensorsOverlap,
    TensorTable,
    TrailingBytes,
    header,
    header_length,
    read_header,
    size_bytes,
)
from tests.faults import planted, proven_by
from tests.files.tensors import encoded, f32, raw


def table(content: bytes) -> TensorTable | Refused[HeaderDefect]:
    """A whole file's header, as a reader of files asks for it."""
    length = header_length("f", content[: header.PROLOGUE_BYTES], len(content))
    return length if isinstance(length, Refused) else read_header("f", content[8 : 8 + length], len(content))


def defects(content: bytes) -> Counter[HeaderDefect]:
    found = table(content)
    return Counter(found.defects) if isinstance(found, Refused) else Counter()


def entry(begin: Any, end: Any, dtype: Any = "F32", shape: Any = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def of(entries: dict[str, Any], data: int) -> bytes:
    return raw(json.dumps(entries).encode(), bytes(data))


def accepted_officially(content: bytes) -> bool:
    try:
        safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return False
    return True


CLEAN = {"a": entry(0, 8), "b": entry(8, 12)}


def test_a_clean_header() -> None:
    found = table(of(CLEAN | {"__metadata__": {"format": "pt"}}, 12))
    assert isinstance(found, TensorTable)
    assert [(span.name, span.shape, span.begin, span.end) for span in found.tensors] == [("a", (2,), 0, 8), ("b", (1,), 8, 12)]
    assert found.metadata == {"format": "pt"} and found.data_bytes == 12


def twice(second_name: str, first: dict[str, Any], second: dict[str, Any], data: int) -> bytes:
    """A header in which ``a`` stands twice, the second time spelled as given."""
    return raw(f'{{"a":{json.dumps(first)},"{second_name}":{json.dumps(second)}}}'.encode(), bytes(data))


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


BROKEN: dict[str, tuple[bytes, list[HeaderDefect]]] = {
    "hole in the middle": (of({"a": entry(0, 4), "b": entry(8, 12)}, 12), [DataHole("f", 4, 8)]),
    "hole at the start": (of({"a": entry(4, 8)}, 8), [DataHole("f", 0, 4)]),
    "overlap": (of({"a": entry(0, 8), "b": entry(4, 12)}, 12), [TensorsOverlap("f", "a", "b")]),
    "two on one range": (of({"a": entry(0, 4), "b": entry(0, 4)}, 4), [TensorsOverlap("f", "a", "b")]),
    "an empty one inside another": (of({"a": entry(0, 8), "b": entry(4, 4)}, 8), [TensorsOverlap("f", "a", "b")]),
    "trailing bytes": (of(CLEAN, 28), [TrailingBytes("f", 16)]),
    "nothing, and data": (of({}, 3), [TrailingBytes("f", 3)]),
    "cut by one byte": (of(CLEAN, 11), [TensorOutOfBounds("f", "b", 12, 11)]),
    "begin behind end": (of({"a": entry(4, 0, shape=[1])}, 4), [TensorEntryInvalid("f", "a", "it begins at 4, behind its end at 0")]),
    "too few bytes for the shape": (of({"a": entry(0, 4, shape=[2])}, 4), [TensorSizeDisagrees("f", "a", 8, 4)]),
    "a product beyond 64 bits": (of({"a": entry(0, 4, shape=[2**40, 2**40])}, 4), [TensorSizeDisagrees("f", "a", None, 4)]),
    "half a byte": (of({"a": entry(0, 2, "F4", [3])}, 2), [TensorSizeDisagrees("f", "a", None, 2)]),
    "unknown dtype": (of({"a": entry(0, 4, "f32")}, 4), [TensorEntryInvalid("f", "a", "its dtype 'f32' is not one of the format's")]),
    "dtype no text": (of({"a": entry(0, 4, 32)}, 4), [TensorEntryInvalid("f", "a", "its dtype (not text) is not one of the format's")]),
    "no object": (of({"a": 1}, 0), [TensorEntryInvalid("f", "a", "it is not an object")]),
    "no fields": (
        of({"a": {}}, 0),
        [TensorEntryInvalid("f", "a", f"its {what} missing") for what in ("dtype is", "shape is", "data_offsets are")],
    ),
    "metadata with a number": (of({"__metadata__": {"a": 1}}, 0), [HeaderMetadataInvalid("f", "'a' is not text")]),
    "metadata with an object": (of({"__metadata__": {"a": {}}}, 0), [HeaderMetadataInvalid("f", "'a' is not text")]),
    "metadata no object": (of({"__metadata__": []}, 0), [HeaderMetadataInvalid("f", "it is not an object")]),
    "metadata of half a pair": (raw(b'{"__metadata__":{"a":"\\ud800"}}'), [HeaderMetadataInvalid("f", "'a' is not Unicode")]),
    "a tensor called __metadata__": (
        of({"__metadata__": entry(0, 4)}, 4),
        [*(HeaderMetadataInvalid("f", f"'{key}' is not text") for key in ("shape", "data_offsets")), TrailingBytes("f", 4)],
    ),
    "name of half a pair": (raw(b'{"\\ud800":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}', bytes(4)),
                            [TensorEntryInvalid("f", "\ud800", "its name is not Unicode")]),
    "not JSON": (raw(b'{"a"'), [HeaderUnparseable("f", "it is not JSON (Expecting ':' delimiter: line 1 column 5 (char 4))")]),
    "an array": (raw(b"[]"), [HeaderUnparseable("f", "it is not a JSON object")]),
    "a NUL behind": (raw(b"{}\0"), [HeaderUnparseable("f", "it is not JSON (Extra data: line 1 column 3 (char 2))")]),
    "a second object behind": (raw(b"{}{}"), [HeaderUnparseable("f", "it is not JSON (Extra data: line 1 column 3 (char 2))")]),
    "a mark of the byte order": (
        raw(b"\xef\xbb\xbf{}"),
        [HeaderUnparseable("f", "it is not JSON (Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0))")],
    ),
    "not UTF-8": (raw(b'{"\xff":1}'), [HeaderUnparseable("f", "byte 2 is not UTF-8")]),
    "NaN": (raw(b'{"a":NaN}'), [HeaderUnparseable("f", "it holds NaN, which JSON has not")]),
    "nested too deep": (raw(b'{"a":' * 5000 + b"1" + b"}" * 5000), [HeaderUnparseable("f", "it is nested too deep")]),
    "a field nested as deep as no reader goes": (
        of({"a": entry(0, 4) | {"more": nested(126)}, "b": entry(0, 4)}, 4),
        [TensorEntryInvalid("f", "a", "a field in it is nested too deep")],
    ),
    "a crowd of empty objects": (
        raw(b'{"a":[' + b"{}," * 100_000 + b"{}]}"), [HeaderUnparseable("f", "it holds more brackets than any tensors need")],
    ),
    "empty file": (b"", [FileTooShort("f", 0)]),
    "seven bytes": (bytes(7), [FileTooShort("f", 7)]),
    "no header": (bytes(8), [HeaderLengthInvalid("f", 0, 0)]),
    "header longer than the file": (struct.pack("<Q", 3) + b"{}", [HeaderLengthInvalid("f", 3, 2)]),
    "header of 2^63": (struct.pack("<Q", 2**63) + b"{}", [HeaderLengthInvalid("f", 2**63, 2)]),
    "header of 2^64 - 1": (struct.pack("<Q", 2**64 - 1) + b"{}", [HeaderLengthInvalid("f", 2**64 - 1, 2)]),
    "a git-lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", [GitLfsPointer("f")]),
    # The official reader takes these, and drops or mistakes a tensor; here they are refused.
    "a name twice, one range": (twice("a", entry(0, 4), entry(0, 4), 4), [HeaderKeyRepeated("f", "", "a")]),
    "a name twice, the last covers all": (twice("a", entry(0, 4), entry(0, 8), 8), [HeaderKeyRepeated("f", "", "a")]),
    "a name twice, two ranges": (twice("a", entry(0, 4), entry(4, 8), 8), [HeaderKeyRepeated("f", "", "a")]),
    "a name twice, once escaped": (twice("\\u0061", entry(0, 4), entry(4, 8), 8), [HeaderKeyRepeated("f", "", "a")]),
    "a field twice": (
        raw(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        [HeaderKeyRepeated("f", "a", "dtype")],
    ),
    "a metadata key twice": (raw(b'{"__metadata__":{"k":"1","k":"2"}}'), [HeaderKeyRepeated("f", "__metadata__", "k")]),
    "metadata twice": (raw(b'{"__metadata__":{},"__metadata__":{}}'), [HeaderKeyRepeated("f", "", "__metadata__")]),
}  # fmt: skip
TAKEN_OFFICIALLY = {
    "a name twice, one range",
    "a name twice, the last covers all",
    "a metadata key twice",
}
OFFSETS = (
    "its data_offsets are not two whole numbers below 2^64",
    [[-1, 4], [0, 4.0], [0, "4"], [0], [0, 4, 4], {}, [0, True], [0, 10**400], [0, 2**64]],
)
SHAPES = ("its shape is not a list of whole numbers below 2^64", [[-1], [1.0], "1", [[1]], [None], [True], [2**64]])


@proven_by(planted(header, "_layout_defects", lambda *given: ()), planted(header, "_span", lambda file, name, value: (None, ())))
def test_each_broken_header_has_exactly_its_defects() -> None:
    assert {name: defects(content) for name, (content, _) in BROKEN.items()} == {
        name: Counter(wanted) for name, (_, wanted) in BROKEN.items()
    }


@pytest.mark.parametrize("name", BROKEN)
def test_what_the_official_reader_refuses_is_among_them(name: str) -> None:
    assert accepted_officially(BROKEN[name][0]) == (name in TAKEN_OFFICIALLY)


@pytest.mark.parametrize("offsets", OFFSETS[1])
def test_offsets_are_two_whole_numbers(offsets: object) -> None:
    content = of({"a": {"dtype": "F32", "shape": [1], "data_offsets": offsets}}, 4)
    assert defects(content) == Counter([TensorEntryInvalid("f", "a", OFFSETS[0])])


@pytest.mark.parametrize("shape", SHAPES[1])
def test_a_shape_is_a_list_of_whole_numbers(shape: object) -> None:
    content = of({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}, 4)
    assert defects(content) == Counter([TensorEntryInvalid("f", "a", SHAPES[0])])


@proven_by(planted(header, "_NESTING_MAX", 124))
def test_a_further_field_may_be_as_deep_as_the_official_reader_goes() -> None:
    content = of({"a": entry(0, 4) | {"more": nested(125)}}, 4)
    assert accepted_officially(content) and defects(content) == Counter()


@proven_by(planted(header, "_BYTES_PER_BRACKET", 30), planted(header, "_TEXT", re.compile(b"never")))
def test_many_small_tensors_and_brackets_in_names_are_no_crowd() -> None:
    tensor = b'"%d":{"dtype":"U8","shape":[],"data_offsets":[1,2]},'
    many = b"{" + b"".join(tensor % at for at in range(40_000))
    told = b'"__metadata__":{"config":"' + b"[{" * 200_000 + b'"}}'
    assert not header.is_crowded(many) and not header.is_crowded(many + told)


def test_minus_zero_is_no_offset() -> None:
    content = raw(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}}', bytes(4))
    assert defects(content) == Counter([TensorEntryInvalid("f", "a", OFFSETS[0])]) and not accepted_officially(content)


@proven_by(planted(header.NonEmpty, "of", lambda items: header.NonEmpty(next(iter(items)))))
def test_all_defects_of_one_header_are_found_at_once() -> None:
    content = of(
        {
            "a": entry(0, 8),
            "b": entry(4, 12, shape=[9]),
            "c": entry(16, 20),
            "d": entry(20, 40),
            "__metadata__": {"k": 1},
        },
        24,
    )
    assert defects(content) == Counter(
        [
            TensorSizeDisagrees("f", "b", 36, 8),
            HeaderMetadataInvalid("f", "'k' is not text"),
            TensorsOverlap("f", "a", "b"),
            DataHole("f", 12, 16),
            TensorOutOfBounds("f", "d", 40, 24),
        ]
    )


def test_an_entry_without_a_place_hides_no_other_defect_and_makes_no_false_hole() -> None:
    content = of({"a": entry(0, 4, "Q8"), "b": entry(4, 8, shape=[5]), "c": []}, 8)
    assert defects(content) == Counter(
        [
            TensorEntryInvalid("f", "a", "its dtype 'Q8' is not one of the format's"),
            TensorSizeDisagrees("f", "b", 20, 4),
            TensorEntryInvalid("f", "c", "it is not an object"),
        ]
    )


@pytest.mark.parametrize(
    "content",
    [
        of({}, 0),
        raw(b"  \t\n{}  \n"),
        raw(b'{"__metadata__":null}'),
        raw(b'{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":[1]}}', bytes(4)),
        of({"a": entry(0, 0, shape=[0, 2**40, 2**40]), "b": entry(0, 4)}, 4),
        of({"a": entry(0, 4, shape=[1] * 65)}, 4),
        of({"a": entry(0, 4, shape=[1] * 1000)}, 4),
        of({"a": entry(0, 0, shape=[0])}, 0),
        of({"a": entry(0, 1, "BOOL", [1])}, 1)[:-1] + b"\2",
        raw(b"{}" + b" " * 1_000_000),
        of({"a": entry(0, 1, "U8", [1]), "b": entry(1, 5)}, 5),
        of({"\0": entry(0, 4), "": entry(4, 8), "../../x": entry(8, 12), "\x1b[31m": entry(12, 16), "a\nb": entry(16, 20)}, 20),
        of({"a": entry(0, 3, "F4", [2, 3]), "b": entry(3, 6, "F6_E2M3", [4])}, 6),
    ],
)
def test_what_both_readers_take(content: bytes) -> None:
    assert accepted_officially(content) and isinstance(table(content), TensorTable)


def test_an_empty_shape_is_taken_in_any_order_of_its_sizes() -> None:
    """The official reader multiplies from the left, and gives up where a product leaves 64 bits though a zero follows."""
    contents = [of({"a": entry(0, 0, shape=shape)}, 0) for shape in ([0, 2**40, 2**40], [2**40, 2**40, 0])]
    assert [accepted_officially(content) for content in contents] == [True, False]
    assert [defects(content) for content in contents] == [Counter(), Counter()]


@pytest.mark.slow
def test_fifty_megabytes_of_spaces_are_parsed_in_a_moment() -> None:
    header_of_spaces = b"{}" + b" " * 50_000_000
    start = time.process_time()
    assert isinstance(read_header("f", header_of_spaces, 8 + len(header_of_spaces)), TensorTable)
    assert time.process_time() - start < 2


def test_a_header_beyond_the_formats_bound_is_refused_by_its_length_alone() -> None:
    room = HEADER_BYTES_MAX + 100
    prologue = struct.pack("<Q", HEADER_BYTES_MAX + 1) + b"{"
    found = header_length("f", prologue, room + 8)
    assert isinstance(found, Refused) and set(found.defects) == {HeaderLengthInvalid("f", HEADER_BYTES_MAX + 1, room)}
    assert header_length("f", struct.pack("<Q", HEADER_BYTES_MAX) + b"{", room + 8) == HEADER_BYTES_MAX


def test_a_shape_of_many_huge_sizes_costs_nothing() -> None:
    assert size_bytes("F32", (2**63,) * 100_000) is None
    assert size_bytes("F32", (*(2**63,) * 100_000, 0)) == 0


@given(st.binary(max_size=200))
def test_no_header_crashes_and_none_is_taken_that_the_official_reader_refuses(content: bytes) -> None:
    file = raw(content)
    if isinstance(table(file), TensorTable):
        assert accepted_officially(file)


Json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["F32", "U8", "a", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "a", "b"]), inner, max_size=4)
    ),
    max_leaves=12,
)
Entry = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "F16", "F4"]) | Json,
        "shape": st.lists(st.integers(-1, 3), max_size=3) | Json,
        "data_offsets": st.lists(st.integers(-1, 9), min_size=2, max_size=2) | Json,
    }
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "__metadata__"]), Entry | Json, max_size=3), st.integers(0, 9))
def test_structured_nonsense_is_judged_as_the_official_reader_judges_it(entries: dict[str, Any], data: int) -> None:
    file = of(entries, data)
    assert isinstance(table(file), TensorTable) == accepted_officially(file)


Names = st.text(st.characters(exclude_categories=("Cs",)), max_size=4).filter(lambda name: name != "__metadata__")


@given(st.dictionaries(Names, st.lists(st.floats(width=32), max_size=4), max_size=4))
def test_proper_files_are_read_as_the_official_reader_reads_them(numbers: dict[str, list[float]]) -> None:
    file = encoded({name: f32(*values) for name, values in numbers.items()})
    found = table(file)
    assert isinstance(found, TensorTable)
    data = file[found.data_begin :]
    ours = {span.name: (span.dtype, list(span.shape), data[span.begin : span.end]) for span in found.tensors}
    assert ours == {name: (one["dtype"], one["shape"], bytes(one["data"])) for name, one in safetensors.deserialize(file)}
