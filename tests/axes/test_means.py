"""What is declared of an op is what it computes, NaN, infinities, zeros and the rest of it."""

from typing import Any

import pytest
import torch

import stepwell.dialects.reduction_semantics  # noqa: F401
from stepwell.dialects.aten.registry import torch_overload
from stepwell.ir.declared.families import families_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.declared.scalar_semantics import PRIMITIVES, Term, meaning, meant_names
from stepwell.translate.decompositions.traced.semantics import semantic_function

from .elementwise_samples import elementwise_samples
from .samples import SAMPLES, name_of
from .tensors import FOLDS, FUNCTIONS, evaluated
from .test_axis_maps import method_of, random_value

SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3,
           88.0, -90.0, 1e-40, 3e38, -3e38, 2.5, 6.0, -3.0, 1e10]  # fmt: skip
DIFFERS: dict[str, str] = {
    "aten.gelu.default": "of −∞ one CPU's kernel gives NaN, another's −0; of 3e38 ∞, or 3e38",
    "xnnpack.gelu": "of −∞ one CPU's kernel gives NaN, another's −0; of 3e38 ∞, or 3e38",
}


def last_op(sample: str) -> tuple[Any, Any, list[Any]]:
    method, program = method_of(sample)
    *before, op, _ = method.body.block.ops
    return op, (program, method), before


MEANT = {n for d in ("aten", "xnnpack", "tosa") for n in meant_names(d)}
WINDOWS = {"aten.max_pool2d.default", "tosa.max_pool2d", "xnnpack.max_pooling_2d"}


def is_tried(sample: str) -> bool:
    """Which elements of two operands are multiplied, or stand in a window, no axis map says."""
    name = name_of(sample)
    return name in MEANT - WINDOWS and "product" not in families_of(name)


TRIED = [sample for sample in SAMPLES if is_tried(sample)]


@pytest.mark.parametrize("sample", TRIED, ids=lambda s: s.splitlines()[-1][:50])
def test_an_expression_computes_what_the_op_does(sample: str) -> None:
    op, (program, method), before = last_op(sample)
    interpreter, generator = Interpreter(program.weights), torch.Generator().manual_seed(1)
    values: dict[Any, Any] = {}
    for number, argument in enumerate(method.body.block.args):
        value = random_value(argument, generator)
        if value.dtype == torch.float32:
            flat = value.flatten()
            special = torch.tensor(SPECIAL * (flat.numel() // len(SPECIAL) + 1))
            turned = special.roll(7 * number)[: flat.numel()].reshape(value.shape)
            value = value if op.name in FOLDING else turned
        values[argument] = value
    for earlier in before:
        interpreter.step(earlier, values)
    found = evaluated(op, [values[v] for v in op.operands])
    if found is None:
        pytest.skip("moves, or is a product")
    interpreter.step(op, values)
    expected = values[op.results[0]]
    spreads = found.dim() == expected.dim() or found.numel() != expected.numel()
    found = found.expand(expected.shape) if spreads else found.reshape(expected.shape)
    if op.name in DIFFERS:
        keep = expected.isfinite() & found.isfinite()
        found, expected = found[keep], expected[keep]
    found = found.to(expected.dtype)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-6, equal_nan=True)


FOLDING = {"aten.layer_norm.default", "aten.native_layer_norm.default", "aten.softmax.int",
           "aten._softmax.default", "aten.mean.dim", "aten.log_softmax.int",
           "aten._log_softmax.default", "xnnpack.softmax", "aten.sum.dim_IntList",
           "tosa.reduce_sum", "aten._safe_softmax.default"}  # fmt: skip


def test_every_primitive_is_a_function_here() -> None:
    assert FUNCTIONS.keys() | FOLDS.keys() | {"some", "cast"} == PRIMITIVES.keys()


ELEMENTWISE = [
    s for s in elementwise_samples(set()) if is_tried(s) and "xf32>" in str(last_op(s)[0])
]


@pytest.mark.parametrize("sample", ELEMENTWISE, ids=lambda s: s[5:40])
def test_an_expression_on_tensors_is_a_decomposition(sample: str) -> None:
    op, (_, method), _ = last_op(sample)
    decomposition = semantic_function(torch_overload(type(op)))
    if decomposition is None:
        assert "elementwise" not in families_of(op.name)
        return
    generator = torch.Generator().manual_seed(1)
    values: dict[Any, Any] = {a: random_value(a, generator) for a in method.body.block.args}
    positional, _ = op.bind()
    for dtype in (torch.float32, torch.float16):
        for value, number in values.items():
            values[value] = number.to(dtype) if number.is_floating_point() else number
        given = [values.get(argument, argument) for argument in positional]
        expected, found = torch_overload(type(op))(*given), decomposition(*given)
        if found is NotImplemented:  # A primitive, whose decomposition would be itself.
            element = meaning(op).element
            assert all(
                getattr(x, "value", None) or not isinstance(x, Term) for x in element.operands
            )
        else:
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected, equal_nan=True)


def test_integers_have_no_decomposition_by_an_expression_of_reals() -> None:
    decomposition = semantic_function(torch.ops.aten.silu.default)
    assert decomposition is not None
    assert decomposition(torch.ones(2, dtype=torch.int32)) is NotImplemented
