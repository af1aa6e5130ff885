"""What an experiment is to run: its resolved spec with its hash, its jobs, and the identity of a run.

Rules kept here:

1. Flags, a TOML file and Python come to one resolved spec; equal specs hash alike, however they were written. Where files lie is not part
   of it: a dataset, a task and a grader are their digests.
2. Every hash covers a domain tag with a version and canonical JSON, each with its length in front, so that no two kinds of thing share
   their bytes.
3. A job is one (arm, repeat). Its seed is base + repeat, the same in every arm.
4. What was named wrongly is found all at once: arms twice, arms without a command, weights of unknown arms or twice.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from countermark.experiments.samples import REPEATS_MAX
from countermark.experiments.stamps import Stamp
from countermark.recipe.canonical import canonical_json, digest_of
from countermark.values import NonEmpty, Refused, Sha256, is_unicode

SPEC_DOMAIN: Final = "countermark/experiment/1"
JOB_DOMAIN: Final = "countermark/experiment-job/1"
RUN_DOMAIN: Final = "countermark/experiment-run/1"
#: Arms of one experiment.
ARMS_MAX: Final = 1_000
_ARM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class Arm:
    """A command under a name; it is split as a shell would, and no shell runs it."""

    name: str
    argv: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Range:
    """The range that a metric is declared to lie in."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError("a range has two finite ends, the lower one first")


@final
@dataclass(frozen=True, slots=True)
class Decoding:
    """The settings that outputs were drawn under, as their canonical JSON."""

    text: str

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> "Decoding":
        """The settings of a JSON object. Raises ``ValueError`` for what has no canonical form."""
        return cls(canonical_json(settings).decode())


@final
@dataclass(frozen=True, slots=True)
class ArmUnnamed:
    """A name that no arm can have: letters, digits, dots, dashes and underscores, a letter or digit first."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class ArmRepeated:
    """Two arms have one name."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class ArmWithoutCommand:
    """An arm that would start nothing."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class ArmsMissing:
    """An experiment without an arm."""


@final
@dataclass(frozen=True, slots=True)
class ArmsTooMany:
    """More arms than one experiment has."""

    arms: int
    arms_max: int


@final
@dataclass(frozen=True, slots=True)
class RepeatsOutOfRange:
    """Repeats that nobody can run."""

    repeats: int
    repeats_max: int


@final
@dataclass(frozen=True, slots=True)
class SpecTextUnreadable:
    """A text of the spec that is no Unicode, so that nothing can be hashed of it; ``where`` names its place."""

    where: str


@final
@dataclass(frozen=True, slots=True)
class WeightsWithoutArm:
    """Weights without an arm's name, where there are several arms."""

    weights: str
    arms: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class WeightsOfUnknownArm:
    """Weights for an arm that the experiment has not."""

    arm: str
    arms: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class WeightsRepeated:
    """Weights for one arm, given twice."""

    arm: str


SpecDefect = (
    ArmUnnamed | ArmRepeated | ArmWithoutCommand | ArmsMissing | ArmsTooMany | RepeatsOutOfRange | SpecTextUnreadable | WeightsWithoutArm
    | WeightsOfUnknownArm | WeightsRepeated
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Spec:
    """A resolved spec. ``higher`` names the metrics of arms that are better upwards; ``ranges`` the declared ranges of scores."""

    dataset: Sha256
    arms: tuple[Arm, ...]
    repeats: int = 1
    seed: int | None = None
    cluster: str | None = None
    higher: frozenset[str] = frozenset()
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
    task: Sha256 | None = None
    grader: Sha256 | None = None
    decoding: Decoding | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if (found := spec_defects(self.arms, self.repeats)) != ():
            raise ValueError(f"a spec is made of what was read: {found[0]}")

    def document(self) -> dict[str, object]:
        """The spec as JSON."""
        return {
            "dataset": self.dataset.spell(),
            "arms": [{"name": arm.name, "argv": list(arm.argv)} for arm in self.arms],
            "repeats": self.repeats,
            "seed": None if self.seed is None else str(self.seed),
            "cluster": self.cluster,
            "higher": sorted(self.higher),
            "ranges": {name: [each.low, each.high] for name, each in self.ranges.items()},
            "task": told(self.task),
            "grader": told(self.grader),
            "decoding": None if self.decoding is None else self.decoding.text,
            "timeoutS": self.timeout_s,
        }

    def digest(self) -> Sha256:
        """The hash of the resolved spec."""
        return _digest(SPEC_DOMAIN, self.document())


@final
@dataclass(frozen=True, slots=True)
class Job:
    """One process to start: an arm in one repeat."""

    arm: Arm
    repeat: int
    seed: int | None


@final
@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes two runs the same run."""

    stamp: Stamp | None
    dataset: Sha256
    task: Sha256 | None
    grader: Sha256 | None
    decoding: Decoding | None
    seed: int | None
    repeats: int

    def digest(self) -> Sha256:
        """The hash of the identity."""
        return _digest(
            RUN_DOMAIN,
            {
                "stamp": stamp_identity(self.stamp),
                "dataset": self.dataset.spell(),
                "task": told(self.task),
                "grader": told(self.grader),
                "decoding": None if self.decoding is None else self.decoding.text,
                "seed": None if self.seed is None else str(self.seed),
                "repeats": self.repeats,
            },
        )


def spec_defects(arms: Sequence[Arm], repeats: int) -> tuple[SpecDefect, ...]:
    """Everything that is wrong with the arms of a spec and its repeats."""
    found: list[SpecDefect] = []
    if not arms:
        found.append(ArmsMissing())
    if len(arms) > ARMS_MAX:
        found.append(ArmsTooMany(len(arms), ARMS_MAX))
    found.extend(ArmUnnamed(arm.name) for arm in arms if not _ARM.fullmatch(arm.name))
    found.extend(ArmRepeated(name) for name, times in Counter(arm.name for arm in arms).items() if times > 1)
    found.extend(ArmWithoutCommand(arm.name) for arm in arms if not arm.argv or not arm.argv[0])
    found.extend(SpecTextUnreadable(f"the command of {arm.name}") for arm in arms if not all(map(is_unicode, arm.argv)))
    if not 1 <= repeats <= REPEATS_MAX:
        found.append(RepeatsOutOfRange(repeats, REPEATS_MAX))
    return tuple(found)


def named_weights(arms: Sequence[Arm], given: Sequence[str]) -> Mapping[str, str] | Refused[SpecDefect]:
    """Each arm's weights, from ``NAME=WEIGHTS`` texts; without a name they are the only arm's. A ``=`` behind anything that no arm could be
    called belongs to a path."""
    names = tuple(arm.name for arm in arms)
    found: dict[str, str] = {}
    defects: list[SpecDefect] = []
    for text in given:
        head, equals, rest = text.partition("=")
        is_named = bool(equals) and _ARM.fullmatch(head) is not None
        if not is_named and len(names) != 1:
            defects.append(WeightsWithoutArm(text, names))
            continue
        name, weights = (head, rest) if is_named else (names[0], text)
        if name not in names:
            defects.append(WeightsOfUnknownArm(name, names))
        elif name in found:
            defects.append(WeightsRepeated(name))
        else:
            found[name] = weights
    refused = NonEmpty.of(defects)
    return found if refused is None else Refused(refused)


def jobs(spec: Spec) -> tuple[Job, ...]:
    """Every job of a spec: repeats outermost, so that all arms have come equally far whenever it is stopped."""
    return tuple(Job(arm, repeat, None if spec.seed is None else spec.seed + repeat) for repeat in range(spec.repeats) for arm in spec.arms)


def job_config(spec: Spec, job: Job, stamp: Stamp | None, files: Mapping[str, Sha256]) -> Sha256:
    """The hash of a job's config: its command, the digests of the files that are named in it, dataset, grader, decoding, seed and stamp."""
    return _digest(
        JOB_DOMAIN,
        {
            "argv": list(job.arm.argv),
            "files": {name: digest.spell() for name, digest in files.items()},
            "dataset": spec.dataset.spell(),
            "grader": told(spec.grader),
            "decoding": None if spec.decoding is None else spec.decoding.text,
            "seed": None if job.seed is None else str(job.seed),
            "stamp": stamp_identity(stamp),
        },
    )


def stamp_identity(stamp: Stamp | None) -> dict[str, str | None] | None:
    """What of a stamp tells one run from another: the weights, and not how well they are known."""
    if stamp is None:
        return None
    return {"digest": stamp.digest.spell(), "composition": None if stamp.composition is None else stamp.composition.spell()}


def told(digest: Sha256 | None) -> str | None:
    """A digest that need not be known, as documents have it."""
    return None if digest is None else digest.spell()


def _digest(domain: str, document: Mapping[str, object]) -> Sha256:
    return digest_of(domain.encode(), canonical_json(document))
