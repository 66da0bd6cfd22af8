"""Ops without a kernel are taken apart until every piece has one, and compute the same."""

from typing import Any

import pytest
import sympy
import torch
from rewrite_runs import program_of, random_tensor
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.backends.executorch.kernels.kernel_calls import is_reshape, kernel_of
from stepwell.backends.executorch.running.runner import run_pte
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.symbols import is_of_more_than_one
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.types import tensor_like
from stepwell.translate.rewrites.calls import traced_calls


def _program(name: str, *args: Any, **kwargs: Any) -> tuple[Program, list[torch.Tensor], Any]:
    """A method of one op, its inputs, and what PyTorch gives for them."""
    namespace, operator, overload = name.split(".")
    expected = getattr(getattr(getattr(torch.ops, namespace), operator), overload)(*args, **kwargs)
    results = list(expected) if isinstance(expected, tuple | list) else [expected]
    given = [a for a in args if isinstance(a, torch.Tensor)]
    block = Block(arg_types=map(tensor_like, given))
    values = iter(block.args)
    op = op_class(name).make(
        *(next(values) if isinstance(a, torch.Tensor) else a for a in args),
        result_types=list(map(tensor_like, results)),
        **kwargs,
    )
    block.add_ops([op, ReturnOp(*op.results)])
    types = FunctionType.from_lists([a.type for a in block.args], [r.type for r in op.results])
    return Program(ModuleOp([FuncOp("forward", types, Region(block))])), given, results


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


_CASES: list[tuple[Any, ...]] = [
    ("aten.silu.default", _x(2, 3)),
    ("aten.hardswish.default", _x(2, 3)),
    ("aten.hardsigmoid.default", _x(2, 3)),
    ("aten.mish.default", _x(2, 3)),
    ("aten.softplus.default", _x(2, 3)),
    ("aten.celu.default", _x(2, 3)),
    ("aten.conv2d.default", _x(1, 3, 8, 8), _x(6, 3, 3, 3), _x(6), [2, 2], [1, 1]),
    ("aten.conv1d.default", _x(1, 3, 8), _x(6, 3, 3), None, [1], [1]),
    ("aten.conv_transpose2d.input", _x(1, 3, 4, 4), _x(3, 2, 3, 3), None, [2, 2]),
    ("aten.layer_norm.default", _x(2, 3, 8), [8]),
    ("aten.group_norm.default", _x(2, 4, 3, 3), 2),
    ("aten.instance_norm.default", _x(2, 4, 3, 3), None, None, None, None, True, 0.1, 1e-5, False),
    ("aten.rms_norm.default", _x(2, 8), [8], _x(8)),
    ("aten.matmul.default", _x(2, 4, 5), _x(5, 6)),
    ("aten.scaled_dot_product_attention.default", _x(1, 2, 5, 4), _x(1, 2, 5, 4), _x(1, 2, 5, 4)),
    ("aten.softmax.int", _x(2, 3, 4), 1),
    ("aten.log_softmax.int", _x(2, 3, 4), 1),
    ("aten.triu.default", _x(5, 5), 1),
    ("aten.adaptive_avg_pool2d.default", _x(1, 2, 6, 6), [1, 1]),
    ("aten.adaptive_avg_pool2d.default", _x(1, 2, 7, 7), [3, 3]),
    ("aten.max_pool2d.default", _x(1, 2, 6, 6), [2, 2]),
    ("aten.chunk.default", _x(6), 3),
    ("aten.index_copy.default", _x(5, 3), 0, torch.tensor([1, 3]), _x(2, 3)),
    ("aten.one_hot.default", torch.tensor([1, 2]), 4),
    ("aten.logsumexp.default", _x(2, 3, 4), [1]),
    ("aten.std.dim", _x(2, 3, 4), [1]),
    ("aten.linalg_vector_norm.default", _x(3, 4)),
    ("aten.lerp.Scalar", _x(3), _x(3) + 1, 0.25),
    ("aten.addcmul.default", _x(3), _x(3), _x(3)),
    ("aten.addcdiv.default", _x(3), _x(3), _x(3) + 9),
    ("aten.baddbmm.default", _x(2, 3, 4), _x(2, 3, 5), _x(2, 5, 4)),
    ("aten.outer.default", _x(3), _x(4)),
    ("aten.where.ScalarOther", _x(3) > 0, _x(3), 0.0),
    ("aten.pad.default", _x(1, 2, 4, 4), [1, 1, 2, 0], "reflect"),
    ("aten.upsample_nearest2d.default", _x(1, 2, 3, 3), [6, 6]),
    ("aten.channel_shuffle.default", _x(1, 4, 2, 2), 2),
    ("aten.diff.default", _x(6)),
    ("aten.movedim.int", _x(2, 3, 4), 0, 2),
    ("aten.tile.default", _x(2, 3), [2, 2]),
    ("aten.square.default", _x(3)),
    ("aten.trace.default", _x(3, 3)),
    ("aten.swapaxes.default", _x(2, 3), 0, 1),
    ("aten.cross_entropy_loss.default", _x(3, 5), torch.tensor([0, 4, 2])),
]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case[0])
def test_a_decomposed_op_has_only_kernels_and_computes_what_pytorch_does(
    case: tuple[Any, ...],
) -> None:
    program, inputs, expected = _program(*case)
    history = History()
    run_rewrites(program, (DecomposeForKernels(),), history)
    assert not history.refusals
    for op in program.method().body.block.ops:
        if isinstance(op, SchemaOp):
            assert is_reshape(op) or kernel_of(type(op)) is not None, op.name
    outputs = run_pte(to_bytes(emit(program)), inputs)
    for ours, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_an_op_with_a_kernel_is_left_alone() -> None:
    program, _, _ = _program("aten.relu.default", _x(3))
    assert run_rewrites(program, (DecomposeForKernels(),)) == 0


def test_an_op_that_cannot_be_taken_apart_is_refused_with_the_reason() -> None:
    program, _, _ = _program("aten.special_airy_ai.default", _x(5))
    history = History()
    assert run_rewrites(program, (DecomposeForKernels(),), history) == 0
    (refusal,) = history.refusals.values()
    assert refusal.reason == "aten.special_airy_ai.default has no kernel and no decomposition"
    with pytest.raises(UnsupportedError, match=r"airy_ai.default.*no kernel"):
        emit(program)


def test_a_transposed_convolution_of_volumes_is_refused_because_its_kernel_fails() -> None:
    program, _, _ = _program(
        "aten.convolution.default", _x(1, 2, 2, 2, 2), _x(2, 3, 2, 2, 2), None,
        [2, 2, 2], [0, 0, 0], [1, 1, 1], True, [0, 0, 0], 1,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="convolves batches of lines and of images only"):
        emit(program)


def test_complex_numbers_are_refused_at_the_op_that_makes_them() -> None:
    x = torch.complex(_x(2, 3), _x(2, 3))
    program, _, _ = _program("aten.mul.Tensor", x, x)
    with pytest.raises(UnsupportedError, match=r"input input_0: .*real tensors only"):
        emit(program)


_SIZE = sympy.Symbol("s0", integer=True, positive=True)


@pytest.mark.parametrize(
    ("guard", "allowed"),
    [
        (sympy.Ne(_SIZE, 1), True),
        (sympy.Lt(1, _SIZE), True),
        (sympy.Gt(_SIZE, 1), True),
        (sympy.Ge(_SIZE, 2), True),
        (sympy.Ge(_SIZE, 3), False),
        (sympy.Ne(_SIZE, 3), False),
        (sympy.Eq(_SIZE, 3), False),
        (sympy.Ne(_SIZE, sympy.Symbol("s1")), False),
    ],
)
def test_that_a_size_is_not_one_is_all_that_a_decomposition_may_assume(
    guard: Any, allowed: bool
) -> None:
    assert is_of_more_than_one(guard) == allowed


def test_equal_ops_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[str] = []
    trace = traced_calls._traced
    monkeypatch.setattr(traced_calls, "_TRACES", {})
    monkeypatch.setattr(
        traced_calls, "_traced", lambda op, *given: traced.append(op.name) or trace(op, *given)
    )
    program = program_of("""
        %a = aten.silu.default(%x: f32[3]); %b = aten.silu.default(%a)
        %y = aten.silu.default(%b)""")
    assert run_rewrites(program, (DecomposeForKernels(),)) == 3
    assert traced == ["aten.silu.default"]
    x, silu = _x(3), torch.nn.functional.silu
    torch.testing.assert_close(run_pte(to_bytes(emit(program)), [x])[0], silu(silu(silu(x))))


LERP = """
func.func @forward(%x: tensor<3xf32>, %w: NUMBER) -> tensor<3xf32> {
  %y = aten.lerp.Scalar(%x, %x, %w) : (tensor<3xf32>, tensor<3xf32>, NUMBER) -> tensor<3xf32>
  func.return %y : tensor<3xf32>
}"""


def test_a_float_of_run_time_goes_to_the_pieces() -> None:
    program = program_of(LERP.replace("NUMBER", '!stepwell.float<"zf0">'))
    assert run_rewrites(program, (DecomposeForKernels(),)) == 1
    program.verify()
    x = _x(3)
    torch.testing.assert_close(program.run(x, 0.25)[0], torch.lerp(x, x, 0.25))


def test_a_piece_that_needs_a_number_no_value_holds_is_refused() -> None:
    program, history = program_of(LERP.replace("NUMBER", '!stepwell.int<"u0">')), History()
    assert run_rewrites(program, (DecomposeForKernels(),), history) == 0
    (refusal,) = history.refusals.values()
    assert refusal.reason.startswith("the decomposition needs the number ToFloat(u0)")


SYMBOLIC: dict[str, Any] = {
    "%y = aten.silu.default(%x: f32[s0, 4])": torch.nn.functional.silu,
    "%y = aten.matmul.default(%x: f32[2, s0, 4], %w: f32[4, 3])": torch.matmul,
    "%y = aten.layer_norm.default(%x: f32[s0, 4], [4])": (
        lambda x: torch.nn.functional.layer_norm(x, [4])
    ),
    "%y = aten.triu.default(%x: f32[s0, s0])": torch.triu,
    "%y = aten.scaled_dot_product_attention.default("
    "%q: f32[1, 2, s0, 4], %k: f32[1, 2, s0, 4], %v: f32[1, 2, s0, 4])": (
        torch.nn.functional.scaled_dot_product_attention
    ),
}


@pytest.mark.parametrize("text", SYMBOLIC)
def test_ops_on_symbolic_shapes_are_taken_apart_and_run_at_every_length(text: str) -> None:
    program, history = program_of(text), History()
    types = program.method().function_type.inputs.data
    ports = tuple(Port(f"x{index}") for index in range(len(types)))
    set_signature(program.method(), Signature(ports, (Port("y"),), ranges={"s0": (2, 16)}))
    run_rewrites(program, (DecomposeForKernels(),), history)
    assert not history.refusals
    data = to_bytes(emit(program))
    for length in (2, 7, 16):
        inputs = [random_tensor(type_, size=length) for type_ in types]
        wanted = SYMBOLIC[text](*inputs)
        torch.testing.assert_close(run_pte(data, inputs)[0], wanted, rtol=1e-5, atol=1e-5)
