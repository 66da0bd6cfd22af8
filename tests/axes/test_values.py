"""Whatever an op computes of whatever numbers lies in what the analysis of values says."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stepwell
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.translate.range_analysis import ANY, Interval, Values

SHAPES = {"f32": "tensor<3x4xf32>", "f16": "tensor<3x4xf16>", "bf16": "tensor<3x4xbf16>",
          "i8": "tensor<3x4xi8>", "i32": "tensor<3x4xi32>", "i1": "tensor<3x4xi1>"}  # fmt: skip
FLOATS = ("f32", "f16", "bf16")
UNARY = """sigmoid tanh exp log sqrt rsqrt neg abs relu gelu silu hardswish hardsigmoid mish sin cos
    erf floor ceil round trunc square expm1 log1p reciprocal sign relu6 atan asin""".split()
BINARY = "add.Tensor sub.Tensor mul.Tensor div.Tensor maximum.default minimum.default".split()
COMPARED = "lt le gt ge eq ne".split()
OF_NUMBERS = [0.0, -1.5, 0.1, 3.0, 1e-30, 1e30]
FOLDED = [
    "sum.dim_IntList(%s, [1], true)",
    "mean.dim(%s, [1], true)",
    "amax.default(%s, [1], true)",
]
KEPT = ["softmax.int(%s, 1)", "log_softmax.int(%s, 1)", "layer_norm.default(%s, [4])",
        "rms_norm.default(%s, [4], none, 1.0e-05)", "clamp.default(%s, -2.0, 0.1)",
        "clamp.default(%s, none, 3.0)", "roll.default(%s, [1], [1])", "leaky_relu.default(%s, 0.1)",
        "remainder.Scalar(%s, 2.5)", "pow.Tensor_Scalar(%s, 2)", "rsub.Scalar(%s, 1.0)",
        "constant_pad_nd.default(%s, [1, -1], 0.3)"]  # fmt: skip
NUMBERS = st.sampled_from(
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        1e-20,
        3e38,
        -3e38,
        1e5,
        -1e5,
    ]
) | st.floats(-10, 10, width=32)


@st.composite
def programs(draw: Any) -> str:
    """A chain of ops over floats and truth values, of one element type."""
    kind = draw(st.sampled_from(FLOATS))
    type_, truth, row = SHAPES[kind], SHAPES["i1"], SHAPES[kind].replace("4x", "1x")
    floats, truths, lines = ["%x", "%z"], ["%t"], list[str]()
    for number in range(draw(st.integers(1, 8))):
        name = f"%v{number}"
        one, other = draw(st.sampled_from(floats)), draw(st.sampled_from(floats))
        match draw(st.integers(0, 6)):
            case 0 | 1:
                op = draw(st.sampled_from(UNARY))
                lines.append(f"{name} = aten.{op}.default({one}) : ({type_}) -> {type_}")
            case 2:
                op = draw(st.sampled_from(BINARY))
                lines.append(f"{name} = aten.{op}({one}, {other}) : ({type_}, {type_}) -> {type_}")
            case 3:
                op, far = (
                    draw(st.sampled_from(["add", "sub", "mul", "div"])),
                    draw(st.sampled_from(OF_NUMBERS)),
                )
                lines.append(f"{name} = aten.{op}.Scalar({one}, {far:e}) : ({type_}) -> {type_}")
            case 4:
                call = draw(st.sampled_from(KEPT)) % one
                lines.append(f"{name} = aten.{call} : ({type_}) -> {type_}")
            case 5:
                call, op = draw(st.sampled_from(FOLDED)) % one, draw(st.sampled_from(BINARY))
                lines.append(f"%r{number} = aten.{call} : ({type_}) -> {row}")
                lines.append(
                    f"{name} = aten.{op}({other}, %r{number}) : ({type_}, {row}) -> {type_}"
                )
            case _:
                op, mask = draw(st.sampled_from(COMPARED)), draw(st.sampled_from(truths))
                lines.append(
                    f"%c{number} = aten.{op}.Tensor({one}, {other}) : ({type_}, {type_}) -> {truth}"
                )
                mask = draw(st.sampled_from([mask, f"%c{number}"]))
                truths.append(f"%c{number}")
                lines.append(f"{name} = aten.where.self({mask}, {one}, {other}) : "
                             f"({truth}, {type_}, {type_}) -> {type_}")  # fmt: skip
        floats.append(name)
    body = "\n".join(lines)
    return (f"func.func @forward(%x: {type_}, %z: {type_}, %t: {truth}) -> {type_} {{\n{body}\n"
            f"func.return {floats[-1]} : {type_}\n}}")  # fmt: skip


def check(text: str, inputs: list[torch.Tensor]) -> None:
    """Every value of a program lies in its interval."""
    program = stepwell.parse(text)
    known, interpreter = Values(program), Interpreter(program.weights)
    block = program.methods["forward"].body.block
    values: dict[Any, Any] = dict(zip(block.args, inputs, strict=True))
    *ops, _ = block.ops
    for op in ops:
        interpreter.step(op, values)
        for result in op.results:
            if not isinstance(values[result], torch.Tensor):
                continue  # A shape.
            assert lies_in(values[result], known.of(result)), (
                str(op),
                values[result],
                known.of(result),
            )


def lies_in(made: torch.Tensor, said: Interval) -> bool:
    """Whether all elements are in an interval."""
    if not made.numel():
        return True
    wide = made.double() if made.dtype.is_floating_point else made.long()
    numbers = wide[~wide.isnan()] if made.dtype.is_floating_point else wide
    inside = all(said.low <= number <= said.high for number in numbers.flatten().tolist())
    whole = not said.whole or all(n == round(n) for n in numbers[numbers.isfinite()].tolist())
    return inside and whole and (said.nan or numbers.numel() == wide.numel())


@settings(max_examples=150, deadline=None)
@given(
    programs(),
    st.lists(NUMBERS, min_size=24, max_size=24),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_random_numbers_through_random_programs_lie_in_what_is_said(
    text: str, numbers: list[float], truths: list[bool]
) -> None:
    dtype = {"f32": torch.float32, "f16": torch.float16}.get(
        text.split("x4x")[1].split(">")[0], torch.bfloat16
    )
    x, z = torch.tensor(numbers).to(dtype).reshape(2, 3, 4)
    check(text, [x, z, torch.tensor(truths).reshape(3, 4)])


INTEGERS = (
    "add.Tensor sub.Tensor mul.Tensor bitwise_and.Tensor maximum.default minimum.default".split()
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["i8", "i32"]),
    st.lists(st.sampled_from(INTEGERS), min_size=1, max_size=4),
    st.integers(0, 2**31),
)
def test_random_integers_lie_in_what_is_said_also_where_they_wrap(
    kind: str, names: list[str], seed: int
) -> None:
    type_ = SHAPES[kind]
    lines, last = list[str](), "%x"
    for number, name in enumerate(names):
        lines.append(f"%v{number} = aten.{name}({last}, %z) : ({type_}, {type_}) -> {type_}")
        lines.append(f"%n{number} = aten.neg.default(%v{number}) : ({type_}) -> {type_}")
        lines.append(f"%a{number} = aten.abs.default(%n{number}) : ({type_}) -> {type_}")
        last = f"%a{number}"
    text = (f"func.func @forward(%x: {type_}, %z: {type_}) -> {type_} {{\n" + "\n".join(lines)
            + f"\nfunc.return {last} : {type_}\n}}")  # fmt: skip
    generator, dtype = (
        torch.Generator().manual_seed(seed),
        torch.int8 if kind == "i8" else torch.int32,
    )
    info = torch.iinfo(dtype)
    x, z = torch.randint(info.min, info.max + 1, (2, 3, 4), generator=generator).to(dtype)
    x[0, 0], z[0, 0] = info.min, info.min
    check(text, [x, z])


@pytest.mark.parametrize(
    ("said", "holds"),
    [
        (ANY, True),
        (Interval(0, 1), False),
        (Interval(-2, 2, False), False),
        (Interval(-2, 2), True),
    ],
)
def test_what_is_outside_is_noticed(said: Interval, holds: bool) -> None:
    assert lies_in(torch.tensor([-1.5, float("nan"), 2.0]), said) == holds


def test_a_matrix_times_itself_is_no_square() -> None:
    kind = "tensor<2x2xf32>"
    line = f"%y = aten.mm.default(%x, %x) : ({kind}, {kind}) -> {kind}"
    text = f"func.func @forward(%x: {kind}) -> {kind} {{\n{line}\nfunc.return %y : {kind}\n}}"
    check(text, [torch.tensor([[1.0, -3.0], [2.0, 1.0]])])


def test_tosa_pads_with_the_number_that_is_its_operand() -> None:
    text = """func.func @forward(%x: f32[1, 2], %c: f32[1]) -> f32[1, 4] {
        %s = tosa.sigmoid %x : (f32[1, 2]) -> f32[1, 2]
        %p = tosa.const_shape {values = dense<[0, 0, 1, 1]> : tensor<4xindex>}
            : () -> !tosa.shape<4>
        %y = tosa.pad %s, %p, %c : (f32[1, 2], !tosa.shape<4>, f32[1]) -> f32[1, 4]
        func.return %y : f32[1, 4]
    }"""
    check(re.sub(r"f32\[([\d, ]+)\]", _tensor, text), [torch.zeros(1, 2), torch.tensor([-7.0])])


def _tensor(written: re.Match[str]) -> str:
    return f"tensor<{written[1].replace(', ', 'x')}xf32>"
