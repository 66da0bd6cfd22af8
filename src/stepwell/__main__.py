"""The command `stepwell`, and `python -m stepwell`: the command line; Ctrl-C ends it in silence.

Nothing heavy is imported before an interrupt has somebody to take it.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130
"""The exit code, as a shell counts an interrupt."""


def main() -> int:
    """Run the command line on the process's arguments; returns its exit code.

    A second Ctrl-C, and one at the very end, end the process at once. Interrupted in code that is
    made of text (dataclasses), Python ends by the signal itself, which shells count as 130 too.
    """
    interrupts: list[int] = []

    def interrupted(number: int, frame: object) -> None:
        """End what runs. What other packages say of an interrupt in their midst, nobody reads."""
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
    except BaseException as error:  # Packages turn an interrupt into errors of their own.
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        code = INTERRUPTED
    if signal.getsignal(signal.SIGINT) is interrupted:
        signal.signal(signal.SIGINT, _leave)
    return INTERRUPTED if interrupts and code else code  # `play` is ended so.


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
