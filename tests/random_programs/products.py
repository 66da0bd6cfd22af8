"""Products of matrices, linear layers, attention, softmax."""

from __future__ import annotations

from .drawing import Draw, UnsuitableError, form


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


@form("products")
def with_itself(d: Draw) -> str:
    x = d.floating(2)
    return d.choose(f"{x} @ {x}.mT", f"{x}.mT @ {x}", f"torch.softmax({x} @ {x}.mT, -1) @ {x}")


@form("products")
def named(d: Draw) -> str:
    x = d.floating(2, 3)
    shape = d.space[x].shape
    dtype = d.named_dtype(x)
    if len(shape) == 3:
        other = d.constant((shape[0], shape[2], d.integer(1, 4)), dtype)
        columns = d.value(other).shape[-1]
        base = d.constant((shape[1], columns), dtype)
        return d.choose(
            f"torch.bmm({x}, {other})",
            f"torch.baddbmm({base}, {x}, {other}, beta={d.choose(1, 0.5)}, alpha={d.choose(1, 2)})",
            f"torch.einsum('bij,bjk->bik', {x}, {other})",
            f"torch.einsum('bij,bjk->ki', {x}, {other})",
            f"torch.einsum('bij,bij->b', {x}, {x})",
            f"torch.einsum('bij->ji', {x})",
            f"torch.einsum('bij,bkj->bki', {x}, {x})",
        )
    other = d.constant((shape[1], d.integer(1, 4)), dtype)
    columns = d.value(other).shape[-1]
    base = d.constant((columns,), dtype)
    vector = d.constant((shape[1],), dtype)
    return d.choose(
        f"torch.mm({x}, {other})",
        f"torch.addmm({base}, {x}, {other}, beta={d.choose(1, 2, 0.5)}, alpha={d.choose(1, -1)})",
        f"torch.mv({x}, {vector})",
        f"torch.outer({vector}, {vector}) + {x}.sum()",
        f"torch.einsum('ij,jk->ki', {x}, {other})",
        f"torch.einsum('ii', {x}[:1, :1])",
        f"torch.einsum('ij->', {x})",
        f"torch.einsum('i,j->ij', {x}[0], {x}[-1])",
        f"torch.kron({x}, {other})",
        f"torch.tensordot({x}, {other}, 1)",
        f"F.bilinear({x}, {x}, {d.constant((2, shape[1], shape[1]), dtype)})",
        f"torch.cdist({x}, {x} + 1)",
    )


@form("products")
def summed_by_letters(d: Draw) -> str:
    """`einsum` of any two operands: letters kept, summed, shared, repeated, broadcast."""
    x = d.floating(1, 4)
    shape = d.space[x].shape
    mine = "abcd"[: len(shape)]
    theirs = d.rng.sample(mine, d.integer(1, len(mine))) + ["e"] * d.maybe()
    sizes = [d.integer(1, 4) if c == "e" else shape[mine.index(c)] for c in theirs]
    other = d.constant(sizes, d.named_dtype(x))
    every = sorted({*mine, *theirs})
    kept = "".join(d.rng.sample(every, d.integer(0, len(every))))
    spelt = "".join(theirs)
    return d.choose(
        f"torch.einsum('{mine},{spelt}->{kept}', {x}, {other})",
        f"torch.einsum('{mine},{spelt}', {x}, {other})",
        f"torch.einsum('...{mine[-1]},{mine[-1]}->...', {x}, {x}.reshape(-1, {shape[-1]})[0])",
        f"torch.einsum('{mine}->{mine[::-1]}', {x})",
    )


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


@form("attention")
def by_hand(d: Draw) -> str:
    x = d.floating(3, 3)
    batch, rows, width = d.space[x].shape
    heads = next((h for h in (2, 3) if width % h == 0), 1)
    if not batch * rows * width:
        raise UnsuitableError
    made = d.hold(
        f"seeded(nn.MultiheadAttention({width}, {heads}, batch_first=True), {d.seed},"
        f" {d.named_dtype(x)})",
        "m",
    )
    return f"{made}({x}, {x}, {x}, need_weights={d.maybe()})[0]"


@form("softmax")
def softmax(d: Draw) -> str:
    x = d.floating()
    axis = d.axis(x) if d.space[x].dim() else 0
    temperature = d.choose("", " * 0.5", " / 3", " * 40.0")
    return d.choose(
        f"torch.softmax({x}{temperature}, {axis})",
        f"F.log_softmax({x}{temperature}, {axis})",
        f"F.softmin({x}, {axis})",
        f"torch.softmax({x}, {axis}, dtype=f32)",
        f"F.glu({x}, {axis})",
        f"torch.logsumexp({x}, {axis})",
    )
