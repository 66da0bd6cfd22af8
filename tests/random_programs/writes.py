"""Reads of two inputs and writes to them, however they lie in memory."""

from .drawing import Draw
from .forms import form, operators


@form("memory")
def write(d: Draw) -> str:
    x, y = d.rng.sample(d.input_names, 2)
    done = d.pick(
        "{x}.add_({y})",
        "{x}.mul_(2)",
        "{x}.copy_({y} + 1)",
        "{x}[:1].add_(3)",
        "{x}[..., -1:].mul_(-2)",
        "{x}.permute(*range({x}.dim())[::-1]).sub_(1)",
        "{x}.unsqueeze(0).fill_(2)",
        "{x}.add_(1)\n{y}.mul_(2)",
        "{x}.copy_({y}.clone() + {x})\n{y}.copy_({x} - {y})",
        x=x,
        y=y,
    )
    return f"{done}\nout = {x} + 0"


operators(
    globals(),
    """
memory: x, y = d.rng.sample(d.input_names, 2)
    {x} + {y}  {x} * {y} - {x}  {x}.reshape(-1) * 2  {x}.permute(*range({x}.dim())[::-1])  {x}
    {x}[:1] + 0  {y}[..., -1:]  ({x} + {y}).sum(-1)  {x}.clone()
""",
)
