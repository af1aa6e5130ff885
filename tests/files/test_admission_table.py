"""Every component broken in every way, and every two breaks at once, on a published checkpoint's files: exactly what the table has.

What is expected is restated here from what was done; nothing of it is asked of the code. A component is one file, apart from the weights.
"""

import json
import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest

from countermark.files.checkpoints import read_checkpoint
from countermark.files.publishing import PublishedCheckpoint, publish_checkpoint
from countermark.run import checkpoint as admission
from countermark.run.checkpoint import ManifestDiverges, admit_checkpoint, admit_weights_only
from countermark.values import NonEmpty, Refused
from tests.faults import planted, proven_by
from tests.files import folders
from tests.files.torchfiles import torch_file
from tests.recipe.examples import clean_manifest, clean_spellings

FILES: Final = {
    "model_weights": "adapter_model.safetensors",
    "optimizer_state": "optimizer.pt",
    "scheduler_state": "scheduler.pt",
    "rng_state": "rng_state.pth",
    "data_position": "trainer_state.json",
}
KINDS: Final = ("removed", "unreadable", "of another step", "flipped", "foreign")
BREAKS: Final = tuple((component, kind) for component in FILES for kind in KINDS)
Break = tuple[str, str]


def content(component: str, kind: str) -> bytes:
    """The bytes of a component's file that was broken so."""
    clean = folders.files(4)[FILES[component]]
    match component, kind:
        case _, "unreadable":
            return clean[: len(clean) // 2]
        case "data_position", "flipped":
            return clean.replace(b'"num_train_epochs": 3', b'"num_train_epochs": 2')
        case _, "flipped":
            return clean[:-1] + bytes([clean[-1] ^ 1]) if component == "model_weights" else _flipped_payload(clean)
        case "model_weights", _:
            return (
                folders.adapter_bytes(fill=8)
                if kind == "of another step"
                else folders.adapter_bytes(targets=("q_proj", "v_proj", "k_proj"))
            )
        case "optimizer_state", _:
            return torch_file(folders.optimizer(step=8) if kind == "of another step" else folders.optimizer(rank=2))
        case "scheduler_state", _:
            return torch_file(folders.scheduler(8) if kind == "of another step" else folders.scheduler(rate=0.001))
        case "rng_state", _:
            return torch_file(
                folders.generators(python=(3, tuple(range(1 if kind == "foreign" else 2, 627 if kind == "foreign" else 628))[:625], None))
            )
        case _:
            changes: dict[str, Any] = {"global_step": 8} if kind == "of another step" else {"train_batch_size": 4}
            return json.dumps(folders.trainer_state(**changes)).encode()


def _flipped_payload(archive: bytes) -> bytes:
    """One bit of the pickle within, which the archive has a checksum of."""
    at = archive.index(b"\x80\x02")
    return archive[: at + 40] + bytes([archive[at + 40] ^ 1]) + archive[at + 41 :]


#: What each break is by itself. An archive's checksum tells a flipped bit; what is told by a component's own step makes it incomplete.
TELLS_STEP: Final = frozenset({"optimizer_state", "scheduler_state", "data_position"})
SUMMED: Final = frozenset({"optimizer_state", "scheduler_state", "rng_state"})
DIVERGES: Final = {"scheduler_state": "learning_rate", "data_position": "micro_batch"}


def expected(*breaks: Break) -> Counter[str]:
    """The restated oracle."""
    found: list[str] = []
    of = dict(breaks)
    for component, kind in breaks:
        match kind:
            case "removed":
                found.append(f"ComponentMissing {component}")
            case "unreadable":
                found.append(f"ComponentUnread {component}")
            case "flipped" if component in SUMMED:
                found.append(f"ComponentUnread {component}")
            case "foreign" if component == "model_weights":
                # They hold modules that the adapter's own configuration does not select.
                found.append(f"ComponentUnread {component}")
            case _:
                found.append(f"ComponentDigestMismatch {component}")
                if kind == "of another step" and component in TELLS_STEP:
                    found.append(f"ComponentStepMismatch {component} 8")
    if any(one.split()[0] in {"ComponentMissing", "ComponentUnread", "ComponentStepMismatch"} for one in found):
        found.append("PublicationIncomplete")
    pair = {of.get("model_weights", ""), of.get("optimizer_state", "")}
    # Whether the optimizer is of these weights is seen where both were read.
    if "foreign" in pair and not {"removed", "unreadable"} & pair and of.get("optimizer_state") != "flipped":
        found.append("ComponentForeign optimizer_state")
    if coordinates := sorted(DIVERGES[component] for component, kind in breaks if kind == "foreign" and component in DIVERGES):
        found.append(f"ManifestDiverges {' '.join(coordinates)}")
    return Counter(found)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published checkpoint of step 4."""
    root = tmp_path_factory.mktemp("published")
    given: Any = {"attempt": folders.NONCE, "work_key": folders.WORK_KEY, "manifest": clean_spellings(), "micro_batches": 8}
    done = publish_checkpoint(folders.checkpoint(root), root, step=4, **given)
    assert isinstance(done, PublishedCheckpoint), done
    return Path(done.path)


def broken(published: Path, into: Path, *breaks: Break) -> Path:
    """A copy with these breaks."""
    folder = Path(shutil.copytree(published, into / published.name))
    for component, kind in breaks:
        path = folder / FILES[component]
        path.unlink()
        if kind != "removed":
            path.write_bytes(content(component, kind))
    return folder


def told(folder: Path) -> Counter[str]:
    """What admission says against a folder: the kinds of the defects, and what each is about. A component that is unread for several
    reasons is so once."""
    answer = admit_checkpoint(read_checkpoint(folder), clean_manifest(), frozenset({folders.NONCE}))
    found: dict[str, None] = {}
    for one in answer.defects if isinstance(answer, Refused) else ():
        if isinstance(one, ManifestDiverges):
            found[f"ManifestDiverges {' '.join(sorted(one.coordinates))}"] = None
        else:
            about = (str(getattr(one, name)) for name in ("component", "step") if hasattr(one, name))
            found[" ".join((type(one).__name__, *about))] = None
    return Counter(found.keys())


def test_what_nothing_was_done_to_is_admitted(published: Path) -> None:
    assert told(published) == Counter()


@proven_by(planted(admission, "component_defects", lambda readback: ()))
@pytest.mark.parametrize("one", BREAKS, ids=" ".join)
def test_each_break_is_exactly_its_row(published: Path, tmp_path: Path, one: Break) -> None:
    assert told(broken(published, tmp_path, one)) == expected(one)


class FirstWins:
    """``NonEmpty`` that forgets all but the first."""

    of = staticmethod(lambda items: NonEmpty(first[0]) if (first := list(items)[:1]) else None)


PAIRS: Final = [pair for pair in combinations(BREAKS, 2) if pair[0][0] != pair[1][0]]


def wrong(published: Path, scratch: Path, pairs: list[tuple[Break, Break]]) -> list[tuple[Break, Break]]:
    """The pairs against which something else is said than the table has."""
    return [pair for at, pair in enumerate(pairs) if told(broken(published, scratch / str(at), *pair)) != expected(*pair)]


@proven_by(planted(admission, "NonEmpty", FirstWins))
def test_two_breaks_are_both_named_whichever_they_are(published: Path, tmp_path: Path) -> None:
    """Each break is in some pair of this share; the rest are held to the table by ``make slow``."""
    share = PAIRS[:: len(PAIRS) // 25]
    assert {one for pair in share for one in pair} and wrong(published, tmp_path, share) == []


@pytest.mark.slow
def test_every_two_breaks_are_both_named(published: Path, tmp_path: Path) -> None:
    assert len(PAIRS) == 250 and wrong(published, tmp_path, PAIRS) == []


def test_weights_are_admitted_for_themselves_whatever_the_rest_is(published: Path, tmp_path: Path) -> None:
    for at, (component, kind) in enumerate(BREAKS):
        answer = admit_weights_only(read_checkpoint(broken(published, tmp_path / str(at), (component, kind))))
        assert isinstance(answer, Refused) == (component == "model_weights"), (component, kind)
