"""What commands read from around them: settings, and the files that a command line names."""

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from countermark.cli.failures import CallRefused, WrongCall
from countermark.files.user_folders import digests_folder
from countermark.values import Refused, Request, Unreadable, shown

if TYPE_CHECKING:
    from countermark.cli.settings import Settings
    from countermark.files.digest_cache import DigestCache


def settings(**flags: str | None) -> "Settings":
    """The settings with a command's flags on top (``store_url=`` sets ``store.url``); every wrong one ends the call with exit code 2."""
    from countermark.cli.settings import resolve_settings

    named = {name.replace("store_url", "store.url"): value for name, value in flags.items()}
    found = resolve_settings(named, os.environ, Path.cwd())
    if isinstance(found, Refused):
        raise CallRefused(tuple(found.defects), code=2)
    return found


def digest_cache(fresh: bool) -> "DigestCache":
    """The digests that this user has measured before; made before the files that are to be measured are opened."""
    from countermark.files.digest_cache import DigestCache

    return DigestCache(digests_folder(os.environ), fresh)


def named(text: str | None, option: str, what: str) -> str | None:
    """A name that a command line gives to something; every wrong one ends the call with exit code 2."""
    read = None if text is None else Request.read(text)
    if isinstance(read, Unreadable):
        raise WrongCall(f"{option} {shown(text or '')} cannot name {what}, because {read.why}", f"write {option} NAME")
    return None if read is None else read.text


def existing_file(path: str, what: str) -> str:
    """``path`` when a regular file can be there; else a call that says what is there instead, and what may have been meant."""
    usage = f"name {what}, for example ./recipe.toml"
    try:
        if os.path.isdir(path):
            inside = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(".toml"))[:5]
            hint = f"; in it are {', '.join(shown(os.path.join(path, name)) for name in inside)}" if inside else ""
            raise WrongCall(f"{shown(path)} is a folder, and {what} is a file{hint}", usage)
        if not os.path.lexists(path):
            raise WrongCall(f"there is no file {shown(path)}{_near(path)}", usage)
    except (ValueError, OSError) as error:
        raise WrongCall(f"{shown(path)} cannot be looked at: {error}", usage) from error
    return path


def existing_path(path: str, what: str) -> str:
    """``path`` when something is there."""
    try:
        if not os.path.lexists(path):
            raise WrongCall(f"there is nothing at {shown(path)}{_near(path)}", f"name {what}")
    except (ValueError, OSError) as error:
        raise WrongCall(f"{shown(path)} cannot be looked at: {error}", f"name {what}") from error
    return path


def existing_folder(path: str, what: str) -> str:
    """``path`` when a folder is there."""
    if not os.path.isdir(existing_path(path, what)):
        raise WrongCall(f"{shown(path)} is no folder, and {what} is one", f"name {what}")
    return path


def folder_to_be(path: str, option: str, apart_from: str) -> str:
    """``path`` when a folder is there or can be made there, and not in what is to be copied into it."""
    wrong = ""
    if not path:
        wrong = "names nothing"
    elif os.path.lexists(path) and not os.path.isdir(path):
        wrong = "is there already, and is no folder"
    elif Path(os.path.realpath(path)).is_relative_to(os.path.realpath(apart_from)):
        wrong = f"lies in {shown(apart_from)} itself"
    if wrong:
        raise WrongCall(f"{option} {shown(path)} {wrong}", f"write {option} DIR")
    return path


def name_to_be(path: str | None, option: str) -> None:
    """Ends the call with exit code 2 where no file can be made at ``path``: said before what is to be there is computed."""
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    if os.path.lexists(path):
        raise WrongCall(f"{option} {shown(path)} is there already, and nothing is written over", "name a new file")
    if not path or not os.path.isdir(folder):
        raise WrongCall(f"{option} {shown(path)} is in no folder that is there", "name a new file")


def new_file(path: str, option: str, content: bytes) -> None:
    """Write a file that must not be there yet: nothing is written over, and no half of it stays. Raises ``OSError`` where the disk says
    no."""
    name_to_be(path, option)
    with open(path, "xb") as file:
        try:
            file.write(content)
            file.flush()
        except BaseException:
            os.unlink(path)
            raise


def _near(path: str) -> str:
    """The names in the same folder that are spelled like the last part of ``path``."""
    folder, name = os.path.split(path)
    try:
        names = [entry.name for entry in os.scandir(folder or ".")]
    except OSError:
        return f"; the folder {shown(folder)} is not there either"
    meant = difflib.get_close_matches(name, names, n=1)
    return "; did you mean " + " or ".join(shown(os.path.join(folder, each)) for each in meant) + "?" if meant else ""
