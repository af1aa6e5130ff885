"""Sentences for the defects of operations and surfaces."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.surface import (
    CommandDiffers,
    EnvironmentFault,
    NameAmbiguous,
    NameUnknown,
    RetriesUsedUp,
    SettingUnknown,
    SettingUnreadable,
    SurfaceDefect,
    WrongUsage,
)
from countermark.lines.texts import counted, listed, plain


def surface_sentence(defect: SurfaceDefect) -> Sentence:
    match defect:
        case WrongUsage(why, usage):
            return Sentence(plain(why), f"as it is called: {plain(usage)}")
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
        case EnvironmentFault(what, where, mend):
            return Sentence(f"{plain(what)} ({plain(where)})", plain(mend))
        case RetriesUsedUp(allowed, used):
            return Sentence(
                f"another attempt would be a retry: {counted(used, 'retry', 'retries')} made, {allowed} allowed",
                f"look at why it ended (countermark attempts RUN); to try again: countermark reconcile RUN --act --retries {used + 1}",
            )
        case CommandDiffers(recorded, given):
            return Sentence(
                f"the run was recorded with the command {quoted(' '.join(recorded))}, which stands; {quoted(' '.join(given))} was not used",
                "for a run of its own with the new command, name the request: --request NAME",
            )
        case NameUnknown(kind, name):
            return Sentence(f"there is no {kind} {quoted(name)} in this store", "list what there is: countermark runs")
        case NameAmbiguous(kind, name, candidates):
            return Sentence(
                f"{quoted(name)} names {counted(len(candidates), kind)}: {listed(map(plain, candidates))}", "write more digits of the id"
            )
