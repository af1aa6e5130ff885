"""Orders: every reason against one is named, and what is written down is read again."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.files import durable
from countermark.launch import order as module
from countermark.launch import patience
from countermark.launch.order import LaunchOrder, claim_of, reasons_against
from countermark.launch.patience import PASSING, write_patiently
from countermark.launch.trainer import command_arguments, command_environment
from countermark.wire.receipts import ClaimReceipt, decode, encode
from tests.faults import planted, proven_by

NONCE = "0123456789abcdef" * 2


def order(**changes: Any) -> LaunchOrder:
    fields: dict[str, Any] = {
        "nonce": NONCE,
        "work_key": "wk1:" + "0" * 64,
        "demand": "someone/once",
        "argv": ("true",),
        "cwd": "/",
        "env": {"A": "1"},
        "resume": None,
        "manifest": b"{}",
    }
    return LaunchOrder(**(fields | changes))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "nonce": ({"nonce": NONCE + "0"}, "is no attempt: 32 lower-case hexadecimal digits are"),
    "path as nonce": ({"nonce": "../../etc"}, "is no attempt"),
    "no command": ({"argv": ()}, "there is no COMMAND"),
    "empty command": ({"argv": ("", "x")}, "there is no COMMAND"),
    "cwd": ({"cwd": "here"}, "the working folder 'here' is no absolute path"),
    "resume": ({"resume": "there"}, "the checkpoint 'there' is no absolute path"),
    "name": ({"env": {"A=B": "1"}}, "'A=B' is no name of a variable"),
    "no name": ({"env": {"": "1"}}, "'' is no name of a variable"),
    "reserved": ({"env": {"COUNTERMARK_OUTPUT": "1"}}, "COUNTERMARK_OUTPUT is set by the launcher"),
    "zero byte": ({"argv": ("true", "a\0b")}, "argument 1 holds a zero byte"),
    "not UTF-8": ({"argv": ("true", "\udcff")}, "argument 1 is not UTF-8"),
    "zero byte in a value": ({"env": {"A": "\0"}}, "the variable 'A' holds a zero byte"),
    "no demand": ({"demand": ""}, "the claim cannot be written down: Expected `str` of length >= 1 - at `$.demand`"),
    "giant": ({"argv": ("true", *["x" * 1_000_000] * 5)}, "the claim cannot be written down: it has over"),
}


def test_a_sound_order_has_no_reason_against_it() -> None:
    assert reasons_against(order()) == ()


@pytest.mark.parametrize("name", BROKEN)
def test_each_break_is_named_alone(name: str) -> None:
    changes, reason = BROKEN[name]
    (found,) = reasons_against(order(**changes))
    assert reason in found


def first_wins() -> AbstractContextManager[object]:
    every = module._reasons
    return planted(module, "_reasons", lambda sound: islice(every(sound), 1))()


@proven_by(first_wins)
def test_two_breaks_are_both_named() -> None:
    found = reasons_against(order(nonce="x", argv=(), cwd="here", env={"": "1", "COUNTERMARK_MANIFEST": "\0"}))
    words = ["is no attempt", "no COMMAND", "no absolute path", "no name", "set by the launcher", "zero byte"]
    assert [word for word in words if not any(word in reason for reason in found)] == []
    assert len(found) == len(words)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


@given(st.lists(TEXT, max_size=5), st.dictionaries(TEXT.filter(lambda text: text and "=" not in text), TEXT, max_size=4))
def test_a_claim_is_read_as_it_was_ordered(arguments: list[str], env: dict[str, str]) -> None:
    claim = claim_of(order(argv=("true", *arguments), env=env))
    assert decode(encode(claim), ClaimReceipt) == claim
    assert reasons_against(order(argv=("true", *arguments), env=env)) == ()


def test_the_claims_bytes_do_not_depend_on_the_order_of_the_variables() -> None:
    assert encode(claim_of(order(env={"B": "2", "A": "1"}))) == encode(claim_of(order(env={"A": "1", "B": "2"})))


def test_placeholders_are_replaced_once_and_ours_win_over_named_variables(tmp_path: Any) -> None:
    folder = tmp_path / "{resume}"
    claim = claim_of(order(argv=("a", "{output}", "{manifest}{resume}", "{}"), resume="/x/{manifest}"))
    assert command_arguments(folder, claim) == ("a", f"{folder}/output", f"{folder}/manifest.json/x/{{manifest}}", "{}")
    environment = command_environment(folder, claim, {"A": "0", "B": "2", "COUNTERMARK_RESUME": "outer"})
    assert (environment["A"], environment["B"], environment["COUNTERMARK_RESUME"]) == ("1", "2", "/x/{manifest}")


# ------------------------------------------------------------------------------------------------------------- patience


class Disk:
    """A disk that fails some times with an error."""

    def __init__(self, times: int, number: int) -> None:
        self.times, self.number, self.pauses, self.said = times, number, list[float](), list[str]()

    def write_new(self, path: Path, data: bytes) -> None:
        if self.times > 0:
            self.times -= 1
            raise OSError(self.number, "said by the disk")

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return True


def patience_with(disk: Disk, give_up_s: float = 1e9, pause: Callable[[float], bool] | None = None) -> OSError | None:
    with planted(durable, "write_new", disk.write_new)():
        return write_patiently(Path("receipt"), b"x", disk.said.append, give_up_s, pause or disk.pause)


@proven_by(planted(patience, "PASSING", frozenset[int]()))
@pytest.mark.parametrize("number", sorted(PASSING))
def test_what_may_pass_is_tried_again_ever_more_slowly_and_said_twice(number: int) -> None:
    disk = Disk(12, number)
    assert patience_with(disk) is None
    assert disk.pauses == sorted(disk.pauses)
    assert (disk.pauses[0], disk.pauses[-1], len(disk.pauses), len(disk.said)) == (0.1, 30.0, 12, 2)


def test_what_will_not_pass_is_not_tried_again() -> None:
    for number in (2, 13, 17, 20):
        disk = Disk(1, number)
        error = patience_with(disk)
        assert error is not None
        assert (error.errno, disk.pauses, disk.said) == (number, [], [])


def test_patience_ends() -> None:
    disk = Disk(1000, 28)
    assert isinstance(patience_with(disk, give_up_s=0), OSError)
    assert isinstance(patience_with(disk, pause=lambda seconds: False), OSError)


@proven_by(planted(patience, "read_bounded", lambda path, bytes_max: b"ours"))
def test_what_another_wrote_there_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "receipt").write_bytes(b"theirs")
    error = write_patiently(tmp_path / "receipt", b"ours", print, 1e9)
    assert isinstance(error, FileExistsError) and (tmp_path / "receipt").read_bytes() == b"theirs"
