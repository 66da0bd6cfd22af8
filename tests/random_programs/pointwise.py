"""Arithmetic of one element at a time, on floats and on mixtures of dtypes."""

from .drawing import Draw
from .forms import form, operators

UNARY = """torch.exp torch.sin torch.cos torch.tanh torch.sigmoid torch.abs torch.neg torch.square
torch.floor torch.ceil torch.round torch.trunc torch.frac torch.sign torch.erf torch.expm1
torch.atan torch.sinh torch.cosh torch.asinh torch.sgn torch.isnan torch.isinf torch.isfinite
torch.signbit torch.reciprocal torch.positive torch.erfc torch.tan torch.logical_not torch.exp2
torch.nan_to_num torch.deg2rad torch.sinc torch.lgamma""".split()
POSITIVE = "torch.sqrt torch.rsqrt torch.log torch.log2 torch.log10 torch.log1p".split()
BOUNDED = "torch.asin torch.acos torch.atanh torch.logit torch.erfinv".split()
ACTIVATIONS = """F.relu({x}) F.relu6({x}) F.silu({x}) F.gelu({x}) F.gelu({x},approximate="tanh")
F.elu({x}) F.elu({x},0.5) F.celu({x},0.7) F.selu({x}) F.mish({x}) F.softplus({x})
F.softplus({x},2.0,3.0) F.hardswish({x}) F.hardsigmoid({x}) F.hardtanh({x},-0.5,2.0)
F.leaky_relu({x},0.1) F.leaky_relu({x},-0.5) F.softsign({x}) F.tanhshrink({x}) F.softshrink({x},0.3)
F.hardshrink({x},0.3) F.threshold({x},0.2,-1.0) F.logsigmoid({x}) F.rrelu({x})""".split()


@form("pointwise")
def activation(d: Draw) -> str:
    return d.rng.choice(ACTIVATIONS).format(x=d.floating()).replace(",", ", ")


@form("arithmetic")
def extremes(d: Draw) -> str:
    x = d.ranked()
    y = d.partner(x)
    if not y.startswith(("x", "v", "self")):
        return d.choose(
            f"{x}.clamp(min={y})",
            f"{x}.clamp(max={y})",
            f"{x}.clamp(-1, {y})",
            f"torch.clip({x}, {y}, 2.5)",
        )
    return d.choose(
        f"torch.maximum({x}, {y})",
        f"torch.minimum({x}, {y})",
        f"torch.fmax({x}, {y})",
        f"torch.fmin({x}, {y})",
        f"{x}.clamp(min={y})",
        f"{x}.clamp(max={y})",
        f"torch.atan2({x}, {y})",
        f"torch.hypot({x}, {y})",
        f"torch.copysign({x}, {y})",
        f"torch.logaddexp({x}, {y})",
        f"torch.xlogy({x}, {y}.abs())",
        f"torch.lerp({x}, {y}, 0.3)",
        f"torch.addcmul({x}, {y}, {y}, value=0.5)",
        f"torch.addcdiv({x}, {y}, {y}.abs() + 1, value=-2)",
        f"torch.add({x}, {y}, alpha={d.choose(2, -1, 0.5)})",
        f"torch.sub({x}, {y}, alpha={d.choose(2, 3)})",
        f"torch.rsub({x}, {y}, alpha=2)",
        f"torch.heaviside({x}, {y})",
    )


operators(
    globals(),
    """
pointwise:
    {d.rng.choice(UNARY)}({d.ranked()})
pointwise: x = d.floating()
: inside = d.choose(f"{x}.abs() + 0.1", f"{x}.square() + 1e-6", f"{x}.exp()", f"{x}.abs()", x)
    {d.rng.choice(POSITIVE)}({inside})
pointwise:
    {d.rng.choice(BOUNDED)}(torch.sigmoid({d.floating()}) * 0.9 + 0.05)
pointwise: x = d.floating(1); shape = d.space[x].shape
: channels = d.choose(1, shape[1] if len(shape) > 1 else 1)
    F.prelu({x}, {d.constant([channels], d.named_dtype(x))})
arithmetic: x = d.ranked(); y = d.partner(x); (x, y) = ((y, x)) if d.maybe(0.15) else ((x, y))
    {x} {d.choose('+', '-', '*', '*', '+', '/')} {y}
arithmetic: x = d.ranked(); y = d.partner(x)
: y = f'({y}.abs() + 1)' if y.startswith(('x', 'v', 'self')) and d.maybe(0.7) else y
    torch.div({x}, {y}, rounding_mode='floor')  torch.div({x}, {y}, rounding_mode='trunc')
    {x} // {y}  {x} % {y}  torch.remainder({x}, {y})  torch.fmod({x}, {y})
    torch.true_divide({x}, {y})
arithmetic: x = d.ranked()
    {x} ** {d.choose(2, 3, 0, 1, 4)}
    ({x}.abs() + 0.2) ** {d.choose(0.5, -0.5, -1, 1.5, -2, 0.0)}
    {d.choose(2, 0.5, 3.0, 1)} ** {x}  torch.pow({x}.abs() + 0.1, {d.partner(x)})
    {d.choose(1, 2.0, -1)} / ({x}.abs() + 1)  {d.choose(1, 2.5)} - {x}
dtypes: x = d.ranked()
    {x}.to({d.dtype()})  {x}.to({d.dtype()})  {x}.type_as({d.ranked()})  {x}.bool()
    {x} + {d.ranked()}.sum().to({d.dtype()})
dtypes: x = d.ranked(); size = d.size(x, 0) if d.space[x].dim() else "3"
    torch.zeros_like({x}) + {x}  torch.full_like({x}, {d.choose(2, 1)})
    torch.ones_like({x}, dtype={d.dtype()})
    {x} * torch.arange({size}).reshape(-1, *([1] * ({x}.dim() - 1)))
    torch.arange({size}, dtype={d.choose('f32', 'i64', 'i32')}) * 2
    torch.arange(0, {d.integer(3, 9)}, {d.choose(2, 1, 3)}, dtype=f32) + {x}.sum().to(f32)
    torch.linspace(-1, 1, {d.integer(1, 6)}) * {x}.sum().to(f32)
    torch.eye({d.integer(1, 4)}, {d.integer(1, 4)}) * {x}.sum().to(f32)
    {x} + torch.tensor({d.choose(2, 0.5, True)})  {x} * torch.tensor([{d.choose(2, 0.5, -3)}])
    torch.full(({size},), {d.choose(1.5, 2)}) + {x}.to(f32).mean()  {x}.new_ones(3) * 2
compared: x = d.ranked()
    {x} {d.choose('<', '<=', '>', '>=', '==', '!=')} {d.partner(x)}
compared: x = d.ranked(); y = d.partner(x)
: y = f'({x} > 0)' if not y.startswith(('x', 'v', 'self')) else y
    torch.logical_and({x}, {y})  torch.logical_or({x}, {y})  torch.logical_xor({x}, {y})
    ({x} > 0) & ({y} > 0)  ({x} > 0) | ({y} <= 0)  ({x} > 0) ^ ({y} != 0)  ~({x} > 0)
    torch.isclose({x}, {x} + 1)
masked: x = d.ranked(); y = d.partner(x)
: test = d.choose(f"{x} > 0", f"{x} != 0", f"{x} < {d.scalar(x)}", f"{d.ranked()} > 0")
: filled = d.choose("0", "1.5", "-2", "float('-inf')")
    torch.where({test}, {x}, {y})  torch.where({test}, {y}, {x})
    {x}.masked_fill({test}, {filled})  torch.where({test}, {x}, torch.zeros_like({x}))
""",
)
