"""Index, gather, scatter; sort and the like."""

from .drawing import Draw
from .forms import UnsuitableError, form, operators


def _indices(d: Draw, size: int, shape: tuple[int, ...], negative: bool = False) -> str:
    if not size:
        raise UnsuitableError
    low = -size if negative and d.maybe(0.3) else 0
    dtype = d.choose("i64", "i64", "i64", "i32") if negative else "i64"
    return d.hold(f"nn.Buffer(integers({d.seed}, {shape}, {low}, {size}, {dtype}))")


@form("indexing")
def indexed(d: Draw) -> str:
    x = d.ranked(1)
    shape = d.space[x].shape
    axis = d.integer(0, len(shape) - 1)
    index = _indices(d, shape[axis], (d.integer(1, 4),), True)
    before = ":, " * axis
    texts = [
        f"{x}[{before}{index}]",
        f"{x}.index_select({axis}, {index}.abs() % {max(shape[axis], 1)})",
        f"{x}[{before}{index}.reshape(-1, 1)]",
        f"torch.take({x}, {index}.long())",
        f"{x}[{before}[0, -1, 0]]",
    ]
    if len(shape) > 1:
        other = _indices(d, shape[1], (1,), True)
        texts += [f"{x}[{_indices(d, shape[0], (3,), True)}, {other}]"] * 2
        texts += [f"{x}[{_indices(d, shape[0], (2, 1))}, ..., {_indices(d, shape[-1], (3,))}]"]
    return d.rng.choice(texts)


operators(
    globals(),
    """
indexing: x = d.ranked(1); shape = list(d.space[x].shape); axis = d.axis(x)
: wanted = [d.integer(1, s) if s else 0 for s in shape]
: index = _indices(d, shape[axis], tuple(wanted))
    torch.gather({x}, {axis}, {index})
    torch.take_along_dim({x}, {index}[{', '.join([':1'] * len(shape))}], {axis})
indexing: x = d.ranked(1); shape = list(d.space[x].shape); axis = d.axis(x); size = shape[axis]
: d.require(all(shape)); order = d.hold(f"nn.Buffer(permuted({d.seed}, {size}))")
: spread = [1] * len(shape); spread[axis] = size
: index = f"{order}.reshape({tuple(spread)}).expand({tuple(shape)})"
: source = d.constant(shape, d.named_dtype(x)); some = _indices(d, size, (d.integer(1, 3),))
: rows = list(shape)
: rows[axis] = d.space["self"].get_buffer(some.removeprefix("self.")).shape[0]
: added = d.constant(rows, d.named_dtype(x))
: repeated = d.hold(f"nn.Buffer(integers({d.seed}, {tuple(shape)}, 0, {size}))")
: reduce, kept = d.choose("amax", "amin", "sum", "prod", "mean"), d.maybe()
    {x}.scatter_reduce({axis}, {repeated}, {source}, {reduce!r}, include_self={kept})
    {x}.scatter_reduce({axis}, {repeated}, {x}, {reduce!r}, include_self={kept})
    {x}.index_reduce({axis}, {some}, {added}, {d.choose('amax', 'amin', 'prod')!r})
    {x}.scatter_add({axis}, {repeated}, {source})  {x}.scatter({axis}, {index}, {source})
    {x}.scatter({axis}, {index}, {d.choose(1, 2.5)})  {x}.scatter_add({axis}, {index}, {source})
    {x}.scatter_reduce({axis}, {index}, {source}, {d.choose('amax', 'sum', 'amin')!r})
    {x}.index_add({axis}, {some}, {added})  {x}.index_fill({axis}, {some}, 2)
    {x}.index_copy({axis}, {order}, {source})
    torch.select_scatter({x}, {x}.select({axis}, 0) * 2, {axis}, {size - 1})
    torch.slice_scatter({x}, {x}.narrow({axis}, 0, 1), {axis}, {size - 1}, {size})
indexing: x = d.tensor(lambda t: t.dtype.is_floating_point is False and
+ str(t.dtype).endswith("int64"))
: rows = d.integer(2, 6)
: table = d.constant((rows, d.integer(1, 5)), d.choose("f32", "f32", "f16"))
: pad = d.choose("", "", ", padding_idx=0")
    F.embedding({x} % {rows}, {table}{pad})
indexing: x = d.tensor(lambda t: str(t.dtype).endswith("int64") and t.dim() == 2 and t.numel())
: rows = d.integer(2, 6); table = d.constant((rows, d.integer(1, 5)), "f32")
: mode = d.choose("sum", "mean", "max")
    F.embedding_bag({x} % {rows}, {table}, mode={mode!r})
indexing: x = d.ranked(1); filled = d.choose("0", "1", "-1")
    {x}.masked_scatter({x} > 0, {x}.flip(0))  torch.where({x} > {filled}, {x}.roll(1, 0), {x})
    {x} * {x}.gt({filled}).cumsum(0)  torch.bucketize({x}, torch.tensor([-1.0, 0.0, 2.0]))
    torch.searchsorted(torch.tensor([-1.0, 0.0, 2.0]), {x}.contiguous())
    F.pad({x}, (1, 1)).unfold(-1, 2, 1).amax(-1)
sorted: x = d.ranked(1); axis = d.axis(x, lambda s: s > 0)
: count = d.integer(1, d.space[x].shape[axis]); largest = d.choose("", ", largest=False")
    {x}.topk({count}, {axis}{largest})[0]  torch.sort({x}, {axis}, descending={d.maybe()})[0]
    torch.sort({x}, stable=True, dim={axis})[1]  torch.argsort({x}, {axis}, stable=True)
    torch.kthvalue({x}, {count}, {axis})[0]  torch.median({x}, {axis})[0]  torch.msort({x})
sorted: x = d.ranked(); axis = d.axis(x) if d.space[x].dim() else d.choose(0, -1)
    {x}.cumsum({axis})  {x}.cumprod({axis})  torch.cummax({x}, {axis})[0]
    torch.cummin({x}, {axis})[{d.integer(0, 1)}]  torch.logcumsumexp({x}, {axis})
    torch.diff({x}, dim={axis})  {x}.cumsum({axis}, dtype={d.choose('f32', 'i64')})
indexing: x = d.ranked(1); shape = d.space[x].shape; index = _indices(d, shape[0], (1,), True)
: dtype = d.named_dtype(x); many = _indices(d, shape[0], (4,), True)
    {x}.index_put(({many},), {d.constant((4, *shape[1:]), dtype)}, accumulate=True)
    torch.take_along_dim({x}.flatten(), {many}.abs() % {shape[0]}, 0)
    {x}.index_put(({index},), {d.constant((1, *shape[1:]), dtype)})
    {x}.index_put(({index},), {d.constant((), dtype)}, accumulate=True)
    {x}.index_put(({x} > 0,), {d.constant((), dtype)})
    out = {x}.clone(); out[{index}] = {d.choose(1, 0)}  out = {x}.clone(); out[{x} > 0] = 0
""",
)
