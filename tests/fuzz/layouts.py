"""Judges of what describes a checkpoint: torch's ``.metadata``, Orbax's tree and database, and frames of Zstandard."""

import json
import tempfile
from collections import defaultdict
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

from backports.zstd import ZstdDecompressor, ZstdError, compress, get_frame_info

from countermark.files.layouts.dcp_metadata import Metadata, read_metadata
from countermark.files.layouts.ocdbt import Database, read_database
from countermark.files.layouts.orbax import FOLDER
from countermark.files.reading import list_tree
from countermark.files.zstd import DamagedFrame, decompress
from countermark.run.checkpoint import ComponentRead, Incomplete
from tests.files.layouts import dcps, orbaxes
from tests.files.torchfiles import zeros
from tests.fuzz.stored import in_memory

_FRAME: Final = b"\x28\xb5\x2f\xfd"
#: What a frame of the target may come to.
CONTENT_MAX: Final = 1 << 16
_NODE: Final = 0x0CDB20DE
_TREE: Final = "state/_METADATA"


@cache
def _shelf() -> Path:
    """A folder in memory, where there is one."""
    shelf = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="countermark-fuzz-", dir=shelf if shelf.is_dir() else None))


# ------------------------------------------------------------------------------------------------------------------ torch


def dcp_metadata(data: bytes) -> bool:
    """A ``.metadata``: nothing in it is executed, and where it is taken its chunks hold each element of each tensor exactly once."""
    with in_memory(data) as opened:
        found, again = read_metadata(opened), read_metadata(opened)
    assert found == again
    if not isinstance(found, Metadata):
        return False
    held: defaultdict[str, set[tuple[int, ...]]] = defaultdict(set)
    elements: defaultdict[str, int] = defaultdict(int)
    for piece in found.pieces:
        assert piece.begin >= 0 and piece.size >= 0, piece
        assert piece.file.endswith(".distcp") and "/" not in piece.file, piece
        if piece.offsets is None or piece.shape is None:
            assert piece.key not in found.tensors, piece
            continue
        assert piece.offsets not in held[piece.key], f"{piece.key} has two chunks at one place"
        held[piece.key].add(piece.offsets)
        elements[piece.key] += prod(piece.shape)
        ends = zip(piece.offsets, piece.shape, found.tensors[piece.key].shape, strict=True)
        assert all(0 <= begin <= begin + size <= whole for begin, size, whole in ends), piece
    assert {key: elements[key] for key in found.tensors} == {key: prod(saved.shape) for key, saved in found.tensors.items()}
    return True


def metadatas() -> tuple[bytes, ...]:
    """What describes one tensor, one in two chunks beside a value, nothing, and chunks that are not all of their tensor."""
    few: dcps.Saved = {("w",): zeros(2)}
    more: dcps.Saved = {("model", "w"): zeros(4, 2), ("step",): 4}
    made = [dcps.metadata(each, dcps.pieces(each, dcps.ALONE)) for each in (few, more, {}, more)]
    # Of the last, the chunks leave a row out.
    made[-1]["state_dict_metadata"]["model.w"].state["size"] = dcps.size((5, 2))
    return tuple(map(dcps.encoded, made))


# ------------------------------------------------------------------------------------------------------------------ Orbax


def ocdbt(data: bytes) -> bool:
    """A block of an index with the checksum that it should have: what it says of places is no more than stands in it."""
    folder = _shelf() / "ocdbt"
    folder.mkdir(exist_ok=True)
    whole = orbaxes.block(_NODE, data)
    (folder / "x").write_bytes(whole)
    (folder / "manifest.ocdbt").write_bytes(orbaxes.manifest(b"x", 0, len(whole), data[0] & 127 if data else 0))
    found, again = read_database(folder, ""), read_database(folder, "")
    assert found == again
    if not isinstance(found, Database):
        return False
    inline = [place for place in found.places.values() if place.inline is not None]
    assert all(place.inline is not None and len(place.inline) == place.size for place in inline), inline
    assert sum(place.size for place in inline) <= len(data)
    assert all(place.begin >= 0 and place.size >= 0 for place in found.places.values())
    assert found.index <= {"manifest.ocdbt", "x"}, found.index
    return True


def blocks() -> tuple[bytes, ...]:
    """Leaves with values in them and elsewhere, and a block that names another."""
    lying = b"\0" + b"\x01\x01\0y" + b"\x02" + b"\0" + b"\x01\x01" + b"ab" + b"\x03\x02" + b"\x01\0" + b"\0" + b"\x05" + b"vw"
    return (
        *(orbaxes.leaf(entries)[14:-4] for entries in ({b"a/.zarray": b"{}", b"a/0": b"value"}, {b"k": b""}, {})),
        lying,
        orbaxes.inner(orbaxes.leaf({b"k": b"v"}), 2)[14:-4],
    )


@cache
def _checkpoint() -> Path:
    return orbaxes.checkpoint(_shelf(), "zarr")


def orbax(data: bytes) -> bool:
    """The document of a tree: where all that it lists was read, each array that it lists was."""
    folder = _checkpoint()
    (folder / _TREE).write_bytes(data)
    entries = list_tree(folder)
    assert isinstance(entries, tuple)
    found, again = FOLDER.read(folder, entries), FOLDER.read(folder, entries)
    assert found == again
    if isinstance(found.publication, Incomplete):
        return False
    of_tree = [reading for reading in found.components.values() if any(name.startswith("state/") for name in _names(reading))]
    if not of_tree or not all(isinstance(reading, ComponentRead) for reading in found.components.values()):
        return False
    read = {name.partition("/")[2].partition("/")[0] for reading in of_tree for name in _names(reading)}
    listed = {
        ".".join(str(key["key"]) for key in leaf["key_metadata"])
        for leaf in json.loads(data)["tree_metadata"].values()
        if leaf["value_metadata"]["value_type"] == "jax.Array"
    }
    assert listed <= read, f"listed and not read: {listed - read}"
    return True


def _names(reading: Any) -> list[str]:
    return [file.name for file in reading.files] if isinstance(reading, ComponentRead) else []


@cache
def trees() -> tuple[bytes, ...]:
    """The document of a real checkpoint, and of one whose optimizer is left out."""
    whole = (_checkpoint() / _TREE).read_bytes()
    document = json.loads(whole)
    few = {key: leaf for key, leaf in document["tree_metadata"].items() if "opt_state" not in key}
    return whole, json.dumps({**document, "tree_metadata": few}).encode()


# -------------------------------------------------------------------------------------------------------------- Zstandard


def zstandard(data: bytes) -> bool:
    """A frame: taken as what the library reads of it bit by bit, and only where it is one frame from its first byte to its last."""
    try:
        content = decompress(data, CONTENT_MAX)
    except DamagedFrame:
        content = None
    assert content == _bit_by_bit(data), "the library reads another content"
    return content is not None


def _bit_by_bit(data: bytes) -> bytes | None:
    """What one frame holds, None where it is none, too large, or not alone; written in small pieces."""
    reader, found = ZstdDecompressor(), bytearray()
    if not data.startswith(_FRAME):
        return None
    try:
        found += reader.decompress(data, 4096)
        while not reader.needs_input and not reader.eof and len(found) <= CONTENT_MAX:
            found += reader.decompress(b"", 4096)
    except ZstdError:
        return None
    whole = reader.eof and not reader.unused_data and get_frame_info(data).decompressed_size in (None, len(found))
    return bytes(found) if whole and len(found) <= CONTENT_MAX else None


def frames() -> tuple[bytes, ...]:
    """Frames of each kind of block, one that grows beyond what is read, one behind another, and what is to be skipped."""
    text = b"".join(str(number).encode() for number in range(900))
    plain, skipped = compress(b"some text"), b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    return (
        orbaxes.number(4, 4),
        plain,
        compress(text),
        compress(text, options=_checksummed()),
        compress(bytes(CONTENT_MAX + 1)),
        plain + plain,
        # One that says it holds 6,477 bytes, and holds none.
        bytes.fromhex("28b52ffd502a4d18010000"),
        skipped,
        skipped + plain,
    )


def _checksummed() -> dict[int, int]:
    from backports.zstd import CompressionParameter

    return {CompressionParameter.checksum_flag: 1}
