"""Digests that were known before a comparison: what they spare, what they may not change, and what is refused where they cannot be true."""

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from countermark.files import comparing, recorded
from countermark.files.comparing import compare
from countermark.files.digest_cache import DigestCache
from countermark.files.opened_weights import OpenedWeights, open_weights
from countermark.files.recorded import Recorded, lines_of, recorded_of
from countermark.values import NonEmpty, Refused, Sha256
from countermark.weights import TensorLine
from countermark.weights.difference import TensorDifference
from countermark.weights.pairing import pair
from countermark.weights.refusals import DigestsContradict, RootLineOfOther
from tests.faults import planted, proven_by
from tests.files.tensors import Tensor, encoded, f32, write

A: Mapping[str, Tensor] = {
    "same": f32(*range(100)),
    "w": f32(*range(100)),
    "cast": ("F32", [2], bytes(8)),
    "grown": f32(1, 2),
    "gone": f32(7),
}
B: Mapping[str, Tensor] = {
    "same": f32(*range(100)),
    "w": f32(*range(60), *range(61, 101)),
    "cast": ("F16", [2], bytes(4)),
    "grown": f32(1, 2, 3),
    "new": f32(8),
}


def opened(folder: Path) -> tuple[OpenedWeights, OpenedWeights]:
    found = tuple(open_weights(write(folder / f"{name}.safetensors", encoded(each))) for name, each in (("a", A), ("b", B)))
    assert isinstance(found[0], OpenedWeights) and isinstance(found[1], OpenedWeights)
    return found[0], found[1]


def digest(tensor: Tensor) -> Sha256:
    return Sha256(hashlib.sha256(tensor[2]).hexdigest())


def digests(side: Mapping[str, Tensor]) -> dict[str, Sha256]:
    return {name: digest(tensor) for name, tensor in side.items()}


def rows(
    sides: tuple[OpenedWeights, OpenedWeights], known: Mapping[str, Sha256], known_b: Mapping[str, Sha256]
) -> dict[str, TensorDifference] | Refused[object]:
    pairing = pair(*(tuple(one.span for one in side.tensors.values()) for side in sides))
    found = compare(*sides, pairing, known=known, known_b=known_b)
    return Refused(found.defects) if isinstance(found, Refused) else {row.name: row for row in found}


def values_are_taken_from_the_digests() -> AbstractContextManager[object]:
    """Where both digests are known, the bytes are not looked at."""
    real = comparing._same_type

    def believing(a: object, b: object, raw: bool, known: comparing.Known, job: object) -> object:
        if known.a is not None and known.a == known.b:
            return None, known.a, known.a
        return real(a, b, raw, comparing.Known(), job)  # type: ignore[arg-type]

    return planted(comparing, "_same_type", believing)()


@proven_by(values_are_taken_from_the_digests)
def test_whatever_is_known_gives_the_same_rows_and_is_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "BLOCK_ELEMENTS", 16)
    taken = 0
    real = hashlib.sha256

    def counting(*args: bytes) -> object:
        nonlocal taken
        taken += 1
        return real(*args)

    left, right = opened(tmp_path)
    with left, right:
        plain = rows((left, right), {}, {})
        monkeypatch.setattr(comparing.hashlib, "sha256", counting)
        # A pair's hash is one while its tensors are equal, and that of B is a copy from the first difference on.
        for known, known_b, hashes in (({}, {}, 8), (digests(A), {}, 4), ({}, digests(B), 4), (digests(A), digests(B), 0)):
            taken = 0
            assert rows((left, right), known, known_b) == plain
            assert (taken, len(known), len(known_b)) == (hashes, len(known), len(known_b))
        wrong = Sha256("f" * 64)
        assert rows((left, right), {"same": wrong}, {"same": digest(B["same"])}) == Refused(NonEmpty(DigestsContradict("same")))
        for of in (({"w": wrong}, {"w": wrong}), ({"w": digest(B["w"])}, {}), ({}, {"w": digest(A["w"])})):
            assert rows((left, right), *of) == Refused(NonEmpty(DigestsContradict("w")))


def everything_spreads() -> AbstractContextManager[object]:
    """What a side has from the other is kept as if it were measured."""

    def keep(self: Recorded, left: OpenedWeights, right: OpenedWeights, cache: DigestCache, found: tuple[TensorDifference, ...]) -> None:
        recorded.keep_digests(left, cache, [(row.a.name, row.a.sha256) for row in found if row.a is not None])
        recorded.keep_digests(right, cache, [(row.b.name, row.b.sha256) for row in found if row.b is not None])

    return planted(Recorded, "keep", keep)()


@proven_by(everything_spreads)
def test_only_what_was_measured_is_kept(tmp_path: Path) -> None:
    left, right = opened(tmp_path)
    with left, right:

        def kept(known: Recorded) -> list[set[str]]:
            cache = DigestCache(tmp_path / f"cache-{len(list(tmp_path.iterdir()))}", now_ns=lambda: 2**62)
            found = rows((left, right), known.a, known.b)
            assert not isinstance(found, Refused)
            known.keep(left, right, cache, tuple(found.values()))
            again = recorded_of(left, right, cache, None)
            assert isinstance(again, Recorded)
            assert all(again.a[name] == digests(A)[name] for name in again.a) and not cache.warnings
            return [set(again.a), set(again.b)]

        assert kept(Recorded({}, {}, claimed=False)) == [set(A), set(B)]
        assert kept(Recorded(digests(A), {}, claimed=False)) == [set(), set(B) - {"same"}]
        assert kept(Recorded({}, digests(B), claimed=False)) == [set(A) - {"same"}, set()]
        assert kept(Recorded(digests(A), {}, claimed=True)) == [set(), set()]


def first_line_only() -> AbstractContextManager[object]:
    real = recorded.lines_of

    def first(side: OpenedWeights, lines: list[TensorLine]) -> object:
        found = real(side, lines)
        return Refused(NonEmpty(found.defects.first)) if isinstance(found, Refused) else found

    return planted(recorded, "lines_of", first)()


@proven_by(first_line_only)
def test_lines_of_other_weights_are_refused_with_every_difference(tmp_path: Path) -> None:
    lines = [TensorLine(name, tensor[0], tuple(tensor[1]), digest(tensor)) for name, tensor in A.items()]
    left, right = opened(tmp_path)
    with left, right:
        nothing = DigestCache(None)
        assert recorded_of(left, right, nothing, lines) == Recorded(digests(A), {}, claimed=True)
        assert recorded_of(left, right, nothing, None) == Recorded({}, {}, claimed=False)
        assert recorded.lines_of(right, lines) == Refused(
            NonEmpty(
                RootLineOfOther("cast", "F32 [2]", "F16 [2]"),
                (
                    RootLineOfOther("gone", "F32 [1]", ""),
                    RootLineOfOther("grown", "F32 [2]", "F32 [3]"),
                    RootLineOfOther("new", "", "F32 [1]"),
                ),
            )
        )
        assert lines_of(left, lines) == digests(A)


def test_lines_that_say_otherwise_than_what_was_measured_are_refused(tmp_path: Path) -> None:
    lines = [TensorLine(name, tensor[0], tuple(tensor[1]), digest(tensor)) for name, tensor in A.items()]
    left, right = opened(tmp_path)
    with left, right:
        cache = DigestCache(tmp_path / "cache", now_ns=lambda: 2**62)
        recorded.keep_digests(left, cache, [("w", Sha256("e" * 64)), ("gone", Sha256("e" * 64)), ("same", digest(A["same"]))])
        assert recorded_of(left, right, cache, lines) == Refused(NonEmpty(DigestsContradict("w"), (DigestsContradict("gone"),)))
