"""The clean values that simulated runs are made of: one desired run, its checkpoints and its effective manifests."""

from collections.abc import Mapping
from functools import cache

from countermark.evidence.members import CheckpointSeen, Read, Unread
from countermark.recipe import ROSTER, Manifest
from countermark.run.attempts import AttemptKey, Nonce
from countermark.run.checkpoint import (
    COMPONENTS,
    AdmittedCheckpoint,
    Atomic,
    CheckpointDefect,
    CheckpointReadback,
    Component,
    ComponentAbsent,
    ComponentRead,
    ComponentReading,
    FileReading,
    Incomplete,
    StepWitness,
    admit_checkpoint,
)
from countermark.run.demand import TrainingRunDesired
from countermark.run.records import RunContext
from countermark.values import Refused, Sha256
from tests.recipe.examples import CLEAN
from tests.run import examples

#: The grace of every simulated run, in milliseconds.
GRACE_MS = 1_000
CONTEXT = RunContext("sim", {}, {}, ("train",), "/", {}, "local")


@cache
def desired() -> TrainingRunDesired:
    return examples.desired()


@cache
def nonces() -> tuple[Nonce, ...]:
    """Names of attempts, in the order in which a history takes them."""
    return tuple(Nonce(f"{number:02x}" + f"{number:030d}") for number in range(1, 200))


@cache
def key(number: int) -> AttemptKey:
    return AttemptKey(desired().demand.work, nonces()[number])


@cache
def effective(integration: str) -> Mapping[str, Read | Unread]:
    """What a trainer read back of its own manifest."""
    found: dict[str, Read | Unread] = {name: Read(CLEAN[name], "live_object") for name in ROSTER}
    name = next(iter(ROSTER))
    if integration == "diverges":
        found[name] = Read("something else", "live_object")
    elif integration == "unread":
        found[name] = Unread("nobody looked")
    return found


@cache
def checkpoint(attempt: AttemptKey, step: int, whole: bool) -> CheckpointSeen:
    """A checkpoint that is admitted, or one that was torn while it was written."""
    path = f"/{attempt.nonce.hex}/checkpoints/step-{step}"
    witness = (StepWitness("trainer_state.json", step),)
    components: dict[Component, ComponentReading] = {
        component: ComponentRead((FileReading(f"{component}.bin", Sha256(f"{step:064x}"), 10),), witness) for component in COMPONENTS
    }
    if not whole:
        components[Component.OPTIMIZER_STATE] = ComponentAbsent(("optimizer.pt",))
    published = Atomic("renamed") if whole else Incomplete(("the optimizer is missing",))
    readback = CheckpointReadback(path, "transformers-peft", step, components, published, attempt.nonce.hex, None, CLEAN)
    return CheckpointSeen(attempt, step, path, readback)


_ADMITTED: dict[tuple[int, frozenset[str]], AdmittedCheckpoint | Refused[CheckpointDefect]] = {}


def admitted(readback: CheckpointReadback, desired: Manifest, members: frozenset[str]) -> AdmittedCheckpoint | Refused[CheckpointDefect]:
    """The admission of one of the checkpoints above, which are kept for good; each is decided once."""
    found = _ADMITTED.get((id(readback), members))
    if found is None:
        found = _ADMITTED[id(readback), members] = admit_checkpoint(readback, desired, members)
    return found
