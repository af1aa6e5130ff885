"""From observations to a manifest, or to every reason why there is none.

Rules kept here:

1. A reader turns each field that it sees into an observation. Layers lie over each other: what an authored layer (an overlay, ``--set``)
   says of an axis, or of one leaf of it, replaces what weaker layers said, and the receipts tell which did.
2. A measured layer (``--pin``, live objects) replaces nothing: it fills what is open, and contradicts what disagrees with it.
3. ``resolve`` projects the observations and nothing else: there is no way to hand in a manifest beside them.
4. Every unresolved axis, unreadable value, contradiction, unknown field and unsupported field is named at once.
5. Receipts say who said what; nothing of them enters a manifest.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from decimal import Decimal
from typing import Final, Literal, TypeAlias, final

from countermark.recipe.manifest import ENTRIES, ROSTER, Manifest, manifest_of
from countermark.recipe.sums import Coordinate, Kind, Parts, Problem, own_leaves, put_together, take_apart
from countermark.values import NonEmpty, Refused, shown, spelled

_SEAL: Final = object()


@final
@dataclass(frozen=True, slots=True)
class Receipt:
    """Who said what an axis (or a leaf of one) is: the source (file or option), line (0: it has none), field, and the tool that read it."""

    axis: str
    source: str
    line: int
    field: str
    tool: str


@final
@dataclass(frozen=True, slots=True)
class Observation:
    """A field that speaks of an axis (``rank``) or of a leaf of one (``optimizer.beta1``), with what stood there: text, number, list,
    table, or None for null. ``deferred`` says that the reader knows it to be left open, whatever it looks like."""

    axis: str
    raw: object
    receipt: Receipt
    deferred: bool = False


@final
@dataclass(frozen=True, slots=True)
class AxisUnresolved:
    """A coordinate is left open: where, what stood there (empty: nothing), and what would pin it."""

    axis: str
    field: str
    found: str
    remedy: str
    line: int = 0
    source: str = ""


@final
@dataclass(frozen=True, slots=True)
class CoordinateRefused:
    """A field speaks of a coordinate and cannot be its value; ``why`` is a clause that fits after "because"."""

    axis: str
    field: str
    line: int
    found: str
    why: str
    source: str = ""


@final
@dataclass(frozen=True, slots=True)
class UnsupportedSemanticField:
    """The field changes the computation and has no coordinate, so the work would have a wrong identity; ``why`` says what it changes."""

    field: str
    found: str
    line: int
    why: str = ""
    source: str = ""


@final
@dataclass(frozen=True, slots=True)
class UnknownField:
    """The format has no such field; ``nearest`` are fields that are spelled like it."""

    field: str
    found: str
    line: int
    nearest: tuple[str, ...]
    source: str = ""


@final
@dataclass(frozen=True, slots=True)
class SettingRefused:
    """A field that is no coordinate (a source, a trainer's setting) holds what it cannot; ``why`` fits after "because"."""

    field: str
    line: int
    found: str
    why: str
    source: str = ""


@final
@dataclass(frozen=True, slots=True)
class ObservationsContradict:
    """Two fields say different things about one axis, and neither lies over the other."""

    axis: str
    fields: tuple[str, ...]
    found: tuple[str, ...]


ResolveDefect: TypeAlias = (
    AxisUnresolved | CoordinateRefused | UnsupportedSemanticField | UnknownField | SettingRefused | ObservationsContradict
)

LayerKind: TypeAlias = Literal["authored", "measured"]


@final
@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says."""

    kind: LayerKind
    observations: tuple[Observation, ...]


@final
@dataclass(frozen=True, slots=True)
class Observations:
    """What readers saw, weakest layer first, with the defects that they found by themselves."""

    layers: tuple[Layer, ...]
    defects: tuple[ResolveDefect, ...] = ()

    def over(self, stronger: "Observations") -> "Observations":
        """These observations with stronger layers on top."""
        return Observations(self.layers + stronger.layers, self.defects + stronger.defects)


@final
@dataclass(frozen=True, slots=True)
class Resolution:
    """A manifest with the receipts of what pinned each axis, and of what was replaced; minted by ``resolve`` alone."""

    manifest: Manifest
    receipts: tuple[Receipt, ...]
    replaced: tuple[Receipt, ...]
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ValueError("a resolution is minted by resolve")


def observed(spelled: Mapping[str, str], source: str, tool: str) -> Observations:
    """The observations that stored spellings are: what brings a manifest that was written down back through ``resolve``."""
    return Observations((Layer("authored", tuple(Observation(a, text, Receipt(a, source, 0, a, tool)) for a, text in spelled.items())),))


# ---------------------------------------------------------------------------------------------------------- the layers


@dataclass(slots=True)
class _Slots:
    """What is known of one axis while layers are laid over each other: its head ("") and its leaves, each with who said it."""

    seen: dict[str, Observation] = field(default_factory=dict[str, Observation])
    replaced: list[Receipt] = field(default_factory=list[Receipt])
    defects: list[ResolveDefect] = field(default_factory=list[ResolveDefect])

    def put(self, leaf: str, observation: Observation) -> None:
        if leaf in self.seen:
            self.replaced.append(self.seen[leaf].receipt)
        self.seen[leaf] = observation

    def clear(self) -> None:
        self.replaced += (observation.receipt for observation in self.seen.values())
        self.seen.clear()


@final
@dataclass(frozen=True, slots=True)
class Projection:
    """What observations say, as far as they say it: the coordinates that they pin, who pinned and who was replaced, and every defect."""

    values: Mapping[str, Coordinate]
    receipts: tuple[Receipt, ...]
    replaced: tuple[Receipt, ...]
    defects: tuple[ResolveDefect, ...]

    def spellings(self) -> dict[str, str]:
        """The pinned coordinates' spellings by name, in roster order: what could be read of a run that could not be read wholly."""
        return {name: value.spell() for name, value in self.values.items()}


def resolve(observations: Observations) -> Resolution | Refused[ResolveDefect]:
    """The manifest that the observations pin, or every reason why they pin none."""
    found = project(observations)
    if (refusal := NonEmpty.of(found.defects)) is not None:
        return Refused(refusal)
    return Resolution(manifest_of(found.values), found.receipts, found.replaced, _SEAL)


def project(observations: Observations) -> Projection:
    """Every coordinate that the observations pin, and every defect of theirs."""
    axes = {name: _Slots() for name in ROSTER}
    authored = [layer for layer in observations.layers if layer.kind == "authored"]
    measured = [layer for layer in observations.layers if layer.kind == "measured"]
    for layer in (*authored, *measured):
        for axis, said in _by_axis(layer).items():
            (_author if layer.kind == "authored" else _measure)(axis, said, axes[axis])
    defects = list(observations.defects)
    values: dict[str, Coordinate] = {}
    receipts: list[Receipt] = []
    replaced: list[Receipt] = []
    for axis, slots in axes.items():
        found = _value(axis, slots)
        if isinstance(found, tuple):
            defects += found
        else:
            values[axis] = found
            receipts += dict.fromkeys(observation.receipt for observation in slots.seen.values())
            replaced += dict.fromkeys(slots.replaced)
    return Projection(values, tuple(receipts), tuple(replaced), tuple(dict.fromkeys(defects)))


def _by_axis(layer: Layer) -> dict[str, list[Observation]]:
    """A layer's observations by coordinate, whole ones before those of leaves."""
    found: dict[str, list[Observation]] = {}
    for observation in sorted(layer.observations, key=lambda one: "." in one.axis):
        found.setdefault(observation.axis.partition(".")[0], []).append(observation)
    return found


def _parts(observation: Observation, kind: Kind) -> dict[str, Observation] | CoordinateRefused:
    """One observation as slots: the head under "" and each leaf under its name."""
    axis, _, leaf = observation.axis.partition(".")
    if leaf:
        return {"" if leaf == kind.key else leaf: observation}
    if observation.deferred:
        return {"": observation}
    parts = take_apart(observation.raw, kind)
    if isinstance(parts, Problem):
        return _refused(axis, observation, parts.why)
    inner = {leaf: replace(observation, raw=raw) for leaf, raw in parts.leaves.items()}
    return {"": replace(observation, raw=parts.head), **inner}


def _author(axis: str, said: list[Observation], slots: _Slots) -> None:
    """Lays one authored layer's words over an axis. Inside one layer nothing lies over anything: different words contradict."""
    kind = ENTRIES[axis].kind
    if any("." not in observation.axis for observation in said):
        slots.clear()
        slots.defects.clear()
    fresh: dict[str, Observation] = {}
    for observation in said:
        parts = _parts(observation, kind)
        if isinstance(parts, CoordinateRefused):
            slots.defects.append(parts)
            continue
        for leaf, inner in parts.items():
            before = fresh.setdefault(leaf, inner)
            if inner.deferred:
                # A field that defers an axis leaves it open, whatever another field of the same source says.
                fresh[leaf] = inner
            elif before is not inner and not before.deferred and not _same(kind, leaf, before, inner):
                slots.defects.append(_contradiction(axis, before, inner))
    for leaf, observation in fresh.items():
        slots.put(leaf, observation)


def _measure(axis: str, said: list[Observation], slots: _Slots) -> None:
    """Holds a measured layer's words against an axis: fills what is open, contradicts what disagrees."""
    kind = ENTRIES[axis].kind
    for observation in said:
        parts = _parts(observation, kind)
        if isinstance(parts, CoordinateRefused):
            slots.defects.append(parts)
            continue
        for leaf, inner in parts.items():
            before = slots.seen.get(leaf)
            if before is None or _is_open(kind, leaf, before):
                if not _is_open(kind, leaf, inner) or before is None:
                    slots.put(leaf, inner)
            elif not _is_open(kind, leaf, inner) and not _same(kind, leaf, before, inner):
                slots.defects.append(_contradiction(axis, before, inner))


def _readings(kind: Kind, leaf: str, observation: Observation) -> Coordinate | tuple[Problem, ...]:
    """One slot's value by itself. A head names an arm, whose leaves are judged elsewhere; a leaf is read as the first arm that has it."""
    if leaf:
        kinds = [leaves[leaf] for leaves in map(own_leaves, kind.arms) if leaf in leaves]
        return put_together(Parts(observation.raw, {}), Kind((kinds[0],), ())) if kinds else ()
    if isinstance(observation.raw, str) and observation.raw in {arm.arm for arm in kind.arms}:
        return _Named(observation.raw)
    return put_together(Parts(observation.raw, {}), kind)


@final
@dataclass(frozen=True, slots=True)
class _Named:
    """An arm's name, before its leaves are known."""

    arm: str

    def spell(self) -> str:
        return self.arm


def _is_open(kind: Kind, leaf: str, observation: Observation) -> bool:
    found = _readings(kind, leaf, observation)
    return observation.deferred or (isinstance(found, tuple) and any(problem.open for problem in found))


def _same(kind: Kind, leaf: str, one: Observation, other: Observation) -> bool:
    """Whether two observations of a slot say one value; two that cannot be read are compared as they stand."""
    left, right = _readings(kind, leaf, one), _readings(kind, leaf, other)
    return one.raw == other.raw if isinstance(left, tuple) and isinstance(right, tuple) else left == right


def _contradiction(axis: str, one: Observation, other: Observation) -> ObservationsContradict:
    return ObservationsContradict(axis, (one.receipt.field, other.receipt.field), (_text(one.raw), _text(other.raw)))


# ---------------------------------------------------------------------------------------------------------- the values


def _value(axis: str, slots: _Slots) -> Coordinate | tuple[ResolveDefect, ...]:
    """The value of an axis, or everything that is wrong with it."""
    entry = ENTRIES[axis]
    if not slots.seen and not slots.defects:
        return (AxisUnresolved(axis, axis, "", entry.says.pin),)
    if slots.defects:
        return tuple(slots.defects)
    raw = {leaf: None if observation.deferred else observation.raw for leaf, observation in slots.seen.items()}
    value = put_together(Parts(raw.pop("", None), raw), entry.kind)
    if not isinstance(value, tuple):
        return value
    return tuple(_defect(axis, problem, slots) for problem in value)


def _defect(axis: str, problem: Problem, slots: _Slots) -> ResolveDefect:
    observation = slots.seen.get(problem.leaf)
    if observation is None:
        # An absent leaf (or head) is said by nobody; whoever spoke of the axis says where it would stand.
        spoke = next(iter(slots.seen.values()))
        name = problem.leaf or ENTRIES[axis].kind.key
        return _unresolved(axis, spoke, f"{axis}.{name}", None, absent=True)
    if problem.open:
        return _unresolved(axis, observation, observation.receipt.field, observation.raw)
    return _refused(axis, observation, problem.why)


def _unresolved(axis: str, observation: Observation, name: str, found: object, absent: bool = False) -> AxisUnresolved:
    receipt = observation.receipt
    return AxisUnresolved(axis, name, "" if absent else _text(found), ENTRIES[axis].says.pin, receipt.line, receipt.source)


def _refused(axis: str, observation: Observation, why: str) -> CoordinateRefused:
    receipt = observation.receipt
    return CoordinateRefused(axis, receipt.field, receipt.line, _text(observation.raw), why, receipt.source)


def _text(raw: object) -> str:
    """What stood there, as it may be shown."""
    if isinstance(raw, int) and not isinstance(raw, bool) and raw.bit_length() > 512:
        return f"a whole number of {raw.bit_length()} bits"
    if isinstance(raw, Decimal):
        return str(raw)[:80]
    if isinstance(raw, str):
        return raw if raw.isprintable() and 0 < len(raw) <= 80 else shown(raw)
    return spelled(raw)
