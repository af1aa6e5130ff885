"""Canonical bytes: RFC 8785 JSON, length-prefixed parts, and the content hashes that three coordinates consist of.

Rules kept here:

1. Equal JSON values give equal bytes (RFC 8785: keys sorted by UTF-16 code units, numbers as ECMAScript prints them); what has no such form
   (NaN, infinities, integers that no double prints as, lone surrogates, keys that are no text) raises ``ValueError`` with the reason.
2. Parts are joined with their lengths in front, so no two sequences of parts share their bytes.
3. Nesting is bounded, so hostile documents raise ``ValueError`` and never exhaust the stack.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Final, TypeAlias, cast

from countermark.values import Sha256, WeightsRoot

DEPTH_MAX: Final = 128
_SAFE_INTEGER_MAX: Final = 2**53 - 1
#: Keys of a model's configuration that say where it came from or who wrote it, and not what it is.
CONFIG_KEYS_APART: Final = frozenset({"_name_or_path", "transformers_version"})

_Table: TypeAlias = Mapping[object, object]
_Items: TypeAlias = Sequence[object]


def canonical_json(value: object) -> bytes:
    """The RFC 8785 bytes of a JSON value (dict, list, tuple, str, int, float, bool, None). Raises ``ValueError`` for anything else."""
    parts: list[str] = []
    _write(value, parts, 0)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a surrogate pair") from None


def _write(value: object, parts: list[str], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX} levels")
    if value is None or isinstance(value, bool):
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, str):
        parts.append(_text(value))
    elif isinstance(value, int):
        if not _is_double(value):
            raise ValueError("a whole number lies beyond 2^53, where JSON numbers stop being exact; write it as text")
        parts.append(str(value))
    elif isinstance(value, float):
        parts.append(spell_double(value))
    elif isinstance(value, Mapping):
        _write_object(cast(_Table, value), parts, depth)
    elif isinstance(value, list | tuple):
        parts.append("[")
        for position, item in enumerate(cast(_Items, value)):
            parts.append("," if position else "")
            _write(item, parts, depth + 1)
        parts.append("]")
    else:
        raise ValueError(f"a {type(value).__name__} is no JSON value")


def _is_double(number: int) -> bool:
    """Whether a whole number is what the double that it denotes is printed as: all up to 2^53 are, few beyond."""
    return abs(number) <= _SAFE_INTEGER_MAX or (number.bit_length() <= 70 and spell_double(float(number)) == str(number))


def _write_object(value: Mapping[object, object], parts: list[str], depth: int) -> None:
    names = [name for name in value if isinstance(name, str)]
    if len(names) != len(value):
        raise ValueError("a key is no text")
    parts.append("{")
    for position, name in enumerate(sorted(names, key=lambda text: text.encode("utf-16-be", "surrogatepass"))):
        parts.append("," if position else "")
        parts.append(_text(name) + ":")
        _write(value[name], parts, depth + 1)
    parts.append("}")


def _text(text: str) -> str:
    return encode_basestring(text)


def spell_double(number: float) -> str:
    """A double as ECMAScript's ``Number::toString`` prints it. Raises ``ValueError`` for NaN and the infinities."""
    if not math.isfinite(number):
        raise ValueError("NaN and infinities are no JSON numbers")
    if number == 0:
        return "0"
    told = repr(number)
    if "e" not in told:
        # Between 1e-4 and 1e16 Python prints the same digits, and a whole number with a needless .0.
        return told.removesuffix(".0")
    mantissa, exponent = told.split("e")
    power = int(exponent)
    return f"{Decimal(told):f}" if -7 < power < 21 else f"{mantissa}e{power:+d}"


def length_prefixed(*parts: bytes) -> bytes:
    """The parts with their lengths (8 bytes, big-endian) in front of each."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def digest_of(*parts: bytes) -> Sha256:
    """The SHA-256 of the parts with their lengths in front of each: no two lists of parts share their bytes."""
    return Sha256(hashlib.sha256(length_prefixed(*parts)).hexdigest())


def base_artifact_of(root: WeightsRoot, config: Mapping[str, object]) -> Sha256:
    """The coordinate ``base_artifact``: weights and configuration together. Raises ``ValueError`` for a configuration without JSON form."""
    kept = canonical_json(_without_origin(config, 0))
    return digest_of(root.spell().encode(), kept)


def _without_origin(value: object, depth: int) -> object:
    """A configuration without the keys that say where it came from, at any depth: composite models hold one configuration in another."""
    if depth > DEPTH_MAX:
        return value
    if isinstance(value, list | tuple):
        return [_without_origin(inner, depth + 1) for inner in cast(_Items, value)]
    if isinstance(value, Mapping):
        items = cast(_Table, value).items()
        return {name: _without_origin(inner, depth + 1) for name, inner in items if name not in CONFIG_KEYS_APART}
    return value


def tokenization_digest(files: Mapping[str, Sha256], special_ids: Mapping[str, object], chat_template: str | None) -> Sha256:
    """The coordinate ``tokenization``: tokenizer files by name, special ids, and the chat template's text (None: there is none)."""
    listed = {name: digest.spell() for name, digest in files.items()}
    template = b"" if chat_template is None else b"=" + chat_template.encode(errors="surrogatepass")
    return digest_of(canonical_json(listed), canonical_json(special_ids), template)


class DatasetHasher:
    """The coordinate ``dataset``, row by row: SHA-256 over the length-prefixed canonical rows in their order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows = 0

    def row(self, row: Mapping[str, object]) -> None:
        """Take the next row. Raises ``ValueError`` for one without JSON form; nothing of it is taken then."""
        self._hash.update(length_prefixed(canonical_json(row)))
        self.rows += 1

    def digest(self) -> Sha256:
        """The digest of the rows taken so far."""
        return Sha256(self._hash.hexdigest())


def dataset_digest(rows: Iterable[Mapping[str, object]]) -> Sha256:
    """The digest of these rows."""
    hasher = DatasetHasher()
    for row in rows:
        hasher.row(row)
    return hasher.digest()
