"""Say what a difference is: a known fault, a declared deviation, a tie, or unknown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.backends.executorch.kernels.kernel_calls import kernel_limit
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.engine_behavior import engine_behavior, engines
from stepwell.ir.program import Program
from stepwell.ir.types import TensorType
from stepwell.translate.engine_losses import measured_as
from stepwell.validation.artifacts.comparing import is_within
from stepwell.validation.artifacts.fingerprints import Fingerprint
from stepwell.validation.artifacts.verdict import Kind

RANKINGS = {
    "aten.topk.default": (0, "dim", -1),
    "aten.sort.default": (0, "dim", -1),
    "aten.sort.stable": (0, "dim", -1),
    "aten.argsort.default": (0, "dim", -1),
    "aten.argmax.default": (0, "dim", None),
    "aten.argmin.default": (0, "dim", None),
    "aten.max.dim": (0, "dim", -1),
    "aten.min.dim": (0, "dim", -1),
}
"""Operators whose results are places of numbers: the operand, and the argument with its axis."""
MOVES = ("view", "reshape", "squeeze", "unsqueeze", "alias", "clone", "_to_copy", "expand")


@cache
def known_faults() -> list[Mapping[str, Any]]:
    """Return the faults of other tools (docs/upstream.md) that the operators of both sides show.

    Each has the names of the artifact's operator (`made`) and of the source's (`meant`), the
    arguments of the source's for which the fault occurs, and the cause in a sentence.
    """
    return json.loads(
        (files("stepwell.validation.artifacts") / "known_faults.json").read_text(encoding="utf-8")
    )


def cause(made: Operation, meant: Operation | None, special: bool) -> tuple[Kind, str | None]:
    """Return what the difference of an operator is, and its cause if it is known.

    Args:
        made: the artifact's operator.
        meant: the source's operator, if it was found.
        special: whether an infinity, NaN or overflow is among its operands or results.
    """
    for fault in known_faults():
        if not isinstance(meant, SchemaOp) or fault["meant"] != meant.name:
            continue
        told = {name: meant.arg(name) for name in fault["arguments"]}
        if made.name == fault["made"] and told == fault["arguments"]:
            return "known fault", fault["why"]
    if isinstance(made, SchemaOp) and (limit := kernel_limit(made)) is not None:
        return "known fault", limit
    if special and isinstance(made, XnnpackOp) and (measured := measured_as(made)) is not None:
        families = [e for e in engines() if e.startswith("xnnpack/")]
        if any(engine_behavior(*measured, engine).losses for engine in families):
            return "declared deviation", (
                f"XNNPACK's {made.name.partition('.')[2]} treats special values in another way "
                "(docs/semantics.md)"
            )
    return ("special values" if special else "unknown"), None


def is_special(values: Sequence[Any]) -> bool:
    """Whether an infinity, NaN, or a number near overflow is among some values."""
    floats = [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]
    return any(
        not bool(v.isfinite().all()) or bool((v.abs() > torch.finfo(v.dtype).max ** 0.5).any())
        for v in floats
        if v.numel() and v.dtype.itemsize > 1
    )


def is_tie(
    func: FuncOp,
    values: dict[SSAValue, Any],
    found: Sequence[Any],
    allowed: Callable[[int, torch.Tensor], float],
) -> bool:
    """Whether results differ only because equal scores were ranked in another order.

    Args:
        func: the method of the source.
        values: its values in the call.
        found: the artifact's results.
        allowed: returns the relative difference of a result that rounding explains.
    """
    last = func.body.block.last_op
    assert isinstance(last, ReturnOp)
    tied = False
    for at, (value, other) in enumerate(zip(last.operands, found, strict=False)):
        one = values[value]
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            return False
        if one.shape != other.shape:
            return False
        if torch.equal(one, other):
            continue
        if one.dtype.is_floating_point:
            near = Fingerprint.of(one).distance(Fingerprint.of(other))
            if near > allowed(at, one) * Fingerprint.of(one).scale:
                return False
            continue
        if not _same_scores(value, values, other, allowed(at, one)):
            return False
        tied = True
    return tied


def _same_scores(
    value: SSAValue, values: dict[SSAValue, Any], other: torch.Tensor, allowed: float
) -> bool:
    """Whether the places in a result lead to the same scores as other places, up to rounding."""
    owner = value.owner
    while isinstance(owner, SchemaOp) and owner.name.split(".")[1].removesuffix("_copy") in MOVES:
        value = owner.operands[0]
        owner = value.owner
    if not isinstance(owner, SchemaOp) or owner.name not in RANKINGS:
        return False
    operand, name, default = RANKINGS[owner.name]
    scores, own = values[owner.operands[operand]], values[value]
    axis = owner.arg(name) if name in [a.name for a in owner.SCHEMA.arguments] else default
    if other.numel() != own.numel() or not scores.is_floating_point():
        return False
    if axis is None:
        scores, own, axis = scores.flatten(), own.flatten(), 0
    places = other.reshape(own.shape).long()
    if own.dim() < scores.dim():
        own, places = own.unsqueeze(axis), places.unsqueeze(axis)
    if bool((places < 0).any()) or bool((places >= scores.shape[axis]).any()):
        return False
    chosen, others = scores.gather(axis, own.long()), scores.gather(axis, places)
    if is_within(chosen, others, None):
        return True
    apart = (chosen - others).abs().max()
    return bool(chosen.isfinite().all()) and bool(apart <= allowed * chosen.abs().max())


def is_quantized(program: Program) -> bool:
    """Whether a value of a program has a quantized type."""
    return any(
        (isinstance(result.type, TensorType) and quantization(result.type) is not None)
        or op.name.startswith(("quantized_decomposed.", "torchao."))
        for op in program.module.walk()
        for result in op.results
    )
