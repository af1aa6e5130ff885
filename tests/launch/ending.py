"""A COMMAND that ends in the way that its first argument names: ``ending.py HOW [trained]``.

``trained``: a real training by the product's integration, which ends after step 5 of 8; else a command that knows nothing of the product
and leaves its output, where it comes so far.
``stalls`` is one more way: it ends when it is told to. Torch is imported only where it trains.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENDS_AFTER = 5


def fail() -> None:
    raise RuntimeError("the ninth row is cursed")


def leave() -> None:
    sys.exit(1)


def signalled(number: signal.Signals) -> Callable[[], None]:
    def end() -> None:
        os.kill(os.getpid(), number)
        time.sleep(30)

    return end


def vanished(code: int) -> Callable[[], None]:
    return lambda: os._exit(code)


WAYS: dict[str, Callable[[], None]] = {
    "return": lambda: None,
    "exception": fail,
    "exit 1": leave,
    "SIGINT": signalled(signal.SIGINT),
    "SIGTERM": signalled(signal.SIGTERM),
    "SIGKILL": signalled(signal.SIGKILL),
    "os._exit(0)": vanished(0),
    "os._exit(3)": vanished(3),
}


def stall() -> None:
    """Make no progress and say nothing, until told to go on."""
    Path("stalled").touch()
    deadline = time.monotonic() + 600
    while not Path("go on").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def trained(end: Callable[[], None]) -> None:
    from transformers import TrainerCallback

    from countermark.train import Training
    from tests.train.tiny import honest

    class Ends(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **seen: Any) -> None:
            if state.global_step == ENDS_AFTER:
                end()

    training = Training.from_environment()
    parts = honest(training)
    parts.callbacks.append(Ends())
    training.run(parts.trainer())


def main() -> None:
    end = stall if sys.argv[1] == "stalls" else WAYS[sys.argv[1]]
    if sys.argv[2:] == ["trained"]:
        trained(end)
    else:
        end()
        output = Path(os.environ["COUNTERMARK_OUTPUT"])
        output.mkdir()
        (output / "answer.txt").write_text("42\n")


if __name__ == "__main__":
    main()
