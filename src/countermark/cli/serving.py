"""What the commands of the server share: its libraries, and the file of its tokens."""

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from countermark.cli.settings import Settings

_MODULES = ("starlette", "uvicorn", "opentelemetry.proto")


def needed(modules: "Sequence[str] | None" = None, what: str = "the server", extra: str = "server") -> None:
    """Raises ``EnvironmentFailed`` where libraries (the server's unless named) are not installed; ``extra`` brings them."""
    from countermark.app.errors import EnvironmentFailed

    def there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            return False

    if missing := [module for module in modules or _MODULES if not there(module)]:
        raise EnvironmentFailed(f"{what} needs {', '.join(missing)}", sys.executable, f"pip install 'countermark[{extra}]'")


def tokens_of(chosen: "Settings") -> "Path":
    """The file of the store's tokens, whether it is there or not."""
    from countermark.server.tokens import FILE

    return chosen.store / FILE
