"""The roster of layouts: names in numeric order, whole and unambiguous; a folder of several layouts is of none; every layout is asked."""

from pathlib import Path

import pytest

from countermark.files import layouts, reading
from countermark.files.checkpoints import CheckpointListing, list_checkpoints, step_of
from countermark.files.layouts import LAYOUTS, Kind, Layout, Naming, Numbered, numbered, recognised
from countermark.files.layouts.published import PUBLISHED_NAMING
from countermark.files.reading import FileAbsent, FileNotRegular, FileUnreadable, OpenFile, list_tree, open_below
from countermark.run.checkpoint import Component, ComponentUnreadable, Incomplete, WeightsOnlyCheckpoint, admit_weights_only
from tests.faults import planted, proven_by
from tests.files.folders import files
from tests.files.layouts.breaking import read, written
from tests.files.torchfiles import torch_file

NAMINGS = sorted({(layout.kind, naming.text) for layout in LAYOUTS for naming in layout.names} | {("a folder", PUBLISHED_NAMING.text)})


def filled(text: str, number: str) -> str:
    """A name of a form with this number, or text, in its last field, and 3 in the others."""
    last = max(("{step}", "{epoch}", "{save}"), key=text.rfind)
    for field in ("{step}", "{epoch}", "{save}"):
        text = text.replace(field, number if field == last else "3")
    return text


def test_every_layout_has_a_name_of_its_own_and_names_its_checkpoints() -> None:
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS) and all(layout.names for layout in LAYOUTS)
    assert layouts.UNKNOWN_LAYOUT not in {layout.name for layout in LAYOUTS}


def loosely(naming: Naming, name: str) -> Numbered | None:
    """Not to its end."""
    form, _ = layouts.reading._form(naming.text)
    found = form.match(name)
    return Numbered(int(found[len(found.groups())]), None) if found else None


@proven_by(planted(Naming, "numbered", loosely))
@pytest.mark.parametrize(("kind", "text"), NAMINGS)
def test_a_name_counts_from_its_first_letter_to_its_last(kind: Kind, text: str) -> None:
    """What is temporary, padded, or called something besides, is no checkpoint."""
    naming = Naming(text)
    assert [naming.numbered(filled(text, number)) is not None for number in ("0", "7", "1000")] == [True] * 3
    whole = filled(text, "7")
    for name in (f"tmp-{whole}", f".{whole}", f"{whole}.tmp", f"{whole}-tmp", f"{whole}\n", f"{whole}x", f" {whole}"):
        assert naming.numbered(name) is None, name
    for number in ("", "07", "+7", "-7", "7.0", "1_0", "٣", "7e3", "9" * 17):
        assert naming.numbered(filled(text, number)) is None, number


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_name_orders_alike_in_every_layout_and_says_what_its_own_counts(layout: Layout) -> None:
    """``checkpoint_7`` is the seventh save of one library and the step 7 of another."""
    for naming in layout.names:
        name = filled(naming.text, "7")
        said = naming.numbered(name)
        assert said is not None and said.number == 7 and said == numbered(name, layout.kind, layout.name)
        assert getattr(numbered(name, layout.kind), "number", None) == 7


def test_what_counts_epochs_or_saves_tells_no_step() -> None:
    told = {name: step_of(name) for name in ("checkpoint-20", "step-20", "step_20", "epoch_20", "checkpoint_20", "kept")}
    assert told == {"checkpoint-20": 20, "step-20": 20, "step_20": 20, "epoch_20": None, "checkpoint_20": None, "kept": None}


def test_checkpoints_of_every_layout_are_listed_by_number(tmp_path: Path) -> None:
    for name in ("step_900", "step_1000", "step_20", "step_1000-tmp", "tmp_step_2000", "step_030"):
        (tmp_path / name).mkdir()
    assert list_checkpoints(tmp_path) == CheckpointListing(
        ((20, "step_20"), (900, "step_900"), (1000, "step_1000")), ("step_030", "step_1000-tmp", "tmp_step_2000")
    )


# ---------------------------------------------------------------------------------------------------------------- several

OF_TWO = files() | {"random_states_0.pkl": torch_file({"step": 4})}


def first_wins(path: Path, kind: Kind, entries: tuple[reading.Entry, ...]) -> tuple[layouts.Layout, ...]:
    return recognised(path, kind, entries)[:1]


@proven_by(planted(layouts, "recognised", first_wins))
def test_a_folder_of_several_layouts_names_them_and_is_read_as_none(tmp_path: Path) -> None:
    readback = read(written(tmp_path / "checkpoint-4", OF_TWO))
    why = "its files are those of transformers-peft and of accelerate: nothing tells which of them it is"
    assert readback.layout == "unknown" and readback.step == 4 and readback.facts == ()
    assert dict(readback.components) == {component: ComponentUnreadable((why,)) for component in Component}
    assert isinstance(readback.marker, Incomplete) and readback.marker.whys == (why,)


@proven_by(planted(layouts, "take_weights", lambda path, names, reading: layouts.reading.Parts()))
def test_a_folder_of_no_layout_is_good_for_its_weights_at_most(tmp_path: Path) -> None:
    weights = {name: content for name, content in files().items() if name.startswith("adapter_")}
    readback = read(written(tmp_path / "kept", weights))
    assert readback.layout == "unknown" and isinstance(admit_weights_only(readback), WeightsOnlyCheckpoint)


# ------------------------------------------------------------------------------------------------------------------ trees


def test_a_tree_is_listed_under_its_names_and_no_link_is_followed(tmp_path: Path) -> None:
    written(tmp_path / "a", {"b/c/d": b"1", "b/e": b"2", "f": b"3"})
    (tmp_path / "a" / "out").symlink_to(tmp_path)
    listed = list_tree(tmp_path / "a")
    assert isinstance(listed, tuple)
    assert [(entry.name, entry.kind) for entry in listed] == [
        ("b", "a folder"), ("b/c", "a folder"), ("b/c/d", "a regular file"), ("b/e", "a regular file"), ("f", "a regular file"),
        ("out", "a link"),
    ]  # fmt: skip
    shallow = list_tree(tmp_path / "a", 1)
    assert isinstance(shallow, tuple) and len(shallow) == 5
    assert [entry.kind for entry in shallow if entry.name == "b/c"] == ["a closed folder"]
    assert list_tree(tmp_path / "a", most=6) == listed
    too_many = FileUnreadable(str(tmp_path / "a"), "over 5 files and folders lie in it")
    assert list_tree(tmp_path / "a", most=5) == too_many
    assert isinstance(list_tree(tmp_path / "nothing"), FileAbsent)


def test_a_file_below_is_opened_through_real_folders_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", {"b/c": b"1"})
    written(tmp_path / "elsewhere", {"c": b"2"})
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    with open_below(folder, "b/c") as opened:  # type: ignore[union-attr]
        assert isinstance(opened, OpenFile) and opened.name == "b/c" and opened.read(0, 1) == b"1"
    assert open_below(folder, "b/d") == FileAbsent("b/d") and open_below(folder, "x/c") == FileAbsent("x/c")
    for name in ("link/c", "../elsewhere/c", "b/../../elsewhere/c"):
        assert isinstance(open_below(folder, name), FileNotRegular), name


def test_an_empty_folder_is_claimed_once_at_most(tmp_path: Path) -> None:
    """What a stopped save leaves is of one layout by its name, or of none."""
    for kind, text in NAMINGS:
        if kind == "a folder":
            folder = tmp_path / filled(text, "7")
            folder.mkdir(exist_ok=True)
            assert len(recognised(folder, "a folder", ())) <= 1, text
