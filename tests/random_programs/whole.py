"""Integers and booleans."""

from __future__ import annotations

from .drawing import Draw, form


@form("whole")
def arithmetic(d: Draw) -> str:
    x = d.whole()
    y = d.partner(x)
    return f"{x} {d.choose('+', '-', '*', '//', '%', '+', '*')} {y}"


@form("whole")
def divided(d: Draw) -> str:
    x = d.whole()
    y = str(d.choose(2, 3, -3, 5, -1, 7))
    mode = d.choose("floor", "trunc")
    return d.choose(
        f"{x} // {y}",
        f"{x} % {y}",
        f"torch.fmod({x}, {y})",
        f"torch.div({x}, {y}, rounding_mode={mode!r})",
        f"{x} / {y}",
        f"{y} % ({x}.abs() + 1)",
    )


@form("whole")
def bits(d: Draw) -> str:
    x = d.whole()
    y = d.tensor(lambda t: not t.is_floating_point() and t.shape == d.space[x].shape)
    return d.choose(
        f"{x} & {y}",
        f"{x} | {y}",
        f"{x} ^ {y}",
        f"~{x}",
        f"{x} << {d.integer(0, 4)}",
        f"{x} >> {d.integer(0, 4)}",
        f"{x} << {d.choose(7, 8, 16, 31, 32, 63, 64, 70, 257, -1, -8)}",
        f"{x} >> {d.choose(7, 8, 16, 31, 32, 63, 64, 70, 257, -1, -8)}",
        f"torch.bitwise_left_shift({x}, {y})",
        f"torch.bitwise_right_shift({x}, {y})",
        f"{x} ** {d.integer(0, 5)}",
        f"{x} & 3",
        f"torch.bitwise_xor({x}, 5)",
    )


@form("whole")
def unary(d: Draw) -> str:
    x = d.whole()
    return d.choose(
        f"{x}.abs()",
        f"-{x}",
        f"{x}.sign()",
        f"{x}.square()",
        f"{x}.clamp(-3, 3)",
        f"F.relu({x})",
        f"{x}.float().to({d.choose('i32', 'i64', 'f16')})",
        f"F.one_hot({x}.long() % 4, 4)",
        f"{x}.sum()",
        f"{x}.to({d.choose('i8', 'u8', 'i16', 'i32', 'i64')})",
        f"torch.floor_divide({x}, 2)",
        f"torch.gcd({x}, {x} + 2)",
        f"{x} + {d.choose(2**31 - 1, -(2**31), 2**40, 255)}",
    )


@form("whole")
def counted(d: Draw) -> str:
    x = d.ranked(1)
    axis = d.axis(x)
    return d.choose(
        f"({x} > 0).sum({axis})",
        f"({x} > 0).cumsum({axis})",
        f"({x} != 0).any({axis})",
        f"({x} >= 0).all({axis}, keepdim=True)",
        f"torch.count_nonzero({x}, {axis})",
        f"({x} > 0).to({d.choose('i32', 'i8', 'f32', 'f16')}) * 3",
        f"({x} > 0) * {x}",
        f"({x} > 0) + ({x} < 1)",
    )
