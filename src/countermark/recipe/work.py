"""The Work key: the identity of one computation under an accounting principal.

Rules kept here:

1. ``derive_work_key`` is the only authority, and nothing stores its result as truth. The contract descends from a resolution.
2. The digest covers a domain tag with a version, the requirements, then each coordinate's name and spelling in name order, all length-
   prefixed: no two sequences of texts share their bytes.
3. Equality includes the principal, which is not part of the digest.
"""

import hashlib
from dataclasses import InitVar, dataclass
from typing import Final, Literal, Self, final

from countermark.recipe.canonical import length_prefixed
from countermark.recipe.manifest import Manifest, spellings
from countermark.recipe.resolve import Resolution
from countermark.values import Principal, Sha256, Unreadable

_SEAL: Final = object()
DOMAIN: Final = "countermark/work/1"
_FAMILY: Final = "wk1:"


@final
@dataclass(frozen=True, slots=True)
class WorkKey:
    """One computation under the account that it is counted for. ``spell`` is the digest half alone; equality takes both."""

    principal: Principal
    digest: Sha256

    @classmethod
    def read(cls, principal: object, key: object) -> Self | Unreadable:
        """A key from an account's name and ``wk1:`` with 64 hexadecimal digits."""
        account = Principal.read(principal)
        if isinstance(account, Unreadable):
            return account
        if not isinstance(key, str) or not key.startswith(_FAMILY):
            return Unreadable(f"a Work key begins with {_FAMILY}")
        digest = Sha256.read("sha256:" + key.removeprefix(_FAMILY))
        if isinstance(digest, Unreadable):
            return Unreadable(f"{_FAMILY} must be followed by 64 lower-case hexadecimal digits")
        return cls(account, digest)

    def spell(self) -> str:
        return _FAMILY + self.digest.hex

    def __str__(self) -> str:
        return self.spell()


@final
@dataclass(frozen=True, slots=True)
class Requirements:
    """What the work must bring forth; closed."""

    produces: Literal["adapter"] = "adapter"

    def __post_init__(self) -> None:
        if self.produces != "adapter":
            raise ValueError("a work produces an adapter")

    @classmethod
    def read(cls, raw: object) -> Self | Unreadable:
        """Requirements from their spelling."""
        return cls() if raw == cls().spell() else Unreadable(f"the only requirements are {cls().spell()}")

    def spell(self) -> str:
        return f"produces={self.produces}"


@final
@dataclass(frozen=True, slots=True)
class Contract:
    """The manifest of a resolution, to be hashed; minted by ``contract_of`` alone."""

    manifest: Manifest
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a contract descends from a resolution")


def contract_of(resolution: Resolution) -> Contract:
    """The contract that a resolution stands for."""
    return Contract(resolution.manifest, _SEAL)


def key_rows(manifest: Manifest) -> tuple[tuple[str, str], ...]:
    """The coordinates' part of the material: name and spelling, in name order."""
    return tuple(sorted(spellings(manifest).items()))


def key_material(manifest: Manifest, requirements: Requirements) -> tuple[tuple[str, str], ...]:
    """What the digest covers, in its order: pairs of name and text."""
    return (("domain", DOMAIN), ("requirements", requirements.spell()), *key_rows(manifest))


def bytes_of_material(material: tuple[tuple[str, str], ...]) -> bytes:
    """The length-prefixed names and texts, in order: what the digest is taken of, here or in a database."""
    return length_prefixed(*(part.encode(errors="surrogatepass") for row in material for part in row))


def digest_of_material(material: tuple[tuple[str, str], ...]) -> Sha256:
    """SHA-256 over the material's bytes."""
    return Sha256(hashlib.sha256(bytes_of_material(material)).hexdigest())


def derive_work_key(principal: Principal, contract: Contract, requirements: Requirements) -> WorkKey:
    """The Work key of a contract under an account."""
    return WorkKey(principal, digest_of_material(key_material(contract.manifest, requirements)))
