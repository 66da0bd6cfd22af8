"""Export a model with dynamic dimensions, and find the source lines that specialize others.

torch logs when it specializes a symbol, from inside the responsible call: the innermost frame
outside torch is the model's line.
"""

import inspect
import linecache
import logging
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.export import Dim, ExportedProgram, ShapesCollection

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.platform.process_settings import hearing, kept_stderr
from stepwell.loaders.dynamic_shapes.candidates import Inputs, Place
from stepwell.translate.importer.export_call import export

_LOG = logging.getLogger("torch.fx.experimental.symbolic_shapes")
_AXIS = re.compile(r"L(.*)\.size\(\)\[(\d+)\]")
_OURS = (os.path.dirname(torch.__file__), str(Path(__file__).resolve().parents[2]))
_STANDARD = os.path.dirname(logging.__file__)


@dataclass(frozen=True)
class SourceLine:
    """A line of the model's source."""

    file: str
    number: int
    code: str = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}"


@dataclass
class Heard:
    """A log handler's function that collects the sizes that torch creates and specializes in a
    trace.

    Attributes:
        symbols: symbol → the input name and axis whose size it is.
        pinned: specialized symbol → its number, and the source line that specialized it.
    """

    symbols: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    pinned: dict[str, tuple[str, SourceLine | None]] = field(
        default_factory=dict[str, tuple[str, "SourceLine | None"]]
    )

    def __call__(self, record: logging.LogRecord) -> None:
        """Read one message of torch's log during an export."""
        symbol, value, source = (*map(str, record.args or ()), "", "", "")[:3]
        if record.msg.startswith("create_symbol %s = %s for %s"):
            if (axis := _AXIS.fullmatch(source)) is not None:
                self.symbols[symbol] = (axis[1], int(axis[2]))
        elif record.msg.startswith("set_replacement %s = %s") and value.isdigit():
            self.pinned.setdefault(symbol, (value, _line(inspect.currentframe())))


def exported(
    module: torch.nn.Module,
    inputs: Inputs,
    open_: Collection[Place],
    most: Mapping[Place, int],
    multiples: Mapping[Place, tuple[str, int, int]] | None = None,
) -> tuple[ExportedProgram, dict[Place, tuple[str, SourceLine | None]]]:
    """Export with these dimensions dynamic if possible; return the lines that specialize the
    others.

    Args:
        module: the model.
        inputs: the inputs for tracing.
        open_: the axes to make dynamic.
        most: the greatest size of each axis.
        multiples: for axes whose size is a multiple of a symbol: the factor, the symbol's name and
            its greatest value.

    Raises:
        Exception: any exception of torch or of the model's own code.
    """
    shapes = ShapesCollection()
    units = {name: Dim(name, min=1, max=high) for name, _, high in (multiples or {}).values()}

    def shape(place: Place) -> Any:
        if multiples is None or place not in multiples:
            return Dim.AUTO(max=most[place])  # pyright: ignore
        name, step, _ = multiples[place]
        return step * units[name]

    for index, tensor in enumerate(inputs.tensors):
        axes = {a: shape((i, a)) for i, a in sorted(open_) if i == index}
        if axes:
            shapes[tensor] = axes
    heard = Heard()
    with torch_alone(), hearing(_LOG, logging.INFO, heard), asked_quietly(), kept_stderr():
        program = export(module, inputs.args, inputs.kwargs, dynamic_shapes=shapes)
    pinned: dict[Place, tuple[str, SourceLine | None]] = {}
    for symbol, found in heard.pinned.items():
        name, axis = heard.symbols.get(symbol, ("", 0))
        if name in inputs.names:
            pinned[inputs.names.index(name), axis] = found
    return program, pinned


def line_of(error: BaseException) -> SourceLine | None:
    """Return the model's line that an error comes from."""
    trace, found = error.__traceback__, None
    while trace is not None:
        if _is_the_models(trace.tb_frame):
            found = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return None if found is None else _at(found[0].f_code.co_filename, found[1])


def _line(frame: FrameType | None) -> SourceLine | None:
    while frame is not None and not _is_the_models(frame):
        frame = frame.f_back
    return None if frame is None else _at(frame.f_code.co_filename, frame.f_lineno)


def _is_the_models(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not file.startswith((*_OURS, _STANDARD, "<")) and "self" in frame.f_locals


def _at(file: str, number: int) -> SourceLine:
    return SourceLine(file, number, linecache.getline(file, number).strip())
