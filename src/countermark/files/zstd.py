"""Zstandard frames (RFC 8878), decompressed without a library: small ones, like the index of a database.

Rules kept here:

1. What comes out is never more than the caller allows, whatever the frame says, and is checked before it is made.
2. Whatever the bytes are, the answer is the content or ``DamagedFrame``. Dictionaries are not known.
3. A frame ends where its bytes end: what follows is damage. A checksum of the content (xxHash) is passed over, not verified; whoever stores
   a frame verifies its bytes by a checksum of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BLOCK_MAX: Final = 128 << 10
#: What a code of a length of literals, and of a match, begins at, and how many bits of the length follow.
_LITERALS: Final = tuple((code, 0) for code in range(16)) + tuple(
    zip((16, 18, 20, 22, 24, 28, 32, 40, 48, *(1 << at for at in range(6, 17))), (1, 1, 1, 1, 2, 2, 3, 3, 4, *range(6, 17)), strict=True)
)
_MATCHES: Final = tuple((code + 3, 0) for code in range(32)) + tuple(
    zip(
        (35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, *(3 + (1 << at) for at in range(7, 17))),
        (1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17)),
        strict=True,
    )
)
_OFFSETS: Final = tuple((1 << code, code) for code in range(32))


class DamagedFrame(Exception):
    """The bytes are no frame of Zstandard, or one of more than is allowed."""


def decompress(frame: bytes, size_max: int) -> bytes:
    """The content of one frame. Raises ``DamagedFrame``."""
    try:
        return _Frame(frame, size_max).content()
    except IndexError:
        raise DamagedFrame("it ends too early") from None


@final
@dataclass(frozen=True, slots=True)
class _Table:
    """A table of finite state entropy: for each state its symbol, the bits to read, and what they are added to."""

    log: int
    entries: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, chances: Sequence[int], log: int) -> "_Table":
        size = 1 << log
        symbols, high = [0] * size, size
        counts = [abs(chance) for chance in chances]
        for symbol, chance in enumerate(chances):
            if chance < 0:
                high -= 1
                symbols[high] = symbol
        at, step = 0, (size >> 1) + (size >> 3) + 3
        for symbol, chance in enumerate(chances):
            for _ in range(max(0, chance)):
                symbols[at] = symbol
                at = (at + step) & (size - 1)
                while at >= high:
                    at = (at + step) & (size - 1)
        entries: list[tuple[int, int, int]] = []
        for symbol in symbols:
            bits = log - counts[symbol].bit_length() + 1
            entries.append((symbol, bits, (counts[symbol] << bits) - size))
            counts[symbol] += 1
        return cls(log, tuple(entries))


def _flat(chances: str, log: int) -> _Table:
    return _Table.of(tuple(-1 if chance == "-" else int(chance) for chance in chances), log)


_DEFAULTS: Final = (
    _flat("432222222222211122222222232111" + "11----", 6),
    _flat("11111122211111111111111" + "1-----", 5),
    _flat("1432222221111111111111111111111111111111111111" + "-------", 6),
)
_CODES: Final = (_LITERALS, _OFFSETS, _MATCHES)
_LOGS_MAX: Final = (9, 8, 9)


@final
class _Backward:
    """Bits that are read from the end of some bytes, whose last one is marked by a 1 above them."""

    def __init__(self, content: bytes) -> None:
        if not content or not content[-1]:
            raise DamagedFrame("its bits have no end")
        self.content = content
        self.left = 8 * len(content) - 9 + content[-1].bit_length()

    def read(self, bits: int) -> int:
        self.left -= bits
        if self.left < 0:
            raise DamagedFrame("its bits end too early")
        begin = self.left >> 3
        return (int.from_bytes(self.content[begin : begin + 9], "little") >> (self.left & 7)) & ((1 << bits) - 1)

    def peek(self, bits: int) -> int:
        """The next bits, as if zeros stood where there are none left."""
        missing = max(0, bits - self.left)
        begin = (self.left - bits + missing) >> 3
        known = int.from_bytes(self.content[begin : begin + 9], "little") >> ((self.left - bits + missing) & 7)
        return (known & ((1 << (bits - missing)) - 1)) << missing


@final
@dataclass(frozen=True, slots=True)
class _Huffman:
    """For each value of the next ``log`` bits the symbol that they begin with, and how many of them it takes."""

    log: int
    entries: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, weights: list[int]) -> "_Huffman":
        total = sum(1 << weight >> 1 for weight in weights)
        log = total.bit_length()
        rest = (1 << log) - total
        if not total or log > 11 or rest & (rest - 1) or len(weights) > 255:
            raise DamagedFrame("its codes are none of Huffman's")
        weights = [*weights, rest.bit_length()]
        entries: list[tuple[int, int]] = []
        for weight in range(1, log + 1):
            for symbol, one in enumerate(weights):
                if one == weight:
                    entries.extend([(symbol, log + 1 - weight)] * (1 << weight >> 1))
        return cls(log, tuple(entries))

    def decode(self, content: bytes, size: int) -> bytes:
        bits, out = _Backward(content), bytearray()
        for _ in range(size):
            symbol, taken = self.entries[bits.peek(self.log)]
            bits.read(taken)
            out.append(symbol)
        if bits.left:
            raise DamagedFrame("bits follow its literals")
        return bytes(out)


@final
class _Frame:
    """A frame while it is read from its beginning."""

    def __init__(self, frame: bytes, size_max: int) -> None:
        self.frame, self.at, self.size_max = frame, 0, size_max
        self.out = bytearray()
        self.huffman: _Huffman | None = None
        self.tables: list[_Table | None] = [None, None, None]
        self.recent = [1, 4, 8]

    def take(self, size: int) -> bytes:
        if size > len(self.frame) - self.at:
            raise DamagedFrame("it ends too early")
        self.at += size
        return self.frame[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def content(self) -> bytes:
        if self.take(4) != MAGIC:
            raise DamagedFrame("it is no frame of Zstandard")
        flags = self.number(1)
        single = flags >> 5 & 1
        if flags & 0x08 or flags & 3:
            raise DamagedFrame("it needs a dictionary")
        self.take(0 if single else 1)
        width = (single, 2, 4, 8)[flags >> 6]
        size = self.number(width) + (256 if width == 2 else 0) if width else None
        if size is not None and size > self.size_max:
            raise DamagedFrame(f"it holds {size} bytes, more than is read")
        last = 0
        while not last:
            header = self.number(3)
            last = header & 1
            self.block(header >> 1 & 3, header >> 3)
        self.take(4 if flags & 4 else 0)
        if self.at != len(self.frame) or size not in (None, len(self.out)):
            raise DamagedFrame("it does not hold what it says")
        return bytes(self.out)

    def block(self, kind: int, size: int) -> None:
        if size > _BLOCK_MAX or kind == 3:
            raise DamagedFrame("it has a block that is none")
        if kind == 2:
            _Block(self, self.take(size)).run()
        else:
            self.add(self.take(size) if kind == 0 else self.take(1) * size)

    def add(self, content: bytes | bytearray) -> None:
        if len(self.out) + len(content) > self.size_max:
            raise DamagedFrame("it holds more than is read")
        self.out += content

    def repeat(self, offset: int, size: int) -> None:
        if not 0 < offset <= len(self.out):
            raise DamagedFrame("it repeats what was not there")
        source = self.out[-offset:]
        if size > offset:
            source *= -(-size // offset) if size <= self.size_max else 1
        self.add(source[:size])
        if len(source) < size:
            raise DamagedFrame("it holds more than is read")

    def offset(self, value: int, without_literals: bool) -> int:
        """The offset that a value stands for: one of the last three, or a new one."""
        recent = self.recent
        if value > 3:
            self.recent = [value - 3, recent[0], recent[1]]
            return value - 3
        at = value - 1 + without_literals
        found = recent[at] if at < 3 else recent[0] - 1
        if at:
            self.recent = [found, recent[0], recent[2] if at == 1 else recent[1]]
        return found


@final
class _Block:
    """A compressed block: literals, and the sequences that lay them out with repetitions."""

    def __init__(self, frame: _Frame, content: bytes) -> None:
        self.frame, self.content, self.at = frame, content, 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.content) - self.at:
            raise DamagedFrame("a block ends too early")
        self.at += size
        return self.content[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def run(self) -> None:
        literals = self.literals()
        count = self.number(1)
        if count >= 128:
            count = self.number(2) + 0x7F00 if count == 255 else ((count - 128) << 8) + self.number(1)
        if not count:
            if self.at != len(self.content):
                raise DamagedFrame("bytes follow its literals")
            self.frame.add(literals)
            return
        modes = self.number(1)
        if modes & 3:
            raise DamagedFrame("it has sequences of no known kind")
        tables = [self.table(at, modes >> (6 - 2 * at) & 3) for at in range(3)]
        self.sequences(literals, count, tables, _Backward(self.take(len(self.content) - self.at)))

    def sequences(self, literals: bytes, count: int, tables: list[_Table], bits: _Backward) -> None:
        states = [bits.read(table.log) for table in tables]
        used = 0
        for left in range(count - 1, -1, -1):
            found = [table.entries[state] for table, state in zip(tables, states, strict=True)]
            (length, length_bits), (offset, offset_bits), (match, match_bits) = (
                codes[entry[0]] for codes, entry in zip(_CODES, found, strict=True)
            )
            offset += bits.read(offset_bits)
            match += bits.read(match_bits)
            length += bits.read(length_bits)
            if left:
                # The states move on in this order: of literals, of matches, of offsets.
                for at in (0, 2, 1):
                    states[at] = found[at][2] + bits.read(found[at][1])
            if length > len(literals) - used:
                raise DamagedFrame("it lays out literals that it has not")
            self.frame.add(literals[used : used + length])
            used += length
            self.frame.repeat(self.frame.offset(offset, not length), match)
        if bits.left:
            raise DamagedFrame("bits follow its sequences")
        self.frame.add(literals[used:])

    def literals(self) -> bytes:
        first = self.number(1)
        kind, form = first & 3, first >> 2 & 3
        if kind < 2:
            wide = (0, 1, 0, 2)[form]
            size = (first | self.number(wide) << 8) >> (4 if form & 1 else 3)
            self.bounded(size)
            return self.take(size) if kind == 0 else self.take(1) * size
        wide, bits = ((2, 10), (2, 10), (3, 14), (4, 18))[form]
        header = first | self.number(wide) << 8
        size, packed = header >> 4 & ((1 << bits) - 1), header >> (4 + bits)
        self.bounded(size)
        content = self.take(packed)
        if kind == 2:
            self.frame.huffman, taken = _weighted(content)
            content = content[taken:]
        huffman = self.frame.huffman
        if huffman is None:
            raise DamagedFrame("it uses codes that it has not")
        if not form:
            return huffman.decode(content, size)
        ends = [int.from_bytes(content[at : at + 2], "little") for at in (0, 2, 4)]
        begins = [6, 6 + ends[0], 6 + ends[0] + ends[1], 6 + sum(ends), len(content)]
        part = (size + 3) // 4
        sizes = [part, part, part, size - 3 * part]
        if begins[3] > begins[4] or sizes[3] < 0:
            raise DamagedFrame("its literals lie in no four parts")
        return b"".join(huffman.decode(content[begins[at] : begins[at + 1]], sizes[at]) for at in range(4))

    def bounded(self, size: int) -> None:
        if size > _BLOCK_MAX:
            raise DamagedFrame("it has more literals than a block may")

    def table(self, at: int, mode: int) -> _Table:
        """The table of one kind of codes: of literals' lengths, of offsets, of matches' lengths."""
        if mode == 3:
            found = self.frame.tables[at]
            if found is None:
                raise DamagedFrame("it uses a table that it has not")
        elif mode == 0:
            found = _DEFAULTS[at]
        elif mode == 1:
            found = _Table(0, ((self.number(1), 0, 0),))
        else:
            found, taken = _described(self.content[self.at :], _LOGS_MAX[at], len(_CODES[at]))
            self.take(taken)
        if any(symbol >= len(_CODES[at]) for symbol, _, _ in found.entries):
            raise DamagedFrame("it has codes of no known length")
        self.frame.tables[at] = found
        return found


def _described(content: bytes, log_max: int, symbols_max: int) -> tuple[_Table, int]:
    """A table as it is described at the beginning of some bytes, and how many of them that takes."""
    number = int.from_bytes(content[:512], "little")
    log, at = (number & 15) + 5, 4
    if log > log_max:
        raise DamagedFrame("a table of it is too large")
    chances: list[int] = []
    rest = 1 << log
    while rest > 0 and len(chances) < symbols_max:
        bits = (rest + 1).bit_length()
        value = number >> at & ((1 << bits) - 1)
        half, threshold = (1 << (bits - 1)) - 1, (1 << bits) - 2 - rest
        at += bits
        if value & half < threshold:
            at, value = at - 1, value & half
        elif value > half:
            value -= threshold
        chances.append(value - 1)
        rest -= abs(value - 1)
        more = 3 if not value - 1 else 0
        while more == 3:
            more = number >> at & 3
            at += 2
            chances.extend([0] * more)
    if rest or len(chances) > symbols_max or (at + 7) // 8 > len(content):
        raise DamagedFrame("a table of it is none")
    return _Table.of(chances, log), (at + 7) // 8


def _weighted(content: bytes) -> tuple[_Huffman, int]:
    """The codes that a block's literals begin with, and how many bytes they take."""
    first = content[0]
    if first >= 128:
        count = first - 127
        taken = 1 + (count + 1) // 2
        weights = [half for byte in content[1:taken] for half in (byte >> 4, byte & 15)][:count]
    else:
        taken = 1 + first
        table, begin = _described(content[1:taken], 6, 16)
        weights = _interleaved(table, _Backward(content[1 + begin : taken]))
    if taken > len(content) or any(weight > 11 for weight in weights):
        raise DamagedFrame("its codes are none of Huffman's")
    return _Huffman.of(weights), taken


def _interleaved(table: _Table, bits: _Backward) -> list[int]:
    """Weights that two states take turns to tell, until the bits of one are used up: the other then tells the last."""
    states = [bits.read(table.log), bits.read(table.log)]
    weights: list[int] = []
    turn = 0
    while len(weights) < 256:
        symbol, wanted, base = table.entries[states[turn]]
        weights.append(symbol)
        if bits.left < wanted:
            weights.append(table.entries[states[1 - turn]][0])
            break
        states[turn] = base + bits.read(wanted)
        turn = 1 - turn
    return weights
