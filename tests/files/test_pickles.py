"""Files of torch.save: proper ones read, hostile ones refused, nothing executed, everything bounded."""

import io
import os
import pickle
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countermark.files import archive as archives
from countermark.files import pickles
from countermark.files.pickles import Call, Name, PlainPickle, TensorStub, TorchFile, read_pickle, read_torch_file, scalar
from countermark.files.reading import OpenFile, ShortRead, Window, open_file
from countermark.weights.refusals import FileDefect, PickleUnreadable
from tests.faults import planted, proven_by
from tests.files.folders import generators, optimizer, scheduler
from tests.files.torchfiles import Global, Tensor, archive, pickled, program_file, torch_file, zeros
from tests.files.torchfiles import scalar as tensor_of


def read(folder: Path, content: bytes) -> TorchFile | PickleUnreadable | FileDefect:
    (folder / "f.pt").write_bytes(content)
    opened = open_file(folder, "f.pt")
    assert isinstance(opened, OpenFile)
    with opened:
        return read_torch_file(opened)


def value(folder: Path, content: bytes) -> Any:
    found = read(folder, content)
    assert isinstance(found, TorchFile), found
    return found.value


def whys(folder: Path, content: bytes) -> tuple[str, ...]:
    found = read(folder, content)
    return found.whys if isinstance(found, PickleUnreadable) else ()


# ------------------------------------------------------------------------------------------------------------ proper


@pytest.mark.parametrize(
    "plain",
    [None, True, 0, -1, 2**70, 1.5, "ü", [], [1, [2]], {}, {"a": {1: (2, ())}}, (1, "x", None), scheduler()],
)
def test_plain_values_come_back(tmp_path: Path, plain: object) -> None:
    assert value(tmp_path, torch_file(plain)) == plain


def test_a_tensor_is_its_place(tmp_path: Path) -> None:
    found = value(tmp_path, torch_file({"w": zeros(2, 3), "s": tensor_of(4)}))
    assert isinstance(found["w"], TensorStub) and (found["w"].shape, found["w"].stride) == ((2, 3), (3, 1))
    assert found["w"].storage.dtype == "F32" and found["w"].storage.elements == 6


@pytest.mark.parametrize(("dtype", "number"), [("F32", 4.0), ("F64", 0.1), ("I64", 7.0), ("U8", 3.0)])
def test_a_single_element_can_be_read(tmp_path: Path, dtype: str, number: float) -> None:
    (tmp_path / "f.pt").write_bytes(torch_file(Tensor(dtype, (), (number,))))
    opened = open_file(tmp_path, "f.pt")
    assert isinstance(opened, OpenFile)
    with opened:
        found = read_torch_file(opened)
        assert isinstance(found, TorchFile) and isinstance(found.value, TensorStub)
        assert scalar(opened, found, found.value) == number


def test_calls_stay_calls(tmp_path: Path) -> None:
    found = value(tmp_path, torch_file(Global("_codecs", "encode", ("abc", "latin1"))))
    assert isinstance(found, Call) and (found.function, found.arguments) == (Name("_codecs encode"), ("abc", "latin1"))


@pytest.mark.parametrize("state", [optimizer(), scheduler(), generators()])
def test_the_states_of_a_trainer_are_read(tmp_path: Path, state: dict[str, Any]) -> None:
    assert set(value(tmp_path, torch_file(state))) == set(state)


# ----------------------------------------------------------------------------------------------------------- hostile


class Exploit:
    """Pickles as a call of ``os.system``."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


def executes(machine: Any, program: bytes) -> object:
    return pickle.loads(program)


@proven_by(planted(pickles._Machine, "run", executes))
def test_nothing_is_executed(tmp_path: Path) -> None:
    exploit = program_file(pickle.dumps(Exploit(f"touch {tmp_path}/owned"), protocol=2))
    read(tmp_path, exploit)
    assert not (tmp_path / "owned").exists()


def test_every_unknown_name_is_named_at_once(tmp_path: Path) -> None:
    content = torch_file({"a": Global("os", "system", ("true",)), "b": Global("builtins", "eval", ("1",)), "c": 1})
    assert whys(tmp_path, content) == (
        "its pickle names 'os system', which is not executed and not known",
        "its pickle names 'builtins eval', which is not executed and not known",
    )


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.", "its pickle names 'os system', which is not executed and not known"),
        (b"(S'true'\nios\nsystem\n.", "its pickle uses STRING, which torch never writes"),
        (b"\x80\x02N)\x81.", "its pickle makes an object of what is no name"),
        (b"\x80\x02ccollections\nCounter\nN\x81.", "its pickle makes an object of what is no name"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "its pickle is of protocol 4, not 2"),
        (b"\x80\x02\x82\x01.", "its pickle uses EXT1, which torch never writes"),
        (b"\x80\x02", "its pickle is damaged (ValueError)"),
        (b"", "its pickle is damaged (ValueError)"),
        (b"\x80\x02.", "its pickle ends with more or less than one value"),
        (b"\x80\x02NN.", "its pickle ends with more or less than one value"),
        (b"\x80\x02(.", "its pickle ends with more or less than one value"),
        (b"\x80\x02\x85.", "its pickle takes a value that is not there"),
        (b"\x80\x02t.", "its pickle takes a value that is not there"),
        (b"\x80\x02(\x85.", "its pickle takes a value that is not there"),
        (b"\x80\x02h\x00.", "its pickle recalls what it has not kept"),
        (b"\x80\x02}]Ns.", "its pickle has a dictionary with keys other than text and small numbers"),
        (b"\x80\x02}\x8a\x05\x00\x00\x00\x00\x01Ns.", "its pickle has a dictionary with keys other than text and small numbers"),
        (b"\x80\x02N(NNu.", "its pickle sets items of what is no dictionary"),
        (b"\x80\x02}(Nu.", "its pickle sets items of what is no dictionary"),
        (b"\x80\x02}Na.", "its pickle appends to what is no list"),
        (b"\x80\x02N)R.", "its pickle calls what is no name"),
        (b"\x80\x02ccollections\nOrderedDict\nNR.", "its pickle calls what is no name"),
        (b"\x80\x02NNb.", "its pickle sets the state of a plain value"),
        (b"\x80\x02NQ.", "its pickle refers to something else than a storage"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "its pickle holds a tensor without a place"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "its pickle is damaged (ValueError)"),
        (b"\x80\x02X\xff\xff\xff\xff.", "its pickle is damaged (ValueError)"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "its pickle is damaged (UnicodeDecodeError)"),
    ],
)
def test_programs_that_torch_never_writes_are_refused(tmp_path: Path, program: bytes, why: str) -> None:
    assert whys(tmp_path, program_file(program)) == (why,)


@given(st.binary(max_size=60))
def test_any_program_is_answered(program: bytes) -> None:
    machine = pickles._Machine(pickles._STEPS, pickles.GLOBALS, {})
    found = machine.run(b"\x80\x02" + program + b".")
    assert machine.whys or not isinstance(found, Exception)


def test_a_chain_of_doubling_references_stays_small(tmp_path: Path) -> None:
    """The billion laughs of pickles: each list holds the one before twice. Nothing here ever walks it."""
    program = b"\x80\x02]q\x00" + b"".join(b"](h" + bytes([n]) + b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(200))
    start = time.process_time()
    assert whys(tmp_path, program_file(program + b"\x85.")) == ("its pickle ends with more or less than one value",)
    assert time.process_time() - start < 1


def unfolding(levels: int, times: int, inner: bytes = b"N", keep: bytes = b"") -> bytes:
    """A program of one tuple, which holds the one below it so many times, and so on: ``times`` ** ``levels`` parts."""
    recalled = b"".join(b"h%c" % level * (times - 1) + b"tq%c" % (level + 1) for level in range(levels))
    return b"\x80\x02" + keep + b"(" * levels + inner + b"q\x00" + recalled + b"."


ENDLESS = {
    "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
    "a dictionary that holds itself": b"\x80\x02}q\x00K\x01h\x00s.",
    "a call that is its own state": b"\x80\x02cnumpy\ndtype\n)Rq\x00h\x00b.",
    "tuples that unfold to a million": unfolding(10, 4),
    "a text that is recalled": unfolding(3, 30, b"X" + struct.pack("<I", 1000) + b"x" * 1000),
    "six hundred lists in one another": b"\x80\x02" + b"](" * 600 + b"e" * 600 + b".",
}


@proven_by(planted(pickles, "_unfolds_within", lambda value, length: True))
def test_a_value_that_no_walk_comes_to_the_end_of_is_refused(tmp_path: Path) -> None:
    why = ("its values hold one another again and again, or too deep",)
    assert {name: whys(tmp_path, program_file(program)) for name, program in ENDLESS.items()} == dict.fromkeys(ENDLESS, why)


def test_what_torch_recalls_is_no_such_value(tmp_path: Path) -> None:
    key = b"X" + struct.pack("<I", 40) + b"k" * 40 + b"q\x00"
    rows = b"".join(b"}h\x00Ns" for _ in range(5000))
    assert whys(tmp_path, program_file(b"\x80\x02](" + key + rows + b"e.")) == ()
    assert len(value(tmp_path, program_file(unfolding(6, 4)))) == 4


def test_operations_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "OPERATIONS_MAX", 1000)
    assert whys(tmp_path, program_file(b"\x80\x02](" + b"N" * 2000 + b"e.")) == ("its pickle has over 1000 operations",)
    assert whys(tmp_path, program_file(b"\x80\x02](" + b"N" * 900 + b"e.")) == ()


def test_the_pickles_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "PICKLE_BYTES_MAX", 10)
    assert whys(tmp_path, torch_file("x" * 20)) == ("its pickle has 28 bytes, more than any checkpoint needs",)


def test_dimensions_are_bounded(tmp_path: Path) -> None:
    assert whys(tmp_path, torch_file(zeros(*[1] * 65))) == ("its pickle holds a tensor without a place",)
    assert whys(tmp_path, torch_file(zeros(*[1] * 64))) == ()


# -------------------------------------------------------------------------------------------------------- bare pickles

OF_THIS = frozenset({f"{__name__} Noted"})


class Noted:
    """An object without a form of its own: its pickle makes one and sets its state."""

    def __init__(self) -> None:
        self.at = (1, "two")


def bare(folder: Path, content: bytes) -> PlainPickle | PickleUnreadable | FileDefect:
    (folder / "f").write_bytes(content)
    opened = open_file(folder, "f")
    assert isinstance(opened, OpenFile)
    with opened:
        return read_pickle(opened, OF_THIS)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_bare_pickle_of_any_later_protocol_is_read_and_makes_nothing(tmp_path: Path, protocol: int) -> None:
    key = Noted()
    found = bare(tmp_path, pickle.dumps({"x": [1, 2.5, None], key: key}, protocol))
    assert isinstance(found, PlainPickle) and isinstance(found.value, dict)
    assert found.value["x"] == [1, 2.5, None]
    [(made, again)] = [(one, other) for one, other in found.value.items() if one != "x"]
    assert isinstance(made, Call) and made is again and made.function == Name(f"{__name__} Noted") and made.state == {"at": (1, "two")}


def test_a_bare_pickle_names_what_was_listed_and_nothing_else(tmp_path: Path) -> None:
    whys = tuple(f"its pickle names '{name}', which is not executed and not known" for name in ("posix system", "builtins eval"))
    assert bare(tmp_path, pickle.dumps([Exploit("true"), eval], 4)) == PickleUnreadable("f", whys)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (b"\x80\x06N.", "its pickle is of protocol 6"),
        (b"\x80\x04\x8c\x01aN\x93.", "its pickle takes a value that is not there"),
        (b"\x80\x04\x94N.", "its pickle takes a value that is not there"),
        (b"\x80\x04(Q.", "its pickle takes a value that is not there"),
        (b"\x80\x04\x8f.", "its pickle uses EMPTY_SET, which torch never writes"),
    ],
)
def test_a_bare_pickle_that_is_none_is_refused(tmp_path: Path, program: bytes, why: str) -> None:
    assert bare(tmp_path, program) == PickleUnreadable("f", (why,))


def test_a_bare_pickle_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "PICKLE_BYTES_MAX", 10)
    assert bare(tmp_path, bytes(11)) == PickleUnreadable("f", ("its pickle has 11 bytes, more than any checkpoint needs",))


def test_an_archive_within_a_file_is_read_where_it_lies(tmp_path: Path) -> None:
    first, second = torch_file({"w": tensor_of(4)}), torch_file([7])
    (tmp_path / "f").write_bytes(first + second)
    opened = open_file(tmp_path, "f")
    assert isinstance(opened, OpenFile)
    with opened:
        window = Window(opened, 0, len(first))
        found = read_torch_file(window)
        assert isinstance(found, TorchFile) and scalar(window, found, found.value["w"]) == 4  # type: ignore[index]
        assert isinstance(rest := read_torch_file(Window(opened, len(first), len(second))), TorchFile) and rest.value == [7]
        assert isinstance(read_torch_file(Window(opened, 1, len(first))), PickleUnreadable)
        with pytest.raises(ShortRead):
            window.read(len(first) - 1, 2)
        for begin, size in [(-1, 1), (0, len(first + second) + 1), (3, -1)]:
            with pytest.raises(ValueError, match="within its file"):
                Window(opened, begin, size)


# ---------------------------------------------------------------------------------------------------------- storages


def test_every_storage_must_be_there_whole(tmp_path: Path) -> None:
    program, storages = pickled([zeros(2), zeros(3), zeros(4)])
    members = {"a/data.pkl": program, "a/data/0": storages["0"], "a/data/1": storages["1"] + b"x"}
    assert whys(tmp_path, archive(members)) == ("storage '1' has 13 bytes, not 3 of F32", "storage '2' is not in the archive")


def test_a_tensor_must_lie_in_its_storage(tmp_path: Path) -> None:
    program, storages = pickled(zeros(2, 3))
    reaching = program.replace(b"\x8a\x01\x02\x8a\x01\x03t", b"\x8a\x01\x03\x8a\x01\x03t")
    assert reaching != program
    assert whys(tmp_path, archive({"a/data.pkl": reaching, "a/data/0": storages["0"]})) == ("a tensor reaches beyond storage '0'",)


# ----------------------------------------------------------------------------------------------------------- archives


def test_an_archive_that_was_cut_says_so(tmp_path: Path) -> None:
    content = torch_file(optimizer())
    assert len(content) > 1500
    assert whys(tmp_path, content[:1500]) == ("it is cut: the directory at its end is missing",)


@given(st.integers(0, 2**32))
def test_an_archive_that_was_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, at: int) -> None:
    content = torch_file(scheduler())
    assert isinstance(read(tmp_path_factory.getbasetemp(), content[: at % len(content)]), PickleUnreadable)


@proven_by(planted(archives, "_verified", lambda opened, member: True))
def test_a_flipped_byte_is_named_by_member(tmp_path: Path) -> None:
    content = bytearray(torch_file({"w": zeros(4), "v": zeros(4)}))
    for name in (b"archive/data/0", b"archive/data/1"):
        content[content.index(name) + len(name) + 5] ^= 1
    assert whys(tmp_path, bytes(content)) == ("'archive/data/0': its checksum is wrong", "'archive/data/1': its checksum is wrong")


@given(st.integers(0, 2**32), st.integers(1, 255))
def test_a_flipped_byte_anywhere_is_answered(tmp_path_factory: pytest.TempPathFactory, at: int, bits: int) -> None:
    """Every byte that matters is covered by a checksum or by the agreement of the two headers; nothing crashes on any."""
    content = bytearray(torch_file({"w": tensor_of(4)}))
    content[at % len(content)] ^= bits
    found = read(tmp_path_factory.getbasetemp(), bytes(content))
    assert isinstance(found, PickleUnreadable) or set(found.value) == {"w"}  # type: ignore[union-attr,call-overload]


def test_a_compressed_member_is_refused_before_anything_is_inflated(tmp_path: Path) -> None:
    bomb = archive({"a/data.pkl": b"\x80\x02N.", "a/data/0": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    assert whys(tmp_path, bomb) == (
        "'a/data.pkl': it is compressed, which torch never does",
        "'a/data/0': it is compressed, which torch never does",
    )


def entries(content: bytes) -> list[int]:
    """Where the entries of an archive's directory lie."""
    return [at for at in range(len(content)) if content[at : at + 4] == b"PK\x01\x02"]


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    """An overlap bomb: a member whose bytes hold another member, header and all."""
    inner = archive({"a/data/1": b"1234"})
    inner = inner[: entries(inner)[0]]
    content = bytearray(archive({"a/data.pkl": b"\x80\x02N.", "a/data/0": inner, "a/data/1": b"1234"}))
    at = entries(content)[2] + 42
    content[at : at + 4] = struct.pack("<I", content.index(inner))
    assert whys(tmp_path, bytes(content)) == ("'a/data/1': it overlaps the member before it",)


def test_an_entry_that_leads_to_another_members_header_is_refused(tmp_path: Path) -> None:
    content = bytearray(archive({"a/data.pkl": b"\x80\x02N.", "a/data/0": b"1234", "a/data/1": b"1234"}))
    first, second = entries(content)[1:]
    content[second + 42 : second + 46] = content[first + 42 : first + 46]
    assert whys(tmp_path, bytes(content)) == ("'a/data/1': its own header gives it another name",)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("a/data.pkl", b"\x80\x02N.")
        file.writestr("a/data.pkl", b"\x80\x02K\x01.")
    assert whys(tmp_path, buffer.getvalue()) == ("'a/data.pkl': there are two of this name",)


def end(disk: int, first: int, here: int, count: int, size: int) -> bytes:
    """The record at the end of an archive, alone."""
    return b"PK\x05\x06" + struct.pack("<4H2LH", disk, first, here, count, size, 0, 0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"PK", "it is too short for an archive"),
        (b"\x80\x02}q\x00." + bytes(40), "it is a bare pickle, not the archive that torch writes since version 1.6"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is no archive that torch writes"),
        (torch_file(1) + b"x", "bytes follow its end"),
        (archive({"a/x": b"1"}), "it holds no data.pkl"),
        (archive({"a/data.pkl": b"\x80\x02N.", "b/data.pkl": b"\x80\x02N."}), "it holds no data.pkl"),
        (archive({"a/data.pkl": b"\x80\x02N.", "a/byteorder": b"big"}), "its numbers are not little-endian"),
        (end(0, 0, 60000, 60000, 2**31), "its directory has 60000 entries in 2147483648 bytes, more than any checkpoint needs"),
        (end(0, 0, 1, 1, 46), "its directory does not lie where its end says"),
        (end(1, 0, 1, 2, 46), "it is part of a set of archives"),
        (end(0, 0, 65535, 65535, 46), "the end of its directory is missing"),
    ],
)
def test_what_is_no_archive_of_torch_says_why(tmp_path: Path, content: bytes, why: str) -> None:
    assert whys(tmp_path, content) == (why,)
