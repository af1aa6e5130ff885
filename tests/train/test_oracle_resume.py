"""The oracle by the commands that a person types: a real training that died is gone on from its checkpoint to the same bits, and with one
thing done to that checkpoint no trainer starts."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.called import Caller
from tests.train.broken import BREAKS, LATER, STEP, Donors, copied
from tests.train.commanded import COMMAND, attempts_of, laid_out
from tests.train.tiny import Tiny, adapter_bits, honest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: An honest script that dies in the middle of a step while a file says so, and leaves a line for each time that it was started.
SCRIPT = """
import os
from pathlib import Path
from transformers import Trainer, TrainerCallback
from countermark.train import Training

with open("started.txt", "a") as file:
    file.write(os.environ["COUNTERMARK_RESUME"] + "\\n")


class Dies(TrainerCallback):
    def on_step_end(self, args, state, control, **rest):
        if state.global_step == 5 and Path("dies").exists():
            os._exit(3)


training = Training.from_environment()
tokenizer = training.tokenizer()
trainer = Trainer(
    model=training.adapted_model(), args=training.training_arguments(), train_dataset=training.dataset(tokenizer),
    data_collator=training.collator(tokenizer), processing_class=tokenizer, callbacks=[Dies()],
)
training.run(trainer)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, rows, a recipe and a script."""
    return laid_out(tmp_path, SCRIPT, monkeypatch)


def refused(document: dict[str, Any]) -> Counter[str]:
    """What a verdict says against the checkpoint of the step, each with the component that it is about."""
    (why,) = (each for each in document["whyNot"] if each["code"] == "CheckpointNotAdmitted" and each["step"] == STEP)
    return Counter(f"{each['code']}({each['component']})" if "component" in each else each["code"] for each in why["defects"])


def test_no_trainer_starts_from_a_broken_checkpoint_and_the_whole_one_leads_to_the_same_bits(
    here: Path, tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    call = Caller(capsys)
    whole = call("run", "recipe.toml", "--pin", "--request", "whole", "--json", "--", *COMMAND)
    assert (whole.code, whole.document()["verdict"]) == (0, "Converged"), whole.err
    (uninterrupted,) = attempts_of(call, whole.document()["run"])
    (here / "dies").touch()
    died = call("run", "recipe.toml", "--pin", "--request", "died", "--json", "--", *COMMAND).document()
    run = died["run"]
    (first,) = attempts_of(call, run)
    assert died["verdict"] == "ResumeAvailable"
    (here / "dies").unlink()
    shutil.rmtree(first / "checkpoints" / "step-2")

    other = tiny.attempt(rank="2", total_steps=str(STEP))
    honest(other.training()).trainer().train()
    donors = Donors(uninterrupted / "checkpoints" / f"step-{LATER}", other.folder / "work" / f"checkpoint-{STEP}")
    place, kept = first / "checkpoints" / f"step-{STEP}", copied(first / "checkpoints" / f"step-{STEP}", here / "kept")
    started = (here / "started.txt").read_text(encoding="utf-8")
    for each in BREAKS:
        each.do(place, donors)
        asked = call("resume", run, "--json")
        assert (asked.code, asked.codes()) == (1, ["ResumeUnavailable"]), each.name
        assert refused(call("status", run, "--json").document()) == Counter(each.published), each.name
        shutil.rmtree(place)
        copied(kept, place)
    assert (here / "started.txt").read_text(encoding="utf-8") == started
    assert attempts_of(call, run) == [first]

    gone_on = call("resume", run, "--json")
    assert (gone_on.code, gone_on.document()["verdict"]) == (0, "Converged"), gone_on.err
    assert (here / "started.txt").read_text(encoding="utf-8") == started + f"{place}\n"
    assert adapter_bits(attempts_of(call, run)[-1] / "output") == adapter_bits(uninterrupted / "output")
