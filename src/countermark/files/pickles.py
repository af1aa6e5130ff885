"""Files of ``torch.save`` and bare pickles of a checkpoint's metadata, read without unpickling and without torch.

Rules kept here:

1. Nothing is executed. The pickle is a program; this module runs it on a stack of its own whose every value is inert: a global is a name, a
   call is a name beside its arguments, a persistent id is a storage in the archive. No name is ever looked up, no object ever built.
2. Only the operations that torch's own writers emit are known, and only the globals of ``GLOBALS`` and those that a reader of a layout
   adds by their full name. Each other one is named, all of them at once, and the file is refused.
3. The pickle's bytes, its operations, and the dimensions of a tensor are bounded, and every operation costs a bounded time: nothing is
   copied, and what has keys takes text, small numbers and calls only, which are equal to none but themselves.
   A value whose parts are recalled in one another without end is refused, so that whoever walks one comes to an end.
4. Every storage that a tensor names is in the archive, as long as the tensor asks for, and its checksum was verified.
"""

import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias, cast, final

from countermark.files.archive import Member, read_members
from countermark.files.reading import Bytes, ShortRead
from countermark.values import shown
from countermark.weights import DTYPE_BITS
from countermark.weights.refusals import FileDefect, PickleUnreadable

PICKLE_BYTES_MAX: Final = 64 << 20
OPERATIONS_MAX: Final = 4_000_000
DIMENSIONS_MAX: Final = 64
_WHYS_MAX: Final = 20
_NESTING_MAX: Final = 500
#: How much a value may unfold to. What torch writes twice it recalls (keys, sizes), which takes two bytes of the program each time.
_PARTS_FREE: Final = 65_536
_PARTS_PER_BYTE: Final = 16
_TEXT_FREE: Final = 1 << 20
_TEXT_PER_BYTE: Final = 64
_KEY_MAX: Final = 2**32


@final
@dataclass(frozen=True, slots=True)
class Name:
    """A global that the pickle refers to; it is never looked up."""

    text: str


@final
@dataclass(eq=False, slots=True)
class Call:
    """A call that unpickling would have made, beside the state that it would have set."""

    function: Name
    arguments: tuple[object, ...]
    state: object = None


@final
@dataclass(frozen=True, slots=True)
class Storage:
    """Elements of one type in a member of the archive."""

    dtype: str
    key: str
    elements: int


@final
@dataclass(frozen=True, slots=True)
class TensorStub:
    """A tensor by its place: ``shape`` and ``stride`` count elements, from element ``offset`` of its storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class TorchFile:
    """What a file holds: plain values, ``TensorStub``, and ``Call`` for what has no plain form."""

    value: object
    members: Mapping[str, Member]


@final
@dataclass(frozen=True, slots=True)
class PlainPickle:
    """What a bare pickle holds: plain values, and ``Call`` for what has no plain form."""

    value: object


#: Torch's storage classes and the data types of their elements.
_STORAGES: Final = MappingProxyType(
    {
        "torch DoubleStorage": "F64",
        "torch FloatStorage": "F32",
        "torch HalfStorage": "F16",
        "torch BFloat16Storage": "BF16",
        "torch LongStorage": "I64",
        "torch IntStorage": "I32",
        "torch ShortStorage": "I16",
        "torch CharStorage": "I8",
        "torch ByteStorage": "U8",
        "torch BoolStorage": "BOOL",
        "torch ComplexFloatStorage": "C64",
    }
)
_REBUILD: Final = "torch._utils _rebuild_tensor_v2"
#: Every global that may be named in a file: what torch and NumPy write for tensors, dictionaries and generators.
GLOBALS: Final = frozenset(_STORAGES) | {
    _REBUILD,
    "collections OrderedDict",
    "collections Counter",
    "collections defaultdict",
    "__builtin__ set",
    "__builtin__ bytearray",
    "_codecs encode",
    "numpy dtype",
    "numpy ndarray",
    "numpy._core.multiarray _reconstruct",
    "numpy._core.multiarray scalar",
    "numpy.core.multiarray _reconstruct",
    "numpy.core.multiarray scalar",
}


def read_torch_file(opened: Bytes, names: frozenset[str] = frozenset()) -> TorchFile | PickleUnreadable | FileDefect:
    """The value in an open file of ``torch.save``, whose pickle may name these globals beside ``GLOBALS``."""
    try:
        members = read_members(opened)
        if isinstance(members, tuple):
            return PickleUnreadable(opened.name, members[:_WHYS_MAX])
        programs = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(programs) != 1:
            return PickleUnreadable(opened.name, ("it holds no data.pkl",))
        prefix = programs[0].removesuffix("data.pkl")
        program = members[programs[0]]
        if program.size > PICKLE_BYTES_MAX:
            return PickleUnreadable(opened.name, (f"its pickle has {program.size} bytes, more than any checkpoint needs",))
        order = members.get(prefix + "byteorder")
        if order and opened.read(order.begin, min(order.size, 16)) != b"little":
            return PickleUnreadable(opened.name, ("its numbers are not little-endian",))
        inside = {name.removeprefix(prefix): member for name, member in members.items() if name.startswith(prefix)}
        machine = _Machine(_STEPS, GLOBALS | names, inside)
        value = machine.run(opened.read(program.begin, program.size))
    except (OSError, ShortRead) as error:
        return opened.judged(error)
    return PickleUnreadable(opened.name, tuple(machine.whys)) if machine.whys else TorchFile(value, machine.members)


def read_pickle(opened: Bytes, names: frozenset[str]) -> PlainPickle | PickleUnreadable | FileDefect:
    """The value in a file that is one pickle, of any protocol from 2 on, which names these globals and no others."""
    if opened.size > PICKLE_BYTES_MAX:
        return PickleUnreadable(opened.name, (f"its pickle has {opened.size} bytes, more than any checkpoint needs",))
    try:
        program = opened.read(0, opened.size)
    except (OSError, ShortRead) as error:
        return opened.judged(error)
    machine = _Machine(_LATER_STEPS, names, {})
    value = machine.run(program)
    return PickleUnreadable(opened.name, tuple(machine.whys)) if machine.whys else PlainPickle(value)


def scalar(opened: Bytes, file: TorchFile, tensor: TensorStub) -> int | float | None:
    """The one element of a tensor of a plain type, None for any other. Raises as ``OpenFile.read`` does."""
    formats = {"F64": "<d", "F32": "<f", "F16": "<e", "I64": "<q", "I32": "<i", "I16": "<h", "I8": "<b", "U8": "<B", "BOOL": "<?"}
    form = formats.get(tensor.storage.dtype)
    if form is None or any(size != 1 for size in tensor.shape):
        return None
    size = struct.calcsize(form)
    member = file.members[f"data/{tensor.storage.key}"]
    return cast(int | float, struct.unpack(form, opened.read(member.begin + tensor.offset * size, size))[0])


class _Stop(Exception):
    """The program cannot go on; the reason is in ``whys`` already."""


_MARK: Final = object()
_Step: TypeAlias = "Callable[[_Machine, object], None]"


@final
@dataclass(slots=True)
class _Machine:
    """Runs a pickle on inert values."""

    steps: Mapping[str, _Step]
    globals: frozenset[str]
    members: Mapping[str, Member]
    stack: list[object] = field(default_factory=list[object])
    memo: dict[int, object] = field(default_factory=dict[int, object])
    whys: list[str] = field(default_factory=list[str])

    def run(self, program: bytes) -> object:
        """The value on the stack at the end; None, and reasons in ``whys``, where there is none."""
        count = 0
        try:
            for operation, argument, _ in pickletools.genops(program):
                count += 1
                if count > OPERATIONS_MAX:
                    self.stop(f"its pickle has over {OPERATIONS_MAX} operations")
                if operation.name == "STOP":
                    return self.result(len(program))
                step = self.steps.get(operation.name)
                if step is None:
                    self.stop(f"its pickle uses {operation.name}, which torch never writes")
                else:
                    step(self, argument)
        except _Stop:
            return None
        except (ValueError, OverflowError, struct.error, UnicodeError) as error:
            self.say(f"its pickle is damaged ({type(error).__name__})")
        return None

    def result(self, length: int) -> object:
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            self.stop("its pickle ends with more or less than one value")
        if not _unfolds_within(self.stack[0], length):
            self.stop("its values hold one another again and again, or too deep")
        return self.stack[0]

    def say(self, why: str) -> None:
        if why not in self.whys and len(self.whys) < _WHYS_MAX:
            self.whys.append(why)

    def stop(self, why: str) -> None:
        self.say(why)
        raise _Stop

    def pop(self) -> object:
        if not self.stack or self.stack[-1] is _MARK:
            self.stop("its pickle takes a value that is not there")
        return self.stack.pop()

    def top(self) -> object:
        if not self.stack or self.stack[-1] is _MARK:
            self.stop("its pickle takes a value that is not there")
        return self.stack[-1]

    def pop_to_mark(self) -> list[object]:
        items: list[object] = []
        while self.stack and self.stack[-1] is not _MARK:
            items.append(self.stack.pop())
        if not self.stack:
            self.stop("its pickle takes a value that is not there")
        self.stack.pop()
        return items[::-1]

    def set_items(self, pairs: list[object]) -> None:
        target = self.top()
        if not isinstance(target, dict) or len(pairs) % 2:
            self.stop("its pickle sets items of what is no dictionary")
        found = cast(dict[object, object], target)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if (isinstance(key, int) and not 0 <= key < _KEY_MAX) or not isinstance(key, str | int | Call):
                self.stop("its pickle has a dictionary with keys other than text and small numbers")
            found[key] = value

    def append(self, items: list[object]) -> None:
        target = self.top()
        if not isinstance(target, list):
            self.stop("its pickle appends to what is no list")
        cast(list[object], target).extend(items)

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            self.stop("its pickle calls what is no name")
            return
        given = cast(tuple[object, ...], arguments)
        if function.text == _REBUILD:
            self.stack.append(self.tensor(given))
        elif function.text == "collections OrderedDict" and not given:
            self.stack.append(dict[object, object]())
        else:
            self.stack.append(Call(function, given))

    def object_(self) -> None:
        """An object that would have been made without a call of its own; its state follows."""
        arguments, of = self.pop(), self.pop()
        if not isinstance(of, Name) or not isinstance(arguments, tuple):
            self.stop("its pickle makes an object of what is no name")
            return
        self.stack.append(Call(of, cast(tuple[object, ...], arguments)))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        match target:
            case Call():
                target.state = state
            case dict():
                # Torch hangs the versions of its modules on the dictionary that holds their weights.
                pass
            case object():
                self.stop("its pickle sets the state of a plain value")

    def global_(self, text: object) -> None:
        name = str(text)
        if name not in self.globals:
            self.say(f"its pickle names {shown(name)}, which is not executed and not known")
        self.stack.append(Name(name))

    def global_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            self.stop("its pickle takes a value that is not there")
        self.global_(f"{module} {name}")

    def storage(self) -> None:
        match self.pop():
            case ("storage", Name(text), str(key), str(), int(elements)) if text in _STORAGES and elements >= 0:
                dtype = _STORAGES[text]
                member = self.members.get(f"data/{key}")
                if member is None:
                    self.say(f"storage {shown(key)} is not in the archive")
                elif member.size != elements * DTYPE_BITS[dtype] // 8:
                    self.say(f"storage {shown(key)} has {member.size} bytes, not {elements} of {dtype}")
                self.stack.append(Storage(dtype, key, elements))
            case object():
                self.stop("its pickle refers to something else than a storage")

    def tensor(self, arguments: tuple[object, ...]) -> TensorStub | None:
        match arguments[:4]:
            case (Storage() as storage, int(offset), sizes, strides):
                shape, stride = _extents(sizes), _extents(strides)
                if shape is not None and stride is not None and len(shape) == len(stride) and offset >= 0:
                    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
                    if 0 not in shape and last >= storage.elements:
                        self.say(f"a tensor reaches beyond storage {shown(storage.key)}")
                    return TensorStub(storage, offset, shape, stride)
            case tuple():
                pass
        self.stop("its pickle holds a tensor without a place")
        return None

    def get(self, at: object) -> None:
        if at not in self.memo:
            self.stop("its pickle recalls what it has not kept")
        self.stack.append(self.memo[cast(int, at)])

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(items[::-1]))


def _unfolds_within(value: object, length: int) -> bool:
    """Whether whoever walks a value, or writes it out, comes to an end soon: its parts and their text, each counted as often as it is
    reached, are in proportion to a program of this ``length``, and no deeper than Python goes."""
    parts_left = min(_PARTS_FREE + _PARTS_PER_BYTE * length, 4 * OPERATIONS_MAX)
    text_left = _TEXT_FREE + _TEXT_PER_BYTE * length
    walks = [iter((value,))]
    while walks:
        part = next(walks[-1], _MARK)
        if part is _MARK:
            walks.pop()
            continue
        parts_left -= 1
        if isinstance(part, str | bytes):
            text_left -= len(part)
        elif isinstance(part, dict):
            walks.append(chain.from_iterable(cast(dict[object, object], part).items()))
        elif isinstance(part, list | tuple):
            walks.append(iter(cast("list[object]", part)))
        elif isinstance(part, Call):
            walks.append(iter((*part.arguments, part.state)))
        if parts_left < 0 or text_left < 0 or len(walks) > _NESTING_MAX:
            return False
    return True


def _extents(values: object) -> tuple[int, ...] | None:
    """Sizes or strides, or None where they are something else."""
    given = cast(tuple[object, ...], values) if isinstance(values, tuple) else None
    if given is None or len(given) > DIMENSIONS_MAX:
        return None
    extents = tuple(value for value in given if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63)
    return extents if len(extents) == len(given) else None


def _push(machine: _Machine, value: object) -> None:
    machine.stack.append(value)


def _put(machine: _Machine, at: object) -> None:
    machine.memo[cast(int, at)] = machine.top()


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.top()


_STEPS: Final[Mapping[str, _Step]] = MappingProxyType(
    {
        "PROTO": lambda machine, version: None if version == 2 else machine.stop(f"its pickle is of protocol {version}, not 2"),
        "MARK": lambda machine, _: _push(machine, _MARK),
        "NONE": lambda machine, _: _push(machine, None),
        "NEWTRUE": lambda machine, _: _push(machine, True),
        "NEWFALSE": lambda machine, _: _push(machine, False),
        "BININT": _push,
        "BININT1": _push,
        "BININT2": _push,
        "LONG1": _push,
        "LONG4": _push,
        "BINFLOAT": _push,
        "BINUNICODE": _push,
        "EMPTY_LIST": lambda machine, _: _push(machine, list[object]()),
        "EMPTY_DICT": lambda machine, _: _push(machine, dict[object, object]()),
        "EMPTY_TUPLE": lambda machine, _: _push(machine, ()),
        "TUPLE1": lambda machine, _: machine.tuple_of(1),
        "TUPLE2": lambda machine, _: machine.tuple_of(2),
        "TUPLE3": lambda machine, _: machine.tuple_of(3),
        "TUPLE": lambda machine, _: _push(machine, tuple(machine.pop_to_mark())),
        "APPEND": lambda machine, _: machine.append([machine.pop()]),
        "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
        "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
        "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
        "BINPUT": _put,
        "LONG_BINPUT": _put,
        "BINGET": lambda machine, at: machine.get(at),
        "LONG_BINGET": lambda machine, at: machine.get(at),
        "GLOBAL": lambda machine, text: machine.global_(text),
        "REDUCE": lambda machine, _: machine.reduce(),
        "NEWOBJ": lambda machine, _: machine.object_(),
        "BUILD": lambda machine, _: machine.build(),
        "BINPERSID": lambda machine, _: machine.storage(),
    }
)
#: What pickles of the later protocols may do beside that.
_LATER_STEPS: Final[Mapping[str, _Step]] = MappingProxyType(
    {
        **_STEPS,
        "PROTO": lambda machine, version: None if version in {2, 3, 4, 5} else machine.stop(f"its pickle is of protocol {version}"),
        "FRAME": lambda machine, _: None,
        "MEMOIZE": lambda machine, _: _memoize(machine),
        "SHORT_BINUNICODE": _push,
        "STACK_GLOBAL": lambda machine, _: machine.global_on_stack(),
    }
)
