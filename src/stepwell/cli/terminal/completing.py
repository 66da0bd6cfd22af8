"""Complete the command line in the shell by argcomplete, from the extra `stepwell[completion]`.

    eval "$(register-python-argcomplete stepwell)"

The parser knows the commands, options and choices. This module completes names that only stepwell
knows.
"""

import argparse
import os
from collections.abc import Callable, Iterable
from typing import Any

Completer = Callable[..., Iterable[str]]


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell's completion request and exit, if the shell made one."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise SystemExit(1) from None  # The shell falls back to file names.
    argcomplete.autocomplete(parser)


def completed_by(action: argparse.Action, completer: Completer) -> None:
    """Set the function by which the shell completes an argument's value."""
    setattr(action, "completer", completer)  # noqa: B010


TARGETS = (
    *"xnnpack xnnpack-published openvino xnnpack+openvino vgf".split(),
    *"tosa-1.0+fp tosa-1.0+int tosa-1.1+fp tosa-1.1+int".split(),
    *"tosa-1.1+fp+mx_common+mx_fp8e4m3 tosa-1.1+fp+mxfp".split(),
    *(f"cortex-m{core}" for core in "0 0plus 3 4 7 23 33 35p 55 85".split()),
    *"c c-rv32imc c-rv32imafc c-rv32gcv c-xtensa c-wasm32 c-wasm32-simd".split(),
    *(f"ethos-u55-{macs}" for macs in (32, 64, 128, 256)),
    *(f"ethos-u65-{macs}" for macs in (256, 512)),
    *(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048)),
)
QUANTIZERS = (
    *"int8-xnnpack int8-xnnpack-dynamic int8-openvino int8-cortex-m int8-tosa".split(),
    *"int16-tosa 4w 8da4w 8da8w".split(),
)
"""stepwell's own names, listed here because importing torch would delay the shell."""


def targets(**asked: Any) -> Iterable[str]:
    """Return the names of all targets, to complete `-t`."""
    return TARGETS


def quantizers(**asked: Any) -> Iterable[str]:
    """Return the names of all quantizers, to complete `--quantize`."""
    return QUANTIZERS
