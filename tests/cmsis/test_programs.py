"""`.pte` programs: every kind of graph out to bytes, through ExecuTorch's own checks, and back."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stepwell
from stepwell.backends.cortex_m.emit import TARGET_METHOD, emit, to_pte
from stepwell.backends.cortex_m.read import read_pte
from stepwell.backends.cortex_m.schemas import declarations
from stepwell.backends.executorch.container import Constant, KernelCall, TensorValue
from stepwell.backends.executorch.reading.read import read_container
from stepwell.ir.diagnostics import UnsupportedError

from .conftest import ROWS, Net, conv, graph, linear, net_of, pt2e


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(1, 8, 2, 6).transpose(1, 2)


IMAGE = (1, 3, 6, 6)

CONV, LINEAR = conv(), linear()
GRAPHS = {
    "transposed convolution, odd padding": graph(IMAGE, lambda s, x: F.relu(s.c(x)),
        c=lambda: nn.ConvTranspose2d(3, 6, 4, 2, 1)),
    "transposed convolution": graph(IMAGE, lambda s, x: F.relu(s.c(x)),
        c=lambda: nn.ConvTranspose2d(3, 6, 3, 2)),
    "depthwise of a batch": graph((2, 6, 6, 6), lambda s, x: s.c(x), c=conv(6, 6, groups=6)),
    "depthwise with a multiplier": graph((1, 6, 6, 6), lambda s, x: s.c(x),
        c=conv(6, 12, groups=6)),
    "mean of images": graph((2, 3, 6, 6), lambda s, x: s.c(x).mean((2, 3)), c=CONV),
    "mean over tokens": graph((2, 5, 12), lambda s, x: s.c(x).mean(1), c=LINEAR),
    "quotient": graph(ROWS, lambda s, x: s.c(x) / (s.d(x).abs() + 1.0), c=LINEAR, d=LINEAR),
    "minimum and maximum": graph(ROWS,
        lambda s, x: torch.minimum(s.c(x), torch.maximum(s.d(x), x[:, :10])), c=LINEAR, d=LINEAR),
    "difference with a relu": graph(ROWS, lambda s, x: F.relu(s.c(x) - s.d(x)), c=LINEAR, d=LINEAR),
    "pad": graph(IMAGE, lambda s, x: F.pad(s.c(x), (1, 0, 2, 1)), c=CONV),
    "slice of channels": graph(IMAGE, lambda s, x: s.d(s.c(x)[:, 2:5]), c=CONV, d=conv(3, 4, 1)),
    "activations": graph(ROWS,
        lambda s, x: F.hardswish(s.c(x)) + F.gelu(s.d(x)) * F.leaky_relu(s.c(x)), c=LINEAR,
        d=LINEAR),
    "softmax over channels": graph(IMAGE, lambda s, x: F.softmax(s.c(x), 1), c=CONV),
    "maximum pool": graph(IMAGE, lambda s, x: F.max_pool2d(F.relu(s.c(x)), 2), c=CONV),
    "one row": graph((12,), lambda s, x: F.relu(s.c(x)), c=LINEAR),
    "attention": graph((1, 8, 12),
        lambda s, x: F.scaled_dot_product_attention(heads(s.q(x)), heads(s.k(x)), heads(s.v(x))),
        q=linear(12, 12), k=linear(12, 12), v=linear(12, 12)),
    "residual block": graph(IMAGE, lambda s, x: F.relu(s.c(y := F.relu(s.d(x))) + y),
        d=conv(padding=1), c=conv(6, 6, padding=1)),
    "layer norm": graph(ROWS, lambda s, x: s.n(s.c(x)), c=LINEAR, n=lambda: nn.LayerNorm(10)),
}  # fmt: skip


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    return net_of(GRAPHS[name], 3)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_kind_of_graph_lowers_whole_and_comes_back_from_bytes(name: str, lower: Any) -> None:
    module, x = build(name)
    result = lower.module(module, x)
    result.check(x)
    assert not result.floats, result.refusals
    data = to_pte(result.program)
    back = read_pte(data)
    back.verify()
    for inputs in (x, torch.randn_like(x)):
        assert torch.equal(back.run(inputs)[0], result.program.run(inputs)[0])
    assert_executorch_accepts(data)
    assert_every_constant_is_used(data)


def assert_executorch_accepts(data: bytes) -> None:
    """ExecuTorch's runtime verifies the program; its deserializer sees the registered schemas."""
    import executorch.backends.cortex_m.ops.operators  # noqa: F401  (registers the library)
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.runtime import Runtime, Verification

    loaded = Runtime.get().load_program(data, verification=Verification.InternalConsistency)
    assert "forward" in loaded.method_names
    plan = deserialize_pte_binary(data).program.execution_plan[0]
    for step in plan.chains[0].instructions:
        call: Any = step.instr_args
        operator = plan.operators[call.op_index]
        if not operator.name.startswith("cortex_m::"):
            continue
        assert operator.overload == "out"
        packet = getattr(torch.ops.cortex_m, operator.name.removeprefix("cortex_m::"))
        schema = packet.out._schema
        assert len(call.args) == len(schema.arguments) + 1  # The output is given twice.
        for argument, index in zip(schema.arguments, call.args, strict=False):
            kind = type(plan.values[index].val).__name__
            assert kind in KINDS[str(argument.type)], (operator.name, argument.name, kind)


KINDS = {
    "Tensor": {"Tensor"},
    "Optional[Tensor]": {"Tensor", "Null"},
    "int": {"Int"},
    "float": {"Double"},
    "bool": {"Bool"},
    "List[int]": {"IntList"},
}


def test_the_declarations_shipped_are_the_registered_ones() -> None:
    import executorch.backends.cortex_m.ops.operators  # noqa: F401

    for operator, schema in declarations().items():
        registered = getattr(torch.ops.cortex_m, operator).out._schema
        assert [a.name for a in schema.arguments] == [a.name for a in registered.arguments]


def test_a_program_says_what_it_is_for_and_is_read_back_so() -> None:
    module, x = build("residual block")
    for cpu in ("cortex-m0plus", "cortex-m55+dsp", "cortex-m85"):
        lowered = stepwell.lower(pt2e(module, (x,), calibrations=0), cpu)
        data = lowered.to_pte()
        method = read_container(data).method(TARGET_METHOD)
        assert method is not None and method.values[method.outputs[0]] == cpu
        assert torch.equal(lowered.run(x)[0], lowered.program.run(x)[0])
        assert f'cmsis.target = "{cpu}"' in str(read_pte(data).module)


def assert_every_constant_is_used(data: bytes) -> None:
    container = read_container(data)
    method = container.methods[0]
    touched = {i for step in method.instructions for i in step.args if isinstance(step, KernelCall)}
    used = {
        value.storage.index
        for index, value in enumerate(method.values)
        if isinstance(value, TensorValue)
        and isinstance(value.storage, Constant)
        and index in touched
    }
    assert used == set(range(1, len(container.constants)))


def test_channels_last_images_enter_and_leave_without_a_copy(lower: Any) -> None:
    module, x = build("residual block")
    result = lower.module(module, x.to(memory_format=torch.channels_last))
    assert result.ops["cmsis.transpose"] == 0
    assert result.ops["cmsis.relabel"] == 2  # The input's and, channels-last as well, the output's.
    result.check(x.to(memory_format=torch.channels_last))
    container = emit(result.program)
    calls = [step.kernel for step in container.methods[0].instructions]
    assert "dim_order_ops::_to_dim_order_copy.out" not in calls


OVERFLOWS = """
builtin.module attributes {stepwell.level = "cmsis", cmsis.target = "cortex-m4"} {
  func.func @forward(%x: tensor<2x4xi8>) -> tensor<2x3xi8> {
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xi8>
    %y = cmsis.quantized_linear(%x, %w) {input_offset = 5 : i64, filter_offset = 0 : i64,
        output_offset = 0 : i64, requantize_multipliers = array<i64: 1073741824>,
        requantize_shifts = array<i64: SHIFT>, activation_max = 127 : i64,
        activation_min = -128 : i64}
        : (tensor<2x4xi8>, tensor<3x4xi8>) -> tensor<2x3xi8>
    func.return %y : tensor<2x3xi8>
  }
}
"""


def test_what_actual_weights_can_overflow_is_refused_before_bytes_are_written() -> None:
    weights = stepwell.parse("builtin.module {}").weights
    weights.add("w", torch.tensor([[1, 1, 1, 1], [-100, 0, 0, 100], [0, 0, 0, 0]]).to(torch.int8))
    assert to_pte(stepwell.parse(OVERFLOWS.replace("SHIFT", "15"), weights))
    # Row 1 reaches 100 * 132 + 100 * 123 = 25500, which 2**17 takes past int32.
    overflows = stepwell.parse(OVERFLOWS.replace("SHIFT", "17"), weights)
    for refused in (to_pte, lambda program: stepwell.lower(program, "cortex-m4")):
        with pytest.raises(UnsupportedError, match=r"row 1.*overflows int32"):
            refused(overflows)


def test_an_input_that_the_model_declares_transposed_is_read_row_by_row(lower: Any) -> None:
    """Every reader of the input asks for another order of its axes."""
    x = torch.randn(3, 9).t()
    square = Net(lambda s, x: torch.softmax(x @ x.mT, -1) @ x)
    lower.module(square.eval(), x).check(x)
