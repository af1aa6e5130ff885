"""Sentences for the defects of operations and surfaces."""

from countermark.lines.of_decisions import decision_sentence
from countermark.lines.of_rulings import ruling_sentence
from countermark.lines.rulings import RulingDefect
from countermark.lines.sentence import Sentence, quoted, short
from countermark.lines.surface import (
    AttemptNotFenced,
    AttemptUnnamed,
    AttemptUnrecorded,
    CheckpointDeclaresNothing,
    CheckpointGone,
    CommandDiffers,
    DecisionDefect,
    DifferenceFailsOn,
    EnvironmentFault,
    NothingNamed,
    RetriesUsedUp,
    SettingUnknown,
    SettingUnreadable,
    SeveralNamed,
    SeveralOfStep,
    StoreFinding,
    SurfaceDefect,
    SweepUndecodable,
    WrongUsage,
)
from countermark.lines.texts import counted, listed, plain


def surface_sentence(defect: SurfaceDefect) -> Sentence:
    if isinstance(defect, RulingDefect):
        return ruling_sentence(defect)
    if isinstance(defect, DecisionDefect):
        return decision_sentence(defect)
    match defect:
        case WrongUsage(why, usage):
            return Sentence(plain(why), plain(usage))
        case SettingUnknown(setting, source, nearest):
            meant = (
                f"write {listed(nearest, '').replace(' and ', ' or ')}" if nearest else "remove it; countermark doctor lists the settings"
            )
            return Sentence(f"{plain(setting)} in {plain(source)} is no setting", meant)
        case SettingUnreadable(setting, source, found, why):
            return Sentence(
                f"{plain(setting)} from {plain(source)} cannot be used ({quoted(found)}), because {plain(why)}",
                "correct it there; countermark doctor shows every setting and where it came from",
            )
        case EnvironmentFault(_, what, where, mend) | StoreFinding(_, where, what, mend):
            return Sentence(f"{plain(what)} ({plain(where)})", plain(mend))
        case RetriesUsedUp(allowed, used):
            return Sentence(
                f"another attempt would be a retry: {counted(used, 'retry', 'retries')} made, {allowed} allowed",
                "look at why it ended (countermark attempts RUN); to try again: countermark retry RUN, or "
                f"countermark reconcile RUN --act --retries {used + 1}",
            )
        case CommandDiffers(recorded, given):
            return _command_differs(" ".join(recorded), " ".join(given))
        case AttemptNotFenced(attempt, why, hosts):
            return _not_fenced(short(attempt.nonce.hex), why, hosts)
        case NothingNamed(name):
            return Sentence(
                f"nothing goes by the name {quoted(name)}: no recipe file, no checkpoint, no run or attempt of this store",
                "list the runs: countermark runs; an id may be shortened to 8 or more of its first digits",
            )
        case SeveralNamed(name, candidates):
            return Sentence(f"{quoted(name)} names several: {listed(map(plain, candidates))}", "write more digits of the id")
        case SeveralOfStep(path, step, names):
            return Sentence(f"{quoted(path)} holds several of step {step}: {listed(map(plain, names))}", "name the one by its path")
        case CheckpointDeclaresNothing(path):
            return Sentence(
                f"the checkpoint at {quoted(path)} has no manifest of ours, so it does not say which computation it belongs to",
                "name the recipe or run that it belongs to instead",
            )
        case AttemptUnnamed(path):
            return Sentence(
                f"{quoted(path)} lies in no attempt's folder, so it does not say whose checkpoint it is",
                "name a folder that an attempt wrote: countermark attempts RUN says where each lies",
            )
        case AttemptUnrecorded(path, attempt):
            return Sentence(
                f"{quoted(path)} lies in the folder of attempt {short(attempt)}, which no ledger here knows, so nobody can tell where an "
                "attempt begins that has not ended",
                "name the store that its run is in (--store URL), or say what the checkpoints are held against: --for RECIPE",
            )
        case CheckpointGone(step, digest):
            return Sentence(
                f"the checkpoint of step {step} ({plain(digest)}) that the claim names is not among the run's admitted ones any more",
                "put it back, or give up the attempt that was to begin there: countermark abandon ATTEMPT (see countermark attempts RUN)",
            )
        case SweepUndecodable(sweep, why):
            return Sentence(
                f"sweep {quoted(short(sweep))} cannot be read by this version: {plain(why)}", "sweep again: countermark reconcile RUN"
            )
        case DifferenceFailsOn(rule, tensors):
            more = f" and {len(tensors) - 5:,} more" if len(tensors) > 5 else ""
            return Sentence(
                f"{plain(rule)}: {counted(len(tensors), 'tensor')}: {', '.join(quoted(name) for name in tensors[:5])}{more}",
                "look at the rows above; a tensor that is only in A always fails, everything else as --fail-on says",
            )


def _not_fenced(attempt: str, why: str, hosts: tuple[str, ...]) -> Sentence:
    if hosts:
        there = listed(map(plain, hosts))
        mend = f"act from there (countermark reconcile RUN --act), or give it up: countermark abandon {attempt}"
    else:
        there, mend = (
            "",
            "end what still holds its lock (countermark evidence RUN names it), then look again: countermark reconcile RUN --act",
        )
    where = f" from here (it was to be dispatched on {there})" if there else ""
    return Sentence(f"attempt {attempt} could not be fenced{where}, because {plain(why)}; nothing was started beside it", mend)


def _command_differs(recorded: str, given: str) -> Sentence:
    # The same command is warned of where it was given in another folder, or with other named variables.
    there, here = (" in another folder or with other variables", "this one") if recorded == given else ("", quoted(given))
    return Sentence(
        f"the run was recorded with the command {quoted(recorded)}{there}, which stands; {here} was not used",
        "for a run of its own with the new command, name the request: --request NAME",
    )
