"""What the library's C++ makes of a tensor's sizes: rules that its schemas do not state.

`cortex_m_ops_common.h`: a rank-4 tensor with one channel (dimension 1), or with one cell
(dimensions 2 and 3), is taken for channels-last whatever its dim order; `op_pad.cpp` then reads
sizes and widths in the order of NHWC memory. `op_minimum.cpp` and `op_maximum.cpp` see the last
four dimensions.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators.
import torch.nn.functional as F
from eager import lower
from torch import nn

from stepwell.backends.cortex_m.emit import emit, to_pte
from stepwell.backends.cortex_m.read import read_pte
from stepwell.backends.executorch.container import KernelCall

from .conftest import Net
from .standalone_builds import HAS_GCC, run_on_host


def pad_as_the_kernel_does(method: Any, call: KernelCall, memory: torch.Tensor) -> torch.Tensor:
    """The bytes that `pad_out` writes for the bytes of its input, both flat."""
    given, pre, post, cell, made = (method.values[i] for i in call.args[:5])
    sizes = list(given.sizes)
    rank = len(sizes)
    channels_last = rank == 4 and (
        sizes[1] == 1 or sizes[2] == sizes[3] == 1 or tuple(given.dim_order) == (0, 2, 3, 1)
    )
    order = (0, 2, 3, 1) if channels_last else range(rank)
    seen = [1] * (4 - rank) + [sizes[axis] for axis in order]
    before, after = (numbers(method, lists) for lists in (pre, post))
    widths = [w for axis in (3, 2, 1, 0) for w in (before[axis], after[axis])]
    out = F.pad(memory.reshape(seen), widths, value=cell).flatten()
    assert out.numel() == math.prod(made.sizes)
    return out


def numbers(method: Any, value: Any) -> list[int]:
    items = value.items if hasattr(value, "items") and not callable(value.items) else value
    return [method.values[i] if isinstance(i, int) else int(i) for i in items]


PADS = {
    "one channel": ((1, 1, 5, 6), (1, 2, 0, 1)),
    "one channel of a batch": ((2, 1, 5, 6), (0, 1, 1, 1)),
    "one channel becomes three": ((2, 1, 3, 4), (0, 0, 0, 0, 1, 1)),
    "one channel, every side": ((2, 1, 3, 4), (1, 0, 2, 1, 0, 1)),
    "one cell": ((2, 3, 1, 1), (0, 0, 0, 0, 1, 0)),
    "one cell becomes an image": ((2, 3, 1, 1), (1, 1, 0, 2)),
    "an image": ((1, 3, 5, 6), (1, 2, 0, 1)),
    "rows": ((4, 6), (2, 1)),
}


@pytest.mark.parametrize("name", PADS)
def test_a_pad_is_written_so_that_the_kernel_pads_what_is_meant(name: str, lower: Any) -> None:
    shape, widths = PADS[name]
    x = torch.randn(shape)
    result = lower.module(Net(lambda s, x: F.pad(x, widths)), x)
    assert not result.floats
    result.check(x)
    method = emit(result.program).methods[0]
    calls = [s for s in method.instructions if s.kernel.startswith("cortex_m::")]
    assert {c.kernel for c in calls[1:-1]} <= {"cortex_m::pad.out", "cortex_m::transpose.out"}
    memory = quantized(result, x)
    for call in calls[1:-1]:
        if call.kernel == "cortex_m::pad.out":
            memory = pad_as_the_kernel_does(method, call, memory)
    expected = result.exported.module(check_guards=False)(x)
    scale, zero = (method.values[i] for i in calls[-1].args[1:3])
    assert torch.equal(((memory.float() - zero) * scale).reshape(expected.shape), expected)
    assert torch.equal(read_pte(to_pte(result.program)).run(x)[0], expected)


def quantized(result: Any, x: torch.Tensor) -> torch.Tensor:
    """The bytes of the quantized input."""
    op = next(o for o in result.program.module.walk() if o.name == "cmsis.quantize_per_tensor")
    scale, zero = op.real("scale"), op.number("zero_point")
    stored = torch.round(x * (1.0 / torch.tensor(scale))) + zero
    return stored.clamp(-128, 127).to(torch.int8).flatten()


@pytest.mark.parametrize(("zero", "ends"), [(3, (-127, -127)), (0, (127, -127)), (-3, (127, 127))])
def test_steps_beyond_32_bits_wrap_with_the_zero_point(
    zero: int, ends: tuple[int, int], tmp_path: Path
) -> None:
    """Measured: the kernel's expression, compiled by gcc 12 for Arm (-O2, -O3), on an emulator."""
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 3e38, -3e38, 0.25, 0.75, 1e9, -1e9])

    def rounded(x: torch.Tensor) -> torch.Tensor:
        quantize = torch.ops.quantized_decomposed.quantize_per_tensor
        return quantize(x, 0.5, zero, -127, 127, torch.int8)

    lowered = lower(rounded, x, target="cortex-m4")
    (found,) = lowered.run(x)
    saturated = [127, -127]
    assert found.tolist() == [zero, *ends, *ends, zero, zero + 2, *saturated]
    if HAS_GCC:  # The C without a runtime saturates.
        data = run_on_host(lowered.to_c("model", runtime=None), tmp_path, [x])
        bytes_ = torch.frombuffer(bytearray(data), dtype=torch.int8)
        assert bytes_.tolist() == [zero, *saturated * 2, zero, zero + 2, *saturated]


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_a_minimum_of_five_dimensions_is_one_of_all_of_them(name: str, lower: Any) -> None:
    x = torch.randn(2, 3, 2, 2, 2)
    function = getattr(torch, name)
    result = lower.module(Net(lambda s, x: function(x, x.flip([0]))), x)
    assert result.ops[f"cmsis.{name}"] == 1 and not result.floats
    result.check(x)
    (op,) = (o for o in result.program.module.walk() if o.name == f"cmsis.{name}")
    assert len(op.results[0].type.get_shape()) <= 4


def test_an_even_one_dimensional_kernel_with_same_padding_pads_its_width(lower: Any) -> None:
    x = torch.randn(1, 3, 9)
    result = lower.module(Net(lambda s, x: s.a(x), a=nn.Conv1d(3, 4, 4, padding="same")), x)
    assert not result.floats
    result.check(x)
    assert torch.equal(read_pte(to_pte(result.program)).run(x)[0], result.program.run(x)[0])
