"""A file of samples, one JSON object a line, as what is asked.

Rules kept here:

1. A sample is its ``id`` and all else that it says. Its content is the hash of the canonical spelling of all else: blanks and the order of
   keys do not count, and renumbered samples keep it.
2. An id is text, or a whole number that is taken as its digits. No two samples share one.
3. The digest of a dataset covers its ids and contents in their order.
4. Everything that is wrong is listed with its line, up to ``FAULTS_MAX``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, cast, final

from countermark.experiments.faults import (
    ClusterKeyUnknown,
    FaultsOmitted,
    SampleIdRepeated,
    SampleLineUnreadable,
    SamplesDefect,
    SamplesMissing,
)
from countermark.experiments.samples import ID_LENGTH_MAX, Asked
from countermark.recipe.canonical import digest_of
from countermark.sessions.canonical import Spelling, spelled_json
from countermark.sessions.events import EventUnreadable
from countermark.values import NonEmpty, Refused, Sha256, Unreadable, is_unicode, shown
from countermark.wire.events import read_json

#: Faults of one file that are listed; the last says how many more there are.
FAULTS_MAX: Final = 1_000
CONTENT_DOMAIN: Final = b"countermark/sample/1"
DATASET_DOMAIN: Final = b"countermark/dataset/1"

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Dataset:
    """The samples of a file in its order, each with its whole text for the arms, and the digest of all."""

    asked: tuple[Asked, ...]
    texts: Mapping[str, str]
    digest: Sha256


def read_samples(lines: Iterable[bytes], cluster: str | None = None) -> Dataset | Refused[SamplesDefect]:
    """The samples of a file's lines; ``cluster`` is the key whose value names a sample's cluster. Empty lines are none."""
    asked: list[Asked] = []
    texts: dict[str, str] = {}
    first: dict[str, int] = {}
    defects: list[SamplesDefect] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        read = _sample(line, cluster)
        if isinstance(read, Unreadable):
            defects.append(SampleLineUnreadable(number, read.why))
        elif read[0].id in first:
            defects.append(SampleIdRepeated(number, read[0].id, first[read[0].id]))
        else:
            first[read[0].id] = number
            texts[read[0].id] = read[1]
            asked.append(read[0])
    if not asked and not defects:
        defects.append(SamplesMissing())
    if asked and cluster is not None and all(each.cluster is None for each in asked):
        defects.append(ClusterKeyUnknown(cluster))
    if (refused := NonEmpty.of(at_most(defects))) is not None:
        return Refused(refused)
    parts = [part for each in asked for part in (each.id.encode(), b"" if each.content is None else each.content.hex.encode())]
    return Dataset(tuple(asked), texts, digest_of(DATASET_DOMAIN, *parts))


def at_most(found: list[T]) -> list[T | FaultsOmitted]:
    """The first faults, and how many more there are."""
    if len(found) <= FAULTS_MAX:
        return [*found]
    return [*found[: FAULTS_MAX - 1], FaultsOmitted(len(found) - FAULTS_MAX + 1)]


def _sample(line: bytes, cluster: str | None) -> tuple[Asked, str] | Unreadable:
    document = read_json(line)
    if isinstance(document, EventUnreadable):
        return Unreadable(document.why)
    if not isinstance(document, dict):
        return Unreadable(f"{shown(document)} is no JSON object")
    whole = cast("dict[str, object]", document)
    name = read_id(whole.get("id"))
    if isinstance(name, Unreadable):
        return name
    rest = spelled_json({key: value for key, value in whole.items() if key != "id"}, "sample")
    if isinstance(rest, Refused):
        return Unreadable("; ".join(f"{each.place}: {each.why}" for each in rest.defects))
    group = whole.get(cluster) if cluster is not None else None
    named = None if group is None else spelled_json(group, "cluster")
    digest = digest_of(CONTENT_DOMAIN, rest.text.encode())
    return Asked(name, digest, named.text if isinstance(named, Spelling) else None), line.decode("utf-8", "replace").strip()


def read_id(raw: object) -> str | Unreadable:
    """An id from JSON: text that is not empty, or a whole number."""
    if isinstance(raw, int) and not isinstance(raw, bool) and raw.bit_length() <= 256:
        return str(raw)
    if not isinstance(raw, str) or not raw:
        return Unreadable("it has no id")
    if len(raw) > ID_LENGTH_MAX:
        return Unreadable(f"its id has {len(raw):,} characters, and {ID_LENGTH_MAX:,} are the most")
    return raw if is_unicode(raw) and "\0" not in raw else Unreadable("its id is no Unicode text")
