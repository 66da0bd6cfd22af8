"""Find channels that can be scaled without changing the function that a program computes in floats.

The scale of a channel propagates along axis maps: data movement moves it, a sum needs the same
scale on both sides, homogeneous ops pass it on, and other functions end it. A layer divides the
columns of its weight by the scale of its input, and its rows may introduce another scale. The
factors of a norm also introduce a scale. In a product of two activations, the scale of one side is
the inverse of the other's.

Each element of each value has a *channel* number: 0 where nothing may be scaled, negative where it
is divided instead. Channels that must be scaled equally are merged (union-find with signs). The
analysis interprets the program on these numbers: data movement runs on the numbers unchanged, so
that attention heads, rotary embeddings and residuals need no special rules.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.families import NORMS
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import Along, axis_map
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_movement
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import op_name
from stepwell.quantization.sensitivity.quantization_points import (
    DEQUANTIZES,
    QUANTIZES,
    Quantized,
    constant_key,
    is_dequantized,
)

HOMOGENEOUS = (
    "aten.relu.", "aten.leaky_relu.", "aten.neg.", "aten.abs.", "aten.mul.Scalar",
    "aten.div.Scalar", "aten.mean.dim", "aten.sum.dim", "aten.amax.", "aten.max_pool",
    "aten.avg_pool", "aten.adaptive_avg_pool",
)  # fmt: skip
"""Prefixes of the names of homogeneous ops: f(c x) = c f(x) for c > 0."""
SUMS = ("aten.add.Tensor", "aten.sub.Tensor", "aten.maximum.", "aten.minimum.")
LINEAR = ("aten.linear.", "stepwell_mx.linear.")
CONVOLVES = ("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default",
             "aten.convolution.", "stepwell_mx.conv2d.")  # fmt: skip
PRODUCTS = ("aten.matmul.", "aten.bmm.", "stepwell_mx.matmul_t.")
ATTENDS = "aten.scaled_dot_product_attention."


@dataclass(frozen=True)
class Factor:
    """The factor by which a constant is multiplied: `scale[up] / scale[down]`, of the constant's
    shape.
    """

    op: Operation
    at: int
    up: Tensor
    down: Tensor


@dataclass
class Channels:
    """The channels of a quantized program that can be scaled; creating the object finds them.

    Attributes:
        pair: the quantized program, with its float program.
        values: the values of one run of the program, for their shapes.
        follows: whether the range of a dequantized activation may change.
        numbers: for each value, the channel of each element.
        factors: the constants that absorb scales.
        spans: half-open ranges of channels that were created together.
    """

    pair: Quantized
    values: Any
    follows: Callable[[SSAValue], bool]
    numbers: dict[SSAValue, Tensor] = field(init=False, default_factory=dict[SSAValue, Tensor])
    factors: list[Factor] = field(init=False, default_factory=list[Factor])
    spans: list[tuple[int, int]] = field(init=False, default_factory=list[tuple[int, int]])
    _root: list[int] = field(init=False, default_factory=lambda: [0])
    """For each channel, its parent: one with the same scale, or negative with the inverse scale."""

    def __post_init__(self) -> None:
        self._runs = Interpreter(self.pair.program.weights)
        self._keys = Counter(
            op.key.data for op in self.pair.func.walk() if isinstance(op, WeightOp)
        )
        for op in self.pair.func.body.block.ops:
            self._pass(op)

    # -- channels that are one -------------------------------------------------------------------

    def root(self, channel: int) -> int:
        """Return the representative of a channel; 0 if it cannot be scaled."""
        sign = 1
        while self._root[abs(channel)] != abs(channel):
            channel = self._root[abs(channel)] * (1 if channel > 0 else -1)
            sign, channel = (sign if channel > 0 else -sign), abs(channel)
            if channel == 0:
                return 0
        return sign * channel

    def roots(self) -> Tensor:
        """Return the representative of every channel."""
        return torch.tensor([self.root(channel) for channel in range(len(self._root))])

    def _new(self, count: int) -> Tensor:
        first = len(self._root)
        self._root.extend(range(first, first + count))
        self.spans.append((first, first + count))
        return torch.arange(first, first + count)

    def _join(self, one: Tensor, other: Tensor | int) -> None:
        """Merge the channels of two tensors, elementwise: they must be scaled equally."""
        other = torch.as_tensor(other)
        both = torch.stack([x.reshape(-1) for x in torch.broadcast_tensors(one, other)]).unique(
            dim=1
        )
        for first, second in both.T.tolist():
            a, b = self.root(first), self.root(second)
            if a == b:
                continue
            if a == 0 or b == 0 or a == -b:  # Scaled by its own inverse, it is not scaled.
                self._root[abs(a or b)] = 0
            else:
                self._root[abs(a)] = b if a > 0 else -b

    def _alike(self, numbers: Tensor, axes: Iterable[int]) -> Tensor:
        """Merge channels along axes; return the channel numbers with size 1 along these axes."""
        one = numbers
        for axis in axes:
            one = one.narrow(axis, 0, 1)
        self._join(numbers, one)
        return one

    def _fixed(self, numbers: Tensor) -> bool:
        return all(self.root(channel) == 0 for channel in numbers.unique().tolist())

    # -- ops -------------------------------------------------------------------------------------

    def of(self, value: SSAValue) -> Tensor:
        """Return the channel of each element of a value."""
        numbers = self.numbers.get(value)
        if numbers is not None:
            return numbers
        tensor = self.values.get(value)
        return torch.zeros(tensor.shape if isinstance(tensor, Tensor) else (), dtype=torch.long)

    def _pass(self, op: Operation) -> None:
        """Assign channels to an op's results, and merge the channels that must be equal."""
        name = op_name(op)
        rule = next((rule for begins, rule in _RULES if name.startswith(begins)), None)
        if name.startswith((*QUANTIZES, *DEQUANTIZES)) and "per_channel" not in name:
            if constant_key(op.results[0]) is None:
                self.numbers[op.results[0]] = self.of(op.operands[0])
                if not self.follows(op.results[0]):
                    self._join(self.numbers[op.results[0]], 0)
        elif "choose_qparams" in name or isinstance(op, WeightOp):
            pass
        elif is_movement(op) and all(constant_key(v) is None for v in op.operands):
            self._move(op)
        elif rule is None or not rule(self, op):
            for value in op.operands:
                self._join(self.of(value), 0)
            if op.regions:
                for inner in op.walk():
                    for value in inner.operands:
                        self._join(self.of(value), 0)

    def _move(self, op: Operation) -> None:
        bound: dict[SSAValue, Any] = {value: self.of(value) for value in op.operands}
        for value in op.operands:
            if not isinstance(self.values.get(value), Tensor):
                bound[value] = self.values.get(value)
        self._runs.step(op, bound)
        self.numbers.update((result, bound[result]) for result in op.results)

    def homogeneous(self, op: Operation) -> bool:
        """Propagate channels along the axes that an op keeps; merge them along all other axes."""
        known, numbers = axis_map(op), self.of(op.operands[0])
        links = None if known is None else known.links[0]
        if links is None:
            return False
        kept = {at: link.axis for at, link in enumerate(links)
                if isinstance(link, Along) and link.is_plain}  # fmt: skip
        one = self._alike(numbers, [at for at in range(numbers.dim()) if at not in kept])
        shape = self.values[op.results[0]].shape
        sizes = [1] * len(shape)
        for at, axis in kept.items():
            sizes[axis] = one.shape[at]
        order = sorted(kept, key=lambda at: kept[at])
        rest = [at for at in range(one.dim()) if at not in kept]
        self.numbers[op.results[0]] = one.permute(*rest, *order).reshape(sizes).expand(shape)
        return True

    def sum(self, op: Operation) -> bool:
        """Merge the channels of both sides of a sum; a constant is scaled like the other side."""
        sides = list(op.operands[:2])
        shape = self.values[op.results[0]].shape
        constants = [at for at, value in enumerate(sides) if constant_key(value) is not None]
        if len(sides) < 2 or len(constants) == 2:
            return False
        if not constants:
            numbers = [self.of(value).expand(shape) for value in sides]
            self._join(*numbers)
            self.numbers[op.results[0]] = numbers[0]
            return True
        (at,) = constants
        numbers = self.of(sides[1 - at]).expand(shape)
        if not self._takes(sides[at]):
            return False
        up = self._shared(numbers, self.values[sides[at]].shape)
        self.factors.append(Factor(op, at, up, torch.zeros_like(up)))
        self.numbers[op.results[0]] = numbers
        return True

    def multiplied(self, op: Operation) -> bool:
        """Propagate the channels of one factor; a constant factor may introduce new channels."""
        sides, shape = list(op.operands[:2]), self.values[op.results[0]].shape
        for at, value in enumerate(sides):
            if self._takes(value) and constant_key(sides[1 - at]) is None:
                own = self.values[value].shape
                down = self._shared(self.of(sides[1 - at]).expand(shape), own)
                up = self._new(down.numel()).reshape(down.shape)
                self.factors.append(Factor(op, at, up, down))
                self.numbers[op.results[0]] = up.expand(shape)
                return True
        numbers = [self.of(value).expand(shape) for value in sides]
        at = 1 if self._fixed(numbers[0]) else 0
        self._join(numbers[1 - at], 0)
        self.numbers[op.results[0]] = numbers[at]
        return True

    def divided(self, op: Operation) -> bool:
        """Propagate the channels of the numerator; the denominator must not be scaled."""
        self._join(self.of(op.operands[1]), 0)
        self.numbers[op.results[0]] = self.of(op.operands[0]).expand(
            self.values[op.results[0]].shape
        )
        return constant_key(op.operands[0]) is None

    def layer(self, op: Operation) -> bool:
        """Create new channels for the result of a linear layer or a convolution."""
        assert isinstance(op, SchemaOp)
        numbers, weight = self.of(op.operands[0]), op.operands[1]
        kernel, shape = self.values[weight].shape, self.values[op.results[0]].shape
        is_linear = op_name(op).startswith(LINEAR)
        if not self._takes(weight) or (not is_linear and numbers.dim() != len(kernel)):
            return False
        if "convolution" in op_name(op) and op.arg("transposed"):
            return False
        axis = numbers.dim() - 1 if is_linear else 1
        inputs = self._alike(numbers, [at for at in range(numbers.dim()) if at != axis]).flatten()
        groups = 1 if is_linear else op.arg("groups")
        down = inputs.reshape(groups, -1).repeat_interleave(kernel[0] // groups, 0)
        up = self._new(kernel[0])
        rank = len(kernel)
        self.factors.append(
            Factor(
                op,
                1,
                up.reshape(-1, *(1,) * (rank - 1)),
                down.reshape(*down.shape, *(1,) * (rank - 2)),
            )
        )
        for at in range(2, len(op.operands)):
            if not self._takes(op.operands[at]):
                self._join(up, 0)
            else:
                self.factors.append(Factor(op, at, up, torch.zeros_like(up)))
        self.numbers[op.results[0]] = up.reshape(
            [-1 if at == axis else 1 for at in range(len(shape))]
        ).expand(shape)
        return True

    def looked_up(self, op: Operation) -> bool:
        """Create a channel for each column of an embedding table."""
        if not self._takes(op.operands[0]):
            return False
        up = self._new(self.values[op.operands[0]].shape[-1])
        self.factors.append(Factor(op, 0, up, torch.zeros_like(up)))
        self.numbers[op.results[0]] = up.expand(self.values[op.results[0]].shape)
        return True

    def normed(self, op: Operation) -> bool:
        """End the channels of a norm's operand; the norm's own factors introduce new channels."""
        self._join(self.of(op.operands[0]), 0)
        own = op.operands[1:]
        if not own or any(len(self.values[v].shape) != 1 or not self._takes(v) for v in own):
            return True
        up = self._new(len(self.values[own[0]]))
        for at in range(1, len(op.operands)):
            self.factors.append(Factor(op, at, up, torch.zeros_like(up)))
        self.numbers[op.results[0]] = up.expand(self.values[op.results[0]].shape)
        return True

    def product(self, op: Operation) -> bool:
        """Let the contracted channels of a matrix product's sides have inverse scales."""
        one, other = (self.of(value) for value in op.operands[:2])
        if min(one.dim(), other.dim()) < 2 or any(constant_key(v) for v in op.operands[:2]):
            return False
        if "matmul_t" in op_name(op):
            other = other.transpose(-1, -2)
        shape = self.values[op.results[0]].shape
        self.numbers[op.results[0]] = self._contracted(one, other).expand(shape)
        return True

    def attended(self, op: Operation) -> bool:
        """Propagate channels through attention; the attention weights have no channels."""
        q, k, v = (self.of(value) for value in op.operands[:3])
        if k.shape[:-2] != q.shape[:-2]:
            return False
        scores = self._contracted(q, k.transpose(-1, -2))
        self._join(scores, 0)
        for mask in op.operands[3:]:
            self._join(self.of(mask), 0)
        shape = self.values[op.results[0]].shape
        self.numbers[op.results[0]] = self._alike(v, [v.dim() - 2]).expand(shape)
        return True

    def _contracted(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the channels of a product `[…, M, K] @ […, K, N]`; axes may have size 1."""
        if self._fixed(one):
            return self._alike(other, [other.dim() - 2])
        if self._fixed(other):
            return self._alike(one, [one.dim() - 1])
        rows, columns = self._alike(one, [one.dim() - 2]), self._alike(other, [other.dim() - 1])
        self._join(rows.transpose(-1, -2), -columns)
        return torch.zeros((), dtype=torch.long)

    def _takes(self, value: SSAValue) -> bool:
        """Whether a value is a parameter (or its stored integers) that exactly one op reads."""
        key = constant_key(value)
        if key is None or self._keys[key] != 1 or not value.has_one_use():
            return False
        owner = value.owner
        if is_dequantized(value):
            assert isinstance(owner, Operation)
            return owner.operands[0].has_one_use()
        return isinstance(owner, WeightOp) and owner.kind.data == "parameter"

    def _shared(self, numbers: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the channel numbers of a broadcast operand; the channels of all result elements
        that read one element are merged.
        """
        extra = numbers.dim() - len(shape)
        axes = [at for at in range(numbers.dim()) if at < extra or shape[at - extra] == 1]
        return self._alike(numbers, axes).reshape(tuple(shape))


_RULES: tuple[tuple[str | tuple[str, ...], Callable[[Channels, Operation], bool]], ...] = (
    (HOMOGENEOUS, Channels.homogeneous),
    (SUMS, Channels.sum),
    ("aten.mul.Tensor", Channels.multiplied),
    ("aten.div.Tensor", Channels.divided),
    ((*LINEAR, *CONVOLVES), Channels.layer),
    ("aten.embedding.", Channels.looked_up),
    (NORMS, Channels.normed),
    (PRODUCTS, Channels.product),
    (ATTENDS, Channels.attended),
)
"""Transfer functions of channels by name prefix; all other ops end channels."""
