"""Receipts in an attempt's folder: bytes ↔ values.

Rules kept here:

1. Reading is total: whatever the bytes are, the answer is a receipt or ``Unreadable`` with the reason. Nothing raises.
2. Nothing is optional and nothing has a default: a missing field, an unknown field, a repeated key and a wrong type are each unreadable.
   What may be there or not is a tagged union with an arm for each case.
3. A receipt is bounded (``RECEIPT_BYTES_MAX``), and so is each text in it.
4. A receipt that contradicts itself (succeeded, with exit code 1) is unreadable. One that names another attempt is readable: whose folder
   it lies in is not known here.
5. Wall-clock milliseconds are there for people; nothing is ordered by them.
"""

import json
from typing import Annotated, Final, Literal, TypeVar, final

import msgspec

from countermark.values import Unreadable

#: Longest receipt that is read, in bytes. A claim carries a whole command line and environment, hence its own bound.
RECEIPT_BYTES_MAX: Final = 64 * 1024
CLAIM_BYTES_MAX: Final = 4 * 1024 * 1024

Nonce32 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
AnyText = Annotated[str, msgspec.Meta(max_length=1024 * 1024)]
BootId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
Sha256Text = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Pid = Annotated[int, msgspec.Meta(ge=1, le=2**22)]
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]
SignalNumber = Annotated[int, msgspec.Meta(ge=1, le=64)]
WallMs = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


@final
class ProcessIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A process as no other ever was: a pid alone is reused, within one boot by another start time. ``start_ticks`` counts clock ticks
    since boot (field 22 of ``/proc/<pid>/stat``); ``pid_namespace`` is the inode of ``/proc/<pid>/ns/pid``."""

    host: Text
    boot_id: BootId
    pid: Pid
    start_ticks: Count
    pid_namespace: Count


# ------------------------------------------------------------------------------------------------------------ the claim


@final
class Fresh(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="fresh"):
    """The attempt starts from the base artifact."""


@final
class ResumesFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="resumesFrom"):
    """The attempt goes on from the admitted checkpoint at this absolute path."""

    path: Text


Beginning = Fresh | ResumesFrom


@final
class ClaimReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="claim"):
    """What a launcher was told to start. ``env`` holds the named variables only; the manifest lies beside, tied by its digest."""

    countermark: Literal[1]
    attempt: Nonce32
    work_key: Text
    demand: Text
    argv: Annotated[tuple[AnyText, ...], msgspec.Meta(min_length=1)]
    cwd: Text
    env: dict[Text, AnyText]
    beginning: Beginning
    manifest_sha256: Sha256Text


# --------------------------------------------------------------------------------------------- what the supervisor writes


@final
class StartReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="start"):
    """The one start of an attempt, ever: which supervisor won it."""

    countermark: Literal[1]
    attempt: Nonce32
    supervisor: ProcessIdentity
    at_ms: WallMs


@final
class ProcessReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="process"):
    """The trainer's own word before it becomes COMMAND: which process it is."""

    countermark: Literal[1]
    attempt: Nonce32
    process: ProcessIdentity
    at_ms: WallMs


@final
class FencedReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="fenced"):
    """A relaunch took the attempt's lock: nothing may become COMMAND here any more."""

    countermark: Literal[1]
    attempt: Nonce32
    by: ProcessIdentity
    at_ms: WallMs


@final
class StopReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="stop"):
    """Somebody asked for the attempt's end: SIGTERM at once, SIGKILL ``grace_ms`` later."""

    countermark: Literal[1]
    attempt: Nonce32
    grace_ms: Count
    by: ProcessIdentity
    at_ms: WallMs


@final
class Exited(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="exited"):
    """The main process ended by itself."""

    code: ExitCode


@final
class Signalled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="signalled"):
    """The main process died of a signal."""

    number: SignalNumber


@final
class NotExecuted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="notExecuted"):
    """COMMAND never ran; ``code`` is what a shell would say (127 not found, 126 not executable)."""

    code: ExitCode
    why: Text


MainEnd = Exited | Signalled | NotExecuted


@final
class Succeeded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="succeeded"):
    """The main process exited with 0."""


@final
class Failed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="is", tag="failed"):
    """The main process exited with another code, or COMMAND never ran."""

    exit_code: ExitCode


@final
class Killed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="killed"):
    """The main process died of a signal that nobody asked for here."""

    signal: SignalNumber


@final
class Cancelled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="cancelled"):
    """The attempt ended after a stop was asked for, or was fenced before COMMAND ran."""


@final
class Preempted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="is", tag="preempted"):
    """The scheduler took the machine away."""


Outcome = Succeeded | Failed | Killed | Cancelled | Preempted


@final
class TerminalReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", tag_field="kind", tag="terminal"):
    """The end of an attempt, written after its last descendant ended. ``main`` is how COMMAND's main process ended."""

    countermark: Literal[1]
    attempt: Nonce32
    outcome: Outcome
    main: MainEnd
    started_ms: WallMs
    ended_ms: WallMs
    writer: Literal["supervisor"]
    by: ProcessIdentity


Receipt = ClaimReceipt | StartReceipt | ProcessReceipt | FencedReceipt | StopReceipt | TerminalReceipt
R = TypeVar("R", bound=Receipt)

# Of a union, the tag is required; of one struct alone, a missing tag would be let through.
_ANY_RECEIPT: Final[msgspec.json.Decoder[Receipt]] = msgspec.json.Decoder(Receipt)


def outcome_of(main: MainEnd, stopped: bool) -> Outcome:
    """The outcome that a main process's end amounts to; ``stopped`` says that a stop was asked for before it ended."""
    if stopped:
        return Cancelled()
    match main:
        case Exited(code=0):
            return Succeeded()
        case Exited(code=code) | NotExecuted(code=code):
            return Failed(code)
        case Signalled(number=number):
            return Killed(number)


def encode(receipt: Receipt) -> bytes:
    """A receipt as the bytes of its file: one line of JSON."""
    return msgspec.json.encode(receipt) + b"\n"


def decode(data: bytes, kind: type[R]) -> R | Unreadable:
    """The receipt of this kind that the bytes are, or why they are none."""
    bytes_max = CLAIM_BYTES_MAX if kind is ClaimReceipt else RECEIPT_BYTES_MAX
    if len(data) > bytes_max:
        return Unreadable(f"it has {len(data)} bytes; {bytes_max} are the most")
    if not data.strip():
        return Unreadable("it is empty")
    try:
        receipt = _ANY_RECEIPT.decode(data)
        json.loads(data, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        return Unreadable(ascii(str(error))[1:-1][:300])
    if not isinstance(receipt, kind):
        return Unreadable(f"it is another kind of receipt: {type(receipt).__name__}")
    if isinstance(receipt, TerminalReceipt) and not _coherent(receipt):
        return Unreadable("the outcome contradicts how the main process ended")
    return receipt


def without_repeats(pairs: list[tuple[str, object]]) -> None:
    """The last of two equal keys would win in silence."""
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a key occurs twice in one object")


def _coherent(terminal: TerminalReceipt) -> bool:
    match terminal.outcome:
        case Succeeded() | Failed() | Killed():
            return terminal.outcome == outcome_of(terminal.main, stopped=False)
        case Cancelled() | Preempted():
            return True
