"""Reductions over every set of axes."""

from __future__ import annotations

from .drawing import Draw, form

MANY = "sum mean amax amin var std logsumexp".split()


@form("reductions")
def over_axes(d: Draw) -> str:
    x = d.ranked()
    axes = d.axes(x)
    keep = d.choose("", ", keepdim=True")
    name = d.rng.choice(MANY)
    more = d.choose("", ", correction=0", ", correction=2") if name in ("var", "std") else ""
    return f"{x}.{name}({axes}{more}{keep})"


@form("reductions")
def over_one(d: Draw) -> str:
    x = d.ranked()
    axis = d.axis(x) if d.space[x].dim() else 0
    keep = d.choose("", ", keepdim=True")
    order = d.choose("1", "2", "3", "float('inf')", "0")
    return d.choose(
        f"{x}.prod({axis}{keep})",
        f"{x}.max({axis}{keep})[{d.integer(0, 1)}]",
        f"{x}.min({axis}{keep})[{d.integer(0, 1)}]",
        f"{x}.argmax({axis}{keep})",
        f"{x}.argmin({axis}{keep})",
        f"{x}.any({axis}{keep})",
        f"{x}.all({axis}{keep})",
        f"torch.linalg.vector_norm({x}, {order}, {axis}{keep})",
        f"{x}.sum({axis}{keep}, dtype={d.choose('f32', 'i64', 'i32')})",
        f"{x}.nansum({axis}{keep})",
        f"torch.var_mean({x}, {axis}{keep})[{d.integer(0, 1)}]",
        f"{x}.norm(2, {axis}{keep})",
    )


@form("reductions")
def over_all(d: Draw) -> str:
    x = d.ranked()
    name = d.rng.choice("sum mean max min prod any all argmax argmin std var norm numel".split())
    if name == "numel":
        return f"{x} * {x}.numel()"
    return d.choose(f"{x}.{name}()", f"{x}.to(f32) - {x}.to(f32).{name}()")
