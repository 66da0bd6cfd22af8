"""The defects that were measured once, each as a class: the one program, and what is like it.

`CLASSES` gives statements; on every target each is refused in words or gives what eager gives. In a
statement `given` names its own inputs, `HELD<…>` is a parameter and `INPUT<…>` one input more.
"""

import re
from collections.abc import Iterator
from itertools import product

from .source import Program

INPUTS = {
    "x0": "normal(0, (1, 3, 9, 7), f32)",
    "x1": "normal(1, (2, 6, 8), f32)",
    "x2": "normal(2, (2, 6, 8), f32)",
}


def program_of(text: str) -> Program:
    """A statement, or several on lines, as a program of one output, `v0`."""
    text, _, given = text.partition(" given ")
    inputs = dict(INPUTS)
    if given:
        inputs = {f"x{index}": one for index, one in enumerate(given.split("; "))}
    held: dict[str, str] = {}

    def name_of(found: re.Match[str]) -> str:
        kind, value = found.groups()
        if kind == "INPUT":
            name = f"x{len(inputs)}"
            inputs[name] = value
            return name
        if "nn." not in value:
            value = f"parameter({value})"
        return held.setdefault(value, f"self.{'m' if 'nn.' in value else 'c'}{len(held)}")

    text = re.sub(r"(INPUT|HELD)<([^<>]*)>", name_of, text)
    *before, last = text.split("\n")
    statements = (*before, f"v{len(before)} = {last}")
    pairs = tuple((name, value) for value, name in held.items())
    outputs = (f"v{len(before)}",)
    return Program.of(tuple(inputs.items()), *statements, outputs=outputs, held=pairs).tidy()


def resizes() -> Iterator[str]:
    """torch steps by 1 / scale where a scale is stated, and by in / out where it is to be so."""
    modes = ("nearest", "nearest-exact", "bilinear", "bicubic")
    for mode, scale in product(modes, (0.5, 1.5, 2.3)):
        corners = ("", ", align_corners=True") if mode.startswith("bi") else ("",)
        for more in (*corners, ", recompute_scale_factor=True"):
            yield f"F.interpolate(x0, scale_factor=({scale}, {scale} + 0.2), mode={mode!r}{more})"
    for mode, size in product(("nearest", "bilinear", "area"), ("(1, 1)", "(4, 13)", "(18, 14)")):
        yield f"F.interpolate(x0, size={size}, mode={mode!r})"
    yield "F.interpolate(x0, scale_factor=0.5, mode='bilinear', antialias=True)"
    yield "F.interpolate(x1, scale_factor=0.7, mode='linear')"
    yield "F.interpolate(x1, scale_factor=1.6)"
    yield "F.interpolate(x0[None], scale_factor=0.6, mode='trilinear')"


def masks() -> Iterator[str]:
    """Attention whose keys are all or partly masked away: by flags, by −∞, row by row."""
    for keys, dtype, place in product((1, 2, 5), ("f32", "f16"), ("INPUT", "HELD")):
        drawn = "; ".join(
            f"normal({seed}, (1, 2, {count}, 4), {dtype})"
            for seed, count in ((3, 3), (4, keys), (5, keys))
        )
        for mask in (
            f"flags(6, (3, {keys})) & False",
            f"flags(6, (3, {keys}))",
            f"torch.full((3, {keys}), -torch.inf, dtype={dtype})",
            f"torch.where(flags(6, (3, {keys})), -torch.inf, 0.0).to({dtype})",
            f"flags(7, (1, 1, 1, {keys}))",
        ):
            yield f"F.scaled_dot_product_attention(x0, x1, x2, {place}<{mask}>) given {drawn}"
    yield "torch.softmax(x1.masked_fill(x2 * 0 == 0, -torch.inf), -1)"
    yield "torch.softmax(x1.masked_fill(x1 > 0, -torch.inf), -1) @ x2.mT"


LIMITS = {"i8": (-128, 128), "i16": (-(1 << 15), 1 << 15), "u8": (0, 256)}


def remainders() -> Iterator[str]:
    """Whole division and remainder of signed and extreme numbers, and under what reads them."""
    forms = ("x0 % {}", "torch.fmod(x0, {})", "x0 // {}", "torch.remainder(x0, {})")
    whole = (*forms, "torch.div(x0, {}, rounding_mode='trunc')", "torch.floor_divide(x0, {})")
    for dtype, form in product(("i8", "i16", "i32", "i64", "u8"), whole):
        low, high = LIMITS.get(dtype, (-(1 << 31), 1 << 31))
        x = f"integers(0, (3, 8), {low}, {high}, {dtype})"
        y = f"integers(1, (8,), 1, 7, {dtype})"
        yield form.format("5") + f" given {x}"
        yield form.format("x1") + f" given {x}; {y}"
        if dtype != "u8":
            yield form.format("(-3)") + f" given {x}"
            yield form.format("x1") + f" given {x}; {y} * (flags(2, (8,)).to({dtype}) * 2 - 1)"
    for form, other in product(forms, ("3", "-2.5", "x1")):
        yield form.format(other) + " given normal(0, (3, 8), f32, 10.0); normal(1, (8,), f32)"
    for one, other in product(("i8", "i32", "i64"), ("i16", "i32", "i64")):
        given = f"integers(0, (7,), -9, 9, {one}); integers(1, (7,), 1, 9, {other})"
        for form in forms:
            yield form.format("x1") + f" given {given}"
    yield "x0 % x1 given integers(0, (7,), -9, 9, i8); normal(1, (7,), f32, 3.0)"
    yield "F.one_hot(x0 % 4, 4) given integers(0, (7,), -9, 9)"
    yield "F.embedding(x0 % 4, x1) given integers(0, (7,), -9, 9); normal(0, (4, 3), f32)"
    yield "x0[x1 % 3] given normal(0, (3, 4), f32); integers(0, (7,), -9, 9)"
    yield "7 % x0 given integers(0, (7,), 1, 9)"


def zeros() -> Iterator[str]:
    """What puts a zero of either sign, or compares with one."""
    forms = (
        "F.threshold(x1, 0.5, {})",
        "x1.clamp(min={})",
        "x1.masked_fill(x2 > 0, {})",
        "torch.where(x1 > 0, {}, x2)",
        "F.pad(x1, (1, 2), value={})",
        "torch.full_like(x1, {}) + x1 * 0",
        "x1 + {}",
        "x1 * {}",
        "x1 - {}",
        "torch.maximum(x1, torch.full((8,), {}))",
        "torch.cat([x1, torch.full((2, 6, 1), {})], -1)",
    )
    for form, zero in product(forms, ("0.0", "-0.0")):
        yield form.format(zero)
        yield f"1 / ({form.format(zero)}).sign()"


SHAPES = {"()": 0, "(0,)": 1, "(1,)": 1, "(2, 0, 3)": 3, "(1, 1)": 2}
ALONG = (
    *("x0.sum({})", "x0.mean({})", "x0.amax({})", "x0.amin({})", "x0.argmax({})", "x0.argmin({})"),
    *("x0.prod({})", "x0.var({}, correction=0)", "x0.std({}, correction=0)", "x0.logsumexp({})"),
    *("x0.softmax({})", "x0.log_softmax({})", "x0.cumsum({})", "x0.cumprod({})", "x0.norm(2, {})"),
    *("x0.max({})[0]", "x0.min({})[0]", "x0.sort({})[0]", "x0.topk(1, {})[0]", "x0.any({})"),
    *("x0.all({})", "x0.nansum({})", "x0.median({})[0]", "F.normalize(x0, dim={})", "x0.flip({})"),
    *("x0.count_nonzero({})", "x0.unsqueeze({}).squeeze({})", "x0.cummax({})[0]", "x0.argsort({})"),
    *("x0.square().mean({}).sqrt()", "x0.roll(1, {})", "x0.diff(dim={})", "x0.unbind({})[-1]"),
    *("torch.linalg.vector_norm(x0, 3, {})", "x0.logcumsumexp({})", "x0.narrow({}, 0, 1)"),
    *("x0.index_select({}, torch.zeros(1, dtype=i64))", "x0.repeat_interleave(2, {})"),
    *("F.cosine_similarity(x0, x1, {})", "torch.stack([x0, x1], {})", "x0.tensor_split(2, {})[0]"),
)
WHOLE = (
    *("F.pairwise_distance(x0, x1)", "torch.dist(x0, x1)", "F.mse_loss(x0, x1)", "x0.norm()"),
    *("F.l1_loss(x0, x1)", "torch.cat([x0.reshape(-1), x1.reshape(-1)])", "x0 @ x1.mT", "x0.std()"),
    *("torch.minimum(x0, x1)", "torch.hypot(x0, x1)", "torch.where(x0 > x1, x0, x1)", "x0.sum()"),
    *("F.smooth_l1_loss(x0, x1)", "torch.outer(x0.reshape(-1), x1.reshape(-1))", "x0.mean()"),
    *("torch.dot(x0.reshape(-1), x1.reshape(-1))", "torch.addcmul(x0, x0, x1)", "x0.max()"),
    *("torch.lerp(x0, x1, 0.3)", "F.kl_div(x0, x1.abs())", "x0.argmax()", "x0.reshape(-1)"),
    *("x0 * 2 + 1", "-x0", "x0.abs().sqrt()", "x0.clone().fill_(3)", "x0.exp()", "x0[None]"),
    *("F.gelu(x0)", "F.softmax(x0, -1)", "F.layer_norm(x0, x0.shape[-1:])", "x0.flatten()"),
    *("x0.permute(*reversed(range(x0.dim())))", "x0.numel() + x0.sum()", "x0.expand_as(x1)"),
)


def degenerate() -> Iterator[str]:
    """0-d, empty and single tensors of every dtype, reduced, moved and compared."""
    for (shape, rank), dtype in product(SHAPES.items(), ("f32", "f64", "i64")):
        given = "; ".join(f"normal({seed}, {shape}, {dtype}, 3.0)" for seed in (0, 1))
        for form, axis in product(ALONG, {0, rank - 1}):
            yield f"{form.format(axis, axis)} given {given}"
        yield from (f"{form} given {given}" for form in WHOLE)


def paddings() -> Iterator[str]:
    """Pads that crop, down to nothing, in every mode; empty parts under every kind of layer."""
    pads = ("(-3, -4)", "(-3, 2)", "(1, 2, -4, -5)", "(1, 1, -9, 0)", "(2, -1, 3, 3)", "(-7, 0)")
    for mode, pad in product(("constant", "reflect", "replicate", "circular"), pads):
        yield f"F.pad(x0, {pad}, {mode!r})"
        if pad.count(",") == 1:
            yield f"F.pad(x1, {pad}, {mode!r})"
    yield from (
        *("x1[:, 3:3]", "x1[..., 8:]", "x1[:, ::7]", "x1[:0] + 1", "x1.narrow(1, 6, 0)"),
        *("torch.cat([x1[:, :0], x1], 1)", "torch.cat([x1[:0], x2[:0]])", "x1[:, 10:]"),
        *("x1.split([0, 8], -1)[0]", "x1.split([0, 8], -1)[1]", "x1.repeat(1, 0, 1)"),
        *("x1.expand(3, 0, 2, 6, 8)", "x1.unfold(1, 6, 3)", "F.unfold(x0, 9, padding=1)"),
        *("x1[:, torch.zeros(0, dtype=i64)]", "F.conv2d(x0[:0], HELD<normal(0, (4, 3, 3, 3))>)"),
        *("x1[..., :0] @ x2[..., :0].mT", "F.linear(x1[:, :0], HELD<normal(0, (4, 8))>)"),
        *("F.layer_norm(x1[:0], (8,))", "F.max_pool2d(x0[:0], 2)", "F.softmax(x1[:, :0], 1)"),
        *("x1.new_zeros(0).sum() + x1", "x1.cumsum(0)[2:]", "x1.as_strided((0, 3), (1, 1))"),
    )


MIXED = (
    ("x0", "nn.Conv2d(3, 4, 3)", "nn.BatchNorm2d(4)"),
    ("x0", "nn.ConvTranspose2d(3, 4, 3)", "nn.GroupNorm(2, 4)"),
    ("x0", "nn.Conv2d(3, 3, 3, groups=3)", "nn.InstanceNorm2d(3, affine=True)"),
    ("x0", "nn.Identity()", "nn.BatchNorm2d(3)"),
    ("x1", "nn.Linear(8, 4)", "nn.LayerNorm(4)"),
    ("x1", "nn.Linear(8, 4, bias=False)", "nn.BatchNorm1d(6)"),
    ("x1", "nn.Conv1d(6, 4, 3)", "nn.GroupNorm(2, 4)"),
    ("x1", "nn.Identity()", "nn.RMSNorm(8)"),
    ("x1", "nn.Linear(8, 8)", "nn.RMSNorm(8)"),
)


def mixed_norms() -> Iterator[str]:
    """Norms with parameters of one type on values of another, alone and behind layers."""
    types = ("f16", "bf16", "f32", "f64")
    for (x, layer, norm), held, other in product(MIXED, types, types):
        yield f"HELD<seeded({norm}, 9, {other})>(HELD<seeded({layer}, 3, {held})>({x}.to({held})))"


MOVEMENTS = (
    *("{}", "{}.roll(1, 1)", "{}.mT.contiguous().mT", "{}.reshape(2, 2, 3, 8)", "{}[:, 1:4]"),
    *("{}.flip(1)", "F.pad({}, (0, 0, 1, 1))", "{}.unsqueeze(0)", "{}.permute(1, 0, 2)"),
    *("torch.cat([{}, x2], 1)", "{}.relu()"),
)


def reader_orders() -> Iterator[str]:
    """A norm that layers read as it is and through movements, in either order."""
    norms = ("nn.LayerNorm(8)", "nn.RMSNorm(8)", "nn.BatchNorm1d(6)")
    for norm, first, second in product(norms, MOVEMENTS, MOVEMENTS):
        if first != second:
            yield (
                f"v0 = HELD<seeded({norm}, 3)>(x1)\n"
                f"v1 = HELD<seeded(nn.Linear(8, 5), 4)>({first.format('v0')})\n"
                f"v2 = HELD<seeded(nn.Linear(8, 3), 5)>({second.format('v0')})\n"
                "(v1.sum() + v2.sum()) * 0.1 + v1[..., :3].sum(-1)"
            )


IMAGE, KERNEL = "HELD<normal(0, (1, 4, 6, 5), f32)>", "normal(2, (4, 4, 3, 3), f32)"
ROWS, SQUARE = "HELD<normal(1, (3, 8), f32)>", "normal(1, (8, 8), f32)"
EXPANDED = "normal(1, (8, 1), f32).expand(8, 8)"
OF_AN_IMAGE = (
    *("F.conv1d({}[0], {}[0])", "F.conv3d({}[None], {}[None])", "F.max_pool2d({}, 2)"),
    *("F.avg_pool2d({}, 2)", "F.group_norm({}, 2)", "F.instance_norm({})", "F.gelu({})"),
    *("F.batch_norm({}, HELD<normal(5, (4,))>, HELD<normal(6, (4,)).abs()>)", "{}.cumsum(1)"),
    *("F.interpolate({}, scale_factor=2.0, mode='bilinear')", "F.pixel_shuffle({}, 2)"),
    *("F.layer_norm({}, (5,))", "F.unfold({}, 2)", "F.prelu({}, HELD<normal(7, (4,))>)"),
    *("F.pad({}, (1, 1, 0, 0), 'reflect')", "F.adaptive_avg_pool2d({}, 3)", "{}.sort(1)[0]"),
    *("{}.flip(1)", "{}.var((2, 3))", "{}.softmax(1)", "F.glu({}, 1)", "{}.max(1)[1] * 1.0"),
    *("F.grid_sample({}, HELD<normal(8, (1, 3, 3, 2))>)", "F.local_response_norm({}, 2)"),
    *("F.fold(F.unfold({}, 2), (6, 5), 2)", "{}.topk(2, 1)[0]"),
    "torch.einsum('nchw,nchv->hv', {}, {})",
)
OF_ROWS = (
    *("F.nll_loss({}.log_softmax(1), torch.tensor([1, 2, 0]))", "torch.cdist({}, {})"),
    *("F.cross_entropy({}, torch.tensor([1, 2, 0]))", "torch.kron({}, {})", "{}.tril()"),
    *("{}.diagonal()", "torch.linalg.norm({})", "{}.std(1)", "torch.histc({})", "{}.nonzero()"),
    *("torch.bincount(torch.tensor([1, 2]))", "torch.linalg.inv({}[:, :3])", "{}.to(f16)"),
    *("torch.fft.rfft({}).abs()", "{}.view(i32)", "{}.gather(1, torch.zeros(2, 2, dtype=i64))"),
    *("F.embedding(torch.tensor([0, 2, 1]), {})", "{}.index_select(0, torch.tensor([1]))"),
    *("F.bilinear({}, {}, HELD<normal(4, (2, 8, 8))>)", "torch.outer({}[0], {}[0])", "{} * {}[:1]"),
    "F.embedding_bag(torch.tensor([0, 2, 1, 0]), {}, torch.tensor([0, 2]))",
    "F.embedding_bag(torch.tensor([[0, 2], [1, 0]]), {}, mode='max')",
)


def constants() -> Iterator[str]:
    """Everything of constants alone: convolutions, products, look-ups, pools, with any strides."""
    flat = "normal(3, (1, 4, 1, 1), f32).expand(4, 4, 3, 3)"
    kernels = (KERNEL, flat, f"{KERNEL}.mT", f"{KERNEL}.flip(2)[:, :, ::2]")
    convolutions = (
        *("F.conv2d({}, {})", "F.conv2d({}, {}, stride=2, padding=1)"),
        *("F.conv_transpose2d({}, {})", "F.conv2d({}, {}[:, :1], groups=4)"),
    )
    for kernel, form in product(kernels, convolutions):
        yield f"{form.format(IMAGE, f'HELD<{kernel}>')} + x0.sum()"
        yield form.format("x0.repeat(1, 2, 1, 1)[:, :4]", f"HELD<{kernel}>")
    yield from (f"{form.format(IMAGE, IMAGE)}.sum() + x1" for form in OF_AN_IMAGE)
    yield from (f"{form.format(ROWS, ROWS)}.sum() + x1" for form in OF_ROWS)
    scale, shift = "HELD<normal(9, (8,))>", "HELD<normal(10, (8,))>"
    for held in (SQUARE, EXPANDED, f"({EXPANDED}).mT", f"{SQUARE}[:, :1].expand(8, 8)"):
        weight = f"HELD<{held}>"
        yield f"F.linear({ROWS}, {weight}).sum() + x1"
        yield f"({ROWS} @ {weight}).sum() + x1"
        yield f"torch.bmm({ROWS}[None], {weight}[None]).sum() + x1"
        yield f"F.linear(x1, {weight})"
        yield f"F.linear(x1 * 2.0, {weight}) * 0.5"
        yield f"F.linear(F.layer_norm(x1, (8,), {scale}, {shift}), {weight})"
        yield f"x1 @ {weight}.T"


CLASSES = {
    made.__name__: made
    for made in (
        *(resizes, masks, remainders, zeros, degenerate, paddings),
        *(mixed_norms, reader_orders, constants),
    )
}
