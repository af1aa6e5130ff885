"""Sentences for what is wrong with an experiment, and for what there is to be wary of when two of its arms are compared."""

from typing import Final

from countermark.experiments.comparison import BaselineUnknown, ComparisonDefect, GivenMetricUnknown, NothingToCompare
from countermark.experiments.faults import (
    ArmMetricRepeated,
    ClusterKeyUnknown,
    FaultsOmitted,
    OutputFault,
    OutputLineUnreadable,
    OutputOfOtherRepeat,
    OutputOfUnknownSample,
    OutputRepeated,
    SampleIdRepeated,
    SampleLineUnreadable,
    SampleMissing,
    SamplesDefect,
    SamplesMissing,
    ScoreUnusable,
    SeedNotUsed,
)
from countermark.experiments.samples import ResumeUnderOtherStamp
from countermark.experiments.specs import (
    ArmRepeated,
    ArmsMissing,
    ArmsTooMany,
    ArmUnnamed,
    ArmWithoutCommand,
    RepeatsOutOfRange,
    SpecDefect,
    SpecTextUnreadable,
    WeightsOfUnknownArm,
    WeightsRepeated,
    WeightsWithoutArm,
)
from countermark.experiments.stamps import StampContradicted, StampDefect, StampIncomparable, WeightsChanged
from countermark.experiments.warnings import (
    AssertedOnly,
    CachedSamples,
    CannotTell,
    ComparisonWarning,
    DatasetDiffers,
    DecodingDiffers,
    DuplicateId,
    FewPairs,
    GraderDiffers,
    IdenticalOutputs,
    LowN,
    MixedStamps,
    NoStamp,
    OneSidedStamp,
    PartialRun,
    RepeatsDiffer,
    SameWeights,
    ScoresDifferSameWeights,
    SeedUnrecorded,
    ZeroVariance,
    code_of,
)
from countermark.lines.sentence import Sentence, quoted
from countermark.lines.texts import Document, JsonValue, camel, counted, listed, number, plain

StampsDefect = StampDefect | ResumeUnderOtherStamp
ExperimentDefect = StampsDefect | SpecDefect | ComparisonDefect | OutputFault | SamplesDefect

_PRINT = "have the arm print one JSON object for each sample: id, output, scores"
_NAMED_MAX: Final = 10


def experiment_sentence(defect: ExperimentDefect) -> Sentence:
    if isinstance(defect, StampsDefect):
        return _stamp_sentence(defect)
    if isinstance(defect, SpecDefect):
        return _spec_sentence(defect)
    if isinstance(defect, ComparisonDefect):
        return _comparison_sentence(defect)
    if isinstance(defect, SampleLineUnreadable | SampleIdRepeated | SamplesMissing | ClusterKeyUnknown):
        return _samples_sentence(defect)
    return _output_sentence(defect)


def _stamp_sentence(defect: StampsDefect) -> Sentence:
    match defect:
        case WeightsChanged(before, after):
            return Sentence(f"the weights were {before} before the run and {after} after it",
                            "keep them still while an arm runs, and run it again: no number of this run is any one weights'")  # fmt: skip
        case StampContradicted(stamp, computed):
            return Sentence(f"the stamp says {stamp}, and the arm loaded {computed}",
                            "see which path the arm really loads, or stamp it with what it loads")  # fmt: skip
        case StampIncomparable(stamp, other):
            return Sentence(f"the stamp is {stamp}, and {other} is a digest of another kind",
                            "measure both the same way: by weights root, or by composition")  # fmt: skip
        case ResumeUnderOtherStamp(stored, given):
            return Sentence(f"the experiment ran under {stored}, and is to go on under {given}",
                            "resume it with the weights that it began with, or begin a new experiment")  # fmt: skip


def _spec_sentence(defect: SpecDefect) -> Sentence:
    match defect:
        case ArmUnnamed(name):
            return Sentence(f"an arm cannot be called {quoted(name)}",
                            "use letters, digits, dots, dashes and underscores, a letter or digit first, 100 at most")  # fmt: skip
        case ArmRepeated(name):
            return Sentence(f"two arms are called {quoted(name)}", "give each arm a name of its own")
        case ArmWithoutCommand(name):
            return Sentence(f"the arm {quoted(name)} has no command", f"say what it runs: --arm {plain(name)}='CMD'")
        case ArmsMissing():
            return Sentence("the experiment has no arm", "name one at least: --arm NAME='CMD'")
        case ArmsTooMany(arms, most):
            return Sentence(f"the experiment has {arms:,} arms, and {most:,} are the most", "split it into several experiments")
        case RepeatsOutOfRange(repeats, most):
            return Sentence(f"{repeats:,} repeats cannot be run", f"ask for 1 to {most:,}")
        case SpecTextUnreadable(where):
            return Sentence(f"{plain(where)} is no Unicode text", "spell it in UTF-8")
        case WeightsWithoutArm(weights, arms):
            return Sentence(f"whose weights {quoted(weights)} are is not said, and there are {counted(len(arms), 'arm')}",
                            "name the arm: --weights NAME=…")  # fmt: skip
        case WeightsOfUnknownArm(arm, arms):
            return Sentence(f"there are weights for the arm {quoted(arm)}, and the experiment has none of that name", _known(arms))
        case WeightsRepeated(arm):
            return Sentence(f"there are weights for the arm {quoted(arm)} twice", "give them once")


def _known(names: tuple[str, ...]) -> str:
    return f"it has {_some(tuple(map(quoted, names)))}"


def _comparison_sentence(defect: ComparisonDefect) -> Sentence:
    match defect:
        case BaselineUnknown(baseline, arms):
            return Sentence(f"no arm is called {quoted(baseline)}", _known(arms))
        case NothingToCompare(arm):
            return Sentence(f"the experiment has the arm {quoted(arm)} alone, which is compared with nothing",
                            "name a second experiment, or one that has several arms")  # fmt: skip
        case GivenMetricUnknown(metric, known):
            return Sentence(f"the metric {quoted(metric)} is not scored on both sides",
                            "name one that is: " + listed((quoted(each) for each in known[:_NAMED_MAX]), "there is none"))  # fmt: skip


def _samples_sentence(defect: SampleLineUnreadable | SampleIdRepeated | SamplesMissing | ClusterKeyUnknown) -> Sentence:
    match defect:
        case SampleLineUnreadable(line, why):
            return Sentence(f"line {line:,} is no sample: {plain(why)}", "write one JSON object a line, each with its id")
        case SampleIdRepeated(line, name, first):
            return Sentence(f"line {line:,} has the id {quoted(name)} of line {first:,}", "give each sample an id of its own")
        case SamplesMissing():
            return Sentence("there is no sample in the file", "write one JSON object a line, each with its id")
        case ClusterKeyUnknown(key):
            return Sentence(f"no sample has the key {quoted(key)} that is to name its cluster", "name a key that samples have")


def _output_sentence(defect: OutputFault) -> Sentence:
    match defect:
        case OutputLineUnreadable(line, why):
            return Sentence(f"line {line:,} of the arm's output is no result: {plain(why)}", _PRINT)
        case OutputOfUnknownSample(line, name):
            return Sentence(f"line {line:,} of the arm's output is of {quoted(name)}, which it was not asked",
                            "have the arm answer the ids of the file in COUNTERMARK_SAMPLES")  # fmt: skip
        case OutputRepeated(line, name, first):
            return Sentence(f"line {line:,} of the output repeats {quoted(name)} of line {first:,}; the first finished one counts",
                            "have the arm print one result for each sample")  # fmt: skip
        case OutputOfOtherRepeat(line, repeat, expected):
            return Sentence(f"line {line:,} of the arm's output is of repeat {repeat}, and the job is repeat {expected}",
                            "leave repeat out, or print COUNTERMARK_REPEAT")  # fmt: skip
        case ScoreUnusable(line, name, metric, why):
            whose = f" of {quoted(name)}" if name else ""
            return Sentence(f"line {line:,} of the arm's output: {quoted(metric)}{whose} cannot be compared: {plain(why)}",
                            "print a finite number, or null where there is none")  # fmt: skip
        case ArmMetricRepeated(line, metric):
            return Sentence(f"line {line:,} of the arm's output tells {quoted(metric)} again, and counts nothing", "print each number once")
        case SeedNotUsed(line, given, used):
            return Sentence(f"line {line:,} of the arm's output says seed {plain(used)}, and the job's is {plain(given)}",
                            "hand COUNTERMARK_SEED to whatever draws")  # fmt: skip
        case SampleMissing(name):
            return Sentence(f"the arm told nothing of {quoted(name)}", "see its log, then run what is missing: --resume")
        case FaultsOmitted(count):
            return Sentence(f"there {'is' if count == 1 else 'are'} {counted(count, 'more fault')}", "mend the ones above first")


def warning_sentence(warning: ComparisonWarning) -> Sentence:
    """What a person is told of a warning; nothing in it can move a terminal's cursor."""
    said = _conditions(warning) if isinstance(warning, _CONDITIONS) else _weights(warning)
    return Sentence(plain(said.message, 4_000), plain(said.remedy, 4_000))


_CONDITIONS = (
    DatasetDiffers | GraderDiffers | DecodingDiffers | SeedUnrecorded | RepeatsDiffer | DuplicateId | CachedSamples | PartialRun | LowN
    | ZeroVariance
)  # fmt: skip
_WEIGHTS = SameWeights | OneSidedStamp | NoStamp | AssertedOnly | CannotTell | MixedStamps | IdenticalOutputs | ScoresDifferSameWeights


def _weights(warning: _WEIGHTS) -> Sentence:
    match warning:
        case SameWeights(a, b, digest):
            return Sentence(f"{a} and {b} ran the same weights, {digest}", "any difference between them is not the weights'")
        case OneSidedStamp(stamped, unstamped):
            return Sentence(f"{stamped} says which weights ran, and {unstamped} does not", "stamp both: --weights NAME=PATH")
        case NoStamp(sides):
            return Sentence(f"which weights ran is not said of {listed(sides)}", "stamp them: --weights NAME=PATH")
        case AssertedOnly(sides):
            return Sentence(f"nobody measured the weights of {listed(sides)}: the digests are as they were given",
                            "give the path of the weights, or have the arm hash what it loads")  # fmt: skip
        case CannotTell(a, b, digest_a, digest_b):
            return Sentence(f"whether {a} and {b} ran the same weights cannot be told: {digest_a} and {digest_b} are of unlike kinds",
                            "measure both the same way")  # fmt: skip
        case MixedStamps(side, stamps):
            return Sentence(f"the samples of {side} come from weights under {counted(len(stamps), 'stamp')}: {listed(stamps)}",
                            "run it again whole: its means are no one weights'")  # fmt: skip
        case IdenticalOutputs(sides, outputs):
            return Sentence(f"{counted(len(sides), 'arm')} ({listed(sides)}) gave the same {counted(outputs, 'output')}, byte for byte",
                            "see whether the weights, or an adapter, were loaded at all; see also a cache")  # fmt: skip
        case ScoresDifferSameWeights(a, b, metrics):
            return Sentence(f"{a} and {b} ran the same weights and scored otherwise in {_some(metrics)}",
                            "see what else differs: seed, decoding, grader, hardware")  # fmt: skip


def _conditions(warning: _CONDITIONS) -> Sentence:
    match warning:
        case DatasetDiffers(a, b, of_a, of_b, changed):
            pairs = f"; {counted(changed, 'pair')} of one id say something else" if changed else ""
            return Sentence(f"{a} was asked {_or_unsaid(of_a)} and {b} {_or_unsaid(of_b)}{pairs}", "ask both the same file of samples")
        case GraderDiffers(a, b, of_a, of_b):
            return Sentence(f"{a} was graded by {_or_unsaid(of_a)} and {b} by {_or_unsaid(of_b)}", "regrade one with the other's grader")
        case DecodingDiffers(a, b, of_a, of_b):
            return Sentence(f"{a} decoded with {_or_unsaid(of_a)} and {b} with {_or_unsaid(of_b)}", "run both with the same settings")
        case SeedUnrecorded(sides):
            return Sentence(f"which seed was used is not said by {listed(sides)}", "have the arm print the seed that it used")
        case RepeatsDiffer(a, b, of_a, of_b):
            return Sentence(f"{a} ran {counted(of_a, 'repeat')} and {b} {of_b:,}", "each id is one value; run both equally often")
        case DuplicateId(side, samples, count):
            return Sentence(f"{side} told of {counted(count, 'sample')} more than once, and each counts once: {_some(samples)}",
                            "see why the arm, or its log, repeats them")  # fmt: skip
        case CachedSamples(side, count):
            told = "a cache was on, for how many samples is not known" if count is None else f"{counted(count, 'sample')} came from a cache"
            return Sentence(f"of {side}, {told}", "run it without the cache: what it holds need not be these weights' answers")
        case PartialRun(side, asked, scored, unscored, errored, missing):
            return Sentence(f"of {side}, {scored:,} of {counted(asked, 'sample')} are scored: "
                            f"{unscored:,} unscored, {errored:,} errored, {missing:,} missing",
                            "run what is missing: --resume")  # fmt: skip
        case LowN(a, b, metrics, below):
            return Sentence(f"{a} and {b} have fewer than {below} pairs in {_some(tuple(f'{each.name} ({each.n:,})' for each in metrics))}",
                            "run more samples before anything is concluded")  # fmt: skip
        case ZeroVariance(a, b, metrics):
            return Sentence(f"all differences between {a} and {b} are alike in {_some(metrics)}",
                            "see whether the metric can tell the arms apart at all")  # fmt: skip


def _or_unsaid(text: str | None) -> str:
    return "something that is not recorded" if text is None else text


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    return listed(names) if not more else ", ".join(names[:_NAMED_MAX]) + more


def warning_document(warning: ComparisonWarning) -> Document:
    """What a program is told: the stable code, the values, message and remedy."""
    said = warning_sentence(warning)
    values: Document = {camel(name): _value(getattr(warning, name)) for name in warning.__dataclass_fields__}
    return {"code": code_of(type(warning)), **values, "message": said.message, "remedy": said.remedy}


def _value(raw: str | int | None | tuple[str, ...] | tuple[FewPairs, ...]) -> JsonValue:
    if isinstance(raw, int):
        return number(raw)
    if isinstance(raw, tuple):
        return [each if isinstance(each, str) else {"name": each.name, "n": number(each.n)} for each in raw]
    return raw
