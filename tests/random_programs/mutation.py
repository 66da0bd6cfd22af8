"""Writing in place: into values, through views, into buffers, into inputs."""

from .drawing import Draw
from .forms import form, operators


@form("mutation")
def of_a_value(d: Draw) -> str:
    x = d.tensor(lambda t: not t.is_leaf or True)
    if not x.startswith("v"):
        return f"{x} + 0"
    return f"{x}.{d.choose('add_(1)', 'mul_(2)', 'clamp_(-2, 2)')}\nout = {x} * 1"


@form("mutation")
def of_a_buffer(d: Draw) -> str:
    x = d.floating()
    shape = d.space[x].shape
    if d.varying:
        shape = ()
    held = d.hold(f"nn.Buffer(normal({d.seed}, {tuple(shape)}, {d.named_dtype(x)}))")
    return d.choose(
        f"{held}.add_(1)\nout = {x} + {held}",
        f"{held}.mul_(0.5)\nout = {x} * {held}",
        f"{held}.copy_({held} * 0.9 + 0.1)\nout = {x} - {held}",
        f"out = {x} + {held}\n{held}.add_(2)",
    )


@form("mutation")
def counting(d: Draw) -> str:
    x = d.ranked()
    held = d.hold(f"nn.Buffer(torch.tensor({d.integer(0, 3)}))")
    return f"{held}.add_(1)\nout = {x} + {held}"


operators(
    globals(),
    """

""",
)


operators(
    globals(),
    """
mutation: x = d.ranked()
: call = d.choose("mul_(2)", f"add_({d.partner(x)})", "relu_()", "clamp_(-1, 1)", "zero_()",
+ "fill_(3)", "neg_()", "abs_()", f"sub_({d.partner(x)})", f"masked_fill_({x} > 0, 0)", "exp_()",
+ "sigmoid_()")
    out = {x}.clone(); out.{call}
mutation: x = d.ranked(1); axis = d.axis(x, lambda s: s > 0)
: view = d.choose("[1:]", f".select({axis}, 0)", "[..., ::2]", ".reshape(-1)[:2]", ".view(-1)",
+ f".narrow({axis}, 0, 1)", f".transpose(0, {axis})")
    out = {x}.clone(); out{view}.add_(1)  out = {x}.clone(); out{view}.mul_({d.choose(2, 3)})
    out = {x}.clone(); out{view}.copy_({d.choose(1, 2)} * torch.ones_like(out{view}))
    out = {x}.clone(); out{view}.fill_(2)
mutation: x = d.ranked(1); size = d.space[x].shape[0]
: row = d.integer(-size, size - 1) if size else 0
    out = {x}.clone(); out[{row}] = {d.choose(0, 1.5, 2)}  out = {x}.clone(); out[{row}] += out[0]
    out = {x}.clone(); out[1:] = {x}[:-1]  out = {x}.clone(); out[..., 0] = {x}[..., -1]
    out = {x}.clone(); out[::2] *= {d.choose(2, 3)}
    out = {x}.clone(); out[:, {d.choose(0, -1)}] = 1
""",
)
