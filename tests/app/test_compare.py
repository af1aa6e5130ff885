"""Whatever a person can name: a recipe, a checkpoint, a run, an attempt, a prefix of its id."""

from pathlib import Path

import pytest

from countermark.app import compare
from countermark.app.compare import find_run, manifest_diff, manifest_of
from countermark.files.publishing import publish_checkpoint
from countermark.lines.surface import CheckpointDeclaresNothing, NothingNamed, SeveralNamed
from countermark.recipe import Difference, Manifest, spellings
from countermark.store.sqlite import SqliteStore
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.files.folders import NONCE, WORK_KEY, checkpoint
from tests.files.tensors import write
from tests.recipe.examples import CLEAN, clean_manifest, clean_recipe_text
from tests.run.examples import desired
from tests.store.examples import CONTEXT, RUN, recorded, won


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one run of one attempt, and a second run."""
    with SqliteStore.open(tmp_path / "store", create=True) as made:
        recorded(made)
        won(made, 1)
        made.record_demand(desired("weekly", seed="18"), CONTEXT, 2_000)
    return tmp_path / "store"


def manifest(found: Manifest | Refused[object]) -> dict[str, str]:
    assert isinstance(found, Manifest), found
    return spellings(found)


def test_a_recipe_a_run_an_attempt_and_a_checkpoint_have_manifests(tmp_path: Path, store: Path) -> None:
    recipe = write(tmp_path / "recipe.toml", clean_recipe_text().encode())
    with SqliteStore.open(store, create=False) as opened:
        (attempt,) = opened.find_attempt("0")
    publish_checkpoint(checkpoint(tmp_path, 4), tmp_path, step=4, attempt=NONCE, work_key=WORK_KEY, manifest=CLEAN)
    for name in (str(recipe), RUN, RUN[:8], attempt.nonce.hex, attempt.nonce.hex[:8], str(tmp_path / "step-4")):
        assert manifest(manifest_of(name, store)) == CLEAN, name
    other = desired("weekly", seed="18").demand.id.run_id()
    a, b = manifest_of(RUN, store), manifest_of(other, store)
    assert isinstance(a, Manifest) and isinstance(b, Manifest)
    assert manifest_diff(a, b) == (Difference("seed", "seed", "17", "18"),)
    assert manifest_diff(clean_manifest(), clean_manifest()) == ()


@proven_by(planted(compare, "PREFIX_MIN", 1))
def test_a_name_of_nothing_is_said(tmp_path: Path, store: Path) -> None:
    for name in ("no-such-thing", RUN[:7], "", "f" * 32):
        answer = manifest_of(name, store)
        assert isinstance(answer, Refused) and list(answer.defects) == [NothingNamed(name)], name
    for folder in (None, tmp_path / "no store"):
        answer = manifest_of(RUN, folder)
        assert isinstance(answer, Refused) and list(answer.defects) == [NothingNamed(RUN)]
    plain = checkpoint(tmp_path, 4)
    answer = manifest_of(str(plain), None)
    assert isinstance(answer, Refused) and list(answer.defects) == [CheckpointDeclaresNothing(str(plain))]


def test_a_prefix_of_several_runs_names_none_of_them(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteStore.open(store, create=False) as opened:
        runs = tuple(sorted(summary.run_id for summary in opened.list_runs()))
        every = opened.find_runs("")
        monkeypatch.setattr(SqliteStore, "find_runs", lambda self, prefix: every)
        answer = find_run(opened, "0" * 8)
    assert isinstance(answer, Refused) and list(answer.defects) == [SeveralNamed("0" * 8, runs)]
