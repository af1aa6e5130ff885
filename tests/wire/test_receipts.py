"""Receipts: read strictly or not at all, whatever the bytes are."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.values import Unreadable
from countermark.wire import receipts
from countermark.wire.receipts import (
    CLAIM_BYTES_MAX,
    RECEIPT_BYTES_MAX,
    Cancelled,
    ClaimReceipt,
    Exited,
    Failed,
    FencedReceipt,
    Fresh,
    Killed,
    NotExecuted,
    Preempted,
    ProcessIdentity,
    ProcessReceipt,
    ResumesFrom,
    Signalled,
    StartReceipt,
    StopReceipt,
    Succeeded,
    TerminalReceipt,
    decode,
    encode,
    outcome_of,
)
from tests.faults import planted, proven_by

NONCE = "0123456789abcdef" * 2
SOMEBODY = ProcessIdentity("host", "01234567-89ab-cdef-0123-456789abcdef", 42, 1000, 4026531836)
CLAIM = ClaimReceipt(1, NONCE, "wk1:0", "someone/once", ("true", ""), "/", {"A": ""}, ResumesFrom("/c"), "sha256:" + "0" * 64)
TERMINAL = TerminalReceipt(1, NONCE, Failed(2), Exited(2), -1, 2**40, "supervisor", SOMEBODY)
SAMPLES: tuple[Any, ...] = (
    CLAIM,
    msgspec.structs.replace(CLAIM, beginning=Fresh(), env={}),
    StartReceipt(1, NONCE, SOMEBODY, 5),
    ProcessReceipt(1, NONCE, SOMEBODY, 5),
    FencedReceipt(1, NONCE, SOMEBODY, 5),
    StopReceipt(1, NONCE, 10_000, SOMEBODY, 5),
    TERMINAL,
    TerminalReceipt(1, NONCE, Succeeded(), Exited(0), 1, 2, "supervisor", SOMEBODY),
    TerminalReceipt(1, NONCE, Killed(9), Signalled(9), 1, 2, "supervisor", SOMEBODY),
    TerminalReceipt(1, NONCE, Failed(127), NotExecuted(127, "not found"), 1, 2, "supervisor", SOMEBODY),
    TerminalReceipt(1, NONCE, Cancelled(), Exited(0), 1, 2, "supervisor", SOMEBODY),
    TerminalReceipt(1, NONCE, Preempted(), Signalled(15), 1, 2, "supervisor", SOMEBODY),
)
KINDS = (ClaimReceipt, StartReceipt, ProcessReceipt, FencedReceipt, StopReceipt, TerminalReceipt)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every field in a JSON value, objects included."""
    if isinstance(value, dict):
        return [found for name, inner in value.items() for found in [(*path, name), *leaves(inner, (*path, name))]]
    return []


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def refused(found: object) -> bool:
    return isinstance(found, Unreadable) and bool(found.why)


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_was_written_is_read_again_as_this_kind_and_no_other(sample: Any) -> None:
    data = encode(sample)
    assert data.endswith(b"}\n")
    assert [decode(data, kind) for kind in KINDS if kind is type(sample)] == [sample]
    assert all(refused(decode(data, kind)) for kind in KINDS if kind is not type(sample))


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_missing_field_an_unknown_field_and_null_are_each_unreadable(sample: Any) -> None:
    clean = json.loads(encode(sample))
    # A variable of the environment may be missing, and any other one may be there: these are data, not fields.
    paths = [path for path in leaves(clean) if path[0] != "env" or len(path) == 1]
    assert len(paths) >= 5
    for path in paths:
        for change in ("missing", "null", "wrong"):
            broken = json.loads(encode(sample))
            owner = at(broken, path[:-1])
            if change == "missing":
                del owner[path[-1]]
            else:
                owner[path[-1]] = None if change == "null" else [[]]
            assert refused(decode(json.dumps(broken).encode(), type(sample))), (path, change)
        if isinstance(at(clean, path), dict) and path != ("env",):
            broken = json.loads(encode(sample))
            at(broken, path)["more"] = 1
            assert refused(decode(json.dumps(broken).encode(), type(sample))), path
    assert refused(decode(json.dumps({**clean, "more": 1}).encode(), type(sample)))


@proven_by(planted(receipts, "without_repeats", dict))
def test_a_repeated_key_is_unreadable_although_each_value_is_sound() -> None:
    data = encode(TERMINAL)
    assert refused(decode(data.replace(b'"outcome":', b'"startedMs":7,"outcome":'), TerminalReceipt))
    assert refused(decode(data.replace(b'"pid":42', b'"pid":42,"pid":43'), TerminalReceipt))


CONTRADICTIONS: tuple[tuple[Any, Any], ...] = (
    (Succeeded(), Exited(1)),
    (Succeeded(), Signalled(9)),
    (Succeeded(), NotExecuted(127, "x")),
    (Failed(1), Exited(0)),
    (Failed(1), Exited(2)),
    (Failed(0), Exited(0)),
    (Failed(9), Signalled(9)),
    (Killed(9), Signalled(15)),
    (Killed(9), Exited(9)),
)


@proven_by(planted(receipts, "_coherent", lambda terminal: True))
def test_a_terminal_that_contradicts_itself_is_unreadable() -> None:
    read = [
        decode(encode(msgspec.structs.replace(TERMINAL, outcome=outcome, main=main)), TerminalReceipt) for outcome, main in CONTRADICTIONS
    ]
    assert read == [Unreadable("the outcome contradicts how the main process ended")] * len(CONTRADICTIONS)


@pytest.mark.parametrize("main", [Exited(0), Exited(1), Signalled(9), NotExecuted(126, "x")])
def test_the_outcome_that_follows_from_an_end_is_coherent(main: Any) -> None:
    for stopped in (False, True):
        terminal = msgspec.structs.replace(TERMINAL, outcome=outcome_of(main, stopped), main=main)
        assert decode(encode(terminal), TerminalReceipt) == terminal
    assert outcome_of(main, stopped=True) == Cancelled()


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt": NONCE + "0"},
        {"attempt": NONCE.upper()},
        {"attempt": NONCE + "\n"},
        {"attempt": "../../x"},
        {"countermark": 2},
        {"countermark": True},
        {"startedMs": 1.5},
        {"startedMs": "1"},
        {"startedMs": 2**60},
        {"writer": "trainer"},
        {"kind": "start"},
        {"main": {"is": "exited", "code": 256}},
        {"main": {"is": "exited", "code": -1}},
        {"main": {"is": "signalled", "number": 0}},
        {"main": {"is": "gone"}},
        {"main": {"code": 2}},
        {"by": {}},
    ],
)
def test_a_value_out_of_its_bounds_is_unreadable(changes: dict[str, Any]) -> None:
    document = json.loads(encode(TERMINAL))
    assert decode(json.dumps(document).encode(), TerminalReceipt) == TERMINAL
    assert refused(decode(json.dumps(document | changes).encode(), TerminalReceipt))


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": 0},
        {"pid": -1},
        {"pid": 2**22 + 1},
        {"startTicks": -1},
        {"bootId": ""},
        {"bootId": "x" * 36},
        {"bootId": SOMEBODY.boot_id + "\n"},
        {"host": ""},
        {"host": "h" * 5000},
        {"pidNamespace": "1"},
    ],
)
def test_an_identity_out_of_its_bounds_is_unreadable(changes: dict[str, Any]) -> None:
    document = json.loads(encode(TERMINAL))
    document["by"] |= changes
    assert refused(decode(json.dumps(document).encode(), TerminalReceipt))


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_bytes_are_unreadable_and_nothing_raises(kind: Any) -> None:
    sample = next(sample for sample in SAMPLES if type(sample) is kind)
    data = encode(sample)
    torn = [data[:length] for length in range(len(data) - 1)]
    hostile = [
        b"",
        b" \n",
        b"\0" * 100,
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"{}",
        data + data,
        b"\xef\xbb\xbf" + data,
    ]
    hostile += [data.replace(NONCE.encode(), b"\\ud800" * 2), b'{"kind":"' + b"x" * 1000 + b'"}']
    assert [raw for raw in (*torn, *hostile) if not refused(decode(raw, kind))] == []


def test_a_receipt_is_bounded_before_it_is_parsed() -> None:
    padded = encode(TERMINAL)[:-2] + b" " * RECEIPT_BYTES_MAX + b"}\n"
    assert decode(padded, TerminalReceipt) == Unreadable(f"it has {len(padded)} bytes; {RECEIPT_BYTES_MAX} are the most")
    assert decode(encode(TERMINAL)[:-2] + b" " * 1000 + b"}\n", TerminalReceipt) == TERMINAL
    assert refused(decode(b" " * (CLAIM_BYTES_MAX + 1), ClaimReceipt))
    large = msgspec.structs.replace(CLAIM, argv=("x" * 100_000,))
    assert decode(encode(large), ClaimReceipt) == large


@given(st.binary(max_size=200), st.integers(0, 400), st.sampled_from(SAMPLES))
def test_any_damage_gives_a_receipt_or_a_reason(damage: bytes, place: int, sample: Any) -> None:
    data = encode(sample)
    found = decode(data[:place] + damage + data[place + len(damage) :], type(sample))
    assert refused(found) or isinstance(found, type(sample))
