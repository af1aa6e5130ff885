"""JSON that somebody else wrote, read strictly: from bytes to a value, or why not.

Rules kept here: UTF-8 and nothing else; no key twice in one object, at any depth; no NaN, no infinity, but where a caller asks for a
document as Python writes it, into which trainers log both; a bound on the size, and on the brackets in it, before anything is parsed; deep
nesting is an answer, never a crash. Defects name the document, not the path to it.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn, cast

from countermark.files.reading import read_small
from countermark.values import Unreadable, shown
from countermark.weights.header import is_crowded
from countermark.weights.refusals import DocumentDefect, DocumentUnreadable

#: Configuration files are a few kilobytes; a tokenizer is tens of megabytes.
CONFIG_BYTES_MAX: Final = 16 << 20


class _Refuse(ValueError):
    """What stands in a document and must not."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = sorted(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise _Refuse(f"{', '.join(shown(key) for key in repeated[:5])} stands twice in one object")
    return found


def _constant(name: str) -> NoReturn:
    raise _Refuse(f"it holds {name}, which JSON has not")


def parse_json(content: bytes, *, as_python_writes: bool = False) -> object | Unreadable:
    """Any JSON value; a number with a point or exponent is a float, any other an int."""
    if is_crowded(content):
        return Unreadable("it holds more brackets than its length explains")
    try:
        constant = float if as_python_writes else _constant
        return cast(object, json.loads(content.decode("utf-8"), object_pairs_hook=_object, parse_constant=constant))
    except UnicodeDecodeError as error:
        return Unreadable(f"byte {error.start} is not UTF-8")
    except json.JSONDecodeError as error:
        return Unreadable(f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}")
    except RecursionError:
        return Unreadable("it is nested too deep")
    except _Refuse as error:
        return Unreadable(str(error))
    except ValueError:
        return Unreadable("a number in it is too long")


def parse_object(content: bytes, *, as_python_writes: bool = False) -> dict[str, object] | Unreadable:
    """A JSON object."""
    value = parse_json(content, as_python_writes=as_python_writes)
    if isinstance(value, Unreadable):
        return value
    found = as_object(value)
    return Unreadable("it is not a JSON object") if found is None else found


def as_object(value: object) -> dict[str, object] | None:
    """A parsed value as an object, or None where it is something else."""
    return cast(dict[str, object], value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    """A parsed value as a list, or None where it is something else."""
    return cast(list[object], value) if isinstance(value, list) else None


def read_object(
    folder: Path, name: str, *, bytes_max: int = CONFIG_BYTES_MAX, links_to: tuple[Path, ...] = ()
) -> Mapping[str, object] | DocumentDefect:
    """The JSON object in a file of a folder."""
    content = read_small(folder, name, bytes_max, links_to=links_to)
    if not isinstance(content, bytes):
        return content
    value = parse_object(content)
    return DocumentUnreadable(name, value.why) if isinstance(value, Unreadable) else value


def told(raw: object) -> str:
    """Any value of a document or a pickle, as it may be shown to a person: also one that is too deep or too long to be written out."""
    try:
        return shown(raw)
    except (RecursionError, ValueError):
        return f"(a {type(raw).__name__} that is too large to show)"
