"""The arrays of a tree that Orbax saved: each a description and its chunks (zarr), in folders of their own or in one database.

Rules kept here:

1. Every chunk that an array's description asks for must be there, within its file. Where a tree says that it leaves out what is all of one
   value, those may be missing.
2. An array's digest is over its name and kind, and over the keys and the bytes of its description and its chunks, as they are stored.
3. A whole number is read where it is stored raw, or in one frame of Zstandard.
4. No byte of a data file belongs to two values: what overlaps is refused, and one range under several keys is read once. So hashing costs
   what the files hold, and counting chunks what a checkpoint can have, whatever an index or a description says.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from countermark.files.digest_cache import Range, hash_parts
from countermark.files.documents import CONFIG_BYTES_MAX, as_list, as_object, parse_object
from countermark.files.layouts.ocdbt import KEYS_MAX, Place, read_database
from countermark.files.layouts.reading import Parts, Whys
from countermark.files.reading import Entry, OpenFile, ShortRead, open_below
from countermark.files.zstd import MAGIC, DamagedFrame, decompress
from countermark.recipe.canonical import digest_of
from countermark.run.checkpoint import FileReading
from countermark.values import Sha256, Unreadable
from countermark.weights.refusals import FileDefect

#: Bytes of a whole number, and whether it has a sign.
_INTEGERS: Final = MappingProxyType(
    {f"{order}{letter}{size}": (size, letter == "i") for order in ("<", "|") for letter in "iu" for size in (1, 2, 4, 8)}
    | {f"{'' if signed else 'u'}int{8 * size}": (size, signed) for size in (1, 2, 4, 8) for signed in (True, False)}
)
#: Of all arrays of a tree together, each description read again counted again.
_CHUNKS_MAX: Final = 4 * KEYS_MAX


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of a tree: the names that lead to it, what kind of value it is, and its shape where it has one."""

    path: tuple[str, ...]
    kind: str
    shape: tuple[int, ...] | None

    @property
    def name(self) -> str:
        return ".".join(self.path)


@final
@dataclass(frozen=True, slots=True)
class _Described:
    """An array's description: how many chunks it has along each size, how their keys begin and go on, and what its elements are."""

    counts: tuple[int, ...]
    begin: str
    between: str
    single: str
    elements: str

    def keys(self) -> Iterator[str]:
        for at in product(*map(range, self.counts)):
            yield self.begin + self.between.join(map(str, at)) if at else self.single


@final
@dataclass(slots=True)
class Arrays:
    """Where the arrays of one tree lie. ``below`` is the tree's folder; ``whole`` says that no chunk is left out."""

    folder: Path
    below: str
    places: Mapping[str, Place]
    whole: bool
    asked: int = 0
    documents: dict[Place, Mapping[str, object] | Whys] = field(default_factory=dict[Place, Mapping[str, object] | Whys])
    digests: dict[Place, Sha256 | FileDefect | str] = field(default_factory=dict[Place, Sha256 | FileDefect | str])

    @classmethod
    def of(cls, folder: Path, below: str, entries: Mapping[str, Entry], tree: Mapping[str, object]) -> "Arrays | Whys | FileDefect":
        """The arrays of a tree with this document."""
        whole = tree.get("store_array_data_equal_to_fill_value") is True
        if tree.get("use_ocdbt") is False:
            files = {name: entry for name, entry in entries.items() if name.startswith(below) and entry.kind != "a folder"}
            return cls(folder, below, {name[len(below) :]: Place(name, 0, entry.stamp.bytes) for name, entry in files.items()}, whole)
        database = read_database(folder, below)
        return database if isinstance(database, Whys | FileDefect) else cls(folder, below, database.places, whole)

    def hash(self) -> None:
        """Hash everything, each byte of each file once."""
        ranges: dict[str, list[Place]] = {}
        for place in dict.fromkeys(self.places.values()):
            if place.inline is not None:
                self.digests[place] = Sha256(sha256(place.inline).hexdigest())
            else:
                ranges.setdefault(place.file, []).append(place)
        for name, places in ranges.items():
            opened = open_below(self.folder, name)
            if not isinstance(opened, OpenFile):
                self.digests.update(dict.fromkeys(places, opened))
                continue
            with opened:
                crossing = _crossing(places)
                self.digests.update(dict.fromkeys(crossing, f"{name}: values of its index overlap there"))
                beyond = [place for place in places if place.begin + place.size > opened.size]
                self.digests.update(dict.fromkeys(beyond, f"{name} ends before what its index says lies there"))
                inside = [place for place in places if place not in self.digests]
                parts: list[Range] = [(place.begin, place.begin + place.size) for place in inside]
                found = hash_parts(opened, parts)
                self.digests.update(zip(inside, found, strict=True) if isinstance(found, tuple) else dict.fromkeys(inside, found))

    def take(self, leaf: Leaf, parts: Parts) -> None:
        """One array of a component. What keeps it from counting is noted."""
        described = self._described(leaf)
        if isinstance(described, Whys):
            parts.refuse(f"{self.below}{leaf.name}", described)
            return
        keys = [key for key in described.keys() if self.whole or key in self.places]
        missing = [f"{self.below}{key}" for key in keys if key not in self.places]
        parts.absent.extend(missing[:3])
        told: list[bytes] = [*(word.encode("utf-8", "backslashreplace") for word in leaf.path), leaf.kind.encode()]
        places = [(key, self.places[key]) for key in (self._key(leaf), *keys) if key in self.places]
        for key, place in places:
            digest = self.digests.get(place)
            if isinstance(digest, Sha256):
                told += (key.encode("utf-8", "backslashreplace"), digest.hex.encode())
            elif isinstance(digest, str):
                parts.whys.extend([digest] if digest not in parts.whys else [])
            elif digest is not None:
                parts.defect(digest)
        size = sum(place.size for _, place in places)
        parts.files.append(FileReading(f"{self.below}{leaf.name}", digest_of(*told), size))

    def number(self, leaf: Leaf) -> int | None:
        """The whole number that an array of one element is, None where it is something else, or not stored plainly."""
        described = self._described(leaf)
        if isinstance(described, Whys) or math.prod(described.counts) != 1 or described.elements not in _INTEGERS:
            return None
        size, signed = _INTEGERS[described.elements]
        place = self.places.get(next(described.keys()))
        content = None if place is None or place.size > 64 else self._content(place)
        if content is None:
            return None
        try:
            plain = decompress(content, 64) if content.startswith(MAGIC) and len(content) != size else content
        except DamagedFrame:
            return None
        return int.from_bytes(plain, "little", signed=signed) if len(plain) == size else None

    def _key(self, leaf: Leaf) -> str:
        return next((key for key in (f"{leaf.name}/.zarray", f"{leaf.name}/zarr.json") if key in self.places), f"{leaf.name}/.zarray")

    def _described(self, leaf: Leaf) -> _Described | Whys:
        key = self._key(leaf)
        place = self.places.get(key)
        if place is None:
            return Whys(("it is not there",))
        document = self.documents.get(place)
        if document is None:
            document = self.documents[place] = self._document(place)
        if isinstance(document, Whys):
            return document
        found = _older(leaf.name, document) if key.endswith("/.zarray") else _newer(leaf.name, document)
        if found is None:
            return Whys(("its description is none of an array's",))
        count = math.prod(found.counts)
        if count > len(self.places):
            return Whys((f"it is of {count} chunks, and fewer values are there",))
        self.asked += count
        return Whys(("its tree asks for more chunks than any checkpoint has",)) if self.asked > _CHUNKS_MAX else found

    def _document(self, place: Place) -> Mapping[str, object] | Whys:
        digest = self.digests.get(place)
        if isinstance(digest, str):
            return Whys((digest,))
        content = self._content(place)
        document = Unreadable("it cannot be read") if content is None else parse_object(content)
        return Whys((f"its description is none: {document.why}",)) if isinstance(document, Unreadable) else document

    def _content(self, place: Place) -> bytes | None:
        if place.inline is not None:
            return place.inline
        opened = open_below(self.folder, place.file) if place.size <= CONFIG_BYTES_MAX else None
        if not isinstance(opened, OpenFile):
            return None
        with opened:
            try:
                return opened.read(place.begin, place.size) if place.begin + place.size <= opened.size else None
            except (OSError, ShortRead):
                return None


def _crossing(places: list[Place]) -> set[Place]:
    """Those of one file that have a byte in common with another one."""
    found: set[Place] = set()
    reaching: Place | None = None
    for place in sorted((place for place in places if place.size), key=lambda place: place.begin):
        if reaching is not None and place.begin < reaching.begin + reaching.size:
            found |= {place, reaching}
        if reaching is None or place.begin + place.size > reaching.begin + reaching.size:
            reaching = place
    return found


def leaves(tree: Mapping[str, object]) -> Iterator[Leaf]:
    """The leaves that a tree's document lists. One that has no names or no kind of value has an empty kind: it is damaged."""
    for described in (as_object(tree.get("tree_metadata")) or {}).values():
        leaf = as_object(described) or {}
        value = as_object(leaf.get("value_metadata")) or {}
        keys, kind = as_list(leaf.get("key_metadata")), value.get("value_type")
        path = tuple(str(key) for one in keys or () if isinstance(key := (as_object(one) or {}).get("key"), str | int))
        named = keys is not None and len(path) == len(keys) and isinstance(kind, str)
        yield Leaf(path, str(kind), _extents(value.get("write_shape"))) if named else Leaf((), "", None)


def _older(name: str, document: Mapping[str, object]) -> _Described | None:
    """A description of zarr 2."""
    counts = _counts(document.get("shape"), document.get("chunks"))
    between = document.get("dimension_separator", ".")
    if counts is None or between not in (".", "/"):
        return None
    return _Described(counts, f"{name}/", str(between), f"{name}/0", str(document.get("dtype")))


def _newer(name: str, document: Mapping[str, object]) -> _Described | None:
    """A description of zarr 3."""
    grid = as_object((as_object(document.get("chunk_grid")) or {}).get("configuration")) or {}
    keys = as_object(document.get("chunk_key_encoding")) or {}
    between = (as_object(keys.get("configuration")) or {}).get("separator", "/")
    counts = _counts(document.get("shape"), grid.get("chunk_shape"))
    if counts is None or keys.get("name") != "default" or between not in (".", "/"):
        return None
    return _Described(counts, f"{name}/c{between}", str(between), f"{name}/c", str(document.get("data_type")))


def _counts(shape: object, chunks: object) -> tuple[int, ...] | None:
    """How many chunks an array has along each of its sizes, None where its chunks are none of it."""
    sizes, parts = _extents(shape), _extents(chunks)
    if sizes is None or parts is None or len(sizes) != len(parts) or 0 in parts:
        return None
    return tuple(-(-size // part) for size, part in zip(sizes, parts, strict=True))


def _extents(value: object) -> tuple[int, ...] | None:
    found = as_list(value)
    if found is None or len(found) > 64:
        return None
    extents = tuple(one for one in found if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**63)
    return extents if len(extents) == len(found) else None
