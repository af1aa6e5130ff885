"""The chapters of the demo: a recipe that is refused, a fine-tune that is killed and resumed, and the proof that nothing was lost."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from countermark.cli.story import STORE, StoryBroken, Teller, attempt_folders, kill_trainer
from countermark.files.desired import CHECKPOINTS

SAVE_STEPS: Final = 3
TOTAL_STEPS: Final = 12
ROWS: Final = 200

#: What people write: several coordinates are left to whoever runs it.
OPEN_RECIPE: Final = f"""\
# A LoRA fine-tune as it is often written: it leaves much to whoever runs it.
countermark = 1
name = "topics-lora"

[coordinates]
base_artifact = "main"
target_modules = "all-linear"
rank = 8
learning_rate = 2e-4
lr_schedule = "cosine"
warmup_steps = "auto"
total_steps = -1
micro_batch = 2
numeric_format = "auto"

[sources]
model = "models/SmolLM2-135M"
tokenizer = "models/SmolLM2-135M"
dataset = "data/topics.jsonl"

[trainer]
save_steps = {SAVE_STEPS}
threads = 2
"""

#: What pins it, beside what --pin measures. The data order has a seed of its own.
PINS: Final = f"""\
countermark = 1

[coordinates]
seed = 17
data_order = {{ order = "shuffle", algorithm = "torch_randperm_epoch", seed = 3 }}
method = "lora(init=kaiming)"
target_modules = ["q_proj", "v_proj"]
scaling = 2.0
dropout = 50
optimizer = {{ implementation = "adamw_torch", beta1 = 0.9, beta2 = 0.999, eps = 1e-8 }}
weight_decay = 0.01
warmup_steps = 2
total_steps = {TOTAL_STEPS}
max_grad_norm = 1.0
numeric_format = "fp32"
sequence_length = 96
packing = "none"
loss_mask = "all_tokens"
gradient_accumulation = 1
"""

TRAINER: Final = (sys.executable, "-m", "countermark.train.finetune")


def tell(into: str | None) -> int:
    """Tell the story in a folder (by default ``./demo``); 0 when everything in it held, else 1."""
    from countermark.train import CannotTrain

    teller = Teller(Path(into or "demo").absolute())
    try:
        _prepare(teller)
        _refused(teller)
        _pinned(teller)
        run, attempt = _killed(teller)
        _torn(teller, run, attempt)
        _resumed(teller, run)
        _two_controllers(teller, run)
        _attached(teller)
        _other_seed(teller)
        _where_to_look(teller, run)
    except (StoryBroken, CannotTrain) as broken:
        teller.say(f"✗ {broken}")
        teller.say(f"the folder is left as it is: {teller.folder}")
        return 1
    return 0


def _prepare(teller: Teller) -> None:
    from countermark.train.smollm2 import convert_smollm2, write_topics

    folder = teller.folder
    teller.chapter(
        "A real model and real text",
        "SmolLM2-135M (135 million parameters) is converted from the GGUF file of an installed package, and the text is",
        "Python's own help topics. Nothing is downloaded. Everything of this story lies in " + str(folder) + ".",
    )
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / STORE).exists():
        shutil.rmtree(folder / STORE)
        teller.say("the store of an earlier telling is replaced; the model is used again")
    convert_smollm2(folder / "models" / "SmolLM2-135M", teller.say)
    write_topics(folder / "data" / "topics.jsonl", ROWS)
    (folder / "recipe.toml").write_text(OPEN_RECIPE, encoding="utf-8")
    (folder / "pins.toml").write_text(PINS, encoding="utf-8")


def _refused(teller: Teller) -> None:
    teller.chapter(
        "A recipe that leaves things open is refused",
        "Two runs of it could be two computations. Every open coordinate is named at once, with what would pin it.",
    )
    teller.run("resolve", "recipe.toml", expect=1)
    document = teller.ask("resolve", "recipe.toml", expect=(1,))
    axes = {str(defect["axis"]).partition(".")[0] for defect in document["defects"]}
    teller.expect(len(axes) == 19, "19 of the 23 coordinates are open, and all of them are named")


def _pinned(teller: Teller) -> None:
    teller.chapter(
        "Pinned, it resolves to one exact computation",
        "pins.toml says what the recipe left open; --pin hashes the model folder, the tokenizer and the rows themselves.",
    )
    teller.run("resolve", "recipe.toml", "--overlay", "pins.toml", "--pin")
    document = teller.ask("resolve", "recipe.toml", "--overlay", "pins.toml", "--pin")
    _write_pinned(teller.folder / "pinned.toml", document["manifest"])
    other = {**document["manifest"], "seed": "18"}
    _write_pinned(teller.folder / "other-seed.toml", other)
    key = teller.ask("key", "pinned.toml")
    teller.expect(key["workKey"] == document["workKey"], "pinned.toml, which spells every coordinate out, has the same Work key")


def _write_pinned(path: Path, manifest: dict[str, str]) -> None:
    """A recipe that spells every coordinate out."""
    coordinates = "\n".join(f"{name} = {json.dumps(spelling)}" for name, spelling in manifest.items())
    tail = OPEN_RECIPE[OPEN_RECIPE.index("[sources]") :]
    path.write_text(f'countermark = 1\nname = "topics-lora"\n\n[coordinates]\n{coordinates}\n\n{tail}', encoding="utf-8")


def _killed(teller: Teller) -> tuple[str, Path]:
    teller.chapter(
        "It runs under a claim, and is killed in the middle",
        f"{TOTAL_STEPS} optimizer steps with a checkpoint every {SAVE_STEPS}. The start is claimed before the trainer exists. After the",
        "second checkpoint was published, the trainer gets SIGKILL: no handler of its own can say goodbye.",
    )
    started = teller.start("run", "pinned.toml", "--", *TRAINER)
    wanted = f"{CHECKPOINTS}/step-{2 * SAVE_STEPS}"
    teller.wait_until(f"{wanted} is published", _published(teller, wanted, lambda: started.poll() is not None))
    attempt = attempt_folders(teller.folder)[0]
    teller.say(f"SIGKILL to the trainer, pid {kill_trainer(attempt)}")
    teller.finish(started, expect=1)
    runs = teller.ask("runs")["runs"]
    teller.expect(len(runs) == 1, "there is one run")
    run = str(runs[0]["run"])[:12]
    teller.say("status says what happened, and what to do:")
    teller.run("status", run)
    verdict = teller.ask("status", run)["verdict"]
    teller.expect(verdict == "ResumeAvailable", "the verdict is ResumeAvailable: killed, and a whole checkpoint is there")
    return run, attempt


def _published(teller: Teller, name: str, ended: Callable[[], bool]) -> Callable[[], bool]:
    def holds() -> bool:
        if ended():
            raise StoryBroken("the run ended before it could be killed; see log.txt in its attempt's folder")
        return any((attempt / name).is_dir() for attempt in attempt_folders(teller.folder))

    return holds


def _torn(teller: Teller, run: str, attempt: Path) -> None:
    step = 3 * SAVE_STEPS
    torn = attempt / CHECKPOINTS / f"step-{step}"
    teller.chapter(
        "A torn newer checkpoint is refused",
        f"We tear one on purpose: step-{step} gets the weights alone, as if saving had stopped there. A trainer would resume from it,",
        "because its number is the highest, and converge to another model.",
    )
    shutil.copytree(attempt / CHECKPOINTS / f"step-{2 * SAVE_STEPS}", torn)
    for file in torn.iterdir():
        if not file.name.startswith("adapter_"):
            file.unlink()
    teller.run("checkpoint", "inspect", str(torn.relative_to(teller.folder)), "--for", run, expect=1)
    document = teller.ask("checkpoint", "inspect", str(torn.relative_to(teller.folder)), "--for", run, expect=(1,))
    missing = sorted(defect["component"] for defect in document["defects"] if defect["code"] == "ComponentMissing")
    expected = ["data_position", "optimizer_state", "rng_state", "scheduler_state"]
    teller.expect(missing == expected, "every missing component is named: " + ", ".join(expected))


def _resumed(teller: Teller, run: str) -> None:
    teller.chapter(
        "reconcile --act resumes from the admitted checkpoint, and it converges",
        "A new attempt under a new claim goes on from the last whole checkpoint. What it was, what it did and what it wrote is read back.",
    )
    teller.run("reconcile", run, "--act", "--watch")
    document = teller.ask("status", run)
    teller.expect(
        document["verdict"] == "Converged", "the verdict is Converged: one success, one output, 23 of 23 coordinates as asked for"
    )
    teller.run("attempts", run)


def _two_controllers(teller: Teller, run: str) -> None:
    teller.chapter(
        "Two controllers start one uninterrupted run, and one trainer runs",
        "The same work under another request name, started twice at the same moment. One claim wins; the other attaches to it.",
    )
    before = set(attempt_folders(teller.folder))
    calls = [teller.start("run", "pinned.toml", "--request", "uninterrupted", "--", *TRAINER) for _ in range(2)]
    for call in calls:
        teller.finish(call, expect=0)
    new = [folder for folder in attempt_folders(teller.folder) if folder not in before]
    teller.expect(len(new) == 1, "two controllers, one attempt")
    resumed = next(folder for folder in reversed(attempt_folders(teller.folder)) if folder not in new and (folder / "output").is_dir())
    outputs = [str((folder / "output").relative_to(teller.folder)) for folder in (resumed, new[0])]
    teller.say("the weights of the killed and resumed run, and of the uninterrupted one:")
    teller.run("weights", "root", *outputs)
    roots = {weights["root"] for weights in teller.ask("weights", "root", *outputs)["weights"]}
    teller.expect(len(roots) == 1, "killed and resumed equals uninterrupted, bit for bit")


def _attached(teller: Teller) -> None:
    teller.chapter("Running the same work again attaches and starts nothing")
    before = len(attempt_folders(teller.folder))
    teller.run("run", "pinned.toml", "--", *TRAINER)
    teller.expect(len(attempt_folders(teller.folder)) == before, "no attempt was added")


def _other_seed(teller: Teller) -> None:
    teller.chapter(
        "Another seed is another work, and nothing else differs",
        "other-seed.toml says 18 where pinned.toml says 17. The data order is pinned apart, so it stays the same.",
    )
    teller.run("key", "pinned.toml")
    teller.run("key", "other-seed.toml")
    keys = {teller.ask("key", name)["workKey"] for name in ("pinned.toml", "other-seed.toml")}
    teller.expect(len(keys) == 2, "two Work keys")
    teller.run("manifest", "diff", "pinned.toml", "other-seed.toml")
    differing = [each["coordinate"] for each in teller.ask("manifest", "diff", "pinned.toml", "other-seed.toml")["differing"]]
    teller.expect(differing == ["seed"], "the difference is exactly seed")


def _where_to_look(teller: Teller, run: str) -> None:
    teller.chapter("Look at each thing yourself", f"cd {teller.folder}")
    for command, what in (
        (f"countermark status {run}", "the verdict, and why"),
        (f"countermark evidence {run}", "the five axes, with receipts, in read order"),
        (f"countermark attempts {run}", "the attempts and their causes"),
        (f"countermark claims {run}", "what control recorded, in its order"),
        ("countermark key pinned.toml --explain", "what the Work key is derived from"),
        (f"countermark checkpoint inspect {STORE}/attempts/*/checkpoints", "every checkpoint, component by component"),
        ("countermark runs", "all runs of this store"),
        ("countermark store check", "every key and slot derived again"),
    ):
        teller.say(f"{command:<66} {what}")
