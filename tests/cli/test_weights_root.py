"""``weights root`` as a person calls it: every form of weights, what is kept between calls, and the lines that a root is of."""

import hashlib
import io
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from countermark.cli import context
from countermark.files import measuring, reading
from countermark.files.digest_cache import DigestCache
from countermark.weights import header, sameness
from tests.cli.called import Called, Caller
from tests.faults import planted, proven_by
from tests.files.ggufs import DATA, GOOD, gguf_file, info
from tests.files.tensors import encoded, f32, raw, write
from tests.files.torchfiles import Tensor, torch_file

W = {"w": f32(1, 2, 3), "v": f32(4)}
TORCH = {name: Tensor("F32", (len(numbers),), numbers) for name, numbers in (("w", (1.0, 2.0, 3.0)), ("v", (4.0,)))}


def npz(**arrays: "np.typing.NDArray[np.float32]") -> bytes:
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file was written long ago."""
    real = context.digest_cache

    def aged(fresh: bool) -> DigestCache:
        return DigestCache(real(fresh).folder, fresh, lambda: 2**62)

    monkeypatch.setattr(context, "digest_cache", aged)


def exact(**files: bytes) -> str:
    """The digest of files that lie side by side, as ``sha256sum`` and ``sort`` make it."""
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    return f"fd1:{hashlib.sha256(lines.encode()).hexdigest()}"


def types_are_not_looked_at() -> AbstractContextManager[object]:
    """Every file is safetensors."""
    return planted(measuring, "form_of", lambda path, links_to: None)()


@proven_by(types_are_not_looked_at)
def test_each_form_has_the_root_that_it_can_have_and_the_digest_of_its_files(here: Path, call: Caller) -> None:
    write(here / "s.safetensors", encoded(W))
    root = call("weights", "root", "s.safetensors", "--json").document()["root"]
    plain = gguf_file([info(b"v", (1,), 0, 0), info(b"w", (3,), 0, 32)], f32(4)[2] + bytes(28) + f32(1, 2, 3)[2])
    contents = {
        "a.npz": npz(w=np.array([1, 2, 3], "<f4"), v=np.array([4], "<f4")),
        "a.gguf": plain,
        "blocks.gguf": gguf_file(GOOD, DATA),
        "a.pt": torch_file(TORCH),
        "odd.bin": b"\x80\x02no tensors at all",
    }
    wanted = {"a.npz": (root, None, 2), "a.gguf": (root, None, 2), "blocks.gguf": (None, "types", 2)}
    for name, content in contents.items():
        write(here / name, content)
        called = call("weights", "root", name, "--json")
        document = called.document() if called.code == 0 else {}
        assert [document.get(key) for key in ("root", "rootless", "tensors")] == list(wanted.get(name, (None, "pickled", None))), name
        assert document.get("files") == exact(**{name: content})


ODD = b' {"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":{"a":1},"else":0},"__metadata__":null}'


@proven_by(planted(header, "_odd", lambda given, parsed: ()))
def test_what_is_odd_about_a_header_is_told_and_changes_nothing(here: Path, call: Caller) -> None:
    plain, odd = encoded({"w": f32(1)}), raw(ODD, f32(1)[2])
    write(here / "plain.safetensors", plain)
    write(here / "odd.safetensors", odd)
    expected = [
        "white space stands before its first brace",
        "its __metadata__ is null",
        "2 fields stand in entries where nothing reads them, the first is 'more' of 'w'",
    ]
    called = {
        "root": call("weights", "root", "odd.safetensors", "--json"),
        "diff": call("weights", "diff", "plain.safetensors", "odd.safetensors", "--json"),
    }
    for name, one in called.items():
        told = [(warning["code"], warning["file"], warning["what"]) for warning in one.document()["warnings"]]
        assert (name, one.code, told) == (name, 0, [("HeaderOdd", "odd.safetensors", what) for what in expected])
    root = call("weights", "root", "plain.safetensors", "--json").document()
    assert (root["root"], root["warnings"]) == (called["root"].document()["root"], [])


def test_what_has_no_root_is_said_with_the_reason(here: Path, call: Caller) -> None:
    write(here / "model/pytorch_model-1.bin", torch_file({"w": TORCH["w"]}))
    write(here / "model/pytorch_model-2.bin", torch_file({"v": TORCH["v"]}))
    index = json.dumps({"weight_map": {"w": "pytorch_model-1.bin", "v": "pytorch_model-2.bin"}}).encode()
    write(here / "model/pytorch_model.bin.index.json", index)
    write(here / "one/pytorch_model.bin", torch_file(TORCH))
    write(here / "other/optimizer.pt", torch_file(TORCH))
    for name in ("model", "one", "other"):
        called = call("weights", "root", name)
        assert (name, called.code) == (name, 0)
        assert "no root: it is a pickle, whose files alone have a digest\tfd1:" in called.out
    refused = call("weights", "root", "one", "--lines", "root.txt")
    assert (refused.code, "have no root: it is a pickle" in refused.err, os.path.exists("root.txt")) == (2, True, False)
    (here / "nothing").mkdir()
    called = call("weights", "root", "nothing", "--json")
    assert (called.code, called.codes()) == (1, ["WeightsAbsent", "FolderEmpty"])


def test_the_lines_are_the_text_that_the_root_is_of(here: Path, call: Caller) -> None:
    write(here / "s.safetensors", encoded(W))
    root = call("weights", "root", "s.safetensors", "--lines", "root.txt", "--json").document()["root"]
    text = (here / "root.txt").read_bytes()
    assert (root, text[:4]) == (f"wr1:{hashlib.sha256(text).hexdigest()}", b"wr1\n")
    again = call("weights", "root", "s.safetensors", "--lines", "root.txt")
    assert (again.code, (here / "root.txt").read_bytes()) == (2, text)
    several = call("weights", "root", "s.safetensors", "s.safetensors", "--lines", "new.txt")
    assert (several.code, "several paths are named" in several.err) == (2, True)


def kinds_do_not_count() -> AbstractContextManager[object]:
    """What is not equal is different."""
    return planted(sameness, "sameness", lambda said, found: "same" if said in found else "different")()


@proven_by(kinds_do_not_count)
def test_a_digest_that_somebody_has_is_the_same_or_another_or_of_a_kind_that_nobody_can_compare(here: Path, call: Caller) -> None:
    content = write(here / "s.safetensors", encoded(W)).read_bytes()
    write(here / "folder/model.safetensors", content)
    measured = call("weights", "root", "s.safetensors", "--json").document()
    plain = hashlib.sha256(content).hexdigest()
    root, files = measured["root"], measured["files"]
    cases = {
        root: [],
        files: [],
        root[4:]: [],
        root[4:].upper(): [],
        files[4:]: [],
        plain: [],
        f"sha256:{plain}": [],
        "wr1:" + "a" * 64: ["DigestDiffers"],
        "fd1:" + "a" * 64: ["DigestDiffers"],
        "sha256:" + "a" * 64: ["DigestDiffers"],
        "mc1:" + root[4:]: ["DigestIncomparable"],
        "a" * 64: ["DigestIncomparable"],
    }
    for said, codes in cases.items():
        called = call("weights", "root", "s.safetensors", "--is", said, "--json")
        assert (said, called.code, called.codes()) == (said, int(bool(codes)), codes)
    # The plain hash of a file is none of a folder that holds it.
    assert call("weights", "root", "folder", "--is", f"sha256:{plain}", "--json").codes() == ["DigestIncomparable"]
    assert "nobody can tell" in call("weights", "root", "s.safetensors", "--is", "a" * 64).err
    for said in ("a" * 63, "wr2:" + "a" * 64, "wr1:" + "A" * 64, ""):
        wrong = call("weights", "root", "s.safetensors", "--is", said)
        assert (wrong.code, "is no digest" in wrong.err) == (2, True)
    assert call("weights", "root", "s.safetensors", "folder", "--is", root).code == 2


def hashed(called: Called) -> int:
    assert called.code == 0, called.err
    return int(called.document()["hashedBytes"])


def nothing_is_kept() -> AbstractContextManager[object]:
    return planted(DigestCache, "keep", lambda self, file, stamp, measured: None)()


@pytest.mark.usefixtures("later")
@proven_by(nothing_is_kept)
@pytest.mark.parametrize("name", ["s.safetensors", "a.gguf", "folder"])
def test_a_second_call_reads_no_data_and_says_so(here: Path, call: Caller, name: str) -> None:
    write(here / "s.safetensors", encoded(W))
    write(here / "a.gguf", gguf_file([info(b"v", (1,), 0, 0), info(b"w", (3,), 0, 32)], f32(4)[2] + bytes(28) + f32(1, 2, 3)[2]))
    write(here / "folder/model.safetensors", encoded(W))
    write(here / "folder/README.md", b"about")
    first, second = (call("weights", "root", name, "--json") for _ in range(2))
    whole = sum(path.stat().st_size for path in ([here / name] if "." in name else (here / name).iterdir()))
    assert (hashed(first), hashed(second)) == (16 + whole, 0)
    assert [first.document()[key] for key in ("root", "files")] == [second.document()[key] for key in ("root", "files")]
    assert hashed(call("weights", "root", name, "--fresh", "--json")) == 16 + whole


def fresh_is_as_usual() -> AbstractContextManager[object]:
    real = context.digest_cache
    return planted(context, "digest_cache", lambda fresh: real(False))()


@pytest.mark.usefixtures("later")
@proven_by(fresh_is_as_usual)
def test_bytes_that_changed_under_one_stamp_go_red_when_measured_afresh(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(here / "s.safetensors", encoded(W))
    true, real = path.stat(), reading.Stamp.of
    monkeypatch.setattr(reading.Stamp, "of", lambda found: real(true) if found.st_ino == true.st_ino else real(found))
    old = call("weights", "root", path.name, "--json").document()["root"]
    path.write_bytes(encoded({**W, "v": f32(5)}))
    assert call("weights", "root", path.name, "--json").document()["root"] == old
    red = call("weights", "root", path.name, "--fresh", "--json")
    assert (red.code, red.document()["root"] != old, red.codes()) == (1, True, ["CachedDigestsDisagree"])
    text = call("weights", "root", path.name, "--fresh")
    assert (text.code, call("weights", "root", path.name, "--json").document()["root"]) == (0, red.document()["root"])


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "countermark" / "digests").iterdir())


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: content.replace(b"[[", b"[[1,2],[", 1)])
def test_a_damaged_entry_is_told_and_never_believed(here: Path, call: Caller, damage: Callable[[bytes], bytes]) -> None:
    write(here / "s.safetensors", encoded(W))
    first = call("weights", "root", "s.safetensors", "--json").document()
    (entry,) = entries(Path(os.environ["XDG_CACHE_HOME"]))
    entry.write_bytes(damage(entry.read_bytes()))
    called = call("weights", "root", "s.safetensors", "--json")
    document = called.document()
    assert (called.code, document["root"], document["hashedBytes"]) == (0, first["root"], first["hashedBytes"])
    assert [(each["code"], each["entry"]) for each in document["warnings"]] == [("CachedDigestsDamaged", str(entry))]
    assert call("weights", "root", "s.safetensors", "--json").document()["warnings"] == []


def test_where_there_is_no_home_nothing_is_kept_and_nothing_fails(here: Path, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "s.safetensors", encoded(W))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    document = call("weights", "root", "s.safetensors", "--json").document()
    assert (document["warnings"], document["tensors"]) == ([], 2)
    monkeypatch.setenv("HOME", str(here))
    assert context.digest_cache(False).folder == here / ".cache" / "countermark" / "digests"
