"""The oracle: a checkpoint that a real trainer wrote, broken in one place each. Admission names exactly that; the trainer alone goes on."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from countermark.files.checkpoints import read_checkpoint
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.recipe import Manifest
from countermark.run import checkpoint as admission
from countermark.run.checkpoint import admit_checkpoint
from countermark.values import Refused
from tests.faults import planted, proven_by
from tests.train import broken
from tests.train.alone import HEAD, PAGE, WHOLE, Alone, shown, table
from tests.train.broken import BREAKS, LATER, STEP, Break, Donors, admission_table, copied
from tests.train.tiny import WORK_KEY, Attempt, Tiny, honest

pytestmark = pytest.mark.torch


@dataclass(frozen=True)
class Written:
    """What a plain trainer left, what was published of it, and the computation that it is of."""

    in_place: Path
    published: Path
    donors: Donors
    manifest: Manifest
    nonce: str


def plainly_trained(attempt: Attempt) -> Path:
    """The folder of the checkpoints of a trainer without any of our callbacks."""
    honest(attempt.training()).trainer().train()
    return attempt.folder / "work"


@pytest.fixture(scope="module")
def written(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Written:
    whole, other = tiny.attempt(), tiny.attempt(rank="2", total_steps=str(STEP))
    work, foreign = plainly_trained(whole), plainly_trained(other)
    assignment = whole.training().assignment
    done = publish_checkpoint(
        work / f"checkpoint-{STEP}",
        tmp_path_factory.mktemp("published"),
        step=STEP,
        attempt=assignment.nonce,
        work_key=WORK_KEY,
        manifest=dict(whole.desired),
        micro_batches=7,
    )
    assert isinstance(done, PublishedCheckpoint), done
    donors = Donors(work / f"checkpoint-{LATER}", foreign / f"checkpoint-{STEP}")
    return Written(work / f"checkpoint-{STEP}", Path(done.path), donors, assignment.manifest, assignment.nonce)


def codes(folder: Path, written: Written) -> tuple[str, ...]:
    """Everything that admission says against a folder that somebody vouches for, with the component that it is about."""
    answer = admit_checkpoint(read_checkpoint(folder), written.manifest, frozenset({written.nonce}), vouched=True)
    against = tuple(answer.defects) if isinstance(answer, Refused) else ()
    return tuple(f"{type(one).__name__}({one.component})" if hasattr(one, "component") else type(one).__name__ for one in against)


def test_what_nothing_was_done_to_is_admitted_in_both_forms(written: Written) -> None:
    assert codes(written.in_place, written) == codes(written.published, written) == ()


@proven_by(planted(admission, "component_defects", lambda readback: ()))
@pytest.mark.parametrize("each", [one for one in BREAKS if one.in_place], ids=lambda each: each.name)
def test_each_break_is_exactly_its_defects_in_place(written: Written, tmp_path: Path, each: Break) -> None:
    folder = copied(written.in_place, tmp_path / written.in_place.name)
    each.do(folder, written.donors)
    assert Counter(codes(folder, written)) == Counter(each.in_place)


@proven_by(planted(admission, "component_defects", lambda readback: ()))
@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_each_break_is_exactly_its_defects_where_it_was_published(written: Written, tmp_path: Path, each: Break) -> None:
    folder = copied(written.published, tmp_path / written.published.name)
    each.do(folder, written.donors)
    assert Counter(codes(folder, written)) == Counter(each.published)


def test_what_no_folder_in_place_can_show_is_not_claimed(written: Written, tmp_path: Path) -> None:
    for each in (one for one in BREAKS if not one.in_place):
        folder = copied(written.in_place, tmp_path / each.name / written.in_place.name)
        each.do(folder, written.donors)
        assert codes(folder, written) == (), each.name


# --------------------------------------------------------------------------------------------------------------- the page


@proven_by(planted(broken, "_cell", lambda told: "admissible"))
def test_the_page_says_what_admission_says() -> None:
    text = admission_table()
    assert shown(PAGE.read_text(encoding="utf-8"), text.splitlines()[0]) == text


def test_the_page_has_a_measured_row_for_each_break() -> None:
    rows = shown(PAGE.read_text(encoding="utf-8"), HEAD).splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [WHOLE, *(each.name for each in BREAKS)]
    assert rows[0].endswith("| 0 | nothing | the same |")


@pytest.mark.slow
def test_the_page_says_what_the_trainer_alone_does() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.train.alone", "--json"], capture_output=True, text=True, check=True, timeout=600)
    rows = tuple(Alone(**each) for each in json.loads(done.stdout.splitlines()[-1]))
    assert table(rows) == shown(PAGE.read_text(encoding="utf-8"), HEAD)
