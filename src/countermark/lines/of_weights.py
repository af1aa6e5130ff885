"""Sentences for files of weights that are not what the format asks for, and for tensors that no root can carry."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.texts import counted, listed, plain
from countermark.recipe.composition import (
    AdapterKeysUnknown,
    CompositionContradicts,
    CompositionDefect,
    CompositionPartRefused,
    CompositionUnreadable,
    CompositionUnsaid,
)
from countermark.weights import (
    DataHole,
    FileTooShort,
    GitLfsPointer,
    HeaderDefect,
    HeaderKeyRepeated,
    HeaderLengthInvalid,
    HeaderMetadataInvalid,
    HeaderOdd,
    HeaderUnparseable,
    NameDefect,
    RootLineUnreadable,
    TensorEntryInvalid,
    TensorNameUnprintable,
    TensorOutOfBounds,
    TensorRepeated,
    TensorSizeDisagrees,
    TensorsOverlap,
    TrailingBytes,
)
from countermark.weights.edits import (
    EditDefect,
    EditDoesNotFit,
    EditNotInArtifact,
    EditOfOtherTensor,
    EditOfUnknownTensor,
    EditUnhashed,
    EditUnreadable,
)
from countermark.weights.refusals import (
    CachedDigestsDamaged,
    CachedDigestsDisagree,
    CacheDefect,
    CacheUnwritable,
    DigestsContradict,
    RecordedDefect,
    RootLineOfOther,
)
from countermark.weights.sameness import DigestDiffers, DigestIncomparable, SamenessDefect

EditsDefect = EditDefect | EditUnreadable | EditNotInArtifact
WeightsDefect = HeaderDefect | HeaderOdd | NameDefect | EditsDefect | CompositionDefect | CacheDefect | RecordedDefect | SamenessDefect

_AGAIN = "fetch or write the file again: it is not what its writer meant to leave"
_WRITER = "have it written again by the official safetensors library"


def weights_sentence(defect: WeightsDefect) -> Sentence:
    if isinstance(defect, EditsDefect):
        return _edit_sentence(defect)
    if isinstance(defect, CacheDefect):
        return _cache_sentence(defect)
    if isinstance(defect, SamenessDefect):
        return _sameness_sentence(defect)
    if isinstance(defect, RecordedDefect):
        return _recorded_sentence(defect)
    if isinstance(defect, CompositionDefect):
        return _composition_sentence(defect)
    match defect:
        case FileTooShort(file, size):
            return Sentence(f"{quoted(file)} has {counted(size, 'byte')}; a safetensors file has at least 8", _AGAIN)
        case GitLfsPointer(file):
            return Sentence(f"{quoted(file)} is a git-lfs pointer, not the weights", "fetch the weights themselves: git lfs pull")
        case HeaderLengthInvalid(file, length, room):
            return Sentence(f"{quoted(file)} says that its header has {length} bytes, and there is room for {room}", _AGAIN)
        case HeaderUnparseable(file, why):
            return Sentence(f"the header of {quoted(file)} cannot be read: {plain(why)}", _AGAIN)
        case HeaderKeyRepeated(file, where, key):
            place = f"entry {quoted(where)}" if where else "the header"
            return Sentence(f"{place} of {quoted(file)} holds the key {quoted(key)} more than once", _WRITER)
        case HeaderMetadataInvalid(file, why):
            return Sentence(f"the metadata of {quoted(file)} is not text under each key: {plain(why)}", _WRITER)
        case HeaderOdd(file, what):
            return Sentence(
                f"the header of {quoted(file)} is read, but {plain(what)}", "no tensor is touched by it; other readers may refuse it"
            )
        case TensorEntryInvalid(file, tensor, why):
            return Sentence(f"tensor {quoted(tensor)} of {quoted(file)} has no valid entry: {plain(why)}", _WRITER)
        case TensorSizeDisagrees(file, tensor, expected, found):
            wanted = "another number" if expected is None else str(expected)
            return Sentence(f"tensor {quoted(tensor)} of {quoted(file)} has {found} bytes; dtype and shape ask for {wanted}", _WRITER)
        case TensorOutOfBounds(file, tensor, end, available):
            return Sentence(f"tensor {quoted(tensor)} of {quoted(file)} ends at byte {end} of {available}: the file was cut", _AGAIN)
        case TensorsOverlap(file, first, second):
            return Sentence(f"tensors {quoted(first)} and {quoted(second)} of {quoted(file)} share bytes", _WRITER)
        case DataHole(file, begin, end):
            return Sentence(f"bytes {begin} to {end} of {quoted(file)} belong to no tensor", _WRITER)
        case TrailingBytes(file, size):
            return Sentence(f"{counted(size, 'byte')} follow the last tensor of {quoted(file)}", _AGAIN)
        case TensorRepeated(tensor, times):
            return Sentence(f"{counted(times, 'tensor')} are called {quoted(tensor)}", "keep one file of each tensor")
        case TensorNameUnprintable(tensor):
            return Sentence(f"no line can carry the tensor name {quoted(tensor)}", "rename the tensor without control characters")


_BASE = "name the base that the edits began at, and the edits in the order in which they were made"


def _edit_sentence(defect: EditsDefect) -> Sentence:
    match defect:
        case EditUnreadable(edit, why):
            return Sentence(
                f"{quoted(edit)} is no weight edit: {plain(why)}", "write one event a line, as countermark weights diff --record-to does"
            )
        case EditOfUnknownTensor(edit, tensor):
            return Sentence(f"edit {quoted(edit)} is of {quoted(tensor)}, which the base has not", _BASE)
        case EditUnhashed(edit, tensor):
            return Sentence(
                f"edit {quoted(edit)} of {quoted(tensor)} does not say both digests", "record it with sha256Before and sha256After"
            )
        case EditDoesNotFit(edit, tensor, before, found):
            return Sentence(f"edit {quoted(edit)} of {quoted(tensor)} began at {before}, and the tensor is {found} there", _BASE)
        case EditOfOtherTensor(edit, tensor, said, found):
            return Sentence(f"edit {quoted(edit)} is of {quoted(tensor)} as {plain(said)}, and the base has it as {plain(found)}", _BASE)
        case EditNotInArtifact(edit, tensor, after, found):
            lies = f"is {found} there" if found else "is not there"
            said = f"recorded edit {quoted(edit)} is not in this artifact: {quoted(tensor)} should be {after} and {lies}"
            return Sentence(said, "compare the artifact that the edit was saved to, or find out why the edit was not saved")


def _composition_sentence(defect: CompositionDefect) -> Sentence:
    match defect:
        case CompositionUnsaid(part, option):
            return Sentence(f"nothing says the {plain(part)} of what ran", f"say it with {plain(option)}")
        case CompositionUnreadable(part, said, why):
            return Sentence(f"{quoted(said)} is no {plain(part)} of what ran: {plain(why)}", f"say the {plain(part)} that really ran")
        case CompositionContradicts(part, stored, said):
            return Sentence(
                f"the {plain(part)} of what ran is {quoted(stored)} in one place and {quoted(said)} in another",
                f"say the {plain(part)} that really ran, or leave it to the base's configuration",
            )
        case CompositionPartRefused(part, path, count):
            return Sentence(
                f"the {plain(part)} of what ran, {quoted(path)}, has {counted(count, 'defect')}, named after this one",
                "mend them, or name another place",
            )
        case AdapterKeysUnknown(path, keys):
            said = listed(quoted(key) for key in keys[:5]) + (", …" if len(keys) > 5 else "")
            return Sentence(
                f"the configuration of adapter {quoted(path)} has {counted(len(keys), 'key')} that is not known here ({said})"
                if len(keys) == 1
                else f"the configuration of adapter {quoted(path)} has {counted(len(keys), 'key')} that are not known here ({said})",
                "they count as changing what the adapter computes: two digests may differ by a key that changes nothing",
            )


def _cache_sentence(defect: CacheDefect) -> Sentence:
    match defect:
        case CachedDigestsDamaged(entry, why):
            return Sentence(
                f"{quoted(entry)} is no record of digests as it stands: {plain(why)}",
                "nothing: what it told of was measured, and it is written anew",
            )
        case CacheUnwritable(folder, why):
            return Sentence(f"digests cannot be kept in {quoted(folder)}: {plain(why)}", "make room there, or set XDG_CACHE_HOME")
        case CachedDigestsDisagree(file, count):
            return Sentence(
                f"{counted(count, 'digest')} of {quoted(file)} that were kept are not those of its bytes: it was changed under unchanged "
                "times and an unchanged size",
                "take what was measured now; what was told of this file before may be wrong",
            )
        case DigestsContradict(tensor):
            return Sentence(
                f"what is recorded of {quoted(tensor)} says the opposite of what its bytes show",
                "measure it with --fresh, and leave out recorded lines that are not of this base",
            )


def _recorded_sentence(defect: RecordedDefect) -> Sentence:
    match defect:
        case RootLineUnreadable(line, why):
            return Sentence(
                f"{quoted(line)} is no line of a root: {plain(why)}", "write them with countermark weights root PATH --lines FILE"
            )
        case RootLineOfOther(tensor, said, found):
            told = f"has {quoted(tensor)} as {plain(said)}" if said else f"has no {quoted(tensor)}"
            lies = f"the weights have it as {plain(found)}" if found else "the weights have it not"
            return Sentence(f"what was recorded {told}, and {lies}", "name the lines that were recorded of these weights")


def _sameness_sentence(defect: SamenessDefect) -> Sentence:
    match defect:
        case DigestDiffers(said, found):
            return Sentence(f"what lies here is {plain(found)}, and not {plain(said)}", "say what changed: countermark weights diff")
        case DigestIncomparable(said, found):
            return Sentence(
                f"whether what lies here is {plain(said)}, nobody can tell: it is {listed(map(plain, found))}",
                "name a digest of one of these kinds",
            )
