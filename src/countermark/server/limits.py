"""How much a server takes at once; whoever asks for more is told the bound."""

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """``body_bytes_max``: of one body, unpacked. ``items_max``: of one batch. ``body_seconds_max``: until a body is there.
    ``waiting_bytes_max``: of all bodies that are held. ``head_seconds_max``: until a request has its headers."""

    body_bytes_max: int = 16 * 1024 * 1024
    items_max: int = 10_000
    body_seconds_max: int = 30
    waiting_bytes_max: int = 48 * 1024 * 1024
    head_seconds_max: int = 20
    connections_max: int = 256


#: How long whoever was turned away for want of room is asked to wait.
RETRY_S: Final = 1
