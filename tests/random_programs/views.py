"""Views and movement of data."""

from .drawing import Draw
from .forms import form, operators


def _slice(d: Draw, size: int) -> str:
    step = d.choose("", "", ":2", ":3")
    start = d.choose("", str(d.integer(0, max(size - 1, 0))), str(-d.integer(1, max(size, 1))))
    end = d.choose("", str(d.integer(0, size)), str(-d.integer(1, max(size, 1))), "100")
    return f"{start}:{end}{step}"


@form("views")
def slicing(d: Draw) -> str:
    x = d.ranked(1)
    shape = d.space[x].shape
    parts: list[str] = []
    for size in shape[: d.integer(1, len(shape))]:
        kind = d.rng.random()
        if kind < 0.55:
            parts.append(_slice(d, size))
        elif kind < 0.75 and size:
            parts.append(str(d.integer(-size, size - 1)))
        elif kind < 0.85:
            parts.append("None, :")
        else:
            parts.append(":")
    if d.maybe(0.1):
        parts = ["...", _slice(d, shape[-1])]
    return f"{x}[{', '.join(parts)}]"


def _factors(d: Draw, count: int) -> list[int]:
    found: list[int] = []
    while count > 1 and len(found) < 4:
        divisors = [n for n in range(1, count + 1) if count % n == 0]
        taken = d.rng.choice(divisors)
        found.append(taken)
        count //= taken
    return [*found, count] if count > 1 or d.maybe(0.3) or not found else found


@form("views")
def reshape(d: Draw) -> str:
    x = d.ranked()
    count = d.space[x].numel()
    sizes = _factors(d, count) if count else [0, 3]
    if d.varying:
        rest = d.space[x].dim()
        return f"{x}.reshape({d.size(x, 0)}, -1)" if rest else f"{x}.reshape(1, 1)"
    if d.maybe(0.3) and count:
        sizes[d.rng.randrange(len(sizes))] = -1
    return f"{x}.{d.choose('reshape', 'reshape', 'view')}({', '.join(map(str, sizes))})"


@form("views")
def ranks(d: Draw) -> str:
    x = d.ranked()
    rank = d.space[x].dim()
    return d.choose(
        f"{x}.unsqueeze({d.integer(-rank - 1, rank)})",
        f"{x}.squeeze()",
        f"{x}.squeeze({d.axis(x)})" if rank else f"{x}.squeeze()",
        f"{x}.flatten({d.integer(0, rank // 2) if rank else 0})",
        f"torch.atleast_3d({x})",
        f"{x}.ravel()",
    )


@form("views")
def split_flatten(d: Draw) -> str:
    x = d.ranked(1)
    axis = d.axis(x, lambda s: s > 1)
    size = d.space[x].shape[axis]
    count = d.integer(2, 3)
    which = d.integer(0, 1)
    divisor = next((n for n in (2, 3, 5, 7) if size % n == 0), size)
    texts = [
        f"{x}.chunk({count}, {axis})[{which}]",
        f"{x}.split({max(1, size // 2)}, {axis})[{which}]",
        f"{x}.unbind({axis})[{which}]",
        f"{x}.split([1, {size - 1}], {axis})[{which}]",
        f"torch.tensor_split({x}, {count}, {axis})[{which}]",
        f"{x}.narrow({axis}, {d.integer(0, size - 1)}, 1)",
        f"{x}.select({axis}, {d.integer(-size, size - 1)})",
    ]
    if not d.varying:
        texts.append(f"{x}.unflatten({axis}, ({divisor}, {size // divisor}))")
    return d.rng.choice(texts)


@form("views")
def repeated(d: Draw) -> str:
    x = d.ranked()
    shape = d.space[x].shape
    sizes = ["-1" if s != 1 else str(d.integer(1, 4)) for s in shape]
    times = [str(d.integer(1, 2)) for _ in shape] or ["2"]
    texts = [
        f"{x}.expand({', '.join([str(d.integer(1, 3)), *sizes])})",
        f"{x}.repeat({', '.join(times)})",
        f"torch.tile({x}, ({d.integer(1, 2)}, 2))",
    ]
    if sizes:
        texts += [f"{x}.expand({', '.join(sizes)})"]
        texts += [f"{x}.repeat_interleave({d.integer(1, 3)}, {d.axis(x)})"]
    return d.rng.choice(texts)


@form("views")
def turned(d: Draw) -> str:
    x = d.ranked(1)
    axis = d.axis(x)
    texts = [
        f"{x}.roll({d.integer(-5, 5)}, {axis})",
        f"{x}.roll({d.integer(-5, 5)})",
        f"{x}.flip({list({a % d.space[x].dim() for a in d.axes(x)})})",
    ]
    if d.space[x].dim() >= 2:
        texts += [
            f"{x}.diagonal({d.integer(-2, 2)}, 0, -1)",
            f"torch.rot90({x}, {d.integer(-1, 3)}, (0, -1))",
            f"{x}.{d.choose('tril', 'triu')}({d.integer(-2, 2)})",
            f"{x}.mT",
        ]
    else:
        texts.append(f"torch.diag_embed({x}, {d.integer(-1, 1)})")
    return d.rng.choice(texts)


@form("views")
def joined(d: Draw) -> str:
    x = d.ranked(1)
    axis = d.axis(x)
    shape = list(d.space[x].shape)
    rest = shape[: axis % len(shape)] + shape[axis % len(shape) + 1 :]

    def suits(t: object) -> bool:
        other = list(t.shape)  # type: ignore[attr-defined]
        at = axis % len(shape)
        return len(other) == len(shape) and other[:at] + other[at + 1 :] == rest

    y = d.tensor(suits)
    z = d.tensor(suits)
    return d.choose(
        f"torch.cat([{x}, {y}], {axis})",
        f"torch.cat([{x}, {y}, {z}], {axis})",
        f"torch.stack([{x}, {x}], {d.integer(-1, len(shape))})",
        f"torch.hstack([{x}, {y}])",
        f"torch.cat([{x}, {x}[:0], {x}], 0)",
    )


@form("padding")
def padded(d: Draw) -> str:
    x = d.ranked(1)
    rank = d.space[x].dim()
    count = d.integer(1, min(rank, 3))
    amounts = [d.integer(-2, 3) if d.maybe(0.3) else d.integer(0, 3) for _ in range(2 * count)]
    mode = d.choose("constant", "constant", "reflect", "replicate", "circular")
    if mode == "constant":
        value = d.choose("", "", ", value=1", ", value=-2.5", ", value=float('-inf')")
        return f"F.pad({x}, {amounts}{value})"
    return f"F.pad({x}, {amounts}, mode={mode!r})"


operators(
    globals(),
    """
views: x = d.ranked(1); order = d.rng.sample(range(rank := d.space[x].dim()), rank)
    {x}.permute({tuple(order)})  {x}.transpose({d.axis(x)}, {d.axis(x)})
    {x}.movedim({d.axis(x)}, {d.axis(x)})  {x}.permute({tuple(order)}).contiguous()
views: x = d.ranked(1); axis = d.axis(x, lambda s: s > 1); size = d.space[x].shape[axis]
: window = d.integer(1, size)
    {x}.unfold({axis}, {window}, {d.integer(1, 3)})
views: x = d.tensor(lambda t: t.dim() >= 1 and t.is_contiguous() and t.numel() > 3)
: d.require(not (d.varying)); count = d.space[x].numel()
: rows, columns = d.integer(1, 3), d.integer(1, 3)
: outer, inner = d.integer(0, 3), d.integer(1, 2); offset = d.integer(0, 1)
: d.require(not (offset + (rows - 1) * outer + (columns - 1) * inner >= count))
    torch.as_strided({x}, ({rows}, {columns}), ({outer}, {inner}), {offset})
padding: x = d.floating(4, 4)
: kernel, stride, padding = d.integer(1, 3), d.integer(1, 2), d.integer(0, 1)
    F.unfold({x}, {kernel}, padding={padding}, stride={stride}, dilation={d.integer(1, 2)})
    F.pixel_shuffle({x}, 2)  F.pixel_unshuffle({x}, {d.integer(1, 3)})
    F.channel_shuffle({x}, {d.choose(1, 2, 3)})  F.unfold({x}, 2, stride=2).contiguous()
""",
)
