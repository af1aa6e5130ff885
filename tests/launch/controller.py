"""A controller as a program: dispatches one order, and kills itself after a named step if it is told to.

    controller.py ATTEMPTS_ROOT ORDER.json [STEP]

prints the arm of the outcome and its text.
"""

import json
import os
import signal
import sys
from pathlib import Path

from countermark.launch.local import LocalLauncher
from countermark.launch.order import LaunchOrder
from countermark.launch.steps import LaunchStep


def main() -> None:
    root, order, *rest = sys.argv[1:]

    def after(step: LaunchStep) -> None:
        if [step] == rest[:1]:
            os.kill(os.getpid(), signal.SIGKILL)

    fields = json.loads(Path(order).read_text(encoding="utf-8"))
    supervisor = tuple(fields.pop("supervisor"))
    fields |= {"argv": tuple(fields["argv"]), "manifest": fields["manifest"].encode()}
    result = LocalLauncher(Path(root), supervisor=supervisor, after=after).dispatch(LaunchOrder(**fields))
    print(type(result).__name__, result)


if __name__ == "__main__":
    main()
