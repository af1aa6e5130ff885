"""Files of ``torch.save`` made without torch, so that tests can make proper ones quickly and improper ones at all."""

import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_STORAGES = {"F32": ("FloatStorage", "f"), "F64": ("DoubleStorage", "d"), "I64": ("LongStorage", "q"), "U8": ("ByteStorage", "B")}


@dataclass(frozen=True)
class Tensor:
    """A contiguous tensor with these numbers, row by row."""

    dtype: str
    shape: tuple[int, ...]
    numbers: tuple[float, ...]

    def data(self) -> bytes:
        letter = _STORAGES[self.dtype][1]
        return struct.pack(f"<{len(self.numbers)}{letter}", *(int(n) if letter in "qB" else n for n in self.numbers))


@dataclass(frozen=True)
class Global:
    """A name, called with arguments: what a pickle executes."""

    module: str
    name: str
    arguments: tuple[object, ...] = ()


@dataclass(frozen=True)
class Named:
    """A name that nothing calls, as a data type is written."""

    module: str
    name: str


@dataclass(frozen=True, eq=False)
class Object:
    """An object that is made without a call, and the state that it is given then."""

    module: str
    name: str
    state: object


def zeros(*shape: int, dtype: str = "F32") -> Tensor:
    count = 1
    for size in shape:
        count *= size
    return Tensor(dtype, shape, (0.0,) * count)


def scalar(number: float) -> Tensor:
    return Tensor("F32", (), (number,))


@dataclass
class _Writer:
    """Emits protocol 2 as torch does, without memo."""

    out: bytearray = field(default_factory=bytearray)
    storages: dict[str, bytes] = field(default_factory=dict)

    def value(self, value: object) -> None:
        match value:
            case None:
                self.out += b"N"
            case bool():
                self.out += b"\x88" if value else b"\x89"
            case int():
                size = (value.bit_length() + 8) // 8
                self.out += b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)
            case float():
                self.out += b"G" + struct.pack(">d", value)
            case str():
                text = value.encode()
                self.out += b"X" + struct.pack("<I", len(text)) + text
            case list():
                self.out += b"]("
                self.many(value)
                self.out += b"e"
            case tuple():
                self.out += b"("
                self.many(value)
                self.out += b"t"
            case dict():
                self.out += b"}("
                self.many([part for pair in value.items() for part in pair])
                self.out += b"u"
            case Tensor():
                self.tensor(value)
            case Global(module, name, arguments):
                self.out += f"c{module}\n{name}\n".encode()
                self.value(arguments)
                self.out += b"R"
            case Named(module, name):
                self.out += f"c{module}\n{name}\n".encode()
            case Object(module, name, state):
                self.out += f"c{module}\n{name}\n)\x81".encode("latin-1")
                self.value(state)
                self.out += b"b"
            case _:
                raise TypeError(type(value))

    def many(self, values: object) -> None:
        assert isinstance(values, list | tuple)
        for value in values:
            self.value(value)

    def tensor(self, tensor: Tensor) -> None:
        key = str(len(self.storages))
        self.storages[key] = tensor.data()
        strides = [1]
        for size in tensor.shape[:0:-1]:
            strides.insert(0, strides[0] * size)
        self.out += b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        self.out += f"ctorch\n{_STORAGES[tensor.dtype][0]}\n".encode()
        self.many([key, "cpu", len(tensor.numbers)])
        self.out += b"tQ"
        self.many([0, tensor.shape, tuple(strides) if tensor.shape else (), False])
        self.value(Global("collections", "OrderedDict"))
        self.out += b"tR"


def pickled(value: object) -> tuple[bytes, dict[str, bytes]]:
    """The pickle of a value and the storages that it refers to."""
    writer = _Writer()
    writer.out += b"\x80\x02"
    writer.value(value)
    writer.out += b"."
    return bytes(writer.out), writer.storages


def torch_file(value: object, **changes: bytes | None) -> bytes:
    """A file of ``torch.save(value)``. ``changes`` replace members by name (``data_pkl``), or leave them out."""
    program, storages = pickled(value)
    members = {"data.pkl": program, "byteorder": b"little", **{f"data/{key}": data for key, data in storages.items()}, "version": b"3\n"}
    for name, content in changes.items():
        members[name.replace("_", ".", 1) if "." not in name else name] = content if content is not None else b""
    return archive({f"archive/{name}": content for name, content in members.items()})


def archive(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def program_file(program: bytes) -> bytes:
    """An archive around a pickle that is given byte by byte."""
    return archive({"archive/data.pkl": program, "archive/byteorder": b"little"})


Change = Callable[[bytes], bytes]
