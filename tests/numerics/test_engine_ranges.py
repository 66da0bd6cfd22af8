"""An interval contains what a node gives on every family of CPUs."""

import dataclasses
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sampled import sampled
from torch import Tensor
from torch.utils import _pytree as pytree

import stepwell
from stepwell.dialects.xnnpack import NODES
from stepwell.dialects.xnnpack.elementwise import Binary, Softmax, Unary
from stepwell.ir.declared.engine_behavior import engines
from stepwell.ir.rewriting.pipeline import exact_ops
from stepwell.translate.engine_losses import inherited_nodes
from stepwell.translate.range_analysis import Interval, Values

sys.path.insert(0, str(Path(__file__).parent))
from elementwise import CHUNK, measurable
from forms import FORMS, Form, Forms
from measuring import by_parts

INF = math.inf
FIELDS = {
    "xnnpack.clamp": ", output_min=-1.0, output_max=1.0",
    "xnnpack.leaky_relu": ", negative_slope=0.1",
    "xnnpack.elu": ", alpha=0.7",
}
ELEMENTWISE = {
    cls.name: 1 if issubclass(cls, Unary) else 2
    for cls in NODES.values()
    if issubclass(cls, Unary | Binary) and cls is not Softmax and cls.name != "xnnpack.convert"
}
RANGES = (
    (-INF, INF, True), (-INF, INF, False), (0.0, INF, False), (-INF, 0.0, True), (0.0, 1.0, True),
    (-3.4e38, 3.4e38, False), (1.0, 3.4e38, False), (1e-6, 88.0, True), (-0.5, 60000.0, False),
)  # fmt: skip
ENDS = torch.tensor([3e38, 8.6e37, 1e30, 6e4, 2e4, 800.0, 88.5, 10.9, 2.0, 1.0, 1e-3, 1e-5, 1e-40])


def samples(low: float, high: float, nan: bool, dtype: torch.dtype) -> Tensor:
    """Numbers of a range: its ends, zeros, numbers of every size, a NaN."""
    numbers = torch.cat([ENDS, -ENDS, torch.tensor([0.0, -0.0, INF, -INF, low, high])]).to(dtype)
    held = numbers[is_in(numbers, low, high, nan=False)]
    return torch.cat([held, torch.tensor([math.nan] if nan else [], dtype=dtype)])


PARTS = "silu glu softplus log_sigmoid pow div.Tensor_mode div.Scalar_mode remainder max min sqrt"
"""Operators, among those of the whole test, whose parts are nodes with other special values."""
MEASURED = {"values": "measured values", "value pairs": "measured pairs"}


def rows_of_each_range(x: Tensor) -> Tensor:
    """Rows of a form's input and, for each range, six rows of its numbers."""
    random, made = torch.Generator().manual_seed(1), [x]
    for low, high, nan in RANGES:
        numbers = x.flatten()
        numbers = numbers[is_in(numbers, low, high, nan)]
        made.append(numbers[torch.randint(0, len(numbers), (6, *x.shape[1:]), generator=random)])
    return torch.cat(made)


def is_in(x: Tensor, low: float, high: float, nan: bool) -> Tensor:
    """Where numbers are of a range."""
    return ((x.double() >= low) & (x.double() <= high)) | (x.isnan() & nan)


def outside(forms: Sequence[Form], dtype: torch.dtype) -> list[str]:
    """Results of forms, lowered for XNNPACK, that are outside their interval on an engine.

    A result may be too small or too large by a denormal number, which engines flush or keep. Where
    PyTorch's is NaN and the interval says so, it may be any.
    """
    tiny = torch.finfo(dtype).smallest_normal

    def run(some: Sequence[Form]) -> list[str]:
        inputs = [list(form.inputs(dtype)) for form in some]
        inputs = [
            group if form.kind in MEASURED.values() else [rows_of_each_range(x) for x in group]
            for form, group in zip(some, inputs, strict=True)
        ]
        exported = torch.export.export(Forms(some, dtype), (inputs,))
        program = stepwell.from_exported_program(exported)
        program.context.target = "xnnpack"
        lowered = stepwell.lower(exported, "xnnpack").program
        plain = pytree.tree_leaves(lowered.run(inputs))
        runs = {e: pytree.tree_leaves(lowered.run(inputs, engine=e)) for e in engines()}
        block = program.methods["forward"].body.block
        assert block.last_op is not None
        found = [""] * len(some)
        for numbers in RANGES:
            of_inputs = dict.fromkeys(block.args, Interval(*numbers))
            values = Values(program, assumed=of_inputs)
            for at, (group, result) in enumerate(zip(inputs, block.last_op.operands, strict=True)):
                of_form = torch.stack([is_in(x, *numbers).flatten(1).all(1) for x in group]).all(0)
                limits = values.of(result)
                low, high = float(limits.low) - tiny, float(limits.high) + tiny
                for engine, results in runs.items():
                    got = results[at]
                    if not got.is_floating_point() or got.shape[:1] != of_form.shape:
                        continue
                    is_right = is_in(got, low, high, limits.nan) | (plain[at].isnan() & limits.nan)
                    lost = ~is_right.flatten(1).all(1) & of_form
                    if lost.any():
                        operands = [x[lost][0].tolist() for x in group]
                        said = f"{operands} of {numbers} give {got[lost][0].tolist()}"
                        found[at] = f"{engine}: {said}, not in {limits}"
        return found

    chunks = [forms[at : at + CHUNK] for at in range(0, len(forms), CHUNK)]
    answers = [
        (form, answer)
        for some in chunks
        for form, answer in zip(some, by_parts(some, run), strict=True)
    ]
    return [f"{form.name}: {answer}" for form, answer in answers if answer.startswith("xnnpack/")]


@pytest.mark.parametrize(
    "names", [PARTS, pytest.param("", marks=pytest.mark.slow)], ids=["parts", "all"]
)
@pytest.mark.parametrize("dtype", sampled([torch.float32, torch.float16], torch.float32))
def test_lowered_operators_stay_in_the_interval_on_every_engine(
    dtype: torch.dtype, names: str
) -> None:
    forms = measurable(dtype, names.split() or [""])
    forms = [dataclasses.replace(form, kind=MEASURED.get(form.kind, form.kind)) for form in forms]
    assert not outside(forms, dtype)


@pytest.mark.parametrize(
    "names",
    ["softmax norm linear amax", pytest.param("", marks=pytest.mark.slow)],
    ids=["some", "all"],
)
@pytest.mark.parametrize("dtype", sampled([torch.float32, torch.float16], torch.float32))
def test_lowered_reductions_stay_in_the_interval_on_every_engine(
    dtype: torch.dtype, names: str
) -> None:
    forms = [form for form in FORMS if any(name in form.name for name in names.split() or [""])]
    rows = [
        form for form in forms if "y.T" not in form.name
    ]  # Of all rows: each range has its own.
    assert not outside(rows, dtype)


def of_node(name: str, sizes: list[int], element: str) -> Any:
    """The program of one node, and the node."""
    types = [f"tensor<{size}x{element}>" for size in sizes]
    given = ", ".join(f"%x{at}: {type_}" for at, type_ in enumerate(types))
    inner = ", ".join(f"%a{at}: {type_}" for at, type_ in enumerate(types))
    outer, operands = (", ".join(f"%{p}{at}" for at in range(len(sizes))) for p in "xa")
    listed, made = ", ".join(types), types[0]
    program = stepwell.parse(f"""
builtin.module attributes {{stepwell.level = "xnnpack"}} {{
func.func @forward({given}) -> {made} {{
    %y = xnnpack.delegate({outer}) {{
    ^bb0({inner}):
        %n = {name}({operands}{FIELDS.get(name, "")}) : ({listed}) -> {made}
        xnnpack.yield %n : {made}
    }} : ({listed}) -> {made}
    func.return %y : {made}
}}
}}""")
    return program, next(op for op in program.module.walk() if op.name == name)


@pytest.mark.parametrize("element", ["f32", "f16"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_results_on_every_engine_lie_in_the_interval(name: str, element: str) -> None:
    dtype = torch.float32 if element == "f32" else torch.float16
    for ranges in itertools.product(RANGES, repeat=ELEMENTWISE[name]):
        lines = [samples(*held, dtype) for held in ranges]
        inputs = [line.flatten() for line in torch.meshgrid(*lines, indexing="ij")]
        program, node = of_node(name, [len(line) for line in inputs], element)
        intervals = [Interval(*held) for held in ranges]
        found = Values(program, assumed=dict(zip(node.operands, intervals, strict=True))).of(
            node.results[0]
        )
        for engine in engines():
            (got,) = program.run(*inputs, engine=engine)
            lost = ~is_in(got, float(found.low), float(found.high), found.nan)
            wrong = (
                [*(float(x[lost][0]) for x in inputs), float(got[lost][0])] if lost.any() else []
            )
            assert not wrong, f"{engine}: operands and result {wrong} in {ranges}: {found}"


def test_a_sigmoid_may_be_nan_only_of_numbers_beyond_its_kernels_limit() -> None:
    """With AVX-512, XNNPACK's sigmoid of 1e30 is NaN."""
    program, node = of_node("xnnpack.sigmoid", [4], "f32")
    for most, nan in ((1e26, False), (1e30, True)):
        values = Values(program, assumed={node.operands[0]: Interval(-1.0, most, False)})
        assert values.of(node.results[0]).nan == nan


def test_a_clamp_that_makes_its_lower_limit_of_nan_keeps_the_upper_one() -> None:
    program = stepwell.parse("""
builtin.module attributes {stepwell.level = "aten"} {
func.func @forward(%x: tensor<4xf16>) -> tensor<4xf16> {
    %y = aten.clamp.default(%x, min=-1.0, max=1.0) : (tensor<4xf16>) -> tensor<4xf16>
    func.return %y : tensor<4xf16>
}
}""")
    program.context.target = "xnnpack"
    (clamp,) = (op for op in program.module.walk() if op.name == "aten.clamp.default")
    assert Values(program).of(clamp.results[0]).high == 1.0


@pytest.mark.parametrize("replaced", ["aten.pow.Tensor_Scalar", "aten.softplus.default"])
def test_a_part_that_the_stock_flow_does_not_make_is_not_inherited(replaced: str) -> None:
    """The stock flow makes no root of a power, and no logarithm of a softplus."""
    assert inherited_nodes([replaced]) == inherited_nodes([])
    assert "xnnpack.sigmoid" in inherited_nodes(["aten.silu.default"])


def test_only_a_pipeline_with_the_rewrite_keeps_an_op_exact() -> None:
    steps = stepwell.PIPELINES["xnnpack"].steps
    assert exact_ops(steps) == {("aten.sqrt.default", "f32")}
    without = [one for one in steps if not exact_ops([one])]
    assert not exact_ops(without)
