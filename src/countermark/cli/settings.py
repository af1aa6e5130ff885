"""Settings: one roster, four sources, the later stronger: the project's file, the user's file, variables, flags.

Rules kept here:

1. A setting that no source names has its default; where a value came from is kept beside it, and ``countermark doctor`` prints both.
2. Every wrong setting of every source is named at once, with what stood there; none is skipped.
3. A key of a file that is no setting is refused with the settings that are spelled like it, because nobody would obey it. A variable
   that is none is only warned of: it may be meant for another program of ours.
4. A database's address is kept as it was given, to connect by; whatever shows it shows no password. Nor are values of headers shown, and
   an address to send to has no place for a secret.
"""

import difflib
import getpass
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, final
from urllib.parse import unquote, urlsplit

from countermark.files.user_folders import of_user
from countermark.lines.surface import SettingUnknown, SettingUnreadable
from countermark.values import NonEmpty, Principal, Refused, Unreadable

if TYPE_CHECKING:
    from countermark.wire.otlp_records import Mode

SettingDefect = SettingUnknown | SettingUnreadable
SettingKind = Literal["store", "name", "launcher", "seconds", "days", "endpoint", "mode", "headers"]

#: A century: what is to be kept for longer needs no rule.
KEEP_DAYS_MAX: Final = 36_500
PROJECT_FILE: Final = "countermark.toml"
_FILE_BYTES_MAX: Final = 1024 * 1024
_STORE_FOLDER: Final = ".countermark"
_ENDPOINT: Final = re.compile(r"https?://(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?(?:/[!$&-;=A-Z_a-z~%]*)?", re.ASCII)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the roster; ``default_text`` is what the reference page says of its default."""

    name: str
    kind: SettingKind
    default_text: str
    help: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "COUNTERMARK_" + self.name.replace(".", "_").upper()


ROSTER: Final = (
    Setting(
        "store.url",
        "store",
        "the .countermark folder here or in a folder above, else one is created here",
        "Where runs are recorded: sqlite:///PATH of a store folder, or postgresql://USER@HOST/DATABASE; what attempts leave stays on this "
        "host, in the .countermark folder.",
    ),
    Setting("principal", "name", "local", "The account under which a work is counted; part of the Work key."),
    Setting("requester", "name", "the name of the user who calls", "Who asks for a run; with the request it names the run."),
    Setting("launcher", "launcher", "local", "What starts the command of a claim."),
    Setting("grace_s", "seconds", "30", "Seconds for which a dispatched attempt may show nothing before it is concluded to be lost."),
    Setting("stop_grace_s", "seconds", "10", "Seconds between asking an attempt to stop and killing it."),
    Setting("watch_interval_s", "seconds", "0.5", "Seconds between two cheap looks of a command that waits."),
    Setting("session.idle_s", "seconds", "300", "Seconds for which a session without an end is open after something of it came in."),
    Setting(
        "session.keep_days",
        "days",
        "none: everything is kept",
        "For how many days sessions are kept after what happened last in them; a server takes out what is older, beside everything else.",
    ),
    Setting(
        "serve.forward.endpoint",
        "endpoint",
        "none: nothing is sent on",
        "Where the server sends weight edits on to: the address of a receiver of OTLP over HTTP, as https://HOST:4318.",
    ),
    Setting(
        "serve.forward.mode",
        "mode",
        "metadata",
        "How much of an edit is sent on: metadata (counts, norms, times and derived ids alone), or full (all that it says).",
    ),
    Setting(
        "serve.forward.headers",
        "headers",
        "none",
        "What is sent with every request, as NAME=VALUE,NAME=VALUE with percent signs for what is no letter; values are never shown.",
    ),
)
BY_NAME: Final = {setting.name: setting for setting in ROSTER}

#: Variables that a trainer receives, and a switch of this program: no settings.
VARIABLES_OF_OURS: Final = frozenset(f"COUNTERMARK_{name}" for name in ("MANIFEST", "ATTEMPT", "OUTPUT", "RESUME", "DEBUG"))

Found: TypeAlias = "dict[str, tuple[object, str]]"


@final
@dataclass(frozen=True, slots=True)
class Resolved:
    """A setting's value, as text, and where it came from."""

    setting: Setting
    value: str
    source: str


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting's value. ``store`` is the store's folder on this host, whether it exists or not; ``database`` the ledger's address
    with whatever password it has, where it is not in that folder; ``store_shown`` how the store is told of."""

    store: Path
    database: str | None
    store_shown: str
    principal: str
    requester: str
    launcher: str
    grace_s: float
    stop_grace_s: float
    watch_interval_s: float
    session_idle_s: float
    session_keep_days: int | None
    forward_endpoint: str
    forward_mode: "Mode"
    forward_headers: tuple[tuple[str, str], ...]
    resolved: tuple[Resolved, ...]
    warnings: tuple[SettingUnknown, ...]


def resolve_settings(flags: Mapping[str, str | None], environ: Mapping[str, str], here: Path) -> Settings | Refused[SettingDefect]:
    """The settings as the sources give them, or every defect. ``flags`` holds the names that a command line may set; None is unset."""
    defects: list[SettingDefect] = []
    found: Found = {}
    for path in (_upwards(here, PROJECT_FILE, Path.is_file), user_file(environ)):
        if path is not None and path.is_file():
            found.update(_from_file(path, defects))
    from_variables, warnings = _from_variables(environ)
    found.update(from_variables)
    found.update({name: (value, "flag") for name, value in flags.items() if value is not None})
    resolved: dict[str, Resolved] = {}
    for setting in ROSTER:
        raw, source = found.get(setting.name, (_default(setting, here), "default"))
        value = _checked(setting, raw)
        if isinstance(value, Unreadable):
            told = _shown(setting, str(raw))
            defects.append(SettingUnreadable(setting.name, source, told, value.why))
        else:
            resolved[setting.name] = Resolved(setting, value, source)
    if (refusal := NonEmpty.of(defects)) is not None:
        return Refused(refusal)
    # The ledger is imported only where somebody asks for a store: commands on files alone start sooner without it.
    from countermark.store.opening import folder_of, is_postgresql

    url = resolved["store.url"].value
    shown = without_password(url)
    resolved["store.url"] = replace(resolved["store.url"], value=shown)
    folder = folder_of(url) or _default_store(here)
    headers = headers_of(resolved["serve.forward.headers"].value)
    resolved["serve.forward.headers"] = replace(resolved["serve.forward.headers"], value=_without_values(headers))
    return Settings(
        folder,
        url if is_postgresql(url) else None,
        shown if is_postgresql(url) else str(folder),
        resolved["principal"].value,
        resolved["requester"].value,
        resolved["launcher"].value,
        float(resolved["grace_s"].value),
        float(resolved["stop_grace_s"].value),
        float(resolved["watch_interval_s"].value),
        float(resolved["session.idle_s"].value),
        int(resolved["session.keep_days"].value) if resolved["session.keep_days"].value else None,
        resolved["serve.forward.endpoint"].value,
        cast("Mode", resolved["serve.forward.mode"].value),
        headers,
        tuple(resolved.values()),
        warnings,
    )


def user_file(environ: Mapping[str, str]) -> Path | None:
    """The user's own file in the XDG place, whether it exists or not; None where there is no home."""
    folder = of_user(environ, "XDG_CONFIG_HOME", ".config")
    return None if folder is None else folder / "config.toml"


def _upwards(here: Path, name: str, wanted: Callable[[Path], bool]) -> Path | None:
    for folder in (here, *here.parents):
        try:
            if wanted(folder / name):
                return folder / name
        except OSError:
            continue
    return None


def _default(setting: Setting, here: Path) -> str:
    if setting.name == "store.url":
        return f"sqlite:///{_default_store(here)}"
    if setting.kind in ("days", "endpoint", "headers"):
        return ""
    return _user() if setting.name == "requester" else setting.default_text


def _default_store(here: Path) -> Path:
    return _upwards(here, _STORE_FOLDER, Path.is_dir) or here / _STORE_FOLDER


def without_password(url: str) -> str:
    """An address as it may be shown. Of one that is none, nothing is shown in which a password could stand."""
    scheme, there, rest = url.partition("://")
    if not there or scheme == "sqlite":
        return url if there or "@" not in url else "…"
    place, mark, query = rest.partition("?")
    user, at, host = place.rpartition("@")
    name, colon, _ = user.partition(":")
    hidden = re.sub(r"(?i)((?:^|&)[^=&]*pass[^=&]*=)[^&]*", r"\1…", query)
    return f"{scheme}://{name}{':…' if colon else ''}{at}{host}{mark}{hidden}"


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        name = str(os.getuid())
    cleaned = re.sub(r"[^A-Za-z0-9._@:/+-]", "-", name)[:200].lstrip("._@:/+-")
    return cleaned or f"uid-{os.getuid()}"


def _checked(setting: Setting, raw: object) -> str | Unreadable:
    """The raw value as canonical text, or why it is none."""
    if setting.kind == "seconds":
        return _seconds(raw)
    if setting.kind == "days":
        return _days(raw)
    if not isinstance(raw, str):
        return Unreadable("it is no text")
    match setting.kind:
        case "name":
            read = Principal.read(raw)
            return read if isinstance(read, Unreadable) else read.text
        case "launcher":
            return raw if raw == "local" else Unreadable("this version starts local processes only; write local")
        case "store":
            return _store_url(raw)
        case "endpoint":
            return _endpoint(raw)
        case "mode":
            from countermark.wire.otlp_records import MODES

            return raw if raw in MODES else Unreadable(f"write {' or '.join(MODES)}")
        case "headers":
            return raw if headers_of(raw) or not raw else Unreadable("headers are NAME=VALUE,NAME=VALUE, in printable letters of ASCII")


def _seconds(raw: object) -> str | Unreadable:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return Unreadable("it is no number of seconds")
    text = str(raw)
    if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text, re.ASCII):
        return Unreadable("it is no number of seconds from 0 to 999999 with at most three decimals")
    return text


def _days(raw: object) -> str | Unreadable:
    """A number of days; nothing for what is kept for ever."""
    text = str(raw) if isinstance(raw, str | int) and not isinstance(raw, bool) else "no number"
    if text and not (re.fullmatch(r"[1-9]\d{0,4}", text, re.ASCII) and int(text) <= KEEP_DAYS_MAX):
        return Unreadable(f"it is no whole number of days from 1 to {KEEP_DAYS_MAX}")
    return text


def _store_url(raw: str) -> str | Unreadable:
    from countermark.store.opening import folder_of, is_postgresql

    if is_postgresql(raw):
        return _database_url(raw)
    if folder_of(raw) is None:
        return Unreadable("a store is named sqlite:///PATH or postgresql://USER@HOST/DATABASE")
    return f"sqlite:///{Path(raw.removeprefix('sqlite:///')).expanduser().absolute()}"


def _database_url(raw: str) -> str | Unreadable:
    place = raw.partition("://")[2].partition("?")[0]
    if any(character.isspace() or not character.isprintable() for character in raw):
        return Unreadable("an address holds no blank; write %20 for one")
    if not place.rpartition("@")[2].partition("/")[2]:
        return Unreadable("it names no database; write postgresql://USER@HOST/DATABASE")
    return raw


def _endpoint(raw: str) -> str | Unreadable:
    """An address to send to: without a name and a password, which requests bring in headers, and without a query."""
    if not raw or (_ENDPOINT.fullmatch(raw) and _has_port(raw)):
        return raw
    return Unreadable("a receiver is named http://HOST:PORT or https://HOST:PORT, maybe with a path; what it asks for goes into headers")


def _has_port(raw: str) -> bool:
    try:
        return urlsplit(raw).port != 0
    except ValueError:
        return False


def headers_of(raw: str) -> tuple[tuple[str, str], ...]:
    """Headers as they are written in OpenTelemetry's own variable; none where one of them cannot be sent."""
    pairs = [each.partition("=") for each in raw.split(",")]
    found = [(name.strip(), unquote(value.strip())) for name, _, value in pairs]
    return tuple(found) if all(_HEADER.fullmatch(name) and value.isascii() and value.isprintable() for name, value in found) else ()


def _without_values(headers: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{name}=…" for name, _ in headers)


def _shown(setting: Setting, raw: str) -> str:
    """What is said of a value that cannot be: nothing in which a secret could stand."""
    if setting.kind == "headers":
        return "…"
    if setting.kind == "endpoint":
        return without_password(raw.partition("?")[0])
    return without_password(raw) if setting.kind == "store" else raw


def _from_file(path: Path, defects: list[SettingDefect]) -> Found:
    source = str(path)
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise ValueError("it is larger than 1 MiB")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        defects.append(SettingUnreadable("the file", source, "", error.strerror or "it cannot be read"))
        return {}
    except (ValueError, RecursionError) as error:
        defects.append(SettingUnreadable("the file", source, "", f"it is no TOML: {error}"))
        return {}
    found: Found = {}
    for name, value in _leaves(table, ""):
        if name in BY_NAME:
            found[name] = (_absolute(value, path.parent) if name == "store.url" else value, source)
        else:
            defects.append(SettingUnknown(name, source, nearest(name, BY_NAME)))
    return found


def _leaves(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        within = f"{prefix}{key}."
        if isinstance(value, dict) and (not prefix or any(name.startswith(within) for name in BY_NAME)):
            yield from _leaves(cast("dict[str, object]", value), within)
        else:
            yield prefix + key, value


def _absolute(value: object, folder: Path) -> object:
    """A store's relative address in a file means relative to that file."""
    if isinstance(value, str) and value.startswith("sqlite:///") and not value.startswith(("sqlite:////", "sqlite:///~")):
        return f"sqlite:///{folder / value.removeprefix('sqlite:///')}"
    return value


def _from_variables(environ: Mapping[str, str]) -> tuple[Found, tuple[SettingUnknown, ...]]:
    variables = {setting.variable: setting.name for setting in ROSTER}
    ours = sorted((name, value) for name, value in environ.items() if name.startswith("COUNTERMARK_"))
    unknown = (name for name, _ in ours if name not in variables and name not in VARIABLES_OF_OURS)
    found: Found = {variables[name]: (value, name) for name, value in ours if name in variables}
    return found, tuple(SettingUnknown(name, "the environment", nearest(name, variables)) for name in unknown)


def nearest(name: str, names: "Mapping[str, object] | tuple[str, ...]") -> tuple[str, ...]:
    """The names that are spelled most like ``name``, best first."""
    return tuple(difflib.get_close_matches(name, list(names), n=3, cutoff=0.75))
