"""Stamps: which weights a number came from, and how well that is known.

Rules kept here:

1. How well a stamp is known is two facts. ``ran`` is ordered: asserted < measured_before < measured_around < computed_in_arm. ``origin``
   says whether a chain of roots leads from the digest to an admitted run or session.
2. A stamp rises only by a digest that was computed anew: after the run by whoever measured before, or by the arm over what it loaded.
   Another digest is never taken over in silence: it is refused with both.
3. Two digests of unlike kinds say nothing of each other. Where both sides say how their weights were loaded, that decides.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, final, get_args

from countermark.values import CompositionDigest, FilesDigest, NonEmpty, Refused, Sha256, Unreadable, WeightsRoot

StampDigest: TypeAlias = WeightsRoot | CompositionDigest | FilesDigest | Sha256
Ran: TypeAlias = Literal["asserted", "measured_before", "measured_around", "computed_in_arm"]
Origin: TypeAlias = Literal["unknown", "derived"]
Sameness: TypeAlias = Literal["same", "different", "cannot_tell"]

#: The levels, from the weakest to the strongest.
RAN: Final[tuple[Ran, ...]] = get_args(Ran)
ORIGINS: Final[tuple[Origin, ...]] = get_args(Origin)
KINDS: Final[tuple[type[StampDigest], ...]] = get_args(StampDigest)
_BARE: Final = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class Stamp:
    """The digest of the weights that ran. A bare 64-hex digest is a ``Sha256``: what it covers, its giver knows. ``composition`` says how
    the weights were loaded, where that is known and is not the digest itself."""

    digest: StampDigest
    ran: Ran = "asserted"
    origin: Origin = "unknown"
    composition: CompositionDigest | None = None

    def __post_init__(self) -> None:
        if self.ran not in RAN or self.origin not in ORIGINS:
            raise ValueError("a stamp has one of the known levels")
        if self.composition is not None and not isinstance(self.digest, WeightsRoot):
            raise ValueError("a composition stands beside a weights root alone")

    @property
    def kind(self) -> str:
        """The family of the digest: ``wr1``, ``mc1``, ``fd1``, or ``sha256`` for one that was given bare."""
        return self.digest.family

    @property
    def loaded(self) -> CompositionDigest | None:
        """What ran as it was loaded, where that is known."""
        return self.digest if isinstance(self.digest, CompositionDigest) else self.composition


@final
@dataclass(frozen=True, slots=True)
class WeightsChanged:
    """The weights at a path were one digest and then another, while an arm ran."""

    before: str
    after: str


@final
@dataclass(frozen=True, slots=True)
class StampContradicted:
    """The arm hashed what it loaded, and it is not what its stamp says."""

    stamp: str
    computed: str


@final
@dataclass(frozen=True, slots=True)
class StampIncomparable:
    """A digest of another kind than the stamp's was to confirm it."""

    stamp: str
    other: str


StampDefect = WeightsChanged | StampContradicted | StampIncomparable


def read_digest(raw: object) -> StampDigest | Unreadable:
    """A digest from its spelling; 64 bare hexadecimal digits are taken as given, lower-cased."""
    if not isinstance(raw, str):
        return Unreadable("a digest is text")
    if _BARE.fullmatch(raw):
        return Sha256(raw.lower())
    for kind in KINDS:
        if raw.startswith(kind.family + ":"):
            return kind.read(raw)
    return Unreadable(f"a digest is 64 hexadecimal digits, alone or after one of {', '.join(kind.family + ':' for kind in KINDS)}")


def asserted(raw: object) -> Stamp | Unreadable:
    """The stamp that a given digest makes: somebody says so."""
    digest = read_digest(raw)
    return digest if isinstance(digest, Unreadable) else Stamp(digest)


def at_least(one: Ran, other: Ran) -> bool:
    """Whether the first level is as strong as the second."""
    return RAN.index(one) >= RAN.index(other)


def measured_again(stamp: Stamp, after: StampDigest) -> Stamp | Refused[StampDefect]:
    """A stamp that was measured before the run, with what was measured after it."""
    if stamp.ran == "asserted":
        raise ValueError("a digest that was never measured is not measured again")
    if type(after) is not type(stamp.digest):
        return Refused(NonEmpty(StampIncomparable(stamp.digest.spell(), after.spell())))
    if after != stamp.digest:
        return Refused(NonEmpty(WeightsChanged(stamp.digest.spell(), after.spell())))
    return _raised(stamp, "measured_around")


def computed_in_arm(stamp: Stamp, computed: StampDigest) -> Stamp | Refused[StampDefect]:
    """A stamp with what the arm computed over the weights that it had loaded. Repeating a digest that it was given computes nothing, and
    has no way here: only the SDK, which hashes, makes such a reading."""
    held = stamp.loaded if isinstance(computed, CompositionDigest) and stamp.loaded is not None else stamp.digest
    if type(computed) is not type(held):
        return Refused(NonEmpty(StampIncomparable(held.spell(), computed.spell())))
    if computed != held:
        return Refused(NonEmpty(StampContradicted(held.spell(), computed.spell())))
    return _raised(stamp, "computed_in_arm")


def _raised(stamp: Stamp, ran: Ran) -> Stamp:
    return stamp if at_least(stamp.ran, ran) else replace(stamp, ran=ran)


def sameness(a: Stamp, b: Stamp) -> Sameness:
    """Whether two stamps are of the same weights, as far as their digests say."""
    if a.loaded is not None and b.loaded is not None:
        return "same" if a.loaded == b.loaded else "different"
    if type(a.digest) is not type(b.digest):
        return "cannot_tell"
    return "same" if a.digest == b.digest else "different"
