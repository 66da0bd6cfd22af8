"""Whatever an op computes of whatever numbers lies in what the analysis of values says."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from short_ir import program_text

import stepwell
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.translate.range_analysis import ANY, Interval, Values

FLOATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
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
SPECIAL = "nan inf -inf 0 -0. 1e-40 -1e-40 1e-20 3e38 -3e38 1e5 -1e5"
NUMBERS = st.sampled_from(list(map(float, SPECIAL.split()))) | st.floats(-10, 10, width=32)


@st.composite
def programs(draw: Any) -> tuple[str, torch.dtype]:
    """A chain of ops over floats and truth values, of one element type."""
    kind, dtype = draw(st.sampled_from(list(FLOATS.items())))
    floats, truths = ["%x", "%z"], ["%t"]
    lines = [f"%x: {kind}[3, 4]; %z: {kind}[3, 4]; %t: i1[3, 4]"]
    for number in range(draw(st.integers(1, 8))):
        name = f"%v{number}"
        one, other = draw(st.sampled_from(floats)), draw(st.sampled_from(floats))
        match draw(st.integers(0, 6)):
            case 0 | 1:
                call = f"{draw(st.sampled_from(UNARY))}.default({one})"
            case 2:
                call = f"{draw(st.sampled_from(BINARY))}({one}, {other})"
            case 3:
                op = draw(st.sampled_from(["add", "sub", "mul", "div"]))
                call = f"{op}.Scalar({one}, {draw(st.sampled_from(OF_NUMBERS)):e})"
            case 4:
                call = draw(st.sampled_from(KEPT)) % one
            case 5:
                lines.append(f"%r{number} = aten.{draw(st.sampled_from(FOLDED)) % one}")
                call = f"{draw(st.sampled_from(BINARY))}({other}, %r{number})"
            case _:
                op, truth = draw(st.sampled_from(COMPARED)), f"%c{number}"
                lines.append(f"{truth} = aten.{op}.Tensor({one}, {other})")
                truths.append(truth)
                mask = draw(st.sampled_from([*truths, truth]))
                call = f"where.self({mask}, {one}, {other})"
        lines.append(f"{name} = aten.{call}")
        floats.append(name)
    return "\n".join(lines), dtype


def check(text: str, inputs: list[torch.Tensor]) -> None:
    """Every value of a program lies in its interval."""
    program = stepwell.Program(program_text(text))
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


@settings(max_examples=300, deadline=None)
@given(
    programs(),
    st.lists(NUMBERS, min_size=24, max_size=24),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_random_numbers_through_random_programs_lie_in_what_is_said(
    drawn: tuple[str, torch.dtype], numbers: list[float], truths: list[bool]
) -> None:
    text, dtype = drawn
    x, z = torch.tensor(numbers).to(dtype).reshape(2, 3, 4)
    check(text, [x, z, torch.tensor(truths).reshape(3, 4)])


INTEGERS = (
    "add.Tensor sub.Tensor mul.Tensor bitwise_and.Tensor maximum.default minimum.default".split()
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([("i8", torch.int8), ("i32", torch.int32)]),
    st.lists(st.sampled_from(INTEGERS), min_size=1, max_size=4),
    st.integers(0, 2**31),
)
def test_random_integers_lie_in_what_is_said_also_where_they_wrap(
    drawn: tuple[str, torch.dtype], names: list[str], seed: int
) -> None:
    kind, dtype = drawn
    lines, last = [f"%x: {kind}[3, 4]; %z: {kind}[3, 4]"], "%x"
    for number, name in enumerate(names):
        lines.append(f"%v{number} = aten.{name}({last}, %z)")
        lines.append(f"%n{number} = aten.neg.default(%v{number})")
        lines.append(f"%a{number} = aten.abs.default(%n{number})")
        last = f"%a{number}"
    generator = torch.Generator().manual_seed(seed)
    info = torch.iinfo(dtype)
    x, z = torch.randint(info.min, info.max + 1, (2, 3, 4), generator=generator).to(dtype)
    x[0, 0], z[0, 0] = info.min, info.min
    check("\n".join(lines), [x, z])


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
    check("%y = aten.mm.default(%x: f32[2, 2], %x)", [torch.tensor([[1.0, -3.0], [2.0, 1.0]])])


def test_tosa_pads_with_the_number_that_is_its_operand() -> None:
    text = "%s = tosa.sigmoid(%x: f32[1, 2]); %y = tosa.pad(%s, [0, 0, 1, 1], %c: f32[1])"
    check(text, [torch.zeros(1, 2), torch.tensor([-7.0])])
