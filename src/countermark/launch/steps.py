"""The named steps of a launch and of a supervision, in their order.

A step is named so that it can be stopped after: the crash matrix is shown by killing a real process after each of them. The hook is an
argument of the functions, never a setting: no variable or flag of a user makes a supervisor die.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

LaunchStep = Literal["folder made", "manifest written", "claim written", "supervisor launched"]

#: "child …" and from "locked" to "fence checked": in the process that becomes COMMAND. The others: in the supervisor.
SupervisorStep = Literal[
    "begun",
    "start written",
    "forked",
    "child begun",
    "locked",
    "process written",
    "fence checked",
    "main ended",
    "descendants ended",
    "terminal written",
]

LAUNCH_STEPS: Final[tuple[LaunchStep, ...]] = get_args(LaunchStep)
SUPERVISOR_STEPS: Final[tuple[SupervisorStep, ...]] = get_args(SupervisorStep)

AfterLaunchStep: TypeAlias = Callable[[LaunchStep], None]
AfterSupervisorStep: TypeAlias = Callable[[SupervisorStep], None]


def go_on(step: str) -> None:
    """The hook of every launch that is no test."""
