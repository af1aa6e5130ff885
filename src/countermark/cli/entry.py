"""The way in: what Ctrl-C does from the first moment on, before anything heavy is imported.

Rules kept here:

1. Only what the interpreter has loaded already, or loads in a moment, is imported at the top.
2. While modules are imported nothing of ours is open, so Ctrl-C ends the process at once, with a line and no traceback.
3. An interrupt that a place swallows in which Python lets nothing be raised (a callback, a finalizer) is sent once more.
4. Who was started with the signal ignored, as a shell starts what it puts into the background, keeps it ignored.
"""

import _thread
import os
import signal
import sys
import time

#: As a shell says it of a process that the signal ended.
INTERRUPTED = 130
SAID = "countermark: interrupted; nothing is half done: what was recorded stays, and the same command carries on"
_AGAIN_S = 0.01


def main() -> int:
    """Run the command line and return the exit code."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return _called()
    try:
        signal.signal(signal.SIGINT, _leave)
        sys.unraisablehook = _swallowed
        from countermark.cli.main import main as call

        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = call()
        # The answer was given, and stands. What is left is the interpreter's own end, in which an interrupt would kill it by default.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if code == INTERRUPTED:
            _end()
        return code
    except KeyboardInterrupt:
        _leave(signal.SIGINT, None)
        raise


def _called() -> int:
    from countermark.cli.main import main as call

    return call()


def _leave(number: int, frame: object) -> None:
    try:
        os.write(2, f"{SAID}\n".encode())
    except OSError:
        pass
    _end()


def _end() -> None:
    """The end of an interrupted process. Left to itself, an interpreter that was interrupted while it built a class takes the interrupt for
    one that nobody caught, whatever it is told, and kills itself with the signal."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError, RuntimeError):
            pass
    os._exit(INTERRUPTED)


def _swallowed(unraisable: "sys.UnraisableHookArgs") -> None:
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    # Not from here: it would be swallowed again.
    _thread.start_new_thread(_interrupt, (_thread.get_ident(),))


def _interrupt(thread: int) -> None:
    """A signal, and not only the mark of one: it has to wake who sleeps as well."""
    time.sleep(_AGAIN_S)
    signal.pthread_kill(thread, signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
