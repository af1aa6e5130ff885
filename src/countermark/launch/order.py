"""What a launcher is asked to start, and the checks before anything is touched.

Rules kept here:

1. An order is checked whole: every reason against it is named, not the first.
2. The claim's bytes follow from the order alone, so two dispatches of one claim write the same bytes, and other bytes are another order.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from countermark.values import Unreadable, is_unicode, shown
from countermark.wire.receipts import CLAIM_BYTES_MAX, ClaimReceipt, Fresh, ResumesFrom, decode, encode

_NONCE: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_RESERVED: Final = frozenset({"COUNTERMARK_MANIFEST", "COUNTERMARK_ATTEMPT", "COUNTERMARK_OUTPUT", "COUNTERMARK_RESUME"})


@final
@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One committed claim to be started.

    ``nonce``: 32 hexadecimal digits, the attempt's name; ``work_key`` and ``demand``: texts for people; ``argv``: COMMAND with its
    placeholders ``{manifest} {output} {resume}``; ``cwd``: absolute; ``env``: the named variables, on top of the environment in which the
    launcher is called; ``resume``: absolute path of the admitted checkpoint, or None; ``manifest``: bytes of ``manifest.json``.
    """

    nonce: str
    work_key: str
    demand: str
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    resume: str | None
    manifest: bytes


def reasons_against(order: LaunchOrder) -> tuple[str, ...]:
    """Every reason why the order cannot be started; none for a sound order."""
    reasons = tuple(_reasons(order))
    if reasons:
        return reasons
    data = encode(claim_of(order))
    # The supervisor will read these very bytes: what it would not read is not started.
    read = decode(data, ClaimReceipt) if len(data) <= CLAIM_BYTES_MAX else Unreadable(f"it has over {CLAIM_BYTES_MAX} bytes")
    return (f"the claim cannot be written down: {read.why}",) if isinstance(read, Unreadable) else ()


def _reasons(order: LaunchOrder) -> Iterator[str]:
    if not _NONCE.fullmatch(order.nonce):
        yield f"{shown(order.nonce)} is no attempt: 32 lower-case hexadecimal digits are"
    if not order.argv or not order.argv[0]:
        yield "there is no COMMAND"
    if not order.cwd.startswith("/"):
        yield f"the working folder {shown(order.cwd)} is no absolute path"
    if order.resume is not None and not order.resume.startswith("/"):
        yield f"the checkpoint {shown(order.resume)} is no absolute path"
    for name in order.env:
        if not name or "=" in name:
            yield f"{shown(name)} is no name of a variable"
        if name in _RESERVED:
            yield f"{name} is set by the launcher"
    named = {
        "the work key": order.work_key,
        "the demand": order.demand,
        "the working folder": order.cwd,
        "the checkpoint": order.resume or "",
    }
    named |= {f"argument {place}": text for place, text in enumerate(order.argv)}
    named |= {f"the variable {shown(name)}": name + text for name, text in order.env.items()}
    for what, text in named.items():
        if "\0" in text:
            yield f"{what} holds a zero byte"
        if not is_unicode(text):
            yield f"{what} is not UTF-8"


def claim_of(order: LaunchOrder) -> ClaimReceipt:
    """The order as the receipt that its claim folder begins with."""
    return ClaimReceipt(
        countermark=1,
        attempt=order.nonce,
        work_key=order.work_key,
        demand=order.demand,
        argv=order.argv,
        cwd=order.cwd,
        env=dict(sorted(order.env.items())),
        beginning=Fresh() if order.resume is None else ResumesFrom(order.resume),
        manifest_sha256=sha256_text(order.manifest),
    )


def sha256_text(data: bytes) -> str:
    """The SHA-256 of bytes as receipts spell it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
