"""The coordinate ``tokenization``, measured from a tokenizer's folder.

Rules kept here:

1. The files that make ids out of text are a closed roster; other files of the folder (weights, readme) do not count.
2. Special ids are what the files say: each role's token, looked up among the added tokens and then in the vocabulary. A role whose token
   has no id in them is left out; the files that would give it one are hashed anyway.
3. The chat template is its text, from its own file or from the configuration; several named ones count as their canonical JSON.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from countermark.files.documents import as_list, as_object, parse_object
from countermark.files.model_folder import hub_blobs
from countermark.files.reading import OpenFile, find_folder, open_file, read_whole
from countermark.recipe.canonical import canonical_json, tokenization_digest
from countermark.values import NonEmpty, Refused, Sha256, Unreadable
from countermark.weights.refusals import DocumentDefect, DocumentUnreadable, FileAbsent, TokenizerAbsent, TokenizerDefect

FILE_BYTES_MAX: Final = 512 << 20
_CONFIG: Final = "tokenizer_config.json"
_TEMPLATE: Final = "chat_template.jinja"

#: Every file that a tokenizer of the Transformers library reads.
TOKENIZER_FILES: Final = (
    "added_tokens.json",
    "bpe.codes",
    _TEMPLATE,
    "chat_template.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "source.spm",
    "special_tokens_map.json",
    "spiece.model",
    "target.spm",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    _CONFIG,
    "vocab.bpe",
    "vocab.json",
    "vocab.txt",
)
_DOCUMENTS: Final = frozenset(name for name in TOKENIZER_FILES if name.endswith(".json") and name != "tekken.json")
_ROLES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_ROLE_LISTS: Final = ("additional_special_tokens", "extra_special_tokens")


@final
@dataclass(frozen=True, slots=True)
class MeasuredTokenizer:
    """A tokenizer as it was read: the coordinate, the files that it was made of, special ids by role, and the chat template's text.
    ``apart`` is the digest of the tokenizer without its chat template, wherever that stands."""

    tokenization: Sha256
    apart: Sha256
    files: tuple[tuple[str, Sha256], ...]
    special_ids: Mapping[str, object]
    chat_template: str | None


def measure_tokenizer(folder: Path) -> MeasuredTokenizer | Refused[TokenizerDefect]:
    """The tokenizer in a folder, or everything that is wrong with its files."""
    real = find_folder(folder)
    if not isinstance(real, Path):
        return Refused(NonEmpty(real))
    hashed: dict[str, Sha256] = {}
    documents: dict[str, dict[str, object]] = {}
    template: str | None = None
    defects: list[TokenizerDefect] = []
    for name in TOKENIZER_FILES:
        found = _read(real, name, hashed)
        if isinstance(found, FileAbsent):
            continue
        if not isinstance(found, bytes):
            defects.append(found)
        elif name == _TEMPLATE:
            try:
                template = found.decode("utf-8")
            except UnicodeDecodeError as error:
                defects.append(DocumentUnreadable(name, f"byte {error.start} is not UTF-8"))
        elif name in _DOCUMENTS:
            document = parse_object(found)
            if isinstance(document, Unreadable):
                defects.append(DocumentUnreadable(name, document.why))
            else:
                documents[name] = document
    if not hashed and not defects:
        defects.append(TokenizerAbsent())
    if refusal := NonEmpty.of(defects):
        return Refused(refusal)
    try:
        template = _template(documents) if template is None else template
        special = _special_ids(documents)
        whole = tokenization_digest(hashed, special, template)
        apart = tokenization_digest(_without_template(hashed, documents), special, None)
        return MeasuredTokenizer(whole, apart, tuple(sorted(hashed.items())), special, template)
    except ValueError as error:
        return Refused(NonEmpty(DocumentUnreadable(_CONFIG, str(error))))


def _read(folder: Path, name: str, hashed: dict[str, Sha256]) -> bytes | DocumentDefect:
    """A tokenizer's file: its bytes where they are a document or a template, else nothing but its digest."""
    opened = open_file(folder, name, links_to=hub_blobs(folder))
    if not isinstance(opened, OpenFile):
        return opened
    with opened:
        content = read_whole(opened, FILE_BYTES_MAX)
        if isinstance(content, bytes):
            hashed[name] = opened.sha256(0, opened.size)
        return content


def _template(documents: Mapping[str, Mapping[str, object]]) -> str | None:
    """The chat template in a document; several named ones are one canonical text."""
    for name in ("chat_template.json", _CONFIG):
        found = documents.get(name, {}).get("chat_template")
        if isinstance(found, str):
            return found
        if found is not None:
            return canonical_json(found).decode("utf-8")
    return None


def _without_template(hashed: Mapping[str, Sha256], documents: Mapping[str, Mapping[str, object]]) -> dict[str, Sha256]:
    """The files without their chat templates. A template can stand in the configuration, which counts by its other keys then, so that a
    template that was moved into a file of its own changes nothing."""
    kept = {name: digest for name, digest in hashed.items() if name not in (_TEMPLATE, "chat_template.json")}
    if _CONFIG in documents:
        other = {key: value for key, value in documents[_CONFIG].items() if key != "chat_template"}
        kept[_CONFIG] = Sha256(hashlib.sha256(canonical_json(_spelled(other))).hexdigest())
    return kept


def _spelled(value: object) -> object:
    """A document with its largest whole numbers as texts: a tokenizer without a limit on its length says so by a 1 and thirty more digits,
    which the canonical form does not hold as a number."""
    if (table := as_object(value)) is not None:
        return {key: _spelled(each) for key, each in table.items()}
    if (items := as_list(value)) is not None:
        return [_spelled(each) for each in items]
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value


def _special_ids(documents: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    ids = dict(_vocabulary(documents)) | dict(_added(documents))
    roles = {**documents.get("special_tokens_map.json", {}), **documents.get(_CONFIG, {})}
    found: dict[str, object] = {}
    for role in _ROLES:
        token = _token(roles.get(role))
        if token in ids:
            found[role] = ids[token]
    for role in _ROLE_LISTS:
        tokens = [_token(item) for item in as_list(roles.get(role)) or []]
        if known := [ids[token] for token in tokens if token in ids]:
            found[role] = known
    return found


def _token(value: object) -> str | None:
    """A token's text, written plainly or as a table with its properties."""
    content = (as_object(value) or {}).get("content")
    return value if isinstance(value, str) else content if isinstance(content, str) else None


def _added(documents: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str | None, int]]:
    yield from _numbered(documents.get("added_tokens.json", {}))
    for text, token in (as_object(documents.get(_CONFIG, {}).get("added_tokens_decoder")) or {}).items():
        if text.isascii() and text.isdigit() and len(text) < 16:
            yield _token(token), int(text)
    for item in as_list(documents.get("tokenizer.json", {}).get("added_tokens")) or []:
        number = (as_object(item) or {}).get("id")
        if isinstance(number, int):
            yield _token(item), number


def _vocabulary(documents: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, int]]:
    model = as_object(documents.get("tokenizer.json", {}).get("model")) or {}
    yield from _numbered(documents.get("vocab.json", {}))
    yield from _numbered(as_object(model.get("vocab")) or {})


def _numbered(vocabulary: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    return ((token, number) for token, number in vocabulary.items() if isinstance(number, int))
