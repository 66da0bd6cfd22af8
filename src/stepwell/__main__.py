"""The command line, `stepwell` or `python -m stepwell`; Ctrl-C ends it without a traceback.

The handler of the interrupt is installed before any heavy import.
"""

import gc
import os
import signal
import sys

INTERRUPTED = 130
"""The exit code that shells use for an interrupt."""


def main() -> int:
    """Run the command line on the process's arguments and return the exit code.

    A second Ctrl-C, or one at the very end, ends the process immediately. If the interrupt arrives
    in generated code (dataclasses), the signal itself ends Python; shells also report 130.
    """
    gc.set_threshold(200_000, 100, 100)  # Imports fill the heap, and leave no garbage.
    interrupts: list[int] = []

    def interrupted(number: int, frame: object) -> None:
        """Stop the command, and discard what other packages print about the interrupt."""
        signal.signal(signal.SIGINT, _leave)
        interrupts.append(number)
        sys.unraisablehook = lambda _: None
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    try:
        from stepwell.cli.main import main as run

        code = run()
    except BaseException as error:  # Some packages convert an interrupt into their own errors.
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        code = INTERRUPTED
    if signal.getsignal(signal.SIGINT) is interrupted:
        signal.signal(signal.SIGINT, _leave)
    gc.freeze()  # The process ends: searching what torch and sympy hold would take a second.
    gc.disable()
    return INTERRUPTED if interrupts and code else code  # This is the normal end of `play`.


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
