"""Portions of one file of ``torch.save``, each with a digest of its own, as if it were a file by itself.

Rules kept here:

1. A digest is over what the portion holds: the bytes of its storages, and every inert value with its kind. Where a storage lies in the
   file is not in it, so that a change in one portion moves the digest of that one alone.
2. Each storage is hashed once, however many tensors of however many portions lie in it. Its checksum was verified when the file was read.
3. What is shared within a value is walked once, and what portions share is looked through a bounded number of times, so that no file costs
   much more than its pickle has operations. A value that holds itself, or is nested deeper than any state, is refused.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeVar, cast, final

from countermark.files.digest_cache import hash_parts
from countermark.files.layouts.reading import Parts, Whys
from countermark.files.layouts.states import table_of
from countermark.files.pickles import Call, Name, Storage, TensorStub, TorchFile, read_torch_file, scalar
from countermark.files.reading import OpenFile, ShortRead, open_below
from countermark.recipe.canonical import length_prefixed
from countermark.run.checkpoint import FileReading
from countermark.values import Sha256
from countermark.weights.refusals import FileChanged, FileDefect, PickleUnreadable

NESTING_MAX: Final = 64
#: How often the values of a file may be looked through for the storages of its portions, each a portion's own.
_SHARING_MAX: Final = 16
_SMALL: Final = 100_000

T = TypeVar("T")


class _Refused(Exception):
    """The value has no digest; the text says why."""


@final
@dataclass(slots=True)
class Portions:
    """The portions of one file, whose storages have these digests and sizes. ``walked`` holds on to each value that it knows the digest of,
    so that no other one can come to lie in its place; ``held`` counts what lies in these, and ``looked_at`` what was looked through."""

    storages: Mapping[str, tuple[Sha256, int]]
    walked: dict[int, tuple[object, bytes | None]] = field(default_factory=dict[int, tuple[object, bytes | None]])
    held: int = 0
    looked_at: int = 0

    @classmethod
    def of(cls, opened: OpenFile, file: TorchFile) -> Self | FileDefect:
        """The portions of an open file, each of whose storages is hashed here."""
        places = {name.removeprefix("data/"): member for name, member in file.members.items() if name.startswith("data/")}
        digests = hash_parts(opened, tuple((member.begin, member.begin + member.size) for member in places.values()))
        if not isinstance(digests, tuple):
            return digests
        return cls({key: (digest, member.size) for (key, member), digest in zip(places.items(), digests, strict=True)})

    def portion(self, name: str, value: object) -> FileReading | Whys:
        """What a value of the file holds, under this name."""
        try:
            digest = self._digest(value, 0)
            size = sum(self.storages[key][1] for key in self._storages(value))
        except _Refused as refused:
            return Whys((str(refused),))
        return FileReading(name, Sha256(digest.hex()), size)

    def _digest(self, value: object, depth: int) -> bytes:
        match value:
            case None | bool() | int() | float() | str():
                return _sealed(*_plain(value))
            case Name(text):
                return _sealed(b"name", text.encode("utf-8", "surrogatepass"))
            case Storage():
                return self._stored(value)
            case TensorStub(storage, offset, shape, stride):
                place = ",".join(map(str, (offset, len(shape), *shape, *stride))).encode()
                return _sealed(b"tensor", storage.dtype.encode(), place, self._stored(storage))
            case object():
                return self._walked(value, depth)

    def _walked(self, value: object, depth: int) -> bytes:
        """The digest of what holds other values: known by the object, since a pickle can name one again and again."""
        if id(value) in self.walked:
            _, found = self.walked[id(value)]
            if found is None:
                raise _Refused("it holds a value that holds itself")
            return found
        if depth >= NESTING_MAX:
            raise _Refused("it is nested too deep")
        self.walked[id(value)] = value, None
        kind, inner = _inside(value)
        digests = [self._digest(one, depth + 1) for one in inner]
        self.held += len(digests)
        digest = _sealed(kind, *digests)
        self.walked[id(value)] = value, digest
        return digest

    def _stored(self, storage: Storage) -> bytes:
        return _sealed(b"storage", storage.dtype.encode(), self.storages[storage.key][0].hex.encode())

    def _storages(self, value: object) -> frozenset[str]:
        """The keys of the storages that a value's tensors lie in."""
        keys: set[str] = set()
        seen: set[int] = set()
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self.looked_at += 1
            if self.looked_at > _SMALL + _SHARING_MAX * self.held:
                raise _Refused("it holds again what others hold, more often than any state does")
            if isinstance(one, TensorStub | Storage):
                keys.add(one.key if isinstance(one, Storage) else one.storage.key)
            elif id(one) not in seen and not isinstance(one, str | int | float | Name | None):
                seen.add(id(one))
                waiting.extend(_inside(one)[1])
        return frozenset(keys)


@final
@dataclass(frozen=True, slots=True)
class OpenValues:
    """The values at the top of an open file by name, and the portions that they make."""

    opened: OpenFile
    file: TorchFile
    portions: Portions
    values: Mapping[str, object]

    def element(self, tensor: TensorStub) -> int | float | None:
        """The one element of a tensor of the file. Raises as ``OpenFile.read`` does."""
        return scalar(self.opened, self.file, tensor)

    def put(self, parts: Parts, name: str, called: str) -> None:
        """The value of this name as a portion of a component, ``called`` so there."""
        self.put_value(parts, self.values[name], called)

    def put_value(self, parts: Parts, value: object, called: str) -> None:
        """Any value of the file as a portion of a component."""
        portion = self.portions.portion(called, value)
        if isinstance(portion, Whys):
            parts.refuse(called, portion)
        else:
            parts.files.append(portion)


def take_values(
    folder: Path, name: str, judge: Callable[[OpenValues], T | Whys], names: frozenset[str] = frozenset()
) -> T | Whys | FileDefect:
    """A file of several components, as ``judge`` reads its values: opened once, and of no value where it changed meanwhile. Its pickle may
    name these globals beside those of every file."""
    opened = open_below(folder, name)
    if not isinstance(opened, OpenFile):
        return opened
    with opened:
        try:
            file = read_torch_file(opened, names)
            if not isinstance(file, TorchFile):
                return Whys(file.whys) if isinstance(file, PickleUnreadable) else file
            portions = Portions.of(opened, file)
            judged = judge(OpenValues(opened, file, portions, table_of(file.value))) if isinstance(portions, Portions) else portions
            return FileChanged(name) if opened.changed() else judged
        except (OSError, ShortRead) as error:
            return opened.judged(error)


def _sealed(*parts: bytes) -> bytes:
    return hashlib.sha256(length_prefixed(*parts)).digest()


def _plain(value: bool | int | float | str | None) -> tuple[bytes, ...]:
    match value:
        case None:
            return (b"none",)
        case bool():
            return (b"bool", bytes([value]))
        case int():
            return (b"int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
        case float():
            return (b"float", struct.pack(">d", value))
        case str():
            return (b"text", value.encode("utf-8", "surrogatepass"))


def _inside(value: object) -> tuple[bytes, Iterable[object]]:
    """The kind of what holds other values, and these values in their order."""
    match value:
        case dict():
            return b"table", (part for pair in cast(dict[object, object], value).items() for part in pair)
        case list():
            return b"list", cast(list[object], value)
        case tuple():
            return b"tuple", cast(tuple[object, ...], value)
        case Call(function, arguments, state):
            return b"call", (function, arguments, state)
        case object():
            raise _Refused(f"it holds a {type(value).__name__}, which no state does")
