"""Products of matrices, linear layers, attention, softmax."""

from .drawing import Draw
from .forms import form, operators


@form("products")
def linear(d: Draw) -> str:
    x = d.floating(1)
    dtype = d.named_dtype(x)
    out = d.integer(1, 6)
    scale = d.choose(0.3, 0.3, 1.0, 100.0, 1e-5)
    weight = d.constant((out, d.space[x].shape[-1]), dtype, scale=scale)
    bias = d.constant((out,), dtype) if d.maybe(0.7) else "None"
    after = d.choose("{}", "{}", "F.relu({})", "{} * 0.5", "F.gelu({})", "({} + 1) * 2")
    return after.format(f"F.linear({x}, {weight}, {bias})")


@form("products")
def matmul(d: Draw) -> str:
    x = d.floating(1)
    shape = d.space[x].shape
    dtype = d.named_dtype(x)
    if d.maybe(0.4):
        fitting = d.tensor(
            lambda t: (
                t.dtype == d.space[x].dtype
                and t.dim() >= 1
                and t.shape[-2 if t.dim() > 1 else 0] == shape[-1]
            )
        )
        return f"torch.matmul({x}, {fitting})"
    batch = list(shape[:-2]) if d.maybe(0.5) else []
    batch = [1 if d.maybe(0.3) else s for s in batch]
    columns = [] if not batch and d.maybe(0.2) else [d.integer(1, 5)]
    other = d.constant((*batch, shape[-1], *columns), dtype)
    return d.choose(f"{x} @ {other}", f"torch.matmul({x}, {other})", f"({x} @ {other}) * 0.25")


@form("attention")
def attention(d: Draw) -> str:
    q = d.floating(2, 4)
    shape = d.space[q].shape
    dtype = d.named_dtype(q)
    keys = d.integer(1, 5)
    k = d.constant((*shape[:-2], keys, shape[-1]), dtype)
    v = d.constant((*shape[:-2], keys, d.integer(1, 5)), dtype)
    if d.maybe(0.3):
        k = v = q
        keys = shape[-2]
    how = d.rng.random()
    more = ""
    if how < 0.25:
        more = f", attn_mask={d.constant((shape[-2], keys), dtype)}"
    elif how < 0.5:
        more = f", attn_mask={d.constant((shape[-2], keys), 'boolean')}"
    elif how < 0.65:
        more = ", is_causal=True"
    more += d.choose("", "", f", scale={d.choose(0.5, 1.0)}")
    return f"F.scaled_dot_product_attention({q}, {k}, {v}{more})"


operators(
    globals(),
    """
products: x = d.floating(2)
    {x} @ {x}.mT  {x}.mT @ {x}  torch.softmax({x} @ {x}.mT, -1) @ {x}
products: x = d.floating(1, 4); shape = d.space[x].shape; mine = "abcd"[: len(shape)]
: theirs = d.rng.sample(mine, d.integer(1, len(mine))) + ["e"] * d.maybe()
: sizes = [d.integer(1, 4) if c == "e" else shape[mine.index(c)] for c in theirs]
: other = d.constant(sizes, d.named_dtype(x)); every = sorted({*mine, *theirs})
: kept = "".join(d.rng.sample(every, d.integer(0, len(every)))); spelt = "".join(theirs)
    torch.einsum('{mine},{spelt}->{kept}', {x}, {other})
    torch.einsum('{mine},{spelt}', {x}, {other})
    torch.einsum('...{mine[-1]},{mine[-1]}->...', {x}, {x}.reshape(-1, {shape[-1]})[0])
    torch.einsum('{mine}->{mine[::-1]}', {x})
attention: x = d.floating(3, 3); batch, rows, width = d.space[x].shape
: heads = next((h for h in (2, 3) if width % h == 0), 1); d.require(batch * rows * width)
: made = d.hold(f'seeded(nn.MultiheadAttention({width}, {heads}, batch_first=True), {d.seed},
+ {d.named_dtype(x)})', 'm')
    {made}({x}, {x}, {x}, need_weights={d.maybe()})[0]
softmax: x = d.floating(); axis = d.axis(x) if d.space[x].dim() else 0
: temperature = d.choose("", " * 0.5", " / 3", " * 40.0")
    torch.softmax({x}{temperature}, {axis})  F.log_softmax({x}{temperature}, {axis})
    F.softmin({x}, {axis})  torch.softmax({x}, {axis}, dtype=f32)  F.glu({x}, {axis})
    torch.logsumexp({x}, {axis})
products: x = d.floating(3, 3); shape = d.space[x].shape; dtype = d.named_dtype(x)
: other = d.constant((shape[0], shape[2], d.integer(1, 4)), dtype)
: base = d.constant((shape[1], d.value(other).shape[-1]), dtype)
    torch.bmm({x}, {other})  torch.einsum('bij,bjk->bik', {x}, {other})
    torch.baddbmm({base}, {x}, {other}, beta={d.choose(1, 0.5)}, alpha={d.choose(1, 2)})
    torch.einsum('bij,bjk->ki', {x}, {other})  torch.einsum('bij,bij->b', {x}, {x})
    torch.einsum('bij->ji', {x})  torch.einsum('bij,bkj->bki', {x}, {x})
products: x = d.floating(2, 2); shape = d.space[x].shape; dtype = d.named_dtype(x)
: other = d.constant((shape[1], d.integer(1, 4)), dtype)
: base = d.constant((d.value(other).shape[-1],), dtype); vector = d.constant((shape[1],), dtype)
    torch.addmm({base}, {x}, {other}, beta={d.choose(1, 2, 0.5)}, alpha={d.choose(1, -1)})
    torch.mm({x}, {other})  torch.mv({x}, {vector})  torch.outer({vector}, {vector}) + {x}.sum()
    torch.einsum('ij,jk->ki', {x}, {other})  torch.einsum('ii', {x}[:1, :1])
    torch.kron({x}, {other})
    torch.einsum('ij->', {x})  torch.einsum('i,j->ij', {x}[0], {x}[-1])  torch.cdist({x}, {x} + 1)
    torch.tensordot({x}, {other}, 1)
    F.bilinear({x}, {x}, {d.constant((2, shape[1], shape[1]), dtype)})
""",
)
