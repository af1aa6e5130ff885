"""Sentences for files and folders that cannot be read, and for folders of weights that do not hold together."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.texts import counted, listed, plain, sized
from countermark.run.publication import FolderTaken, PublishedBefore
from countermark.weights.refusals import (
    ArraysUnreadable,
    DatasetEmpty,
    DatasetRowUnreadable,
    DocumentUnreadable,
    FileAbsent,
    FileChanged,
    FileNameUnlistable,
    FileNotRegular,
    FileTooLarge,
    FileUnreadable,
    FolderEmpty,
    FolderTooDeep,
    GgufUnreadable,
    LinkLeavesFolder,
    MoreRowsUnreadable,
    PickleUnreadable,
    ShardDisagrees,
    ShardMissing,
    TensorsInTwoShards,
    TokenizerAbsent,
    WeightsAbsent,
    WeightsAmbiguous,
    WeightsEmpty,
    WeightsOfOtherKind,
)

ReadingDefect = (
    FileAbsent | FileNotRegular | LinkLeavesFolder | FileUnreadable | FileTooLarge | FileChanged | DocumentUnreadable
    | FileNameUnlistable | FolderTooDeep | FolderEmpty
)  # fmt: skip
FolderDefect = WeightsAbsent | WeightsAmbiguous | WeightsEmpty | WeightsOfOtherKind | ShardMissing | ShardDisagrees | TensorsInTwoShards

SourceDefect = (
    FolderTaken | PublishedBefore | PickleUnreadable | GgufUnreadable | ArraysUnreadable | TokenizerAbsent
    | DatasetRowUnreadable | MoreRowsUnreadable | DatasetEmpty
)  # fmt: skip

_AGAIN = "fetch or write the folder again as a whole"


def file_sentence(defect: ReadingDefect) -> Sentence:
    match defect:
        case FileAbsent(file):
            return Sentence(f"there is no file {quoted(file)}", "put it there, or name another place")
        case FileNotRegular(file, kind):
            return Sentence(
                f"{quoted(file)} is {plain(kind)} and cannot be read as what is asked for", "name what is asked for in its place"
            )
        case LinkLeavesFolder(file):
            return Sentence(f"{quoted(file)} is a link that leads out of its folder", "put a copy of its target in its place")
        case FileUnreadable(file, why):
            return Sentence(f"{quoted(file)} cannot be read: {plain(why)}", "give your user read permission, or mend the disk")
        case FileTooLarge(file, size, size_max):
            return Sentence(
                f"{quoted(file)} has {sized(size)}; a file of this kind has at most {sized(size_max)}", "name the file that was meant"
            )
        case FileChanged(file):
            return Sentence(f"{quoted(file)} changed while it was read", "wait until its writer has finished, then call again")
        case DocumentUnreadable(file, why):
            return Sentence(f"{quoted(file)} is not what its name promises: {plain(why)}", "correct it, or fetch it again")
        case FileNameUnlistable(file):
            return Sentence(f"no list of files can carry the name {quoted(file)}", "rename it without line breaks, in Unicode")
        case FolderTooDeep(file):
            return Sentence(f"{quoted(file)} lies deeper than the folders of any model", "name the folder that holds the files themselves")
        case FolderEmpty():
            return Sentence("there is no file in the folder", "name the folder that holds the files")


def folder_sentence(defect: FolderDefect) -> Sentence:
    match defect:
        case WeightsAbsent(pickled):
            if pickled:
                return Sentence(
                    f"the weights are pickled ({listed(map(quoted, pickled[:5]))}): they have no root, because reading them would run code",
                    "save them as safetensors (save_pretrained does)",
                )
            return Sentence(
                "no file here holds weights under a known name", "name a folder with model.safetensors or adapter_model.safetensors"
            )
        case WeightsAmbiguous(files):
            return Sentence(
                f"several files say that they hold the weights: {listed(map(quoted, files[:8]))}", "keep one of them in the folder"
            )
        case WeightsEmpty():
            return Sentence("the files of weights hold no tensor", _AGAIN)
        case WeightsOfOtherKind(wanted, found):
            return Sentence(f"{_kind(found)} is there, and {_kind(wanted)} is asked for", f"name the folder of {_kind(wanted)}")
        case ShardMissing(file):
            return Sentence(f"the index names the shard {quoted(file)}, which is not there", _AGAIN)
        case ShardDisagrees(file, absent, unlisted):
            parts = [f"it lacks {_tensors(absent)}"] if absent else []
            parts += [f"it holds {_tensors(unlisted)} that the index does not put there"] if unlisted else []
            return Sentence(f"the shard {quoted(file)} disagrees with the index: {listed(parts)}", _AGAIN)
        case TensorsInTwoShards(first, second, tensors):
            return Sentence(f"{quoted(first)} and {quoted(second)} both hold {_tensors(tensors)}", "keep each tensor in one file")


def source_sentence(defect: SourceDefect) -> Sentence:
    match defect:
        case FolderTaken(path):
            return Sentence(
                f"there is a folder already at {quoted(path)}, and nothing is ever replaced", "publish into another folder: --into DIR"
            )
        case PublishedBefore(path):
            return Sentence(
                f"{quoted(path)} is a published checkpoint already", "use it as it is, or publish the folder that a trainer wrote"
            )
        case PickleUnreadable(file, whys):
            return Sentence(
                f"{quoted(file)} cannot be read without executing it: {listed(map(plain, whys))}", "save it again with torch.save"
            )
        case GgufUnreadable(file, whys):
            return Sentence(
                f"{quoted(file)} is no GGUF file that can be read: {listed(map(plain, whys))}", "fetch it again, or have it converted again"
            )
        case ArraysUnreadable(file, whys):
            return Sentence(f"{quoted(file)} cannot be read as arrays: {listed(map(plain, whys))}", "save it again with numpy.savez")
        case TokenizerAbsent():
            return Sentence("no file of a tokenizer is in the folder", "name the folder with tokenizer.json (sources.tokenizer)")
        case DatasetRowUnreadable(line, why):
            return Sentence(f"line {line} of the dataset is no row: {plain(why)}", "write one JSON object on each line")
        case MoreRowsUnreadable(count):
            return Sentence(f"{counted(count, 'further line')} of the dataset are no rows", "write one JSON object on each line")
        case DatasetEmpty():
            return Sentence("the dataset has no row", "name a file with one JSON object on each line (sources.dataset)")


def _tensors(names: tuple[str, ...]) -> str:
    return f"{counted(len(names), 'tensor')} ({listed(map(quoted, names[:3]))}{', …' if len(names) > 3 else ''})"


def _kind(kind: str) -> str:
    return "an adapter" if kind == "adapter" else "a base model"
