"""Control flow on a sequence: branches, loops, steps over an axis."""

from __future__ import annotations

from .drawing import Draw, form
from .source import Part


@form("sequence", "control")
def branch(d: Draw) -> Part:
    """One of two ways, by what a counter or an input says."""
    yes, no = d.rng.choice(
        [
            ("p * 2 + 1", "p - 1"),
            ("p.tanh()", "p * 0.5"),
            ("p.flip(1)", "p.clone()"),
            ("p.cumsum(1)", "p - p.mean(1, keepdim=True)"),
        ]
    )
    if d.maybe(0.4):
        return d.part(
            f"h = cond(f@, lambda p: {yes}, lambda p: {no}, (h,))",
            taken=[("f@", "torch.tensor(k % 3 == 0)", [])],
        )
    n = d.count()
    return d.part(
        f"{n}.add_(1)", f"h = cond({n}.sum() % {d.integer(2, 3)} == 0, lambda p: {yes}, lambda p: {no}, (h,))"
    )  # fmt: skip


@form("sequence", "control")
def loop(d: Draw) -> Part:
    """As many times as a counter or an input says."""
    body = d.choose("p * 0.5 + 1", "p.tanh() + 0.1", "p - p.mean(1, keepdim=True)", "p.roll(1, 1)")
    if d.maybe():
        return d.part(
            f"h = while_loop(lambda i, p: i > 0, lambda i, p: (i - 1, {body}), (n@, h * 1))[1]",
            taken=[("n@", "torch.tensor(k % 4)", [])],
        )
    n = d.count()
    return d.part(
        f"{n}.add_(1)",
        f"h = while_loop(lambda i, p: i > 0, lambda i, p: (i - 1, {body}), ({n}.sum() % 4, h * 1))[1]",
    )


@form("sequence", "control")
def steps(d: Draw) -> Part:
    """A scan along the stream, from a state that stays."""
    c = d.channels
    s = d.state(c)
    body = d.choose(
        "(a * 0.5 + x, a + x)", "((a + x).tanh(), a * x)", "(torch.maximum(a, x), a - x)"
    )
    return d.part(
        f"a@, y@ = scan(lambda a, x: {body}, {s} * 1, h[0])",
        f"{s}.copy_(a@)",
        "h = h + y@",
    )


@form("sequence", "control")
def mapped(d: Draw) -> Part:
    return d.part(
        "h = map_rows(lambda p: "
        + d.choose("p * 2 + 1", "torch.softmax(p, -1)", "p - p.mean(0)", "p.flip(0)")
        + ", h)"
    )
