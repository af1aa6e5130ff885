"""The folders of a user: where settings and what can be made again have their places, as the XDG base directories say."""

import os
from collections.abc import Mapping
from pathlib import Path


def digests_folder(environ: Mapping[str, str]) -> Path | None:
    """Where digests that were measured are kept, in the XDG place for what can be made again; None where there is no home."""
    folder = of_user(environ, "XDG_CACHE_HOME", ".cache")
    return None if folder is None else folder / "digests"


def of_user(environ: Mapping[str, str], variable: str, otherwise: str) -> Path | None:
    """Our folder in the place that a variable names, or ``otherwise`` in the home; None where there is neither."""
    base = environ.get(variable, "")
    if not os.path.isabs(base):
        home = environ.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, otherwise)
    return Path(base) / "countermark"
