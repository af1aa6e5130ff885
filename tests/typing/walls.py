"""Illegal lines: each must stay an error of mypy's, for the reason that its comment names.

This module is never run. ``tests/typing/test_walls.py`` runs strict mypy over it: an ignore that became unnecessary is a wall that fell,
and a wall that errs for another reason than the named one is reported too. Add walls to the room that they protect, one line each.
"""

from dataclasses import replace
from decimal import Decimal

from countermark.values import (
    FilesDigest,
    NonEmpty,
    NonNegativeDecimal,
    PerMille,
    PositiveDecimal,
    PositiveInt,
    Principal,
    Refused,
    Sha256,
    Unreadable,
    WeightsRoot,
)


def wants_sha256(digest: Sha256) -> None: ...


def wants_positive(number: PositiveInt) -> None: ...


def wants_principal(principal: Principal) -> None: ...


# ------------------------------------------------------------------------------------------------------------ values


def digests_do_not_mix(text: str, root: WeightsRoot, files: FilesDigest, digest: Sha256) -> None:
    wants_sha256(digest)
    wants_sha256(text)  # type: ignore[arg-type]
    wants_sha256(root)  # type: ignore[arg-type]
    wants_sha256(files)  # type: ignore[arg-type]
    print(root == digest)  # type: ignore[comparison-overlap]
    print(digest == text)  # type: ignore[comparison-overlap]


def what_was_read_may_be_unreadable(raw: object) -> None:
    wants_sha256(Sha256.read(raw))  # type: ignore[arg-type]
    print(PositiveInt.read(raw).number)  # type: ignore[union-attr]
    wants_principal(raw)  # type: ignore[arg-type]


def numbers_do_not_mix(number: int, anything: NonNegativeDecimal, share: PerMille) -> None:
    wants_positive(number)  # type: ignore[arg-type]
    wants_positive(share)  # type: ignore[arg-type]
    positive: PositiveDecimal = anything  # type: ignore[assignment]
    print(positive, NonNegativeDecimal(0.1))  # type: ignore[arg-type]
    print(anything + Decimal(1))  # type: ignore[operator]


def values_do_not_change(digest: Sha256) -> None:
    digest.hex = "0" * 64  # type: ignore[misc]
    digest.note = "mine"  # type: ignore[attr-defined]
    print(replace(digest, hex=0))  # type: ignore[arg-type]


def a_refusal_has_a_defect(defects: tuple[str, ...], refused: Refused[str]) -> None:
    print(Refused())  # type: ignore[call-arg]
    print(Refused(defects))  # type: ignore[arg-type]
    print(NonEmpty())  # type: ignore[call-arg]
    print(Refused(NonEmpty.of(defects)))  # type: ignore[arg-type]
    if refused:  # type: ignore[truthy-bool]
        print("always")


def a_sum_is_taken_apart_completely(answer: Refused[str] | Unreadable | Sha256) -> str:
    match answer:  # type: ignore[exhaustive-match]
        case Refused():
            return "refused"
        case Sha256():
            return "read"
    return "an arm was forgotten"


class Wider(Sha256):  # type: ignore[misc]
    """A value's type is final: a subclass could spell itself otherwise."""
