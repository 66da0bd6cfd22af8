"""Parts of programs whose stream is an image: (batch, channels, height, width)."""

from __future__ import annotations

from .drawing import Draw, form
from .source import Part


@form("image", "state")
def running(d: Draw) -> Part:
    """Statistics of channels over all calls."""
    c = d.channels
    m = d.state(c)
    update = d.choose(
        f"{m}.lerp_(h.mean((0, 2, 3)), 0.1)",
        f"{m}.mul_(0.5).add_(h.amax((0, 2, 3)))",
        f"{m}.copy_(torch.maximum({m}, h[0, :, 0, -1]))",
        f"{m}.add_(h.sum((0, 2, 3)) / (h.shape[2] * h.shape[3]) * 0.1)",
    )
    read = d.choose(
        f"h = h - {m}[:, None, None]",
        f"h = h * torch.sigmoid({m})[:, None, None]",
        f"h = h + {m}.view(1, -1, 1, 1)",
    )
    return d.part(*((update, read) if d.maybe() else (read, update)))


@form("image", "state")
def shifted(d: Draw) -> Part:
    """Some channels of the image before."""
    high, wide, many = d.fixed(2), d.fixed(3), d.integer(1, 3)
    s = d.state(1, many, high, wide)
    return d.part(
        f"k@ = {s}.clone()",
        d.choose(f"{s}.copy_(h[:1, :{many}])", f"{s}.mul_(0.5).add_(h[-1:, -{many}:])"),
        d.choose(f"h = torch.cat([k@.expand(h.shape[0], -1, -1, -1), h[:, {many}:]], 1)",
                 "h = h + k@.sum(1, keepdim=True)"),
    )  # fmt: skip


@form("image", "state")
def ring(d: Draw) -> Part:
    """The last images' means in a ring that a counter turns."""
    c, rows = d.channels, d.integer(2, 3)
    s, n = d.state(rows, c), d.count()
    return d.part(
        f"{s}.index_copy_(0, {n} % {rows}, h[:1].mean((2, 3)))",
        f"{n}.add_(1)",
        d.choose(f"h = h + {s}.mean(0)[:, None, None]", f"h = h - {s}[0].view(-1, 1, 1)"),
        given=[f"{n}.clone()"] if d.maybe(0.3) else [],
    )


@form("image", "state")
def counter(d: Draw) -> Part:
    """Integers over calls."""
    n = d.count(d.choose("i64", "i32", "u8"), d.integer(0, 1))
    update, read = (
        f"{n}.add_({d.choose('1', '90', '2')})",
        d.choose(f"h = torch.where({n} % 2 == 0, h, h.flip(3))", f"h = h * ({n} % 3).float()"),
    )
    return d.part(*((update, read) if d.maybe() else (read, update)), given=[f"{n} + 1"])


@form("image", "alias")
def through_views(d: Draw) -> Part:
    """Writes through views of a buffer of channels."""
    c = d.channels
    s = d.state(c, 2, like="normal")
    row = "h[0, :, 0, 0]"
    writes = [
        f"{s}[:, 0] = {row}", f"{s}.T[1].mul_(0.5)", f"{s}.view(-1)[1::2].add_(0.25)",
        f"{s}[1:3].neg_()", f"{s}.flatten()[0] = 1", f"{s}.select(1, 1).copy_({row} * 0.1)",
        f"{s}[{s} > 1] = 0.5", f"{s}.mT[:, 1:3].fill_(0.75)", f"{s}[[0, 1]] = {s}[[1, 0]]",
    ]  # fmt: skip
    lines = d.rng.sample(writes, d.integer(1, 3))
    return d.part(*lines, f"h = h + {s}[:, {d.integer(0, 1)}, None, None]")


@form("image", "alias")
def returned(d: Draw) -> Part:
    """State, views and one value twice as outputs."""
    c = d.channels
    s = d.state(c)
    lines, given = d.rng.choice(
        [
            ([f"{s}.add_(h[0, :, 0, 0])", f"{s}.mul_(0.5)"], [s, s]),
            ([f"o@ = {s}[1:]", f"{s}.copy_(h[0, :, 1, 1])"], ["o@"]),
            (["o@ = h.permute(0, 2, 3, 1)"], ["o@"]),
            (["o@ = h.flatten(1)"], ["o@", "h"]),
            (["o@ = h[:, ::2]"], ["o@"]),
            (["o@ = h.contiguous(memory_format=torch.channels_last)"], ["o@"]),
        ]
    )
    return d.part(*lines, given=given)


@form("image", "alias")
def tied(d: Draw) -> Part:
    """One filter twice."""
    c = d.channels
    w = d.weight(c, c, 1, 1, share=0.6)
    return d.part(
        d.choose(
            f"h = F.conv2d(F.relu(F.conv2d(h, {w})), {w}.transpose(0, 1))",
            f"h = h + F.conv2d(h, {w}, {w}[0, :, 0, 0])",
            f"h = F.conv2d(h, {w}) + F.linear(h.permute(0, 2, 3, 1), {w}[:, :, 0, 0]).permute(0, 3, 1, 2)",
            f"h = F.conv_transpose2d(F.conv2d(h, {w}), {w})",
        )
    )


@form("image", "sizes")
def places(d: Draw) -> Part:
    """What depends on height and width, their parity, or how many pixels there are."""
    high, wide = d.size(2), d.size(3)
    return d.part(
        d.choose(
            "h = h + h.flip(3)",
            "h = h - h.mean((2, 3), keepdim=True)",
            f"h = torch.cat([h[..., {wide} // 2 :], h[..., : {wide} // 2]], 3)",
            f"h = F.interpolate(h[:, :, ::2, ::2], size=({high}, {wide}))",
            f"h = F.interpolate(F.avg_pool2d(h, 2), size=({high}, {wide}), mode='nearest')",
            f"h = F.pad(h, (1, 0, 0, 1))[:, :, 1:, :{wide}]",
            "h = F.pixel_shuffle(h.repeat(1, 4, 1, 1), 2)[:, :, ::2, ::2]",
            f"h = h + (torch.arange({wide}) / {wide})",
            f"h = h.flatten(2).cumsum(2).view(*h.shape) / ({high} * {wide})",
            "h = h.roll((1, 1), (2, 3))",
            f"h = F.interpolate(h, scale_factor=2.0, mode='nearest')[:, :, :{high}, :{wide}]",
            f"h = F.interpolate(h, scale_factor=2, mode='bilinear')[:, :, :{high}, :{wide}]",
            "h = F.pad(h, (1, 1, 1, 1), mode='reflect')[:, :, 1:-1, 1:-1]",
            "h = F.avg_pool2d(h, 3, 1, 1)",
            "h = F.max_pool2d(F.pad(h, (0, 1, 0, 1)), 2, 1)",
            "h = h + F.adaptive_avg_pool2d(h, 1)",
            f"h = h * ({high} * {wide}) ** -0.5",
            "h = h.flatten(2).mT.softmax(1).mT.view(*h.shape)",
            "h = h + F.pad(h[:, :, ::2], (0, 0, 0, h.shape[2] // 2))",
            "h = F.adaptive_avg_pool2d(h, 2).mean((2, 3), keepdim=True) + h",
        )
    )


@form("image", "sizes")
def windows(d: Draw) -> Part:
    """Windows of two columns: padded to a multiple, mixed, cut back."""
    return d.part(
        "p@ = F.pad(h, (0, (-h.shape[3]) % 2))",
        "q@ = p@.unflatten(3, (-1, 2))",
        d.choose("q@ = q@.flip(4)", "q@ = q@ - q@.mean(4, keepdim=True)", "q@ = q@.cumsum(4)"),
        "h = q@.flatten(3)[..., : h.shape[3]]",
    )


@form("image", "sizes")
def summaries(d: Draw) -> Part:
    return d.part(
        "o@ = "
        + d.choose(
            "h.mean((2, 3))", "h.amax(1)", "F.max_pool2d(h, 2)", "h[..., ::2]", "h.flatten(2)",
            "F.avg_pool2d(h, 2, ceil_mode=True)", "h.argmax(1)", "h.sum((1, 3))",
            "F.conv2d(h, torch.ones(2, h.shape[1], 3, 3) * 0.1, stride=2, padding=1)",
            "F.interpolate(h, size=(3, 5))", "h.var(1, correction=0)", "h[:, :, -1]",
        ),
        given=["o@"],
    )  # fmt: skip


@form("image", "layers")
def convolution(d: Draw) -> Part:
    c, k = d.channels, int(d.choose("1", "3", "3", "5"))
    groups = d.choose("1", "1", "2", f"{c}")
    w, bias = d.weight(c, c // int(groups), k, k), d.weight(c, scale=0.3)
    act = d.choose("F.relu(h)", "F.hardswish(h)", "h", "F.silu(h)", "h.clamp(0, 6)")
    by = d.integer(1, 2) if k > 1 else 1
    pad = by * (k // 2)
    stay = "h + " if d.maybe(0.3) else ""
    return d.part(f"h = {stay}F.conv2d(h, {w}, {bias}, 1, {pad}, {by}, {groups})", f"h = {act}")


@form("image", "layers")
def down_and_up(d: Draw) -> Part:
    c = d.channels
    w, u = d.weight(c, c, 3, 3), d.weight(c, c, 2, 2)
    return d.part(
        f"e@ = F.relu(F.conv2d(h, {w}, None, 2, 1))",
        f"h = h + F.conv_transpose2d(e@, {u}, None, 2)[:, :, : h.shape[2], : h.shape[3]]",
    )


@form("image", "layers")
def norm(d: Draw) -> Part:
    c = d.channels
    g, bias = d.weight(c, scale=0.7), d.weight(c, scale=0.3)
    bn = d.layer(f"nn.BatchNorm2d({c})") if d.maybe(0.4) else ""
    if bn:
        return d.part(f"h = {bn}(h)")
    return d.part(
        d.choose(
            f"h = F.group_norm(h, 2, {g}, {bias}, 0.1)",
            f"h = F.instance_norm(h, None, None, {g}, {bias}, eps=0.5)",
            f"h = F.layer_norm(h.permute(0, 2, 3, 1), ({c},), {g}, {bias}, 0.1).permute(0, 3, 1, 2)",
            "h = F.normalize(h, dim=1, eps=0.1)",
            "h = h.softmax(1)",
            "h = h - h.mean(1, keepdim=True)",
        )
    )


@form("image", "layers")
def excited(d: Draw) -> Part:
    c = d.channels
    w, u = d.weight(3, c, 1, 1), d.weight(c, 3, 1, 1)
    return d.part(
        f"a@ = F.conv2d(F.relu(F.conv2d(h.mean((2, 3), keepdim=True), {w})), {u})",
        d.choose("h = h * torch.sigmoid(a@)", "h = h * F.hardsigmoid(a@)"),
    )


@form("image", "control")
def branch(d: Draw) -> Part:
    n = d.count()
    yes, no = d.rng.choice([("p.flip(2)", "p * 2"), ("F.relu(p)", "-p"), ("p.tanh()", "p + 1")])
    return d.part(
        f"{n}.add_(1)", f"h = cond({n}.sum() % 2 == 0, lambda p: {yes}, lambda p: {no}, (h,))"
    )


@form("image", "control")
def mapped(d: Draw) -> Part:
    return d.part(
        "h = map_rows(lambda p: "
        + d.choose("p * 2 + 1", "torch.softmax(p, 0)", "p - p.mean((1, 2), keepdim=True)")
        + ", h)"
    )
