"""Integers and booleans."""

from .forms import operators

operators(
    globals(),
    """
whole: x = d.whole(); y = d.partner(x)
    {x} {d.choose('+', '-', '*', '//', '%', '+', '*')} {y}
whole: x = d.whole(); y = str(d.choose(2, 3, -3, 5, -1, 7)); mode = d.choose("floor", "trunc")
    {x} // {y}  {x} % {y}  torch.fmod({x}, {y})  torch.div({x}, {y}, rounding_mode={mode!r})
    {x} / {y}  {y} % ({x}.abs() + 1)
whole: x = d.whole()
: y = d.tensor(lambda t: not t.is_floating_point() and t.shape == d.space[x].shape)
    {x} & {y}  {x} | {y}  {x} ^ {y}  ~{x}  {x} << {d.integer(0, 4)}  {x} >> {d.integer(0, 4)}
    {x} << {d.choose(7, 8, 16, 31, 32, 63, 64, 70, 257, -1, -8)}
    {x} >> {d.choose(7, 8, 16, 31, 32, 63, 64, 70, 257, -1, -8)}
    torch.bitwise_left_shift({x}, {y})  torch.bitwise_right_shift({x}, {y})
    {x} ** {d.integer(0, 5)}  {x} & 3  torch.bitwise_xor({x}, 5)
whole: x = d.whole()
    {x}.abs()  -{x}  {x}.sign()  {x}.square()  {x}.clamp(-3, 3)  F.relu({x})
    {x}.float().to({d.choose('i32', 'i64', 'f16')})  F.one_hot({x}.long() % 4, 4)  {x}.sum()
    {x}.to({d.choose('i8', 'u8', 'i16', 'i32', 'i64')})  torch.floor_divide({x}, 2)
    torch.gcd({x}, {x} + 2)  {x} + {d.choose(2**31 - 1, -(2**31), 2**40, 255)}
whole: x = d.ranked(1); axis = d.axis(x)
    ({x} > 0).sum({axis})  ({x} > 0).cumsum({axis})  ({x} != 0).any({axis})
    ({x} >= 0).all({axis}, keepdim=True)  torch.count_nonzero({x}, {axis})
    ({x} > 0).to({d.choose('i32', 'i8', 'f32', 'f16')}) * 3  ({x} > 0) * {x}
    ({x} > 0) + ({x} < 1)
""",
)
