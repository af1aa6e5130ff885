"""One ledger in a database, several folders of attempts: none is taken for another, on one host or on two of one name."""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from countermark.app import ports
from countermark.app.deciding import abandon_attempt
from countermark.app.ports import opened
from countermark.files import place
from countermark.files.place import FILE, made_place, place_of
from countermark.files.procfs import host_name
from tests.app.bench import HONEST, SETTINGS, Bench, arm, names
from tests.faults import planted, proven_by
from tests.launch.conftest import Place


@pytest.fixture
def ledger(postgres_url: str) -> str:
    return postgres_url


@contextmanager
def another_folder(bench: Bench, **options: Any) -> Iterator[Bench]:
    """A controller of another folder on this host, over the same ledger."""
    folder = bench.root / "another" / ".countermark"
    with opened(folder, create=False, url=bench.url, **SETTINGS, **options) as found:
        yield Bench(bench.root, found, bench.url)
    Place(folder).close()


def a_folder_is_no_place() -> AbstractContextManager[object]:
    """Another folder of this host goes by the name of the first."""
    return planted(ports, "host_of", lambda folder, url, acts: f"{host_name()}:{place_of(folder.parent.parent / '.countermark')}")()


@pytest.mark.parametrize("step", ["intended", "launched"])
@proven_by(a_folder_is_no_place)
def test_a_launch_from_one_folder_is_not_made_again_from_another(bench: Bench, step: str) -> None:
    """Between intent and outcome a launcher creates or gets: in its own folder only, where it can find what an earlier call began."""
    run = bench.told(("effective", "hang", "output"))
    assert bench.controller(run, "--die", step).wait(timeout=40) == 9
    if step == "launched":
        bench.hanging()
    with another_folder(bench) as other:
        looked = other.step(run)
        assert arm(other.look(run)) == "LaunchPending" and "dispatched" not in str(looked)
        assert not other.ports.launcher.attempts_root.exists()
    if step == "intended":
        assert any("dispatched attempt" in line for line in bench.acted(run))
        bench.hanging()
    bench.go_on()
    assert arm(bench.ended(run)) == "Converged" and len(bench.executions()) == 1


@proven_by(a_folder_is_no_place)
def test_a_living_attempt_of_another_folder_is_not_lost_and_not_made_anew(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    with another_folder(bench) as other:
        last = other.ended(run, 0, lambda verdict: True)
        missing = {getattr(why, "why", "") for why in last.conclusion.why_not}
        assert arm(last) in ("LaunchPending", "ObservationRequired") and f"the attempt is on {bench.ports.host}; look from there" in missing
        nonce = bench.claims(run)[0].attempt.nonce.hex
        assert names(abandon_attempt(other.ports, "f" * 32, "ada")) == ["NothingNamed"]
        abandon_attempt(other.ports, nonce, "ada")
        assert arm(other.look(run)) == "Lost", "a person's word makes it so"
        assert any("cannot be fenced from here" in line for line in other.acted(run))
        assert len(bench.claims(run)) == 2
        bench.go_on()
        other.ended(run)
    assert len(bench.executions()) == 2


def test_who_only_looks_makes_no_place_and_takes_none_for_his_own(bench: Bench) -> None:
    run = bench.told(("effective", "hang", "output"))
    assert bench.acted(run)
    bench.hanging()
    with another_folder(bench, acts=False) as other:
        assert other.ports.host == host_name() and arm(other.look(run)) != "InProgress"
        assert not other.ports.folder.exists()
    with opened(bench.store, create=False, url=bench.url, acts=False, **SETTINGS) as looking:
        assert looking.host == bench.ports.host and arm(Bench(bench.root, looking, bench.url).look(run)) == "InProgress"
    bench.go_on()


def test_a_name_is_made_once_by_whoever_comes_first_and_goes_where_the_folder_goes(tmp_path: Path) -> None:
    first = made_place(tmp_path / "a")
    assert [made_place(tmp_path / "a"), place_of(tmp_path / "a")] == [first, first]
    assert made_place(tmp_path / "b") != first and place_of(tmp_path / "c") is None and not (tmp_path / "c").exists()
    shutil.move(tmp_path / "a", tmp_path / "moved")
    assert place_of(tmp_path / "moved") == first and made_place(tmp_path / "a") != first
    (torn,) = (tmp_path / "b").glob(f"{FILE}*")
    torn.write_text("torn")
    with pytest.raises(OSError, match="does not hold the name of a place"):
        made_place(tmp_path / "b")


def a_copy_is_the_same_place() -> AbstractContextManager[object]:
    """The fault: the name that lies in a folder is the folder's, wherever it came from."""
    return planted(place, "_file_of", lambda folder: next(iter(folder.glob(f"{FILE}*")), folder / FILE))()


@proven_by(a_copy_is_the_same_place)
def test_a_launch_is_not_made_again_from_a_copy_of_the_folder(bench: Bench) -> None:
    """The controller died between intent and launch; the copy has the folder's files, and no part in what is begun in the folder."""
    run = bench.told(HONEST)
    assert bench.controller(run, "--die", "intended").wait(timeout=40) == 9
    shutil.copytree(bench.store, bench.root / "another" / ".countermark")
    with another_folder(bench) as other:
        assert (arm(other.look(run)), other.acted(run)) == ("LaunchPending", ())
        assert other.ports.host != bench.ports.host
    assert any("dispatched attempt" in line for line in bench.acted(run))
    assert arm(bench.ended(run)) == "Converged" and len(bench.executions()) == 1


def test_a_ledger_in_the_folder_needs_no_place(tmp_path: Path) -> None:
    with opened(tmp_path / ".countermark", create=True, **SETTINGS) as found:
        assert found.host == host_name() and not list(found.folder.glob(f"{FILE}*"))
