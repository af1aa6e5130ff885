"""Tokens: who may ask what of a server. A file beside the store holds what is kept of them.

Rules kept here:

1. A token is 256 random bits behind a prefix by which it is known wherever it turns up. It is told once, when it is made. What is kept is
   its SHA-256: a guess at 256 bits does not need to be slowed down.
2. A token is compared in constant time, with every one that there is.
3. The file is replaced whole, by one writer at a time, and read again when it changed: what was revoked is turned away by the next request.
4. A file that cannot be read lets nobody in, and neither does one whose last token was revoked: only where none was ever made may a host
   ask its own server without one.
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast, final, get_args

from countermark.app.errors import EnvironmentFailed
from countermark.files.durable import make_folder, replace
from countermark.lines.serving import TokenDefect, TokenNameTaken, TokenNameUnfit, TokenNameUnknown, TokenScopeUnknown
from countermark.sessions.secrets import TOKEN_PREFIX
from countermark.values import NonEmpty, Refused

Scope: TypeAlias = Literal["ingest", "read", "act"]
#: What tokens may do: send events; list, show and search; decide about runs.
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
FILE: Final = "tokens.json"

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token: its name, what it may do, its digest, and when it was made (ISO 8601)."""

    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    made: str


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens that a file holds; none where it is not there. Raises ``EnvironmentFailed``."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unreadable(path, error.strerror or "it cannot be read") from error
    try:
        document: object = json.loads(text)
        return tuple(map(_token, cast("list[object]", cast("Mapping[str, object]", document)["tokens"])))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(path, "it holds no list of tokens") from error


def _token(item: object) -> Token:
    table = cast("Mapping[str, object]", item)
    scopes = _known(cast("list[object]", table["scopes"]))
    name, sha256 = str(table["name"]), str(table["sha256"])
    if not _NAME.fullmatch(name) or not _SHA256.fullmatch(sha256):
        raise ValueError(name)
    return Token(name, scopes, sha256, str(table["made"]))


def _known(scopes: Sequence[object]) -> tuple[Scope, ...]:
    return tuple(scope for scope in SCOPES if any(scope == each for each in scopes))


def _unreadable(path: Path, why: str) -> EnvironmentFailed:
    return EnvironmentFailed(
        f"the file of tokens cannot be used: {why}", str(path), "put it back from a backup, or remove it and make tokens again"
    )


def add_token(path: Path, name: str, scopes: Sequence[str], made: str) -> str | Refused[TokenDefect]:
    """Make a token; its text is told here and nowhere else. Raises ``EnvironmentFailed`` and ``OSError``."""
    wanted = _known(scopes)
    defects: list[TokenDefect] = [] if _NAME.fullmatch(name) else [TokenNameUnfit(name)]
    defects += [TokenScopeUnknown(scope, SCOPES) for scope in scopes if scope not in SCOPES]
    defects += [] if scopes else [TokenScopeUnknown("", SCOPES)]
    with _changing(path) as write:
        there = read_tokens(path)
        defects += [TokenNameTaken(name) for token in there if token.name == name]
        if (refused := NonEmpty.of(defects)) is not None:
            return Refused(refused)
        text = TOKEN_PREFIX + secrets.token_urlsafe(32)
        write((*there, Token(name, wanted, _digest(text), made)))
    return text


def revoke_token(path: Path, name: str) -> Token | Refused[TokenDefect]:
    """Take a token's rights for good. Raises ``EnvironmentFailed`` and ``OSError``."""
    with _changing(path) as write:
        there = read_tokens(path)
        found = next((token for token in there if token.name == name), None)
        if found is None:
            return Refused(NonEmpty(TokenNameUnknown(name, tuple(token.name for token in there))))
        write(token for token in there if token is not found)
    return found


@contextmanager
def _changing(path: Path) -> Generator[Callable[[Iterable[Token]], None], None, None]:
    """The file, for one writer at a time."""

    def write(tokens: Iterable[Token]) -> None:
        kept = [{"name": each.name, "scopes": list(each.scopes), "sha256": each.sha256, "made": each.made} for each in tokens]
        replace(path, json.dumps({"tokens": kept}, indent=1).encode() + b"\n")

    make_folder(path.parent)
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield write
    finally:
        os.close(lock)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@final
class Keyring:
    """The tokens of a file as they are now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        """All of them; none where none was made. Raises ``EnvironmentFailed``."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._stamp, self._tokens = None, ()
            return ()
        except OSError as error:
            raise _unreadable(self._path, error.strerror or "it cannot be read") from error
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._tokens = read_tokens(self._path)
            self._stamp = stamp
        return self._tokens

    def wanted(self) -> bool:
        """Whether a token was ever made here, so that one is wanted of everybody. Raises ``EnvironmentFailed``."""
        self.tokens()
        return self._stamp is not None

    def of(self, text: str) -> Token | None:
        """The token of this text; None where it is none of them."""
        digest = _digest(text)
        found = [token for token in self.tokens() if hmac.compare_digest(token.sha256, digest)]
        return found[0] if found else None
