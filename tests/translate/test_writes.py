"""Writes through views: chains of views drawn at random, eager's bits, and no help of torch's."""

import random
from collections.abc import Callable

import pytest
import torch
from eager import EXACT, Function, Model, assert_as_eager, exported
from torch import Tensor, nn

import stepwell
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.translate.importer.mutation import find_writes

VIEWS: dict[str, Callable[[random.Random, Tensor], str]] = {
    "slice": lambda r, t: f"[{r.randint(0, 1)}:{r.choice(['', '3', '-1'])}:{r.choice(['', '2'])}]",
    "last": lambda r, t: f"[..., {r.randint(0, 1)}:]",
    "select": lambda r, t: f".select({r.randrange(t.dim())}, {r.choice([0, -1])})",
    "transpose": lambda r, t: f".transpose(0, {r.randrange(t.dim())})",
    "turned": lambda r, t: ".T" if t.dim() == 2 else f".movedim(0, {r.randrange(t.dim())})",
    "permute": lambda r, t: f".permute({tuple(r.sample(range(t.dim()), t.dim()))})",
    "unsqueeze": lambda r, t: f".unsqueeze({r.randrange(t.dim() + 1)})",
    "flatten": lambda r, t: ".flatten()",
    "reshape": lambda r, t: f".reshape({t.shape[0]}, -1)" if t.numel() else ".squeeze()",
    "contiguous": lambda r, t: ".contiguous()",
    "diagonal": lambda r, t: ".diagonal()" if t.dim() > 1 else ".detach()",
    "chunk": lambda r, t: f".chunk(2, {r.randrange(t.dim())})[0]",
    "split": lambda r, t: f".split(1, {r.randrange(t.dim())})[-1]",
    "unbind": lambda r, t: f".unbind({r.randrange(t.dim())})[0]",
    "narrow": lambda r, t: f".narrow({r.randrange(t.dim())}, 0, 1)",
    "float": lambda r, t: ".to(torch.float32)",
    "relu": lambda r, t: ".relu()",
}
WRITES = ("add_(1)", "mul_(-2)", "fill_(3)", "zero_()", "copy_({} * 5)", "sub_({}.flip(0))")


def drawn(seed: int) -> str:
    """Lines of a `forward` that cuts views of three tensors, writes to some, and returns all."""
    rand = random.Random(seed)
    lines = ["v0 = self.held", "v1 = x * 1", "v2 = x.clone().unsqueeze(1).squeeze(1)"]
    shapes = {"v0": torch.empty(3, 4), "v1": torch.empty(4, 4), "v2": torch.empty(4, 4)}
    for _ in range(rand.randint(4, 9)):
        name = rand.choice(list(shapes))
        if rand.random() < 0.45:
            lines.append(f"{name}.{rand.choice(WRITES).format(name)}")
            continue
        of = shapes[name]
        if of.dim() == 0 or min(of.shape) == 0:
            continue
        made, new = rand.choice(list(VIEWS.values()))(rand, of), f"v{len(shapes)}"
        shapes[new] = eval(f"of{made}", {"of": of, "torch": torch})
        lines.append(f"{new} = {name}{made}")
    name = rand.choice(list(shapes))
    lines += [f"{name}.add_(2)", "return " + ", ".join(f"{name} + 0" for name in shapes)]
    return "\n        ".join(lines)


def model_of(lines: str) -> nn.Module:
    text = (
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('held', torch.arange(12.0).reshape(3, 4) - 5)\n"
        f"    def forward(self, x):\n        {lines}\n"
    )
    scope = {"nn": nn, "torch": torch}
    exec(text, scope)
    return scope["Model"]()  # pyright: ignore


X = torch.linspace(-1, 1, 16).reshape(4, 4)


@pytest.mark.parametrize("seed", range(6))
def test_what_views_write_is_where_eager_has_it(seed: int) -> None:
    compare(range(seed * 10, seed * 10 + 10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_what_views_write_is_where_eager_has_it_at_length(seed: int) -> None:
    compare(range(1000 + seed * 20, 1000 + seed * 20 + 20))


def compare(seeds: range) -> None:
    for seed in seeds:
        lines = drawn(seed)
        model = model_of(lines)
        graph = exported(model, X)
        find_writes(graph)  # Raises where torch's functionalization is needed.
        program = stepwell.from_exported_program(graph)
        program.verify()
        session = program.start()
        for call in (X, X * 2):
            for found, wanted in zip(session.run(call), model(call), strict=True):
                assert torch.equal(found, wanted), f"{seed}: {lines}"


class Buffers(nn.Module):
    """Two names for one memory: the same tensor, or one a view of the other."""

    def __init__(self, view: bool) -> None:
        super().__init__()
        held = torch.zeros(2, 3)
        self.register_buffer("one", held)
        self.register_buffer("other", held[0] if view else held)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.one.T[1].add_(x)
        return self.one + 0, self.other * 2


def test_a_buffer_under_two_names_is_written_under_both() -> None:
    model, x = Buffers(view=False), X[0, :2]
    session = stepwell.from_exported_program(torch.export.export(model, (x,))).start()
    for _ in range(2):
        assert all(map(torch.equal, session.run(x), model(x)))


def test_a_buffer_that_views_a_written_one_is_refused() -> None:
    graph = exported(Buffers(view=True), X[0, :2])
    with pytest.raises(UnsupportedError, match="of which another buffer is a view"):
        stepwell.from_exported_program(graph)


def of_any_length(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    y.view(-1)[1:].mul_(2)
    y.unsqueeze(0)[0, :, 1].add_(x[:, 0])
    z = y.T
    z[0].zero_()
    return y, z


def test_what_views_of_open_sizes_write_is_where_eager_has_it() -> None:
    rows = {0: torch.export.Dim("rows", min=2, max=9)}
    program = stepwell.from_exported_program(exported(of_any_length, X, dynamic=rows))
    program.verify()
    for count in (2, 4, 9):
        assert_as_eager(program, of_any_length, torch.randn(count, 4), **EXACT)


def in_branches(x: Tensor) -> Tensor:
    """A write to what a branch made itself."""

    def yes(x: Tensor) -> Tensor:
        y = x * 2
        y[0].add_(1)
        return y

    return torch.cond(x.sum() > 0, yes, lambda x: x * 1, (x,))


def into_an_output(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.zeros(4, 4, dtype=torch.float64)
    torch.add(x, 1, out=y.T[1:].T[:, :0].new_zeros(4, 4))
    z = torch.add(x, x, out=y)
    return y * 2, z


def of_itself(x: Tensor) -> Tensor:
    """`z[0] += 1` assigns what it has added to where it stands."""
    z = x * 2
    z[0] += 1
    return z


@pytest.mark.parametrize("model", [nn.BatchNorm1d(4), in_branches, into_an_output, of_itself])
def test_it_needs_no_functionalization_of_torchs(model: Model) -> None:
    module = model if isinstance(model, nn.Module) else Function(model)
    program = torch.export.export(module.train(), (X,))
    find_writes(program)
    session = stepwell.from_exported_program(program).start()
    for call in (X, X - 1):
        assert_as_eager(session, module, call, **EXACT)


def test_what_is_assigned_to_where_it_stands_is_written_once() -> None:
    program = stepwell.from_exported_program(exported(of_itself, X))
    assert sum("scatter" in op.name for op in program.module.walk()) == 1


@pytest.mark.parametrize("name", ["pow_", "float_power_"])
def test_a_power_in_place_is_of_the_tensor_and_not_of_the_number(name: str) -> None:
    def power(x: Tensor) -> Tensor:
        return getattr((x.abs() + 1).double(), name)(-0.5).float()

    assert_as_eager(stepwell.from_exported_program(exported(power, X)), power, X)
