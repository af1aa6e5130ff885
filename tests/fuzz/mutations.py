"""Inputs without a fuzzer: seeded changes of proper ones, for the share of the gate."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Final

from tests.fuzz.targets import Target

_NUMBER: Final = re.compile(rb"[0-9]+")
_WHOLES: Final = (0, 1, 2, 7, 8, 31, 32, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def _flip(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _byte(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))


def _remove(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    at = dice.randrange(len(data))
    del data[at : at + dice.choice((1, 2, 4, 8, 30, len(data)))]


def _repeat(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    begin, end = sorted((dice.randrange(len(data)), dice.randrange(len(data))))
    data[begin:begin] = data[begin:end]


def _splice(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    at = dice.randrange(len(other) + 1)
    data[dice.randrange(len(data)) :] = other[at:]


def _insert(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    at = dice.randrange(len(data) + 1)
    data[at : at + dice.choice((0, 0, len(word)))] = word


def _number(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    found = [match.span() for match in _NUMBER.finditer(data)]
    if found:
        begin, end = dice.choice(found)
        data[begin:end] = str(dice.choice(_WHOLES)).encode()


def _whole(dice: random.Random, data: bytearray, other: bytes, word: bytes) -> None:
    width, at = dice.choice((2, 4, 8)), dice.randrange(len(data))
    data[at : at + width] = (dice.choice(_WHOLES) % (1 << 8 * width)).to_bytes(width, "little")


_CHANGES: Final[tuple[Callable[[random.Random, bytearray, bytes, bytes], None], ...]] = (
    _flip, _byte, _remove, _repeat, _splice, _insert, _number, _whole,
)  # fmt: skip


def mutants(target: Target, count: int, seed: int = 0) -> Iterator[bytes]:
    """Every proper input of a target as it is, then ``count`` changed ones, the same each time."""
    dice = random.Random(f"{target.name} {seed}")
    proper = target.seeds()
    yield from proper
    for _ in range(count):
        data = bytearray(dice.choice(proper))
        for _ in range(dice.choice((1, 1, 2, 4))):
            if data:
                dice.choice(_CHANGES)(dice, data, dice.choice(proper), dice.choice(target.words))
        yield bytes(data)
