import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

import stepwell.dialects  # noqa: F401  (makes the dialects known)
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class, torch_overload
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, f16, f32
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text
from stepwell.ir.types import IntType, tensor, tensor_like
from stepwell.ir.weights import WeightStore


def run(name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Call an operator through text, IR and interpreter; tensors and `Number`s become arguments."""
    values: list[Any] = []
    block = Block()

    def lift(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            block.insert_arg(tensor_like(value), len(block.args))
            values.append(value)
            return block.args[-1]
        if isinstance(value, RunTime):
            block.insert_arg(IntType("s0"), len(block.args))
            values.append(value.value)
            return block.args[-1]
        if isinstance(value, torch.dtype):
            return element_type(value)
        if isinstance(value, torch.layout | torch.memory_format | torch.device):
            return str(value).removeprefix("torch.")
        if isinstance(value, list):
            return [lift(item) for item in value]  # pyright: ignore
        return value

    lifted = [lift(arg) for arg in args], {key: lift(value) for key, value in kwargs.items()}
    expected = expected_results(name, args, kwargs)
    types = [tensor_like(result) if result is not None else IntType("u0") for result in expected]
    op = op_class(name).make(*lifted[0], result_types=types, **lifted[1])
    block.add_op(op)
    block.add_op(ReturnOp(*op.results))
    func = FuncOp("forward", ([a.type for a in block.args], types), Region(block))
    module = ModuleOp([func])
    module.verify()
    text = to_text(module)
    back = parse_module(text)
    assert structurally_equal(module, back)
    assert to_text(back) == text
    again = next(iter(back.ops))
    assert isinstance(again, FuncOp)
    return Interpreter(WeightStore()).call(again, values).outputs


class RunTime:
    """A number given at run time."""

    def __init__(self, value: int) -> None:
        self.value = value


def expected_results(name: str, args: Any, kwargs: Any) -> list[Any]:
    namespace, operator, overload = name.split(".")
    handle = getattr(getattr(getattr(torch.ops, namespace), operator), overload)

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]  # pyright: ignore
        return value.value if isinstance(value, RunTime) else value

    plain_args = [plain(a) for a in args]
    returned = handle(*plain_args, **{key: plain(value) for key, value in kwargs.items()})
    flat: list[Any] = []
    for item in returned if isinstance(returned, tuple | list) else [returned]:
        flat.extend(item if isinstance(item, list | tuple) else [item])
    return flat


X = torch.arange(12.0).reshape(3, 4) - 5
IMAGE = torch.randn(1, 4, 6, 6)
CPU = torch.device("cpu")
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("aten.add.Tensor", (X, X), {"alpha": 2}),
    ("aten.mul.Scalar", (X, 0.5), {}),
    ("aten.mul.Scalar", (X, True), {}),
    ("aten.add.Scalar", (X, 1e-10), {}),
    ("aten.mul.Scalar", (X, float("-inf")), {}),
    ("aten.mul.Scalar", (X.to(torch.complex64), 1 - 2j), {}),
    ("aten.conv2d.default", (IMAGE, torch.randn(8, 1, 3, 3)), {"padding": [1, 1], "groups": 4}),
    ("aten.conv2d.padding", (IMAGE, torch.randn(8, 4, 3, 3), None, [1, 1], "same"), {}),
    ("aten.layer_norm.default", (X, [4], None, None, 1e-6), {}),
    ("aten.to.dtype", (X, torch.float16), {}),
    ("aten._to_copy.default", (X,), {"dtype": torch.int8}),
    (
        "aten.to.dtype_layout",
        (X,),
        {"dtype": torch.bfloat16, "layout": torch.strided, "device": CPU},
    ),
    ("aten.clone.default", (IMAGE,), {"memory_format": torch.channels_last}),
    ("aten.native_batch_norm.default", (IMAGE, None, None, None, None, True, 0.1, 1e-5), {}),
    ("aten.full.default", ([2, 3], 1.5), {"dtype": torch.float64, "pin_memory": False}),
    ("aten.arange.start_step", (0, 10, 3), {}),
    ("aten.cat.default", ([X, X * 2], 1), {}),
    ("aten.split.Tensor", (X, 2, 1), {}),
    ("aten.max.dim", (X, 1), {"keepdim": True}),
    ("aten.index.Tensor", (X, [None, torch.tensor([2, 0])]), {}),
    ("aten.view.default", (X, [RunTime(2), -1]), {}),
    ("aten.slice.Tensor", (X, 1, RunTime(1), RunTime(3)), {}),
    ("aten.sum.dim_IntList", (X, None), {}),
    ("aten.sum.dim_IntList", (X, [0]), {"dtype": torch.float64}),
    ("aten.gelu.default", (X,), {"approximate": "tanh"}),
    ("aten.upsample_nearest2d.vec", (IMAGE, None, [2.0, 2.0]), {}),
    ("aten.einsum.default", ("ij,kj->ik", [X, X]), {}),
    ("aten.scaled_dot_product_attention.default", (IMAGE, IMAGE, IMAGE), {"scale": 0.25}),
    ("aten.where.self", (X > 0, X, -X), {}),
    ("aten.__and__.Tensor", (X > 0, X < 3), {}),
    (
        "quantized_decomposed.quantize_per_tensor.default",
        (X, 0.1, -3, -128, 127, torch.int8),
        {},
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CALLS)])
def test_a_call_survives_text_and_computes_what_torch_computes(call: Any) -> None:
    name, args, kwargs = call
    torch_overload(op_class(name))
    for ours, theirs in zip(
        run(name, *args, **kwargs), expected_results(name, args, kwargs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_running_statistics_are_not_written() -> None:
    mean, var = torch.zeros(4), torch.ones(4)
    name = "aten.batch_norm.default"
    args = (IMAGE, None, None, mean, var, True, 0.1, 1e-5, False)
    run(name, *(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
    block = Block(arg_types=[tensor_like(t) for t in (IMAGE, mean, var)])
    x, m, v = block.args
    op = op_class(name).make(
        x, None, None, m, v, True, 0.1, 1e-5, False, result_types=[tensor_like(IMAGE)]
    )
    environment: dict[SSAValue, Any] = {x: IMAGE, m: mean, v: var}
    block.add_op(op)
    Interpreter(WeightStore()).step(op, environment)
    assert torch.equal(mean, torch.zeros(4)) and torch.equal(var, torch.ones(4))


def test_torchs_refusal_names_the_op() -> None:
    block = Block(arg_types=[tensor_like(X), tensor_like(IMAGE)])
    op = op_class("aten.mm.default").make(*block.args, result_types=[tensor_like(X)])
    with pytest.raises(StepwellError, match=r"aten\.mm\.default: .*must be a matrix"):
        Interpreter(WeightStore()).step(op, dict(zip(block.args, (X, IMAGE), strict=True)))


def test_an_assertion_of_a_pytorch_function_names_the_op() -> None:
    codes = torch.ones(4, dtype=torch.int8)
    block = Block(arg_types=[tensor_like(codes)])
    dequantize = op_class("quantized_decomposed.dequantize_per_tensor.default")
    arguments = (*block.args, 0.1, 0, -128, 127, f16)
    op = dequantize.make(*arguments, result_types=[tensor_like(codes.float())])
    with pytest.raises(StepwellError, match=r"dequantize_per_tensor.*float16, but got torch\.int8"):
        Interpreter(WeightStore()).step(op, {block.args[0]: codes})


def test_a_memory_format_is_kept() -> None:
    (image,) = run("aten.clone.default", IMAGE, memory_format=torch.channels_last)
    assert image.is_contiguous(memory_format=torch.channels_last)


def test_a_value_is_freed_after_its_last_use():
    """Of a chain, what one op reads and what it gives are all that is held."""
    held: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def observe(op: Operation, results: Sequence[Any]) -> None:
        alive.append(sum(ref() is not None for ref in held))
        held.extend(weakref.ref(value) for value in results)

    lines = [
        f"%{i + 1} = aten.neg.default(%{i}) : (tensor<4xf32>) -> tensor<4xf32>" for i in range(8)
    ]
    first = "%0 = aten.abs.default(%x) : (tensor<4xf32>) -> tensor<4xf32>"
    last = "%y = aten.add.Tensor(%8, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"
    text = "\n".join(
        (
            "func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {",
            *(first, *lines, last),
            "func.return %y : tensor<4xf32>",
            "}",
        )
    )
    (func,) = parse_module(text).ops
    assert isinstance(func, FuncOp)
    x = torch.randn(4)
    (y,) = Interpreter(WeightStore(), observe=observe).call(func, [x]).outputs
    assert torch.equal(y, x.abs() + x.abs())
    assert max(alive) <= 2  # the first value, which the last op reads, and one operand


def test_a_batch_norm_without_channels_is_refused_before_torch_is_asked() -> None:
    """PyTorch's shape function of it ends the process."""
    x, mean, variance = Block(arg_types=[tensor([4], f32)] * 3).args
    made = op_class("aten.batch_norm.default")
    assert issubclass(made, SchemaOp)
    given = {"input": x, "running_mean": mean, "running_var": variance, "training": False,
             "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False}  # fmt: skip
    with pytest.raises(StepwellError, match="without channels"):
        made.from_arguments(given, None)
