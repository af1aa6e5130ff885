"""Whether a digest that somebody has is that of what lies here.

Rules kept here:

1. Digests of one kind are the same or different. Of unlike kinds nobody can tell: a weights root and a file's hash are never *different*.
2. Bare digits are of an unknown kind. Where they are those of any digest that was measured, they are the same; else nobody can tell.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias, final

from countermark.values import CompositionDigest, Digest, FilesDigest, Sha256, Unreadable, WeightsRoot

Sameness: TypeAlias = Literal["same", "different", "cannot tell"]
_BARE: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class BareDigest(Digest):
    """64 hexadecimal digits of which nobody said what they are of."""

    family: ClassVar[str] = ""

    def spell(self) -> str:
        return self.hex


@final
@dataclass(frozen=True, slots=True)
class DigestDiffers:
    """What lies here has another digest of the kind that was said."""

    said: str
    found: str


@final
@dataclass(frozen=True, slots=True)
class DigestIncomparable:
    """The digest that was said is of a kind that was not measured here, or of an unknown one; ``found`` is what was measured."""

    said: str
    found: tuple[str, ...]


SamenessDefect = DigestDiffers | DigestIncomparable


def read_any_digest(text: str) -> Digest | Unreadable:
    """A digest of any kind, as a person has it. Bare digits may be written in capitals, as some tools print them."""
    if _BARE.fullmatch(text):
        return BareDigest(text.lower())
    for kind in (WeightsRoot, FilesDigest, CompositionDigest, Sha256):
        if text.startswith(f"{kind.family}:"):
            return kind.read(text)
    return Unreadable("a digest is 64 hexadecimal digits, with wr1:, fd1:, mc1: or sha256: before them where its kind is known")


def sameness(said: Digest, found: Iterable[Digest]) -> Sameness:
    """Whether what was said is what was found."""
    measured = tuple(found)
    if said in measured or (isinstance(said, BareDigest) and any(one.hex == said.hex for one in measured)):
        return "same"
    return "different" if any(type(one) is type(said) for one in measured) else "cannot tell"


def sameness_defect(said: Digest, found: Iterable[Digest]) -> SamenessDefect | None:
    """Why what was said is not known to be what was found; None: it is."""
    measured = tuple(found)
    match sameness(said, measured):
        case "same":
            return None
        case "different":
            return DigestDiffers(said.spell(), next(one.spell() for one in measured if type(one) is type(said)))
        case "cannot tell":
            return DigestIncomparable(said.spell(), tuple(one.spell() for one in measured))
