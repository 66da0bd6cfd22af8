"""Parts of programs whose stream is a sequence: (batch, length, channels)."""

from __future__ import annotations

from .drawing import Draw, UnsuitableError, form
from .source import Part

ROWS = 20
"""Of caches: as long as the longest stream."""


# State over calls.


@form("sequence", "state")
def cache(d: Draw) -> Part:
    """Keys written at positions that an input or a counter gives, past the end from the front."""
    c, t = d.channels, d.size(1)
    k = d.state(1, ROWS, c)
    attends = d.choose(
        f"h = h + (h @ {k}.mT).softmax(-1) @ {k}",
        f"h = h + F.scaled_dot_product_attention(h[:, None], {k}[:, None].expand(h.shape[0], -1, -1, -1), {k}[:, None].expand(h.shape[0], -1, -1, -1))[:, 0]",
        f"h = h + {k}[:, : {t}]",
        f"h = h * 0.5 + {k}.mean(1, keepdim=True)",
    )
    write = d.choose(
        f"{k}[:, p@] = h[:1]", f"{k}.index_copy_(1, p@, h[:1])", f"{k}[0, p@] = h[0]",
        f"{k}.index_add_(1, p@, h[:1] * 0.1)",
    )  # fmt: skip
    if d.maybe():
        axes = d.shape[1]
        text = f"(torch.arange({axes}) + k * {d.integer(1, 9)}) % {ROWS}"
        return d.part(write, attends, taken=[("p@", text, [axes])])
    n = d.count()
    count = f"{n}.add_({t})"
    at = f"p@ = ({n} + torch.arange({t})) % {ROWS}"
    lines = [at, write, count, attends] if d.maybe() else [at, count, attends, write]
    return d.part(*lines)


@form("sequence", "state")
def window(d: Draw) -> Part:
    """The last rows seen, in a window that shifts."""
    rows, c = d.integer(2, 7), d.channels
    s = d.state(1, rows, c)
    shift = d.choose(
        f"{s}.copy_(torch.cat([{s}, h[:1]], 1)[:, -{rows}:])",
        f"{s}[:] = torch.cat([{s}, h[:1] * 0.5], 1)[:, -{rows}:]",
        f"{s}.copy_({s}.roll(-1, 1))\n{s}[:, -1] = h[0, -1]",
        f"{s}[:, :-1] = {s}[:, 1:].clone()\n{s}[0, {rows - 1}] = h[0, 0]",
        f"{s}.copy_(torch.cat([h[:1, -1:], {s}[:, :-1]], 1))",
    )
    read = d.choose(
        f"h = h + {s}.mean(1)", f"h = h - {s}[:, 0]", f"h = h + {s}[:, -1:]",
        f"h = h * 0.5 + {s}.amax(1, keepdim=True)",
    )  # fmt: skip
    return d.part(*((shift, read) if d.maybe() else (read, shift)))


@form("sequence", "state")
def running(d: Draw) -> Part:
    """Statistics over all calls."""
    c = d.channels
    m = d.state(c)
    update = d.choose(
        f"{m}.mul_(0.9).add_(h.mean((0, 1)), alpha=0.1)",
        f"{m}.lerp_(h[0, -1], 0.25)",
        f"{m}.copy_(torch.maximum({m}, h.amax((0, 1))))",
        f"{m}.copy_({m} * 0.5 + h.mean((0, 1)))",
        f"{m}.sub_(h[0, 0], alpha=0.2).clamp_(-2, 2)",
        f"{m} += h.sum((0, 1)) / h.shape[1] * 0.1",
        f"{m}.copy_(torch.minimum({m}, h[0, 0]) * 0.5)",
    )
    read = d.choose(f"h = h - {m}", f"h = h * ({m} + 1)", f"h = torch.where(h > {m}, h, {m})")
    lines = [update, read] if d.maybe() else [read, update]
    if d.maybe(0.3):
        n = d.count("f32")
        lines = [f"{n}.add_(1)", f"{m}.add_((h.mean((0, 1)) - {m}) / {n})", read]
    return d.part(*lines)


@form("sequence", "state")
def counter(d: Draw) -> Part:
    """Integers over calls: parity, wrapping, counts."""
    dtype = d.choose("i64", "i64", "i32", "u8", "i8")
    n = d.count(dtype, int(d.choose("0", "1", "100")))
    update = f"{n}.add_({d.choose('1', '3', '100', '-1')})"
    if dtype == "i64":
        update = d.choose(update, update, f"{n} += {d.size(1)}", f"{n}.copy_({n} * 3 + 1)")
    read = d.choose(
        f"h = torch.where({n} % 2 == 0, h, -h)",
        f"h = h + ({n} % 5).float() * 0.1",
        f"h = h * ({n} > 2)",
        f"h = h + ({n}.float() * 0.01).sin()",
    )
    given = f"{n}.clone()" if d.maybe() else f"{n} * 2"
    lines = [update, read] if d.maybe() else [read, update]
    return d.part(*lines, f"o@ = {given}", given=["o@"])


@form("sequence", "state")
def flags(d: Draw) -> Part:
    """Truth values over calls."""
    c = d.channels
    f = d.hold(f"nn.Buffer(torch.zeros({c}, dtype=boolean))", 0.4)
    update = d.choose(
        f"{f}.logical_or_((h > 1).any(0).any(0))",
        f"{f}.logical_not_()",
        f"{f}.copy_({f} ^ (h[0, 0] > 0))",
        f"{f}[0] = ~{f}[1]",
        f"{f}.logical_and_(h[0, -1] < 0.5)",
    )
    read = d.choose(f"h = torch.where({f}, h, h * 0.5)", f"h = h.masked_fill({f}, 0.25)",
                    f"h = h + {f}.float()", f"h = h - {f}.sum()")  # fmt: skip
    given = [f"{f}.clone()"] if d.maybe(0.3) else []
    return d.part(update, read, given=given)


@form("sequence", "state")
def recurrence(d: Draw) -> Part:
    """A cell whose state stays."""
    c = d.channels
    s = d.state(1, c)
    kind = d.choose("plain", "gru", "lstm", "scalar")
    if kind == "plain":
        w, u = d.weight(c, c), d.weight(c, c)
        step = f"{s}.copy_(torch.tanh(h[:1, -1] @ {w} + {s} @ {u}))"
    elif kind == "gru":
        cell = d.layer(f"nn.GRUCell({c}, {c})")
        step = f"{s}.copy_({cell}(h[:1, -1], {s}))"
    elif kind == "lstm":
        cell, e = d.layer(f"nn.LSTMCell({c}, {c})"), d.state(1, c)
        step = f"a@, e@ = {cell}(h[:1, 0], ({s}, {e}))\n{s}.copy_(a@)\n{e}.copy_(e@)"
    else:
        g = d.weight(c, scale=0.5)
        step = f"{s}.copy_({s} * torch.sigmoid({g}) + h[:1, -1] * 0.3)"
    return d.part(step, d.choose(f"h = h + {s}", f"h = h * 0.5 - {s}[0]"))


@form("sequence", "state")
def recurrent_layer(d: Draw) -> Part:
    """A layer of torch's over the stream, from the state that the last call left."""
    c = d.channels
    if not d.shape[1].isdigit():
        raise UnsuitableError
    s = d.state(1, 1, c)
    if d.maybe():
        rnn = d.layer(f"nn.GRU({c}, {c}, batch_first=True)")
        lines = [f"y@, n@ = {rnn}(h[:1], {s})", f"{s}.copy_(n@)"]
    else:
        rnn, e = d.layer(f"nn.LSTM({c}, {c}, batch_first=True)"), d.state(1, 1, c)
        lines = [f"y@, (n@, e@) = {rnn}(h[:1], ({s}, {e}))", f"{s}.copy_(n@)", f"{e}.copy_(e@)"]
    return d.part(*lines, "h = h + y@")


@form("sequence", "state")
def stream(d: Draw) -> Part:
    """A causal convolution that keeps its tail."""
    c, k, by = d.channels, d.integer(2, 4), d.integer(1, 2)
    tail = (k - 1) * by
    s = d.state(1, c, tail)
    groups = d.choose("1", "1", f"{c}")
    w = d.weight(c, c // int(groups), k)
    if d.maybe():
        lines = [
            f"e@ = torch.cat([{s}, h[:1].mT], 2)",
            f"y@ = F.conv1d(e@, {w}, dilation={by}, groups={groups})",
            f"{s}.copy_(e@[:, :, -{tail}:])",
            "h = h + y@.mT",
        ]
    else:
        lines = [
            f"e@ = torch.cat([{s}, h[:1].mT], 2)",
            f"{s}.copy_(e@[..., e@.shape[2] - {tail} :])",
            f"h = h + F.relu(F.conv1d(e@, {w}, dilation={by}, groups={groups})).mT",
        ]
    return d.part(*lines)


# Aliases.


@form("sequence", "alias")
def through_views(d: Draw) -> Part:
    """Writes through views of a buffer."""
    c = d.channels
    s = d.state(4, c, like=d.choose("zeros", "normal"))
    row = "h[0, 0]" if d.maybe() else "h[-1, -1] * 0.5"
    writes = [
        f"{s}.mT[0].fill_(0.25)", f"{s}[1:3].add_({row})", f"{s}.view(-1)[::2].mul_(0.5)",
        f"{s}.diagonal().copy_({row}[:4])", f"{s}.select(0, 2).copy_({row})",
        f"{s}[{s} > 0.3] = 0", f"{s}.narrow(0, 1, 2).zero_()", f"{s}.unsqueeze(1)[2, 0].sub_({row})",
        f"{s}.chunk(2)[1].neg_()", f"{s}.permute(1, 0)[:, 1] = {row}",
        f"{s}[1], {s}[2] = {s}[2].clone(), {s}[1].clone()", f"{s}.masked_fill_({s} < -0.5, 0.1)",
        f"{s}.tril_()", f"{s}.index_add_(0, torch.tensor([1, 1, 3]), {row}.expand(3, {c}) * 0.1)",
        f"{s}.unflatten(0, (2, 2))[1, :, 0] = 0.5", f"{s}.split(1)[3].copy_({s}[:1])",
        f"{s}.T.reshape(2, -1)[0, 0] = 3", f"{s}.index_fill_(1, torch.tensor([0, 2]), 0.5)",
        f"{s}.squeeze()[0, 1:3] += 0.5", f"{s}.movedim(0, 1)[0, 1:].copy_({row}[:3])",
        f"{s}.scatter_(0, torch.tensor([[1] * {c}]), {row}[None])", f"{s}.ravel()[3] = 1.5",
        f"{s}[[0, 3]] = {s}[[3, 0]]", f"{s}[-1] = {row}\n{s}[-1, ::2] *= -1",
        f"torch.mul({s}, 0.5, out={s})", f"{s}.swapaxes(0, 1)[1].abs_()",
    ]  # fmt: skip
    lines = d.rng.sample(writes, d.integer(1, 3))
    read = d.choose(f"h = h + {s}.sum(0) * 0.1", f"h = h - {s}[1]", f"h = h * ({s}[2] * 0.1 + 1)")
    at = d.integer(0, len(lines))
    return d.part(*lines[:at], read, *lines[at:])


@form("sequence", "alias")
def order(d: Draw) -> Part:
    """Reads and writes whose order matters."""
    c = d.channels
    a, b = d.state(c), d.state(c, like="normal")
    row = d.choose("h[0, 0]", "h[0, -1]")
    return d.part(
        *d.rng.choice(
            [
                (f"v@ = {a}.clone()", f"{a}.copy_({b})", f"{b}.copy_({row} * 0.5)",
                 f"h = h + v@ - {a}"),
                (f"{b}.copy_({a})", f"{a}.copy_({row})", f"h = h + {b}"),
                (f"v@ = {a}[1:]", f"{a}.add_({row} * 0.1)", "h = h + v@.sum() * 0.1"),
                (f"v@ = {a}.view(-1, 2)", f"v@[0] = {row}[:2]", f"h = h * 0.5 + {a}"),
                (f"{a}.copy_({row})", f"{a}.copy_({b})", f"h = h - {a}"),
                (f"h = h + {a}", f"{a}.zero_()", f"{a}.add_({row})"),
                (f"{a}.add_({b})", f"{b}.sub_({a})", f"h = h + {b}.tanh()", f"{a}.mul_(0.3)",
                 f"{b}.mul_(0.3)"),
                (f"v@ = {row} * 1.0", "w@ = v@[1:]", "v@.mul_(2)", f"{a}[1:] = w@ * 0.2",
                 f"h = h + {a}"),
            ]
        )
    )  # fmt: skip


@form("sequence", "alias")
def returned(d: Draw) -> Part:
    """State, inputs, views and one value twice as outputs."""
    c = d.channels
    s = d.state(c, like=d.choose("zeros", "normal"))
    lines, given = d.rng.choice(
        [
            ([f"{s}.add_(h[0, 0] * 0.1)"], [s]),
            ([f"{s}.add_(h[0, 0] * 0.1)"], [s, s]),
            ([f"o@ = {s}.clone()", f"{s}.copy_(h[0, -1])"], ["o@", s]),
            (["o@ = h.mT"], ["o@"]),
            (["o@ = h * 2"], ["o@", "o@"]),
            (["o@ = h[:, :1]"], ["o@", "h"]),
            ([f"o@ = {s}[1:]", f"{s}.mul_(0.5).add_(1)"], ["o@"]),
            ([f"{s}.copy_(h[0, 0])", f"o@ = {s}.view(2, -1)"], ["o@"]),
            (["o@ = h.view(-1)"], ["o@"]),
            (["o@ = h + 0", "h = h * 0.5"], ["o@"]),
            (["o@ = h.detach()", "p@ = h.expand(2, -1, -1, -1)"], ["o@", "p@"]),
        ]
    )
    return d.part(*lines, given=given)


@form("sequence", "alias")
def input_back(d: Draw) -> Part:
    """A second input that is given back, plain, viewed, or read once more."""
    c = d.channels
    text = f"normal(k, ({c},))"
    used = d.choose("h = h + x@", "h = h * 0.9 + x@ * 0.1")
    given = d.choose("x@", "x@.view(2, -1)", "x@[None]", "x@[::2]")
    return d.part(used, taken=[("x@", text, [str(c)])], given=[given])


@form("sequence", "alias")
def tied(d: Draw) -> Part:
    """One weight as itself, turned over, and in part."""
    c = d.channels
    w = d.weight(c, c, share=0.6)
    return d.part(
        d.choose(
            f"h = F.linear(torch.tanh(F.linear(h, {w})), {w}.T)",
            f"h = h + h @ {w} @ {w}",
            f"h = h + F.linear(h, {w}, {w}[0])",
            f"h = F.linear(h, {w}) + {w}[1]",
            f"h = h + F.conv1d(h.mT, {w}[:, :, None]).mT",
            f"h = F.linear(h, {w}) - F.linear(h, {w})[:, :1]",
        )
    )


@form("sequence", "alias")
def embedding(d: Draw) -> Part:
    """A table that is read by rows and multiplied by."""
    c = d.channels
    w = d.weight(11, c, scale=0.5)
    ids = f"integers(k, ({', '.join(d.shape[:2])}), 0, 11)"
    lines = [f"h = h + F.embedding(i@, {w})"]
    given: list[str] = []
    if d.maybe():
        lines.append(f"o@ = F.linear(h, {w})")
        given = ["o@"]
    return d.part(*lines, taken=[("i@", ids, d.shape[:2])], given=given)


# Sizes.


@form("sequence", "sizes")
def places(d: Draw) -> Part:
    """What depends on a position, its parity, or how many there are."""
    c, t, b = d.channels, d.size(1), d.size(0)
    w = d.weight(ROWS, c)
    return d.part(
        d.choose(
            "h = h + h.flip(1)",
            "h = h - h.mean(1, keepdim=True)",
            f"h = h + (torch.arange({t}) / {t})[:, None]",
            f"h = torch.cat([h[:, {t} // 2 :], h[:, : {t} // 2]], 1)",
            f"h = h[:, ::2].repeat_interleave(2, 1)[:, :{t}]",
            "h = F.pad(h, (0, 0, 1, 0))[:, :-1]",
            "h = F.pad(h, (0, 0, 0, 2))[:, 2:]",
            f"h = h.cumsum(1) / {t}",
            f"h = torch.cat([h, h * 2], 1)[:, {t} // 2 : {t} // 2 + {t}]",
            f"h = h + {w}[: {t}]",
            f"h = torch.ones({t}, {t}).tril() @ h / {t}",
            f"h = torch.where(torch.arange({t})[:, None] % 2 == 0, h, -h)",
            "h = h.roll(1, 1)",
            f"h = h[:, torch.arange({t} - 1, -1, -1)]",
            f"h = h * {t} ** -0.5",
            f"h = h.reshape({b} * {t}, {c}).relu().view({b}, {t}, {c})",
            f"h = h.transpose(0, 1).contiguous().view({t}, -1).view({t}, {b}, {c}).transpose(0, 1)",
            f"h = h + h[:, -1:] * ({t} % 2)",
            f"h = h + h.sum((0, 1)) / ({b} * {t})",
            "h = torch.cat(h.chunk(2, 1)[::-1], 1)",
            "h = torch.stack([h, -h], 2).flatten(1, 2)[:, ::2]",
            f"h = h - {t} / ({t} + 1)",
            "h = h.unsqueeze(0).expand(2, -1, -1, -1).sum(0)",
            "h = h + h.repeat(1, 2, 1)[:, ::2]",
        )
    )


@form("sequence", "sizes")
def windows(d: Draw) -> Part:
    """Windows of an open length: padded to a multiple, attended, cut back."""
    w = d.integer(2, 4)
    return d.part(
        f"p@ = F.pad(h, (0, 0, 0, (-h.shape[1]) % {w}))",
        f"q@ = p@.unflatten(1, (-1, {w}))",
        d.choose("q@ = q@ + (q@ @ q@.mT / 8).softmax(-1) @ q@", "q@ = q@ - q@.mean(2, keepdim=True)",
                 "q@ = q@.flip(2)"),
        "h = q@.flatten(1, 2)[:, : h.shape[1]]",
    )  # fmt: skip


@form("sequence", "sizes")
def summaries(d: Draw) -> Part:
    """Outputs beside the stream, of other sizes."""
    t = d.size(1)
    return d.part(
        "o@ = "
        + d.choose(
            "h.mean(1)", "h.argmax(1)", "h.amax((0, 1))", "h[:, ::2]", f"h[:, : {t} // 2]",
            "h[:, -1]", "h.flatten(0, 1)", "torch.cat([h, h], 1)", "h.topk(1, 1)[0]",
            "F.pad(h, (0, 0, 1, 1))", "h.permute(2, 0, 1)", "h.sort(1)[0]", "h.unfold(1, 1, 1)",
            f"h.sum() / {t}", "F.avg_pool1d(h.mT, 1, 1)", "(h > 0).sum(1)", "h.cumsum(0)",
            "torch.full((3,), h.shape[1])", "F.max_pool1d(F.pad(h.mT, (1, 1)), 3, 2)",
            "h.std(1, correction=0)", "h.norm(dim=1)", "h.prod(2)", "h.repeat_interleave(3, 1)",
        ),
        given=["o@"],
    )  # fmt: skip


# Ordinary layers.


@form("sequence", "layers")
def linear(d: Draw) -> Part:
    c = d.channels
    m = d.integer(3, 9)
    up, down = d.weight(m, c), d.weight(c, m)
    act = d.choose("relu", "gelu", "silu", "tanh", "sigmoid", "hardswish")
    body = f"F.linear(F.{act}(F.linear(h, {up})), {down})"
    return d.part(d.choose(f"h = h + {body}", f"h = {body}"))


@form("sequence", "layers")
def single(d: Draw) -> Part:
    c = d.channels
    w, bias = d.weight(c, c), d.weight(c, scale=0.3)
    return d.part(f"h = F.linear(h, {w}, {bias})", *(["h = F.relu(h)"] if d.maybe() else []))


@form("sequence", "layers")
def norm(d: Draw) -> Part:
    c = d.channels
    g, bias = d.weight(c, scale=0.7), d.weight(c, scale=0.3)
    return d.part(
        d.choose(
            f"h = F.layer_norm(h, ({c},), {g}, {bias}, 1e-2)",
            f"h = F.rms_norm(h, ({c},), {g}, 1e-2)",
            f"h = F.layer_norm(h, ({c},), eps=0.1)",
            f"h = F.group_norm(h.mT, 2, {g}, {bias}, 0.1).mT",
            f"h = h / (h.norm(dim=-1, keepdim=True) + 0.5) * {g}",
            "h = h.softmax(-1)",
            "h = F.instance_norm(h.mT, eps=0.5).mT",
            "h = F.normalize(h, dim=1, eps=0.1)",
        )
    )


@form("sequence", "layers")
def attention(d: Draw) -> Part:
    c = d.channels
    q, v = d.weight(c, c), d.weight(c, c)
    causal = d.choose("True", "False")
    return d.part(
        d.choose(
            f"h = h + F.scaled_dot_product_attention(F.linear(h, {q}), h, F.linear(h, {v}), "
            f"is_causal={causal})",
            f"h = h + torch.einsum('bts,bsc->btc', (torch.einsum('btc,bsc->bts', F.linear(h, {q}), "
            f"h) / {c}).softmax(-1), F.linear(h, {v}))",
            f"h = h + F.scaled_dot_product_attention(*(F.linear(h, w).unflatten(-1, (2, -1))"
            f".transpose(1, 2) for w in ({q}, {v}, {q}))).transpose(1, 2).flatten(2)",
        )
    )


@form("sequence", "layers")
def convolution(d: Draw) -> Part:
    c, k = d.channels, int(d.choose("1", "3", "5"))
    groups = d.choose("1", "2", f"{c}")
    w = d.weight(c, c // int(groups), k)
    return d.part(
        f"h = h * 0.5 + F.conv1d(h.mT, {w}, padding={k // 2}, groups={groups}).mT",
        *(["h = F.relu(h)"] if d.maybe() else []),
    )


@form("sequence", "layers")
def pointwise(d: Draw) -> Part:
    c = d.channels
    g = d.weight(c, scale=0.7)
    return d.part(
        d.choose(
            "h = torch.tanh(h)", "h = F.relu(h)", f"h = h * {g}", f"h = h + {g}", "h = h.abs().sqrt()",
            "h = h.clamp(-1, 1.5)", "h = h * torch.sigmoid(h)", "h = F.elu(h)", "h = -h",
            "h = h[..., [1, 0, *range(2, h.shape[2])]]", "h = torch.cat([h[..., 1:], h[..., :1]], -1)",
            "h = h.view(*h.shape[:2], 2, -1).flip(2).flatten(2)", "h = h / (1 + h.abs())",
        )
    )  # fmt: skip


@form("sequence", "modules")
def module(d: Draw) -> Part:
    """A layer of torch's own class, which some quantizers ask for."""
    c = d.channels
    up, down = d.layer(f"nn.Linear({c}, {c})"), d.layer(f"nn.Linear({c}, {c}, bias=False)")
    act = d.choose("relu", "silu", "tanh")
    return d.part(d.choose(f"h = h + {down}(F.{act}({up}(h)))", f"h = {up}(h)", f"h = {down}(h)"))
