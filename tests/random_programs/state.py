"""State between calls, aliases, dynamic sizes, and control flow that depends on a counter."""

from __future__ import annotations

from dataclasses import dataclass

from .drawing import Draw
from .forms import UnsuitableError, form, operators

ROWS = 20
"""Of caches: as long as the longest axis."""


@dataclass(frozen=True)
class Channels:
    """A value, its static axis of channels, and texts of vectors over it."""

    x: str
    count: int
    row: str
    mean: str
    largest: str
    over: str
    """What makes a vector of channels broadcast with the value."""

    @classmethod
    def of(cls, d: Draw) -> Channels:
        """The last axis of a value, or the second of an image."""
        dynamic = set(d.sizes.values())
        x = d.tensor(lambda t: t.is_floating_point() and 2 <= t.dim() <= 4 and t.numel())
        shape = d.space[x].shape
        at = d.choose("0", "-1")
        if len(shape) == 4 and d.maybe(0.7) and shape[1] not in dynamic:
            others = "(0, 2, 3)"
            row, axis, over = f"{x}[0, :, {at}, {at}]", 1, "[:, None, None]"
        else:
            others = str(tuple(range(len(shape) - 1)))
            row, axis, over = f"{x}[{', '.join([at] * (len(shape) - 1))}]", -1, ""
        if shape[axis] in dynamic or shape[axis] < 2:
            raise UnsuitableError
        return cls(x, shape[axis], row, f"{x}.mean({others})", f"{x}.amax({others})", over)


def _rows(d: Draw) -> tuple[str, str, int]:
    """A value, its matrix of rows and channels, and how many channels."""
    dynamic = set(d.sizes.values())
    x = d.tensor(
        lambda t: t.is_floating_point() and 2 <= t.dim() <= 4 and 0 < t.shape[-2] <= ROWS
        and t.shape[-1] not in dynamic and t.numel()
    )  # fmt: skip
    shape = d.space[x].shape
    return x, f"{x}[{', '.join('0' * (len(shape) - 2))}]" if len(shape) > 2 else x, shape[-1]


def _in_either_order(d: Draw, update: str, read: str) -> str:
    """An update of state before or after the value that reads it."""
    return f"{update}\nout = {read}" if d.maybe() else f"out = {read}\n{update}"


@form("state")
def cache(d: Draw) -> str:
    """Keys written at positions that an input or a counter gives, past the end from the front."""
    x, rows, c = _rows(d)
    k, t = d.state(ROWS, c), d.size(x, -2)
    read = d.pick(
        "{x} + ({x} @ {k}.mT).softmax(-1) @ {k}",
        "{x} + F.scaled_dot_product_attention({rows}, {k}, {k})",
        "{x} + {k}[: {t}]", "{x} * 0.5 + {k}.mean(0)", x=x, k=k, t=t, rows=rows,
    )  # fmt: skip
    at = ""
    if d.maybe():
        size = d.symbol(d.space[x].shape[-2])
        at = d.further_input(f"(torch.arange({size}) + k * {d.integer(1, 9)}) % {ROWS}", size)
    update = d.pick(
        "{k}[{at}] = {rows}", "{k}.index_copy_(0, {at}, {rows})",
        "{k}.index_add_(0, {at}, {rows} * 0.1)", k=k, rows=rows, at=at or "p",
    )  # fmt: skip
    if not at:
        n = d.count()
        update = f"p = ({n} + torch.arange({t})) % {ROWS}\n{update}\n{n}.add_({t})"
    return _in_either_order(d, update, read)


@form("state")
def window(d: Draw) -> str:
    """The last rows, in a window that shifts."""
    x, rows, c = _rows(d)
    many = d.integer(2, 7)
    s = d.state(many, c)
    shift = d.pick(
        "{s}.copy_(torch.cat([{s}, {rows}], 0)[-{many}:])",
        "{s}[:] = torch.cat([{s}, {rows} * 0.5], 0)[-{many}:]",
        "{s}.copy_({s}.roll(-1, 0))\n{s}[-1] = {rows}[-1]",
        "{s}[:-1] = {s}[1:].clone()\n{s}[{many} - 1] = {rows}[0]",
        "{s}.copy_(torch.cat([{rows}[-1:], {s}[:-1]], 0))", s=s, rows=rows, many=many,
    )  # fmt: skip
    read = d.choose("mean(0)", "sum(0) * 0.1", "amax(0, keepdim=True)", "view(-1)[:1]")
    return _in_either_order(d, shift, f"{x} * 0.5 {d.choose('+', '-')} {s}.{read}")


@form("state")
def running(d: Draw) -> str:
    """Statistics over all calls."""
    h = Channels.of(d)
    m = d.state(h.count)
    update = d.pick(
        "{m}.mul_(0.9).add_({h.mean}, alpha=0.1)", "{m}.lerp_({h.row}, 0.25)",
        "{m}.copy_(torch.maximum({m}, {h.largest}))", "{m}.copy_({m} * 0.5 + {h.mean})",
        "{m}.sub_({h.row}, alpha=0.2).clamp_(-2, 2)", "{m} += {h.mean} * 0.1",
        "{m}.copy_(torch.minimum({m}, {h.row}) * 0.5)", "{m}.mul_(0.5).add_({h.largest})", m=m, h=h,
    )  # fmt: skip
    if d.maybe(0.3):
        n = d.count("f32")
        update = f"{n}.add_(1)\n{m}.add_(({h.mean} - {m}) / {n})"
    read = d.pick(
        "{h.x} - {m}{h.over}", "{h.x} * ({m} + 1){h.over}", "{h.x} * torch.sigmoid({m}){h.over}",
        "torch.where({h.x} > {m}{h.over}, {h.x}, {m}{h.over})", m=m, h=h,
    )  # fmt: skip
    return _in_either_order(d, update, read)


@form("state")
def earlier_channels(d: Draw) -> str:
    """Some channels of the image before."""
    x = d.tensor(lambda t: t.is_floating_point() and t.dim() == 4 and t.shape[1] > 1)
    _, channels, high, wide = d.space[x].shape
    if {high, wide, channels} & set(d.sizes.values()):
        raise UnsuitableError
    many = d.integer(1, channels - 1)
    s = d.state(1, many, high, wide)
    write = d.choose(f"{s}.copy_({x}[:1, :{many}])", f"{s}.mul_(0.5).add_({x}[-1:, -{many}:])")
    joined = f"torch.cat([p.expand({x}.shape[0], -1, -1, -1), {x}[:, {many}:]], 1)"
    return f"p = {s}.clone()\n{write}\nout = " + d.choose(joined, f"{x} + p.sum(1, keepdim=True)")


@form("state")
def ring(d: Draw) -> str:
    """The last means in a ring that a counter turns."""
    h = Channels.of(d)
    rows = d.integer(2, 3)
    s, n = d.state(rows, h.count), d.count()
    write = f"{s}.index_copy_(0, {n} % {rows}, {h.mean}[None])\n{n}.add_(1)"
    return f"{write}\nout = {h.x} + " + d.choose(f"{s}.mean(0){h.over}", f"{s}[0]{h.over}")


@form("state")
def counter(d: Draw) -> str:
    """Integers over calls: parity, wrapping, counts."""
    x = d.floating(2)
    dtype = d.choose("i64", "i64", "i32", "u8", "i8")
    n = d.count(dtype, d.choose(0, 1, 100))
    update = d.pick("{n}.add_({d.choose(1, 3, 90, 100)})", n=n)
    if dtype != "u8" and d.maybe():
        update = f"{n}.sub_(1)"
    if dtype == "i64":
        update = d.choose(update, update, f"{n} += {d.size(x, 0)}", f"{n}.copy_({n} * 3 + 1)")
    read = d.pick(
        "torch.where({n} % 2 == 0, {x}, -{x})", "{x} + ({n} % 5).float() * 0.1", "{x} * ({n} > 2)",
        "{x} + ({n}.float() * 0.01).sin()", "torch.where({n} % 2 == 0, {x}, {x}.flip(-1))",
        "{x} * ({n} % 3).float()", n=n, x=x,
    )  # fmt: skip
    return _in_either_order(d, update, read)


@form("state")
def counted(d: Draw) -> str:
    """A counter as an output."""
    n = d.count(d.choose("i64", "i32"))
    return f"{n}.add_(1)\nout = " + d.choose(f"{n}.clone()", f"{n} * 2", f"{n} + 1")


@form("state")
def flags(d: Draw) -> str:
    """Truth values over calls."""
    h = Channels.of(d)
    f = d.share(f"nn.Buffer(torch.zeros({h.count}, dtype=boolean))")
    update = d.pick(
        "{f}.logical_or_({h.largest} > 1)", "{f}.logical_not_()", "{f}.copy_({f} ^ ({h.row} > 0))",
        "{f}[0] = ~{f}[1]", "{f}.logical_and_({h.row} < 0.5)", f=f, h=h,
    )  # fmt: skip
    read = d.pick(
        "torch.where({f}{h.over}, {h.x}, {h.x} * 0.5)", "{h.x}.masked_fill({f}{h.over}, 0.25)",
        "{h.x} + {f}.float(){h.over}", "{h.x} - {f}.sum()", f=f, h=h,
    )  # fmt: skip
    return f"{update}\nout = {read}"


@form("state")
def recurrence(d: Draw) -> str:
    """A cell whose state stays."""
    h = Channels.of(d)
    c, row = h.count, f"{h.row}[None]"
    s = d.state(1, c)
    kind = d.choose("plain", "gru", "lstm", "scalar")
    if kind == "plain":
        step = f"{s}.copy_(torch.tanh({row} @ {d.weight(c, c)} + {s} @ {d.weight(c, c)}))"
    elif kind == "gru":
        step = f"{s}.copy_({d.hold(f'seeded(nn.GRUCell({c}, {c}), {d.seed})', 'm')}({row}, {s}))"
    elif kind == "lstm":
        cell, e = d.hold(f"seeded(nn.LSTMCell({c}, {c}), {d.seed})", "m"), d.state(1, c)
        step = f"p, q = {cell}({row}, ({s}, {e}))\n{s}.copy_(p)\n{e}.copy_(q)"
    else:
        step = f"{s}.copy_({s} * torch.sigmoid({d.weight(c)}) + {row} * 0.3)"
    sign = d.choose("+", "* 0.5 -")
    return f"{step}\nout = {h.x} {sign} {s}[0]{h.over}"


@form("state")
def recurrent_layer(d: Draw) -> str:
    """A layer over a sequence, from the state that the last call left."""
    x, _, c = _rows(d)
    if d.space[x].dim() != 3 or d.space[x].shape[1] in d.sizes.values():
        raise UnsuitableError
    s, kind = d.state(1, 1, c), d.choose("GRU", "LSTM")
    layer = d.hold(f"seeded(nn.{kind}({c}, {c}, batch_first=True), {d.seed})", "m")
    if kind == "GRU":
        return f"y, p = {layer}({x}[:1], {s})\n{s}.copy_(p)\nout = {x} + y"
    e = d.state(1, 1, c)
    return (f"y, (p, q) = {layer}({x}[:1], ({s}, {e}))\n{s}.copy_(p)\n{e}.copy_(q)\n"
            f"out = {x} + y")  # fmt: skip


@form("state")
def causal_convolution(d: Draw) -> str:
    """A causal convolution that keeps its tail."""
    x, rows, c = _rows(d)
    k, by, groups = d.integer(2, 4), d.integer(1, 2), d.choose(1, 1, c)
    tail = (k - 1) * by
    s, w = d.state(1, c, tail), d.weight(c, c // groups, k)
    kept = d.choose(f"e[:, :, -{tail}:]", f"e[..., e.shape[2] - {tail} :]")
    made = f"F.conv1d(e, {w}, dilation={by}, groups={groups})[0].mT"
    made = d.choose(made, f"F.relu({made})")
    return f"e = torch.cat([{s}, {rows}.mT[None]], 2)\n{s}.copy_({kept})\nout = {x} + {made}"


@form("alias")
def through_views(d: Draw) -> str:
    """Writes through views of a buffer."""
    h = Channels.of(d)
    c, row = h.count, d.choose(h.row, f"{h.row} * 0.5")
    s = d.state(4, c)
    writes = """{s}.mT[0].fill_(0.25)  {s}[1:3].add_({row})  {s}.view(-1)[::2].mul_(0.5)
        {s}.diagonal().copy_({row}[:4])  {s}.select(0, 2).copy_({row})  {s}[{s} > 0.3] = 0
        {s}.narrow(0, 1, 2).zero_()  {s}.unsqueeze(1)[2, 0].sub_({row})  {s}.chunk(2)[1].neg_()
        {s}.permute(1, 0)[:, 1] = {row}  {s}[1], {s}[2] = {s}[2].clone(), {s}[1].clone()
        {s}.masked_fill_({s} < -0.5, 0.1)  {s}.tril_()  {s}[[0, 3]] = {s}[[3, 0]]
        {s}.index_add_(0, torch.tensor([1, 1, 3]), {row}.expand(3, {c}) * 0.1)  {s}[1:3].neg_()
        {s}.unflatten(0, (2, 2))[1, :, 0] = 0.5  {s}.split(1)[3].copy_({s}[:1])
        {s}.T.reshape(2, -1)[0, 0] = 3  {s}.index_fill_(1, torch.tensor([0, 1]), 0.5)
        {s}.squeeze()[0, 1:3] += 0.5  {s}.movedim(0, 1)[0, 1:].copy_({s}[0, :1] * 0.5)
        {s}.scatter_(0, torch.tensor([[1] * {c}]), {row}[None])  {s}.ravel()[3] = 1.5
        {s}[-1] = {row}\n{s}[-1, ::2] *= -1  torch.mul({s}, 0.5, out={s})  {s}.flatten()[0] = 1
        {s}.swapaxes(0, 1)[1].abs_()  {s}.mT[:, 1:3].fill_(0.75)  {s}.view(2, -1)[:, 1:].add_(0.1)"""
    every = [text.strip() for text in writes.replace("\n        ", "  ").split("  ")]
    lines = [line.format(s=s, row=row, c=c) for line in d.rng.sample(every, d.integer(1, 3))]
    read = d.choose(
        f"+ {s}.sum(0){h.over} * 0.1", f"- {s}[1]{h.over}", f"* (1 + {s}[2] * 0.1){h.over}"
    )
    lines.insert(d.integer(0, len(lines)), f"out = {h.x} {read}")
    return "\n".join(lines)


@form("alias")
def order(d: Draw) -> str:
    """Reads and writes whose order matters."""
    h = Channels.of(d)
    a, b = d.state(h.count), d.state(h.count)
    names = dict(a=a, b=b, row=h.row, x=h.x, over=h.over)
    return d.pick(
        "p = {a}.clone()\n{a}.copy_({b})\n{b}.copy_({row} * 0.5)\nout = {x} + (p - {a}){over}",
        "{b}.copy_({a})\n{a}.copy_({row})\nout = {x} + {b}{over}",
        "p = {a}[1:]\n{a}.add_({row} * 0.1)\nout = {x} + p.sum() * 0.1",
        "p = {a}.view(-1, 2)\np[0] = {row}[:2]\nout = {x} * 0.5 + {a}{over}",
        "{a}.copy_({row})\n{a}.copy_({b})\nout = {x} - {a}{over}",
        "out = {x} + {a}{over}\n{a}.zero_()\n{a}.add_({row})",
        "{a}.add_({b})\n{b}.sub_({a})\nout = {x} + {b}.tanh(){over}\n{a}.mul_(0.3)\n{b}.mul_(0.3)",
        "p = {row} * 1.0\nq = p[1:]\np.mul_(2)\n{a}[1:] = q * 0.2\nout = {x} + {a}{over}",
        "{a}.add_({row} * 0.1)\nout = {a} * 1", "out = {a}.clone()\n{a}.copy_({row})",
        "{a}.add_({row} * 0.1)\nout = {a}[1:]\n{a}.mul_(0.5).add_(1)",
        "{a}.copy_({row})\nout = {a}.view(2, -1)", **names,
    )  # fmt: skip


@form("alias")
def tied(d: Draw) -> str:
    """One weight as itself, transposed, and in part."""
    x, _, c = _rows(d)
    w = d.weight(c, c, share=0.6)
    if d.space[x].dim() == 4 and d.maybe():
        c = d.space[x].shape[1]
        if c in d.sizes.values():
            raise UnsuitableError
        w = d.weight(c, c, 1, 1, share=0.6)
        return d.pick(
            "F.conv2d(F.relu(F.conv2d({x}, {w})), {w}.transpose(0, 1))",
            "{x} + F.conv2d({x}, {w}, {w}[0, :, 0, 0])",
            "F.conv2d({x}, {w}) + F.linear({x}.movedim(1, 3), {w}[:, :, 0, 0]).movedim(3, 1)",
            "F.conv_transpose2d(F.conv2d({x}, {w}), {w})", x=x, w=w,
        )  # fmt: skip
    return d.pick(
        "F.linear(torch.tanh(F.linear({x}, {w})), {w}.T)", "{x} + {x} @ {w} @ {w}",
        "{x} + F.linear({x}, {w}, {w}[0])", "F.linear({x}, {w}) + {w}[1]",
        "{x} + F.conv1d({x}.mT, {w}[:, :, None]).mT",
        "F.linear({x}, {w}) - F.linear({x}, {w})[:, :1]", x=x, w=w,
    )  # fmt: skip


@form("alias")
def embedding(d: Draw) -> str:
    """A table that is read by rows and multiplied by."""
    x, _, c = _rows(d)
    w = d.weight(11, c)
    sizes = [d.symbol(size) for size in d.space[x].shape[:-1]]
    ids = d.further_input(f"integers(k, ({', '.join(sizes)},), 0, 11)", *sizes)
    return f"{x} + F.embedding({ids}, {w})" if d.maybe() else f"F.linear({x}, {w})"


@form("sizes")
def windows(d: Draw) -> str:
    """Windows of a dynamic axis: padded to a multiple, mixed, cut back."""
    x = d.tensor(lambda t: t.is_floating_point() and t.dim() == 3 and t.numel())
    w = d.integer(2, 4)
    mixed = d.choose(
        "q + (q @ q.mT / 8).softmax(-1) @ q",
        "q - q.mean(2, keepdim=True)",
        "q.flip(2)",
        "q.cumsum(2)",
    )
    return (
        f"p = F.pad({x}, (0, 0, 0, (-{x}.shape[1]) % {w}))\nq = p.unflatten(1, (-1, {w}))\n"
        f"q = {mixed}\nout = q.flatten(1, 2)[:, : {x}.shape[1]]"
    )


@form("flow")
def branch(d: Draw) -> str:
    """One of two branches, chosen by a counter or an input."""
    x = d.floating(2)
    yes, no = d.choose(
        ("p * 2 + 1", "p - 1"), ("p.tanh()", "p * 0.5"), ("p.flip(1)", "p.clone()"), ("F.relu(p)", "-p"),
        ("p.cumsum(1)", "p - p.mean(1, keepdim=True)"),
    )  # fmt: skip
    if d.maybe(0.4):
        test, before = d.further_input("torch.tensor(k % 3 == 0)"), ""
    else:
        n = d.count()
        test, before = f"{n}.sum() % {d.integer(2, 3)} == 0", f"{n}.add_(1)\n"
    return f"{before}out = cond({test}, lambda p: {yes}, lambda p: {no}, ({x},))"


@form("flow")
def loop(d: Draw) -> str:
    """As many rounds as a counter or an input says."""
    x = d.floating(2)
    body = d.choose("p * 0.5 + 1", "p.tanh() + 0.1", "p - p.mean(1, keepdim=True)", "p.roll(1, 1)")
    if d.maybe():
        count, before = d.further_input("torch.tensor(k % 4)"), ""
    else:
        n = d.count()
        count, before = f"{n}.sum() % 4", f"{n}.add_(1)\n"
    loop = f"lambda i, p: i > 0, lambda i, p: (i - 1, {body}), ({count}, {x} * 1)"
    return f"{before}out = while_loop({loop})[1]"


@form("flow")
def steps(d: Draw) -> str:
    """A scan over rows, from a state that stays."""
    x, rows, c = _rows(d)
    s = d.state(c)
    body = d.choose(
        "(p * 0.5 + q, p + q)", "((p + q).tanh(), p * q)", "(torch.maximum(p, q), p - q)"
    )
    return f"e, y = scan(lambda p, q: {body}, {s} * 1, {rows})\n{s}.copy_(e)\nout = {x} + y"


@form("shared")
def shared(d: Draw) -> str:
    """What resets, changes or returns a buffer of an earlier method."""
    x = d.floating(2)
    buffers = [name for name, text in d.held if text.startswith("nn.Buffer") and "bool" not in text]
    if not buffers:
        raise UnsuitableError
    s, read = d.rng.choice(buffers), "out = {x} + {s}.float().mean()"
    return d.pick(
        "{s}.zero_()\n" + read, "{s}.fill_(3)\n" + read, "out = {s}.clone()", "{s}.add_(1)\n" + read,
        "out = {s} * 2\n{s}.zero_()", "{s}.copy_({s}.flip(0))\n" + read, s=s, x=x,
    )  # fmt: skip


@form("modules")
def module(d: Draw) -> str:
    """A layer of torch's own class, which some quantizers ask for."""
    x, _, c = _rows(d)
    if d.quantized == "8da4w" and c % 32:
        raise UnsuitableError
    up, down = (
        d.hold(f"seeded(nn.Linear({c}, {c}{more}), {d.seed})", "m") for more in ("", ", bias=False")
    )
    act = d.choose("relu", "silu", "tanh")
    return d.choose(f"{x} + {down}(F.{act}({up}({x})))", f"{up}({x})", f"{down}({x})")


operators(
    globals(),
    """
sizes: x = d.tensor(lambda t: t.is_floating_point() and t.dim() == 3 and t.numel())
: b, t, c = (d.size(x, axis) for axis in range(3)); w = d.weight(ROWS, d.space[x].shape[2])
    {x} + {x}.flip(1)  {x} - {x}.mean(1, keepdim=True)  {x} + (torch.arange({t}) / {t})[:, None]
    torch.cat([{x}[:, {t} // 2 :], {x}[:, : {t} // 2]], 1)  {x} + {x}.repeat(1, 2, 1)[:, ::2]
    {x}[:, ::2].repeat_interleave(2, 1)[:, :{t}]  F.pad({x}, (0, 0, 1, 0))[:, :-1]
    F.pad({x}, (0, 0, 0, 2))[:, 2:]  {x}.cumsum(1) / {t}  {x} + {w}[: {t}]  {x}.roll(1, 1)
    torch.cat([{x}, {x} * 2], 1)[:, {t} // 2 : {t} // 2 + {t}]  {x} * {t} ** -0.5
    torch.ones({t}, {t}).tril() @ {x} / {t}  {x} + {x}[:, -1:] * ({t} % 2)
    torch.where(torch.arange({t})[:, None] % 2 == 0, {x}, -{x})
    {x}[:, torch.arange({t} - 1, -1, -1)]  {x} - {t} / ({t} + 1)
    {x}.reshape({b} * {t}, {c}).relu().view({b}, {t}, {c})
    {x}.transpose(0, 1).contiguous().view({t}, -1).view({t}, {b}, {c}).transpose(0, 1)
    {x} + {x}.sum((0, 1)) / ({b} * {t})  torch.cat({x}.chunk(2, 1)[::-1], 1)
    torch.stack([{x}, -{x}], 2).flatten(1, 2)[:, ::2]
    {x}.unsqueeze(0).expand(2, -1, -1, -1).sum(0)  torch.full((3,), {t}) * 2  {x}.mean(1)
    {x}[:, : {t} // 2]  {x}.sum() / {t}  {x}.flatten(0, 1)  F.max_pool1d(F.pad({x}.mT, (1, 1)), 3, 2)
sizes: x = d.tensor(lambda t: t.is_floating_point() and t.dim() == 4 and t.numel())
: high, wide = d.size(x, 2), d.size(x, 3)
    {x} + {x}.flip(3)  {x} - {x}.mean((2, 3), keepdim=True)  {x}.roll((1, 1), (2, 3))
    torch.cat([{x}[..., {wide} // 2 :], {x}[..., : {wide} // 2]], 3)
    F.interpolate({x}[:, :, ::2, ::2], size=({high}, {wide}))  {x} * ({high} * {wide}) ** -0.5
    F.interpolate(F.avg_pool2d({x}, 2), size=({high}, {wide}), mode='nearest')
    F.pad({x}, (1, 0, 0, 1))[:, :, 1:, :{wide}]  {x} + (torch.arange({wide}) / {wide})
    F.pixel_shuffle({x}.repeat(1, 4, 1, 1), 2)[:, :, ::2, ::2]  F.avg_pool2d({x}, 3, 1, 1)
    {x}.flatten(2).cumsum(2).view(*{x}.shape) / ({high} * {wide})  {x}.var(1, correction=0)
    F.interpolate({x}, scale_factor=2.0, mode='nearest')[:, :, :{high}, :{wide}]
    F.interpolate({x}, scale_factor=2, mode='bilinear')[:, :, :{high}, :{wide}]
    F.pad({x}, (1, 1, 1, 1), mode='reflect')[:, :, 1:-1, 1:-1]  F.max_pool2d({x}, 2)
    F.max_pool2d(F.pad({x}, (0, 1, 0, 1)), 2, 1)  {x} + F.adaptive_avg_pool2d({x}, 1)
    {x}.flatten(2).mT.softmax(1).mT.view(*{x}.shape)  F.avg_pool2d({x}, 2, ceil_mode=True)
    {x} + F.pad({x}[:, :, ::2], (0, 0, 0, {x}.shape[2] // 2))  F.interpolate({x}, size=(3, 5))
    F.adaptive_avg_pool2d({x}, 2).mean((2, 3), keepdim=True) + {x}  {x}.sum((1, 3))
    F.conv2d({x}, torch.ones(2, {x}.shape[1], 3, 3) * 0.1, stride=2, padding=1)
alias: x = d.floating(2)
    {x}.mT  {x}[:, :1]  {x}.view(-1)  {x}.detach()  {x}.expand(2, *[-1] * {x}.dim())  {x}[None]
    {x}[::2]  {x}.flatten(1)  out = {x} + 0; out.mul_(0.5)  {x}[:, ::2]  {x}.movedim(1, -1)
    {x}.contiguous()
""",
)
