"""Control flow."""

from .drawing import Draw
from .forms import UnsuitableError, form, operators


@form("control")
def loops(d: Draw) -> str:
    x = d.floating()
    if d.space[x].numel() == 0:
        raise UnsuitableError
    count = d.integer(0, 4)
    body = d.choose("p * 0.5 + 1", "p.tanh() + 0.1", "p - p.mean()")
    return (
        f"while_loop(lambda i, p: i < {count}, lambda i, p: (i + 1, {body}),"
        f" (torch.tensor(0), {x} * 1))[1]"
    )


operators(
    globals(),
    """
control: x = d.floating(); y = d.floating()
: test = d.choose(f"{x}.sum() > 0", f"({x} > 0).any()", f"{y}.sum() < 0.5")
: yes, no = d.choose(('p.sin()', 'p.cos()'), ('p * 2 + q.sum()', 'p - q.sum()'), ('p.clone()',
+ 'p * 1'), ('F.relu(p)', 'p.abs()'))
    cond({test}, lambda p, q: {yes}, lambda p, q: {no}, ({x}, {y}))
control: x = d.floating()
: inner = f"cond(p.sum() > {d.choose(0, 5, -5)}, lambda q: q * 2, lambda q: q - 1, (p,))"
    cond({x}.mean() > 0, lambda p: {inner}, lambda p: p.exp(), ({x},))
control: x = d.tensor(lambda t: t.is_floating_point() and t.dim() >= 2 and t.shape[0] > 0)
    map_rows(lambda p: p * 2 + 1, {x})  map_rows(lambda p: torch.softmax(p, -1), {x})
    scan(lambda c, p: (c + p, c * p), torch.zeros_like({x}[0]), {x})[1]
    scan(lambda c, p: (c * 0.5 + p, p.tanh()), torch.ones_like({x}[0]), {x})[0]
""",
)
