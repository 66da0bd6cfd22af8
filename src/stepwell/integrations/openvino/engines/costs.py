"""What an operator takes on either engine, by kind of CPU.

`<kind>.json` contains nanoseconds on one thread, fitted by `python tools/engine_costs.py --write`:
for each engine and kind of operator, the time of a multiply-add or of an element; the time of a
delegate's call; and that of a byte that passes from one delegate to another.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from stepwell.dialects.xnnpack.costs import ANY, KIND_OF
from stepwell.ir.context import Context
from stepwell.ir.types import dims
from stepwell.ir.work import operations

ENGINES = ("xnnpack", "openvino")
PRODUCTS = frozenset("linear mm bmm matmul addmm baddbmm".split())
NORMS = frozenset("layer_norm group_norm rms_norm softmax _softmax log_softmax".split())
SIMPLE = frozenset("add sub mul relu clamp hardtanh clamp_min clamp_max mean sum".split())
MOVES = frozenset("permute transpose cat slice expand constant_pad_nd select index".split())
FREE = frozenset(
    "batch_norm view reshape flatten unsqueeze squeeze dropout quantize_per_tensor contiguous "
    "dequantize_per_tensor dequantize_per_channel to _to_copy".split()
)
"""Operators that other operators absorb, or that move nothing."""
QUANTIZED = "quantized_decomposed."


@dataclass(frozen=True)
class EngineCosts:
    """The costs of one kind of CPU."""

    call: float
    byte: float
    rates: Mapping[str, Mapping[str, float]]
    """By engine, the nanoseconds of an operation of each kind."""

    def time(self, op: Operation, engine: str) -> float:
        """Return the estimated nanoseconds of an operator."""
        kind = kind_of(op)
        if kind is None:
            return 0.0
        rates = self.rates[engine]
        return operations(op) * rates.get(kind, rates[kind.removeprefix("int8 ")])


@functools.cache
def load(kind: str) -> EngineCosts | None:
    """Return the costs of a kind of CPU; None if they were not measured."""
    path = Path(__file__).with_name(f"{kind}.json")
    if not path.exists():
        return None
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return EngineCosts(held["call"], held["byte"], {name: held[name] for name in ENGINES})


def costs_for(context: Context) -> Sequence[EngineCosts]:
    """Return the costs of every CPU that a lowering is for; none if one of them is unknown."""
    cpu = context.option("cpu")
    found = [load(KIND_OF[name]) for name in ((cpu,) if cpu in KIND_OF else ANY)]
    return [] if None in found else [costs for costs in found if costs is not None]


def kind_of(op: Operation) -> str | None:
    """Return the kind of an operator by which its cost is known; None if it costs nothing."""
    parts = op.name.split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    if name in FREE or name.startswith("sym_"):
        return None
    prefix = "int8 " if any(_is_dequantized(v.owner) for v in op.operands) else ""
    if name == "convolution":
        groups, *window = dims(op.operands[1].type)[1:]
        kind = "pointwise" if set(window) == {1} else "convolution"
        return prefix + ("depthwise" if groups == 1 else kind)
    if name in PRODUCTS:
        return prefix + "linear"
    if "scaled_dot_product" in name:
        return "attention"
    is_tensor = all(isinstance(result.type, TensorType) for result in op.results)
    if not is_tensor or name in MOVES:
        return prefix + "movement"
    kind = "norm" if name in NORMS else "addition" if name in SIMPLE else "function"
    return prefix + kind


def _is_dequantized(owner: object) -> bool:
    return isinstance(owner, Operation) and owner.name.startswith(f"{QUANTIZED}dequantize")
