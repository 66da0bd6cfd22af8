"""Reductions over every set of axes."""

from .drawing import Draw
from .forms import form, operators

MANY = "sum mean amax amin var std logsumexp".split()


@form("reductions")
def over_all(d: Draw) -> str:
    x = d.ranked()
    name = d.rng.choice("sum mean max min prod any all argmax argmin std var norm numel".split())
    if name == "numel":
        return f"{x} * {x}.numel()"
    return d.choose(f"{x}.{name}()", f"{x}.to(f32) - {x}.to(f32).{name}()")


operators(
    globals(),
    """
reductions: x = d.ranked(); axes = d.axes(x); keep = d.choose("", ", keepdim=True")
: name = d.rng.choice(MANY)
: more = d.choose("", ", correction=0", ", correction=2") if name in ("var", "std") else ""
    {x}.{name}({axes}{more}{keep})
reductions: x = d.ranked(); axis = d.axis(x) if d.space[x].dim() else 0
: keep = d.choose("", ", keepdim=True"); order = d.choose("1", "2", "3", "float('inf')", "0")
    {x}.prod({axis}{keep})  {x}.max({axis}{keep})[{d.integer(0, 1)}]
    {x}.min({axis}{keep})[{d.integer(0, 1)}]  {x}.argmax({axis}{keep})  {x}.argmin({axis}{keep})
    {x}.any({axis}{keep})  {x}.all({axis}{keep})
    torch.linalg.vector_norm({x}, {order}, {axis}{keep})
    {x}.sum({axis}{keep}, dtype={d.choose('f32', 'i64', 'i32')})  {x}.nansum({axis}{keep})
    torch.var_mean({x}, {axis}{keep})[{d.integer(0, 1)}]  {x}.norm(2, {axis}{keep})
""",
)
