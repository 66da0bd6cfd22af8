"""Causes of the loss at a quantization point, found by comparing its operands with the float
model's.

Each cause is a predicate over one operand before and after quantization; the first true one is
reported. The bounds are those of correct rounding: a number moves by at most half a step, a weight
keeps its direction, and a channel keeps its gain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.payloads import BLOCK
from stepwell.ir.diagnostics import op_name
from stepwell.quantization.sensitivity.grids import rounded
from stepwell.quantization.sensitivity.quantization_points import Site, is_dequantized
from stepwell.quantization.sensitivity.replay import Playback
from stepwell.translate.rewrites.mxfp.choose_mxfp import MxConv2dOp, block_axis, payload_fields

OUTLIER = 8.0
"""Ratio of the largest channel to the median from which it is reported."""
MISSING, WRONG, GAIN = 0.5, 0.9, 0.15
"""Least cosine of a channel with its own; of a swapped one with the other; of gains with 1."""
CLIPPED = 2e-3
"""Part of an operand that may be clipped."""
HOLLOW = 0.5
"""Empty part of a range from which it is reported."""
FEW = 24
"""Least number of 8-bit values that an operand should use."""


@dataclass(frozen=True)
class Operand:
    """One operand of a quantization point.

    Attributes:
        role: `input`, `weights`, `bias` or `result`.
        before, after: the operand's numbers in floats and quantized, from the same inputs.
        axis: the axis of output channels, or None.
        op: the dequantize op that produces it.
    """

    role: str
    before: Tensor
    after: Tensor
    axis: int | None
    op: Operation | None = None

    @property
    def levels(self) -> int:
        """Return the number of values of the operand's integer type."""
        said = getattr(self.op, "arg", None)
        try:
            return 256 if said is None else said("quant_max") - said("quant_min") + 1
        except (KeyError, StopIteration, ValueError, TypeError, AttributeError):
            return 256

    @property
    def has_one_scale(self) -> bool:
        """Whether one static scale applies to the whole operand."""
        return self.op is not None and "per_tensor" in op_name(self.op)

    @property
    def step(self) -> float:
        """Return the smallest distance between two quantized values."""
        values = self.after.detach().flatten()[:100_000].unique()
        return float(values.diff().min()) if len(values) > 1 else 0.0

    def channels(self, tensor: Tensor, axis: int) -> Tensor:
        """Reshape a tensor to `[channels, rest]`."""
        rows = torch.atleast_1d(tensor.detach().double()).movedim(axis, 0)
        return rows.reshape(len(rows), -1)


def operands(site: Site, play: Playback) -> list[Operand]:
    """Yield a quantization point's operands that are quantized or constants of the float model."""
    before, after = play.operands(site, free=True), play.operands(site, free=False)
    found: list[Operand] = []
    for at, (x, y) in enumerate(zip(before, after, strict=True)):
        if not isinstance(x, Tensor) or not isinstance(y, Tensor) or x.shape != y.shape:
            continue
        if isinstance(site.op, ReturnOp):
            found.append(Operand("result", x, y, None, _giving(site.op, at)))
        elif site.is_mx and at < 2:
            found.append(_of_mx(site, at, x))
        elif x.dtype.is_floating_point and (
            at in site.floats or is_dequantized(site.op.operands[at])
        ):
            role = "weights" if at == site.weight else "bias" if at in site.floats else "input"
            axis = 0 if role == "weights" else None
            found.append(Operand(role, x, y, axis, _giving(site.op, at)))
    return found


def _giving(op: Operation, at: int) -> Operation | None:
    owner = op.operands[at].owner
    return owner if isinstance(owner, Operation) and is_dequantized(op.operands[at]) else None


def _of_mx(site: Site, at: int, x: Tensor) -> Operand:
    op = site.op
    assert isinstance(op, SchemaOp)
    after = rounded(x, op.arg(payload_fields(op)[at]), block_axis(op))
    return Operand("weights" if at == site.weight else "input", x, after, 0 if at else None)


def not_finite(one: Operand) -> str | None:
    """Return the cause if a scale or a weight is not a finite number; else None."""
    wrong = int((~one.after.isfinite() & one.before.isfinite()).sum())
    return f"{wrong} of its {one.role} are no finite numbers" if wrong else None


def lost_bias(one: Operand) -> str | None:
    """Return the cause if a bias differs from the float model's; else None."""
    if one.role != "bias":
        return None
    far, size = float((one.after - one.before).abs().max()), float(one.before.abs().max())
    if far <= 0.05 * size:
        return None
    if not bool(one.after.any()):
        return f"its bias is lost: zeros, where the float model has up to {size:.3g}"
    return f"its bias is not the float model's: off by up to {far:.3g} of {size:.3g}"


def wrong_axis(one: Operand) -> str | None:
    """Return the cause if a weight's scales are not along its output channels; else None."""
    said = getattr(one.op, "arg", None)
    if one.role != "weights" or one.op is None or said is None:
        return None
    if "per_channel" not in op_name(one.op) or said("axis") == 0:
        return None
    return f"scales of its weights lie along axis {said('axis')}, its output channels along axis 0"


def foreign_weights(one: Operand) -> str | None:
    """Return the cause if a weight's channels are swapped or not the float model's; else None."""
    if one.axis is None:
        return None
    ours, theirs = (one.channels(x, one.axis) for x in (one.after, one.before))
    unit = [x / x.norm(dim=1, keepdim=True).clamp_min(1e-30) for x in (ours, theirs)]
    own = (unit[0] * unit[1]).sum(1)
    bad = [int(c) for c in (own < MISSING).nonzero()[:, 0] if float(ours[int(c)].norm()) > 0]
    if not bad:
        return None
    alike = (unit[0][bad] @ unit[1].T).max(1)
    if len(bad) > 1 and bool((alike.values > WRONG).all()):
        pairs = ", ".join(
            f"{c} holds {int(o)}" for c, o in zip(bad[:4], alike.indices, strict=False)
        )
        return f"output channels of its weights are swapped: {pairs}"
    return f"its weights are not the float model's in {len(bad)} of {len(own)} output channels"


def outlier(one: Operand) -> str | None:
    """Return the cause if one channel leaves few quantization levels to the others; else None."""
    per_axis = one.op is not None and ("channel" in op_name(one.op) or "affine" in op_name(one.op))
    axes = [1] if one.role == "input" else [1] if per_axis else [0, 1]
    for axis in axes if one.role != "bias" and one.op is not None else []:
        if axis >= one.before.dim() or one.before.shape[axis] < 3:
            continue
        largest = one.channels(one.before, axis).abs().amax(1)
        ratio = float(largest.max() / largest.median().clamp_min(1e-30))
        if ratio > OUTLIER:
            which = "output " if one.role == "weights" and axis == 0 else "input "
            which = which if one.role == "weights" else ""
            left = max(int(one.levels / ratio), 1)
            return (
                f"{which}channel {int(largest.argmax())} of its {one.role} is {ratio:.0f} times "
                f"the others, which share its scale and have {left} values left"
            )
    return None


def shifted(one: Operand) -> str | None:
    """Return the cause if a zero point is wrong; else None."""
    if one.role not in ("input", "result") or not one.has_one_scale or not one.step:
        return None
    inside = (one.after > one.after.min()) & (one.after < one.after.max())
    moved = (one.after - one.before).detach()[inside]
    steps = float(moved.median()) / one.step if moved.numel() else 0.0
    if abs(steps) < 1.5:
        return None
    where = "of its " + one.role
    return f"the zero point {where} is off: all numbers are shifted by {steps:+.0f} steps"


def wrong_gain(one: Operand) -> str | None:
    """Return the cause if the dequantize op has another scale than the quantize op; else None."""
    if one.role == "bias":
        return None
    rows = [one.channels(x, one.axis or 0) for x in (one.after, one.before)]
    ours, theirs = (x if one.axis is not None else x.reshape(1, -1) for x in rows)
    size = theirs.square().sum(1).clamp_min(1e-30)
    gain, norm = (ours * theirs).sum(1) / size, ours.norm(dim=1) * size.sqrt()
    alike = (ours * theirs).sum(1) / norm.clamp_min(1e-30)
    off = ((gain - 1).abs() > GAIN) & (alike > WRONG + 0.05)
    if not bool(off.any()):
        return None
    worst = int(((gain - 1).abs() * off).argmax())
    where = f"in {int(off.sum())} of {len(off)} channels, " if one.axis is not None else ""
    return f"the scale of its {one.role} is wrong: {where}numbers come out {gain[worst]:.2g} times"


def clipped(one: Operand) -> str | None:
    """Return the cause if numbers exceed the range of their scale; else None."""
    if one.role == "bias" or not one.has_one_scale:
        return None
    low, high = float(one.after.min()), float(one.after.max())
    slack = 2 * one.step
    beyond = (one.before < low - slack) | (one.before > high + slack)
    part = float(beyond.double().mean())
    if part < CLIPPED:
        return None
    reach = float(one.before.detach().abs().max())
    range_ = f"{low:.3g} … {high:.3g}"
    return f"{part:.1%} of its {one.role} is clipped to {range_}, and it reaches {reach:.3g}"


def hollow(one: Operand) -> str | None:
    """Return the cause if a range is mostly empty between its ends, for example because of a
    mask's fill value; else None.
    """
    if one.role == "bias" or not one.has_one_scale:
        return None
    values = one.after.detach().unique()
    if len(values) < 2:
        return None
    gaps = values.diff()
    at = int(gaps.argmax())
    part = float(gaps[at] / (values[-1] - values[0]))
    if part < HOLLOW or one.levels * (1 - part) > one.before.detach().unique().numel():
        return None
    between = f"{float(values[at]):.3g} and {float(values[at + 1]):.3g}"
    return f"{part:.0%} of the range of its {one.role} is empty: nothing lies between {between}"


def coarse(one: Operand) -> str | None:
    """Return the cause if a range is far wider than the numbers in it; else None."""
    if one.role == "bias" or not one.has_one_scale or one.before.numel() < 4 * FEW:
        return None
    values = len(one.after.detach().unique())
    if one.levels < 200 or values >= FEW or len(one.before.detach().unique()) < 2 * values:
        return None
    return f"its {one.role} has {values} of {one.levels} values: the range of its scale is too wide"


CAUSES: tuple[Callable[[Operand], str | None], ...] = (
    not_finite, lost_bias, wrong_axis, foreign_weights, outlier, wrong_gain, shifted, clipped,
    hollow, coarse,
)  # fmt: skip
"""Predicates in the order of evaluation: each one explains the symptoms of those after it."""


def fault_of(site: Site, play: Playback) -> str | None:
    """Return the fault of a quantization point that is not mere rounding, or None."""
    quantized = operands(site, play)
    causes = (cause(one) for cause in CAUSES for one in quantized)
    return next((sentence for sentence in causes if sentence is not None), None)


def cause_of(site: Site, play: Playback) -> str:
    """Return why a quantization point loses accuracy, as a sentence without capital and full
    stop.
    """
    if (fault := fault_of(site, play)) is not None:
        return fault
    if isinstance(site.op, MxConv2dOp) and (alone := _lonely(site)) is not None:
        return alone
    compared = operands(site, play)
    errors = {one.role: _relative(one) for one in compared if one.role != "bias"}
    if not errors:
        return "nothing of it is quantized that can be compared"
    role = max(errors, key=lambda name: errors[name])
    return f"rounding moves its {role} by {errors[role]:.1%}"


def cause_of_several(sites: Sequence[Site], play: Playback) -> str:
    """Return why quantization points lose together: the fault or the rounding of the worst one."""
    for site in sites:
        if (fault := fault_of(site, play)) is not None:
            return f"at `{site.name}`, {fault}"
    return f"at `{sites[0].name}`, {cause_of(sites[0], play)}" if sites else ""


def _lonely(site: Site) -> str | None:
    """Return how few channels the blocks of an MX convolution have, if that is the cause."""
    assert isinstance(site.op, SchemaOp)
    shape: Sequence[Any] = site.op.operands[1].type.get_shape()  # pyright: ignore
    if shape[1] > 3:
        return None
    count = {1: "one number stands", 2: "two numbers stand", 3: "three numbers stand"}[shape[1]]
    return f"{count} in each block of {BLOCK}, for the image has as many channels"


def _relative(one: Operand) -> float:
    return float((one.after - one.before).norm() / one.before.norm().clamp_min(1e-30))


def calibration(sites: Sequence[Site], play: Playback) -> str | None:
    """Return a sentence if most activations' ranges do not fit the data; else ""."""
    inputs = [
        one for site in sites for one in operands(site, play) if one.role in ("input", "result")
    ]
    known = [one for one in inputs if one.op is not None]
    for test, said in ((clipped, "clip"), (coarse, "are far wider than")):
        wrong = sum(test(one) is not None for one in known)
        if len(known) > 2 and wrong * 2 > len(known):
            ranges = f"{wrong} of {len(known)} ranges {said} what occurs"
            return f"it was calibrated on other data: {ranges}"
    return None
