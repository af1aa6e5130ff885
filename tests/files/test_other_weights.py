"""Weights that are not safetensors: files of torch, NumPy and GGUF, read without executing anything, and hostile ones of each."""

import struct
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from countermark.files import archive as archives
from countermark.files import gguf, npz, torch_weights
from countermark.files.gguf import TYPES
from countermark.files.opened_weights import OpenedWeights, open_weights
from countermark.values import Refused
from countermark.weights.refusals import ArraysUnreadable, GgufUnreadable, PickleUnreadable
from tests.faults import planted, proven_by
from tests.files import torchfiles
from tests.files.ggufs import DATA, GOOD, gguf_file, info, text
from tests.files.tensors import encoded, f32, write


def data_of(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    found = open_weights(path)
    assert isinstance(found, OpenedWeights), found
    with found:
        return {name: (one.span.dtype, one.span.shape, one.file.read(one.begin, one.bytes)) for name, one in sorted(found.tensors.items())}


def whys(path: Path, kind: type) -> tuple[str, ...]:
    found = open_weights(path)
    assert isinstance(found, Refused), found
    (defect,) = found.defects
    assert type(defect) is kind
    return tuple(defect.whys)


# ----------------------------------------------------------------------------------------------------------------- torch


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def strides_not_looked_at() -> AbstractContextManager[object]:
    """Every tensor is taken to lie in order."""
    return planted(torch_weights, "_in_order", lambda stub: True)()


@proven_by(strides_not_looked_at)
def test_tensors_of_torch_are_read_in_their_own_order(tmp_path: Path, torch: Any) -> None:
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    tensors = {
        "plain": base, "turned": base.t(), "part": base[1:, 1:3], "one": base[2, 3], "none": torch.zeros(0, 4),
        "half": base.to(torch.bfloat16), "deep": {"list": [base[0]]}, "cube": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
        "step": 7, "name": "x",
    }  # fmt: skip
    torch.save(tensors, tmp_path / "w.pt")
    found = data_of(tmp_path / "w.pt")
    expected = {**{name: tensors[name] for name in ("plain", "turned", "part", "one", "none", "half", "cube")}, "deep.list.0": base[0]}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else struct.pack("<f", float(tensor))
        assert (name, found[name][1], found[name][2]) == (name, tuple(tensor.shape), raw)


def test_a_view_that_repeats_elements_is_refused_by_name(tmp_path: Path, torch: Any) -> None:
    torch.save({"wide": torch.zeros(1).expand(1 << 40), "fine": torch.zeros(2)}, tmp_path / "w.pt")
    assert whys(tmp_path / "w.pt", PickleUnreadable) == ("tensor 'wide' repeats elements of its storage",)


STORAGE: Final = (
    b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu\x8a\x03"
    + (250_000).to_bytes(3, "little")
    + b"tQ"
)


def column(offset: int) -> bytes:
    """Every second number of a storage from ``offset`` on, 60,000 of them."""
    return b"ctorch._utils\n_rebuild_tensor_v2\n(h\x00M" + struct.pack("<H", offset) + b"(K\x02M`\xeat(K\x01K\x02t\x89}tR"


@proven_by(planted(torch_weights, "_RATIO_MAX", 10**9))
def test_views_that_overlap_ask_for_little_more_than_the_file_holds(tmp_path: Path) -> None:
    for count, expected in ((2, ()), (200, ("its tensors overlap: they ask for 96000000 bytes, more than 16 times what it holds",))):
        program = b"\x80\x02](" + STORAGE + b"q\x00" + b"".join(map(column, range(count))) + b"e."
        members = {"archive/data.pkl": program, "archive/data/0": bytes(1_000_000)}
        path = write(tmp_path / "w.pt", torchfiles.archive(members))
        assert (whys(path, PickleUnreadable) if expected else tuple(data_of(path))[2:]) == expected


@proven_by(planted(torch_weights, "_NAMES_PER_BYTE", 10**9))
def test_names_that_repeat_a_long_key_are_bounded(tmp_path: Path) -> None:
    tensor = column(0).replace(b"h\x00", STORAGE + b"q\x00", 1) + b"q\x01"
    key = b"X" + struct.pack("<I", 100_000) + b"k" * 100_000
    program = b"\x80\x02}" + key + b"](" + tensor + b"h\x01" * 2000 + b"es."
    path = write(tmp_path / "w.pt", torchfiles.archive({"archive/data.pkl": program, "archive/data/0": bytes(1_000_000)}))
    assert whys(path, PickleUnreadable) == ("it holds 188 tensors or more: more names than any model has",)


def test_what_would_run_is_named_and_not_run(tmp_path: Path, torch: Any) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"w": torch.zeros(2), "x": Hostile()}, tmp_path / "w.pt")
    assert any("pathlib" in why and "not executed" in why for why in whys(tmp_path / "w.pt", PickleUnreadable))
    assert not (tmp_path / "ran").exists()


def test_no_length_of_a_header_makes_safetensors_anything_else(tmp_path: Path) -> None:
    """The first byte of a file is the lowest of its header's length: it may well be the one that a bare pickle begins with."""
    for padding in range(256):
        name = "w" + "x" * padding
        path = write(tmp_path / "w.safetensors", encoded({name: f32(1)}))
        assert list(data_of(path)) == [name], padding


# ----------------------------------------------------------------------------------------------------------------- NumPy

ARRAYS: Final = {
    "a": np.arange(6, dtype="<f4").reshape(2, 3),
    "f": np.asfortranarray(np.arange(6, dtype="<f2").reshape(2, 3)),
    "s": np.int64(7),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_stored_and_deflated_rows_outermost(tmp_path: Path, save: Callable[..., None]) -> None:
    save(tmp_path / "w.npz", **ARRAYS)
    assert data_of(tmp_path / "w.npz") == {
        "a": ("F32", (2, 3), ARRAYS["a"].tobytes()),
        "f": ("F16", (2, 3), np.ascontiguousarray(ARRAYS["f"]).tobytes()),
        "s": ("I64", (), struct.pack("<q", 7)),
    }


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return path


FINE: Final = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
ILL: Final = {
    "pickled": (FINE.replace("<f4", "|O"), b"1234", "its elements are pickled objects, and nothing is executed"),
    "turned": (FINE.replace("<f4", ">f4"), b"1234", "its type '>f4' is none that weights have"),
    "short": (FINE, b"123", "it holds 3 bytes, and its type and shape ask for 4"),
    "code": ("__import__('os').system('touch ran')", b"", "its header cannot be read (ValueError)"),
    "records": (
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        b"1234",
        "its elements are records, which no weights are",
    ),
    "huge": (FINE.replace("(1,)", f"({2**62}, {2**62})"), b"1234", f"it holds 4 bytes, and its type and shape ask for {2**126}"),
    "unhashable": ("{[]}", b"", "its header cannot be read (TypeError)"),
    "padded": (FINE + "\xa0", b"1234", "its header cannot be read (SyntaxError)"),
    "deep": ("(" * 5000, b"", "its header cannot be read"),
}


def test_every_array_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "w.npz", fine=npy(FINE, b"1234"), **{name: npy(header, data) for name, (header, data, _) in ILL.items()})
    found = whys(path, ArraysUnreadable)
    assert [why.partition(".npy")[0].strip("'") for why in found] == list(ILL)
    assert [told[2] in why for told, why in zip(ILL.values(), found, strict=True)] == [True] * len(ILL)


@proven_by(planted(npz, "_PACKED", range(20)))
def test_arrays_are_packed_as_numpy_packs_them(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "w.npz", "w", method) as file:
            file.writestr("a.npy", npy(FINE, b"1234"))
        assert whys(tmp_path / "w.npz", ArraysUnreadable) == ("'a.npy': it is packed in a way that NumPy never uses",)


def directory_believed() -> AbstractContextManager[object]:
    """The directory may have any size."""
    return planted(archives, "MEMBERS_MAX", 10**9)()


@proven_by(directory_believed)
def test_an_archive_is_one_that_numpy_takes_and_its_directory_is_bounded(tmp_path: Path) -> None:
    path = archive(tmp_path / "w.npz", a=npy(FINE, b"1234"))
    content = path.read_bytes()
    assert whys(write(path, b"#!" + content), ArraysUnreadable) == ("its directory does not lie where its end says",)
    with zipfile.ZipFile(write(path, b"#!/bin/sh\n"), "a") as file:
        file.writestr("a.npy", npy(FINE, b"1234"))
    assert whys(path, ArraysUnreadable) == ("something stands before its first array",)
    at = content.rindex(b"PK\x05\x06")
    begin = struct.unpack_from("<L", content, at + 16)[0]
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 600_000, 600_000, at - begin, begin)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, at, 1)
    assert whys(write(path, content[:at] + record + locator + content[at:]), ArraysUnreadable) == (
        f"its directory has 600000 entries in {at - begin} bytes, more than any checkpoint needs",
    )


def no_ratio() -> AbstractContextManager[object]:
    """An archive may grow to any size."""
    return planted(npz, "RATIO_MAX", 10**9)()


@proven_by(no_ratio)
def test_an_archive_that_would_fill_the_disk_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    size = 80 << 20
    path = archive(tmp_path / "w.npz", bomb=npy(FINE.replace("<f4", "|u1").replace("(1,)", f"({size},)"), bytes(size)))
    found = open_weights(path)
    assert isinstance(found, Refused)
    assert "it would grow to" in str(found.defects.first)


# ------------------------------------------------------------------------------------------------------------------ GGUF


def test_block_sizes_are_those_of_the_published_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    published = {kind.value: (kind.name, *constants.GGML_QUANT_SIZES[kind]) for kind in constants.GGMLQuantizationType}
    assert {kind: told for kind, told in TYPES.items() if published.get(kind) != told} == {}
    assert published.keys() - TYPES.keys() <= {36, 37, 38, 40, 41}, "a new type: add it, or say why not"


BROKEN: Final[dict[str, tuple[bytes, tuple[str, ...]]]] = {
    "another start": (b"GGML" + bytes(30), ("it does not begin as a GGUF file does",)),
    "big-endian": (gguf_file([], b"", version=3 << 24), ("its numbers are not little-endian",)),
    "a later version": (gguf_file([], b"", version=9), ("it is of version 9, and 2 and 3 are known",)),
    "cut in the header": (gguf_file(GOOD, DATA)[:60], ("its header goes on behind its end",)),
    "a name without end": (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 2**62), ()),
    "two of one name on one range": (
        gguf_file([GOOD[0], GOOD[0]], DATA[:32]),
        ("2 tensors are called 'a'", "tensors 'a' and 'a' share bytes"),
    ),
    "overlap": (gguf_file([GOOD[0], info(b"b", (16,), 0, 0)], DATA[:64]), ("tensors 'a' and 'b' share bytes",)),
    "a hole, and bytes behind": (
        gguf_file([info(b"a", (8,), 0, 64)], bytes(192)),
        ("bytes 64 to 128 belong to no tensor", "96 bytes follow its last tensor"),
    ),
    "cut": (gguf_file(GOOD, DATA[:40]), ("tensor 'q': it ends at byte 194 of 168",)),
    "not aligned, and of no type": (
        gguf_file([info(b"a", (2,), 0, 4), info(b"b", (2,), 99, 32)], bytes(64)),
        ("tensor 'a': its offset 4 is no multiple of 32", "tensor 'b': its type 99 is not known"),
    ),
    "a number as a block": (gguf_file([info(b"a", (), 8, 0)], b""), ("tensor 'a': its rows of 1 elements are no whole blocks of 32",)),
    "half a block": (gguf_file([info(b"a", (33,), 8, 0)], bytes(64)), ("tensor 'a': its rows of 33 elements are no whole blocks of 32",)),
    "an endless array": (
        gguf_file([], b"", text(b"k") + struct.pack("<IIQ", 9, 8, 2**60), 1),
        ("an array in its header is longer than the file",),
    ),
    "arrays in arrays": (
        gguf_file([], bytes(200), text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 6, 1),
        ("its header nests arrays too deep",),
    ),
    "a million tensors and more": (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0) + bytes(32), ()),
}


def overlaps_believed() -> AbstractContextManager[object]:
    """Offsets are believed, as the usual reader does."""
    return planted(gguf, "_gaps", lambda *given: ())()


@proven_by(overlaps_believed)
def test_every_break_of_a_gguf_file_is_refused_with_all_its_reasons(tmp_path: Path) -> None:
    for name, (content, expected) in BROKEN.items():
        found = whys(write(tmp_path / f"{len(name)}.gguf", content), GgufUnreadable)
        assert (name, found if expected else ()) == (name, expected)


def test_any_bytes_behind_the_mark_are_refused_or_read_and_never_crash(tmp_path: Path) -> None:
    whole = gguf_file(GOOD, DATA)
    for at in range(4, len(whole)):
        for value in (0, 1, 0x7F, 0xFF):
            changed = whole[:at] + bytes([value]) + whole[at + 1 :]
            found = open_weights(write(tmp_path / "w.gguf", changed))
            if isinstance(found, OpenedWeights):
                found.close()
    assert data_of(write(tmp_path / "w.gguf", whole)) == {"a": ("F32", (2, 3), DATA[:24]), "q": ("Q8_0", (32,), b"q" * 34)}
