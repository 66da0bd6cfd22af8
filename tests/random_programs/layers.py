"""Convolutions, pools, norms, interpolation, recurrence."""

from .drawing import Draw
from .forms import UnsuitableError, form, operators


def _divisor(d: Draw, count: int) -> int:
    return d.rng.choice([n for n in range(1, count + 1) if count % n == 0])


def _each(d: Draw, low: int, high: int, rank: int) -> object:
    if d.maybe(0.6):
        return d.integer(low, high)
    return tuple(d.integer(low, high) for _ in range(rank))


def _image(d: Draw, low: int = 3, high: int = 5) -> tuple[str, int, int, str]:
    x = d.tensor(lambda t: t.is_floating_point() and low <= t.dim() <= high and t.numel())
    shape = d.space[x].shape
    return x, len(shape) - 2, shape[1], d.named_dtype(x)


@form("convolutions")
def convolution(d: Draw) -> str:
    x, rank, channels, dtype = _image(d)
    groups = _divisor(d, channels) if d.maybe(0.4) else 1
    out = groups * d.integer(1, 4)
    kernel = [d.integer(1, 3) for _ in range(rank)]
    scale = d.choose(0.3, 0.3, 1.0, 30.0, 1e-4)
    weight = d.constant((out, channels // groups, *kernel), dtype, scale=scale)
    bias = d.constant((out,), dtype) if d.maybe(0.7) else "None"
    padding = d.choose("'same'", "'valid'") if d.maybe(0.15) else _each(d, 0, 2, rank)
    stride = 1 if padding == "'same'" else _each(d, 1, 3, rank)
    return (
        f"F.conv{rank}d({x}, {weight}, {bias}, {stride}, {padding}, {_each(d, 1, 2, rank)},"
        f" {groups})"
    )


@form("convolutions")
def transposed(d: Draw) -> str:
    x, rank, channels, dtype = _image(d, 3, 4)
    groups = _divisor(d, channels) if d.maybe(0.3) else 1
    kernel = [d.integer(1, 4) for _ in range(rank)]
    weight = d.constant((channels, d.integer(1, 4), *kernel), dtype, scale=0.3)
    out = d.value(weight).shape[1] * groups
    bias = d.constant((out,), dtype) if d.maybe(0.7) else "None"
    stride = d.integer(1, 3)
    extra = d.integer(0, stride - 1)
    return (
        f"F.conv_transpose{rank}d({x}, {weight}, {bias}, {stride}, {_each(d, 0, 1, rank)}, {extra},"
        f" {groups}, {d.integer(1, 2)})"
    )


@form("pools")
def pool(d: Draw) -> str:
    x, rank, _, _ = _image(d)
    kernel = _each(d, 1, 3, rank)
    stride = d.choose("", f", stride={_each(d, 1, 3, rank)}")
    half = min(kernel) // 2 if isinstance(kernel, tuple) else int(str(kernel)) // 2
    padding = f", padding={d.integer(0, half)}"
    ceil = d.choose("", ", ceil_mode=True")
    if d.maybe():
        dilation = d.choose("", "", f", dilation={d.integer(1, 2)}")
        return f"F.max_pool{rank}d({x}, {kernel}{stride}{padding}{ceil}{dilation})"
    counted = d.choose("", ", count_include_pad=False")
    divisor = f", divisor_override={d.integer(1, 5)}" if rank > 1 and d.maybe(0.25) else ""
    return f"F.avg_pool{rank}d({x}, {kernel}{stride}{padding}{ceil}{counted}{divisor})"


@form("pools")
def adaptive(d: Draw) -> str:
    x, rank, _, _ = _image(d)
    kind = d.choose("avg", "avg", "max")
    kernel = d.integer(1, 3)
    if d.maybe(0.2) and rank < 3:
        return f"F.lp_pool{rank}d({x}.abs() + 0.1, {d.choose(1, 2, 3.0)}, {kernel})"
    return f"F.adaptive_{kind}_pool{rank}d({x}, {_each(d, 1, 4, rank)})"


@form("norms")
def norm(d: Draw) -> str:
    x = d.floating(1)
    shape = d.space[x].shape
    dtype = d.named_dtype(x)
    last = list(shape[len(shape) - d.integer(1, min(2, len(shape))) :])
    affine = d.maybe(0.7)
    weight = d.constant(last, dtype) if affine else "None"
    bias = d.constant(last, dtype) if affine and d.maybe(0.8) else "None"
    eps = d.choose(1e-5, 1e-6, 1e-2)
    texts = [
        f"F.layer_norm({x}, {last}, {weight}, {bias}, {eps})",
        f"F.rms_norm({x}, {last}, {weight}, {d.choose('None', eps)})",
        f"F.normalize({x}, p={d.choose(2.0, 1.0, 3.0)}, dim={d.axis(x)})",
        f"F.local_response_norm({x}, {d.integer(1, 4)})",
    ]
    if len(shape) >= 2 and shape[1]:
        groups = _divisor(d, shape[1])
        scale, shift = d.constant((shape[1],), dtype), d.constant((shape[1],), dtype)
        texts += [
            f"F.group_norm({x}, {groups}, {scale}, {shift}, {eps})",
            f"F.group_norm({x}, {groups})",
            f"F.instance_norm({x}, None, None, {scale}, {shift})",
            f"F.instance_norm({x})",
        ]
    return d.rng.choice(texts)


@form("interpolation")
def interpolated(d: Draw) -> str:
    x, rank, _, _ = _image(d)
    smooth = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[rank]
    mode = d.choose("nearest", "nearest-exact", "area", *smooth)
    sized = d.maybe()
    if sized:
        how = f"size={tuple(d.integer(1, 9) for _ in range(rank))}"
    else:
        how = f"scale_factor={d.choose(2, 0.5, 1.5, 3, 0.7, 1.0)}"
    corners = ""
    if mode in ("linear", "bilinear", "bicubic", "trilinear"):
        corners = d.choose("", ", align_corners=True", ", align_corners=False")
        corners += d.choose("", "", ", antialias=True") if rank == 2 else ""
    if not sized and mode != "area":
        corners += d.choose("", "", ", recompute_scale_factor=True")
    if "antialias" in corners and _width(d.space[x].shape[-1], how) == 1:
        raise UnsuitableError("torch's own result depends on how the operand lies in memory")
    return f"F.interpolate({x}, {how}, mode={mode!r}{corners})"


def _width(given: int, how: str) -> int:
    """The size that a resize gives the last axis."""
    number = how.rstrip(")").replace("=", ",").split(",")[-1]
    return int(number) if how.startswith("size") else int(given * float(number))


@form("interpolation")
def sampled(d: Draw) -> str:
    x, _, _, dtype = _image(d, 4, 4)
    batch = d.space[x].shape[0]
    grid = d.constant((batch, d.integer(1, 4), d.integer(1, 4), 2), dtype, scale=0.6)
    mode = d.choose("bilinear", "nearest", "bicubic")
    padding = d.choose("zeros", "border", "reflection")
    corners = d.maybe()
    return (
        f"F.grid_sample({x}, {grid}, mode={mode!r}, padding_mode={padding!r},"
        f" align_corners={corners})"
    )


@form("recurrence")
def recurrent(d: Draw) -> str:
    x = d.floating(3, 3)
    features = d.space[x].shape[-1]
    if not features or not d.space[x].numel():
        raise UnsuitableError
    kind = d.choose("LSTM", "GRU", "RNN")
    more = d.choose("", ", num_layers=2", ", bidirectional=True", ", bias=False")
    if kind == "LSTM" and d.maybe(0.15):
        more += ", proj_size=2"
    if kind == "RNN" and d.maybe():
        more += ", nonlinearity='relu'"
    made = d.hold(
        f"seeded(nn.{kind}({features}, {d.integer(3, 5)}, batch_first={d.maybe()}{more}), {d.seed},"
        f" {d.named_dtype(x)})",
        "m",
    )
    return (
        f"{made}({x})[{d.choose(0, 0, 1)}]"
        if kind != "LSTM"
        else d.choose(f"{made}({x})[0]", f"{made}({x})[1][0]", f"{made}({x})[1][1]")
    )


@form("recurrence")
def cell(d: Draw) -> str:
    x = d.floating(2, 2)
    shape = d.space[x].shape
    if not all(shape):
        raise UnsuitableError
    kind = d.choose("LSTM", "GRU", "RNN")
    dtype = d.named_dtype(x)
    made = d.hold(f"seeded(nn.{kind}Cell({shape[1]}, 4), {d.seed}, {dtype})", "m")
    state = d.constant((shape[0], 4), dtype)
    if kind == "LSTM":
        return f"{made}({x}, ({state}, {state} * 0.5))[{d.integer(0, 1)}]"
    return f"{made}({x}, {state})"


operators(
    globals(),
    """
convolutions: x, rank, channels, dtype = _image(d, 3, 4)
: mode = d.choose("zeros", "reflect", "replicate", "circular")
: made = d.hold(f'seeded(nn.Conv{rank}d({channels}, {d.integer(1, 5)}, {d.integer(1, 3)},
+ stride={d.integer(1, 2)}, padding=1, padding_mode={mode!r}, bias={d.maybe(0.7)}), {d.seed},
+ {dtype})', 'm')
    {made}({x})
convolutions: x, rank, channels, _ = _image(d, 3, 4)
: w = d.tensor(lambda t: t.dim() == rank + 2 and t.shape[1] == channels and
+ (t.dtype == d.space[x].dtype))
    F.conv{rank}d({x}, {w}, None, 1, {d.integer(0, 2)})
pools: x, rank, _, _ = _image(d, 3, 4); kernel = d.integer(1, 3)
: pooled = f"F.max_pool{rank}d({x}, {kernel}, return_indices=True)"
    {pooled}[1]  F.max_unpool{rank}d(*{pooled}, {kernel}, output_size={x}.shape)
    F.adaptive_max_pool{rank}d({x}, {d.integer(1, 3)}, return_indices=True)[1]
    F.avg_pool{rank}d({x}, {kernel}, 1, ceil_mode=True) - {x}.mean()
norms: x = d.tensor(lambda t: t.is_floating_point() and 2 <= t.dim() <= 5)
: channels = d.space[x].shape[1]; dtype = d.named_dtype(x)
: weight = d.constant((channels,), dtype) if d.maybe(0.7) else "None"; eps = d.choose(1e-5, 1e-3)
    F.batch_norm({x}, None, None, {weight}, None, True, 0.1, {eps})
norms: x = d.tensor(lambda t: t.is_floating_point() and 2 <= t.dim() <= 5)
: channels = d.space[x].shape[1]; dtype = "f32" if d.maybe(0.15) else d.named_dtype(x)
: spread = d.choose("scale=0.5, mean=1.0", "scale=1e-6", "scale=100.0", "scale=0.0")
: mean = d.constant((channels,), dtype, scale=d.choose(1.0, 50.0))
: variance = d.hold(f"parameter(normal({d.seed}, ({channels},), {dtype}, {spread}).abs())")
: weight = d.constant((channels,), dtype) if d.maybe(0.7) else "None"
: bias = d.constant((channels,), dtype) if d.maybe(0.7) else "None"
: eps = d.choose(1e-5, 1e-3, 0.1)
    F.batch_norm({x}, {mean}, {variance}, {weight}, {bias}, False, 0.1, {eps})
norms: x, rank, channels, dtype = _image(d, 3, 4)
: weight = d.constant((4, channels, *[1] * rank), dtype)
: bias = d.constant((4,), dtype) if d.maybe() else "None"
: mean, scale = d.constant((4,), dtype), d.constant((4,), dtype)
: variance = d.hold(f"parameter(normal({d.seed}, (4,), {dtype}, {d.choose(1.0, 1e-6)}).abs())")
: after = d.choose("", "F.relu", "F.relu6", "F.hardswish")
: text = f"F.batch_norm(F.conv{rank}d({x}, {weight}, {bias}), {mean}, {variance}, {scale})"
    {after}({text})
recurrence: x = d.floating(3, 3); shape, dtype = d.space[x].shape, d.named_dtype(x)
: d.require(all(shape)); kind = d.choose("LSTM", "GRU", "RNN")
: made = d.hold(f'seeded(nn.{kind}({shape[2]}, 3, batch_first=True), {d.seed}, {dtype})', 'm')
: state = f"({x}[:, 0, :1].expand(-1, 3)[None] * 0.5).contiguous()"
    {made}({x}, {f'({state}, {state})' if kind == 'LSTM' else state})[0]
""",
)
