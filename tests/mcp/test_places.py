"""Paths that a client names lead nowhere but into the folders that the server was given."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from countermark.lines.serving import ParameterUnfit, PathOutside
from countermark.mcp import places as room
from countermark.mcp.places import Places
from tests.cli.test_commands import write_safetensors
from tests.faults import planted, proven_by
from tests.mcp.asking import ask, codes, desk_of, said


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the project, whose name begins like it."""
    folder = tmp_path / "project-of-others"
    folder.mkdir()
    write_safetensors(folder / "w.safetensors", {"secret": b"\0\0\0\0"})
    return folder


def linked(link: Path, target: Path) -> str:
    link.symlink_to(target)
    return str(link)


def inner(folder: Path, target: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "w.safetensors").symlink_to(target)
    return str(folder)


def behind(here: Path, outside: Path) -> str:
    """A folder with a link to a folder of the project, in which a link leads out."""
    inner(here / "second", outside / "w.safetensors")
    (here / "first").mkdir()
    (here / "first" / "more").symlink_to(here / "second")
    return "first"


_HOSTILE: dict[str, Callable[[Path, Path], str]] = {
    "absolute": lambda here, outside: str(outside),
    "relative": lambda here, outside: f"../{outside.name}",
    "through itself": lambda here, outside: f"{here}/x/../../{outside.name}/w.safetensors",
    "a link": lambda here, outside: linked(here / "link", outside),
    "a link to a link": lambda here, outside: linked(here / "second", Path(linked(here / "first", outside))),
    "below a link": lambda here, outside: linked(here / "link", outside) + "/w.safetensors",
    "a link within": lambda here, outside: inner(here / "folder", outside / "w.safetensors"),
    "a link deep within": lambda here, outside: str(Path(inner(here / "folder" / "deep" / "er", outside)).parents[1]),
    "a link behind a link": behind,
    "the parent": lambda here, outside: "..",
    "the root": lambda here, outside: "/",
    "what is not there": lambda here, outside: f"{outside}/nothing",
    "a user's home": lambda here, outside: str(Path.home() / ".ssh" / "id_rsa"),
}


@proven_by(planted(Places, "_within", lambda self, path: True))
@pytest.mark.parametrize("name", _HOSTILE)
def test_what_leads_out_is_refused_whether_it_is_there_or_not(here: Path, outside: Path, name: str) -> None:
    path = _HOSTILE[name](here, outside)
    write_safetensors(here / "own.safetensors", {"w": b"\0\0\0\0"})
    assert Places.of(here).path_of(path, "a") == PathOutside(path, (os.path.realpath(here),))
    for tool, given in (("weights_diff", {"a": "own.safetensors", "b": path}), ("checkpoint_inspect", {"paths": [path]})):
        answer = ask(desk_of(here), tool, **given)
        assert codes(answer) == ["PathOutside"], tool
        assert "secret" not in json.dumps(answer.document) + answer.text


def test_both_sides_of_a_difference_are_refused_together(here: Path, outside: Path) -> None:
    assert codes(ask(desk_of(here), "weights_diff", a=str(outside), b="..")) == ["PathOutside", "PathOutside"]


def test_what_lies_within_is_read_by_every_spelling(here: Path, outside: Path, tmp_path: Path) -> None:
    write_safetensors(here / "w.safetensors", {"w": b"\0\0\0\0"})
    (here / "link").symlink_to(here / "w.safetensors")
    (here / "..odd").mkdir()
    write_safetensors(here / "..odd" / "w.safetensors", {"w": b"\0\0\0\0"})
    for path in (
        "w.safetensors",
        "./w.safetensors",
        str(here / "w.safetensors"),
        "link",
        f"../{here.name}/w.safetensors",
        "..odd/w.safetensors",
    ):
        assert said(ask(desk_of(here), "weights_diff", a=path, b="w.safetensors"))["totals"]["tensors"] == 1, path
    given = {"a": "w.safetensors", "b": str(outside / "w.safetensors")}
    assert codes(ask(desk_of(here), "weights_diff", **given)) == ["PathOutside"]
    assert said(ask(desk_of(here, outside), "weights_diff", **given))["totals"]["byStatus"]
    # A root may be a link itself.
    (tmp_path / "root").symlink_to(outside)
    assert said(ask(desk_of(here, tmp_path / "root"), "weights_diff", **given))["totals"]["byStatus"]


@pytest.mark.parametrize("path", ["a\0b", "\ud83e", "x" * 4_000, "a\nb\x1b[2J", "~/x", "loop"])
def test_odd_names_are_answered(here: Path, path: str) -> None:
    (here / "loop").symlink_to(here / "loop")
    answer = ask(desk_of(here), "checkpoint_inspect", paths=[path])
    assert not answer.document["ok"] and codes(answer) in (["CheckpointAbsent"], ["ParameterUnfit"], ["CheckpointUnreadable"])
    answer.text.encode()
    assert [each for each in answer.text if not each.isprintable() and each not in "\n\t"] == []


def test_a_folder_of_too_much_is_not_walked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_ENTRIES_MAX", 3)
    for name in "abcdef":
        (here / name).mkdir()
    found = Places.of(here).path_of(".", "a")
    assert isinstance(found, ParameterUnfit) and found.wanted == "a path with at most 3 entries below it"
    assert Places.of(here).path_of("a", "a") == str(here / "a")


def test_an_index_that_names_what_lies_outside_reads_nothing_of_it(here: Path, outside: Path) -> None:
    folder = here / "model"
    folder.mkdir()
    for name in (f"../../{outside.name}/w.safetensors", str(outside / "w.safetensors")):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"secret": name}}), encoding="utf-8")
        answer = ask(desk_of(here), "weights_diff", a="model", b="model")
        assert answer.is_error and codes(answer) != [], answer.text
        assert '"totals"' not in json.dumps(answer.document)


def test_a_run_is_no_name_of_a_file(here: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    linked(here / "deadbeefdeadbeef", outside / "w.safetensors")
    write_safetensors(here / "w.safetensors", {"w": b"\0\0\0\0"})
    for run in ("deadbeefdeadbeef", "/etc/passwd", "recipe.toml", "../x"):
        answer = ask(desk_of(here), "checkpoint_inspect", paths=["w.safetensors"], run=run)
        assert codes(answer) == ["ParameterUnfit"]
