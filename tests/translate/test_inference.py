"""Result types by our own rules are those that torch's kernels give; expressions are compared."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.ir import Block

from stepwell.dialects.aten import inference
from stepwell.dialects.aten.inference import by_torch, infer_schema_op
from stepwell.dialects.aten.operators import OPERATORS
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.aten.shapes import _function, rule_for
from stepwell.dialects.symbols import Symbols
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, f32
from stepwell.ir.program import Program
from stepwell.ir.types import tensor

CASES: list[tuple[str, list[tuple[int, ...]], tuple[Any, ...]]] = [
    *((f"aten.{name}.default", [(2, 3)], ()) for name in "relu gelu silu tanh clone abs".split()),
    *((f"aten.{name}.Scalar", [(2, 3)], (2.0,)) for name in "add sub mul eq lt".split()),
    ("aten.clamp.default", [(3,)], (0, 6.0)),
    ("aten.dropout.default", [(3,)], (0.5, False)),
    *((f"aten.{n}.Tensor", [(4, 1, 3), (5, 1)], ()) for n in "add sub mul div".split()),
    ("aten.maximum.default", [(4, 3), (3,)], ()),
    *(("aten.view.default", [(4, 6)], (s,)) for s in ([24], [-1, 8], [2, -1, 3], [4, 6, 1])),
    ("aten.reshape.default", [(4, 0)], ([0, 4],)),
    ("aten.permute.default", [(2, 3, 4)], ([-1, 0, 1],)),
    ("aten.transpose.int", [(2, 3, 4)], (-1, 0)),
    ("aten.linear.default", [(2, 5, 3), (4, 3), (4,)], ()),
    ("aten.linear.default", [(3,), (4, 3)], ()),
    ("aten.mm.default", [(2, 3), (3, 4)], ()),
    ("aten.bmm.default", [(5, 2, 3), (5, 3, 4)], ()),
    ("aten.batch_norm.default", [(2, 3, 4), (3,), (3,), (3,), (3,)], (False, 0.1, 1e-5, False)),
    ("aten.layer_norm.default", [(2, 3, 4), (3, 4), (3, 4)], ()),
    ("aten.softmax.int", [(2, 3)], (-1,)),
    ("aten._softmax.default", [(2, 3)], (1, False)),
    ("aten._safe_softmax.default", [(2, 3)], (1,)),
    ("aten._log_softmax.default", [(2, 3)], (1, False)),
    ("aten.rms_norm.default", [(2, 3, 4)], ([4],)),
    *(
        (f"aten.{name}", [(2, 3, 4)], (d, k))
        for name in ("mean.dim", "amax.default", "logsumexp.default")
        for d in ([1], [-1, 0])
        for k in (False, True)
    ),
    *(
        (f"aten.slice{copy}.Tensor", [(4, 3)], (at, start, end, step))
        for copy in ("", "_copy")
        for at in (0, -1)
        for start in (None, 0, 1, -1, -9, 9)
        for end in (None, 2, -1, -9, 9, 2**63 - 1)
        for step in (1, 2, 5)
    ),
    *(
        (f"aten.expand{copy}.default", [(3, 1)], (size, implicit))
        for copy in ("", "_copy")
        for implicit in (False, True)
        for size in ([3, 4], [-1, 5], [2, 3, 1], [2, -1, -1], [3, 0])
    ),
    *(("aten.constant_pad_nd.default", [(2, 3)], (p, 1.0)) for p in ([], [0, 0], [0, 0, 0, 0])),
    *(
        ("aten.conv2d.default", [(1, 4, 9, 8), (6, 4 // g, 3, 2), (6,)], (s, p, d, g))
        for s, p, d, g in itertools.product(([1], [2, 3]), ([0], [1, 2]), ([1], [2]), (1, 2))
    ),
]


def make(name: str, shapes: list[tuple[int, ...]], rest: tuple[Any, ...], dtype: Any) -> Any:
    block = Block(arg_types=[tensor(shape, element_type(dtype)) for shape in shapes])
    cls = op_class(name)
    given: dict[str, Any] = {}
    values, others = iter(block.args), iter(rest)
    for argument in cls.SCHEMA.arguments:
        if argument.type.is_tensor:
            value = next(values, None)
        else:
            value = next(others, None)
            if name == "aten.layer_norm.default" and argument.name == "normalized_shape":
                value = list(shapes[1])
        if value is not None:
            given[argument.name] = value
    return cls.from_arguments(given, [tensor([], f32)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_a_rule_says_what_torch_says(case: Any, dtype: torch.dtype) -> None:
    op = make(*case, dtype)
    rule = rule_for(op.name)
    assert rule is not None
    found = rule(op)
    if dtype == torch.float32:
        assert found is not None
    if found is not None:
        assert list(found) == list(by_torch(op))


SCALARS = {"Scalar": 2.0, "int": 1, "float": 1.0, "str": "floor", "bool": False}


def test_functions_of_one_tensor_keep_its_type_as_torch_does() -> None:
    tried = 0
    for cls in OPERATORS:
        others = [a for a in cls.SCHEMA.arguments[1:] if not a.default]
        if rule_for(cls.name) is not _function or any(a.type.is_tensor for a in others):
            continue
        rest = tuple(SCALARS[a.type.base] for a in others)
        try:
            op = make(cls.name, [(2, 3)], rest, torch.bfloat16)
        except StepwellError:
            continue  # It is for integers, or needs a bound.
        if (found := _function(op)) is not None:
            assert list(found) == list(by_torch(op)), cls.name
            tried += 1
    assert tried > 60


SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(st.sampled_from(["add.Tensor", "mul.Tensor", "maximum.default"]), SHAPES, SHAPES)
@settings(max_examples=60, deadline=None)
def test_broadcasting_is_torchs_for_all_shapes(name: str, one: Any, other: Any) -> None:
    op = make(f"aten.{name}", [one, other], (), torch.float32)
    rule = rule_for(op.name)
    assert rule is not None
    found = rule(op)
    try:
        expected = list(by_torch(op))
    except StepwellError:
        assert found is None
    else:
        assert found is None or list(found) == expected


@given(SHAPES, st.lists(st.integers(-1, 6), max_size=4))
@settings(max_examples=60, deadline=None)
def test_views_are_torchs_for_all_sizes(shape: Any, sizes: list[int]) -> None:
    op = make("aten.view.default", [shape], (sizes,), torch.float32)
    rule = rule_for(op.name)
    assert rule is not None
    found = rule(op)
    try:
        expected = list(by_torch(op))
    except StepwellError:
        assert found is None
    else:
        assert found is None or list(found) == expected


def test_what_torch_refuses_is_an_error_with_its_reason() -> None:
    with pytest.raises(StepwellError, match="broadcast"):
        infer_schema_op(make("aten.add.Tensor", [(2, 3), (4,)], (), torch.float32))


def test_symbolic_sizes_are_expressions_of_the_operands() -> None:
    block = Block(arg_types=[tensor(["s0", 4], f32), tensor(["s0", 6], f32)])
    cat = op_class("aten.cat.default").make(list(block.args), 1)
    assert cat.results[0].type == tensor(["s0", 10], f32)
    flat = op_class("aten.flatten.using_ints").make(block.args[0])
    assert flat.results[0].type == tensor(["4*s0"], f32)


def test_an_axis_that_torch_takes_for_one_row_keeps_its_size() -> None:
    rows, scores = (
        f'tensor<2x?x{n}xf32, #stepwell.shape<[2, "((s0 - 1)//32) + 1", {n}]>>' for n in (4, 8)
    )
    text = f"""func.func @forward(%x: {rows}, %z: tensor<2x8x4xf32>) -> {scores} {{
      %y = aten.einsum.default("bid,bjd->bij", [%x, %z]) : ({rows}, tensor<2x8x4xf32>) -> {scores}
      func.return %y : {scores}
    }}"""
    Program.parse(text).verify()


def test_a_type_that_depends_on_a_guess_must_be_stated() -> None:
    block = Block(arg_types=[tensor(["s0"], f32), tensor(["s1"], f32)])
    with pytest.raises(StepwellError, match="cannot be inferred"):
        op_class("aten.add.Tensor").make(*block.args)


@pytest.mark.parametrize("kind", ["quantize", "dequantize"])
@pytest.mark.parametrize("stored", [torch.int8, torch.uint8, torch.int16], ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (4,), ()], ids=str)
def test_quantizing_keeps_the_shape_as_torch_does(kind: str, stored: Any, shape: Any) -> None:
    name = f"quantized_decomposed.{kind}_per_tensor.default"
    given = torch.float32 if kind == "quantize" else stored
    limits = torch.iinfo(stored)
    numbers = (0.5, 3, limits.min, limits.max, element_type(stored))
    op = make(name, [shape], numbers, given)
    rule = rule_for(name)
    assert rule is not None
    assert rule(op) == list(by_torch(op))


def test_quantizing_what_torch_refuses_has_no_rule() -> None:
    numbers = (0.5, 3, -128, 127, element_type(torch.int8))
    wrong = make("quantized_decomposed.quantize_per_tensor.default", [(2,)], numbers, torch.float64)
    rule = rule_for(wrong.name)
    assert rule is not None and rule(wrong) is None


def test_padding_by_nothing_keeps_symbolic_sizes() -> None:
    """Torch's own function would fix them to those of the example."""
    op = make("aten.constant_pad_nd.default", [("s0", 3)], ([0, 0], 1.0), torch.float32)
    rule = rule_for(op.name)
    assert rule is not None and rule(op) == [op.operands[0].type]


SYMBOLIC = [
    ("aten.relu.default", [("s0", 3)], ()),
    ("aten.add.Tensor", [("s0", 3), ("s0", 3)], ()),
    ("aten.mul.Tensor", [("s0", 1, 3), (5, 1)], ()),
    ("aten.permute.default", [("s0", 3, "s1")], ([-1, 0, 1],)),
    ("aten.transpose.int", [("s0", 3, "s1")], (-1, 0)),
    ("aten.linear.default", [("s0", "s1", 3), (4, 3), (4,)], ()),
    ("aten.mm.default", [("s0", 3), (3, 4)], ()),
    ("aten.bmm.default", [("s0", 2, "s1"), ("s0", "s1", 4)], ()),
    ("aten.batch_norm.default", [("s0", 3, 4), (3,), (3,), (3,), (3,)], (False, 0.1, 1e-5, False)),
    ("aten.layer_norm.default", [("s0", 3, 4), (3, 4), (3, 4)], ()),
    ("aten.softmax.int", [("s0", "s1")], (-1,)),
    ("aten.mean.dim", [("s0", 3, "s1")], ([1], False)),
    ("aten.slice.Tensor", [("s0", 3)], (1, 1, 3, 1)),
    ("aten.slice.Tensor", [("s0", 3)], (0, None, None, 1)),
    ("aten.slice.Tensor", [("s0", 3)], (0, 0, 2**63 - 1, 1)),
    ("aten.expand.default", [("s0", 1)], ([2, -1, 4],)),
    ("aten.logsumexp.default", [("s0", 3, "s1")], ([0, -1], True)),
    ("aten.conv2d.default", [("s0", 4, 9, 8), (6, 4, 3, 2), (6,)], ([2], [1], [1], 1)),
    ("aten.eq.Scalar", [("s0", 3)], (2.0,)),
]


@pytest.mark.parametrize(("name", "shapes", "rest"), SYMBOLIC, ids=[case[0] for case in SYMBOLIC])
def test_a_rule_that_moves_symbolic_sizes_gives_what_torch_gives(
    name: str, shapes: Any, rest: tuple[Any, ...]
) -> None:
    op = make(name, shapes, rest, torch.float32)
    rule = rule_for(name)
    assert rule is not None
    assert rule(op) == list(by_torch(op, Symbols({"s0": (2, 9), "s1": (2, 9)})))


@pytest.mark.parametrize(
    ("name", "shapes", "rest"),
    [
        ("aten.conv2d.default", [("s0", 4, "s1", 8), (6, 4, 3, 2)], ([1], [0], [1], 1)),
        ("aten.view.default", [("s0", 6)], ([-1, 3],)),
        ("aten.add.Tensor", [("s0", 3), ("s1", 3)], ()),
        ("aten.linear.default", [(2, "s0"), (4, 3)], ()),
    ],
)
def test_a_rule_that_would_compute_with_symbolic_sizes_leaves_them_to_torch(
    name: str, shapes: Any, rest: tuple[Any, ...]
) -> None:
    rule = rule_for(name)
    assert rule is not None and rule(make(name, shapes, rest, torch.float32)) is None


def test_a_symbolic_answer_is_kept_for_the_same_ranges_alone(monkeypatch: Any) -> None:
    asked: list[str] = []
    ask = inference.by_torch
    monkeypatch.setattr(
        inference, "by_torch", lambda op, symbols: asked.append(op.name) or ask(op, symbols)
    )

    def verify(high: int) -> None:
        taken, given = '#stepwell.shape<["s0", 6]>', '#stepwell.shape<["2*s0", 3]>'
        Program.parse(
            f"func.func @forward(%x: tensor<?x6xf32, {taken}>) -> tensor<?x3xf32, {given}> "
            f'attributes {{stepwell.ranges = ["2 <= s0 <= {high}"]}} {{\n'
            f"  %y = aten.view.default(%x, [-1, 3]) : (tensor<?x6xf32, {taken}>) -> "
            f"tensor<?x3xf32, {given}>\n"
            f"  func.return %y : tensor<?x3xf32, {given}>\n}}"
        ).verify()

    for high in (101, 101, 103):
        verify(high)
    assert len(asked) == 2
