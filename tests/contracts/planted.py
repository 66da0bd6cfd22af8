"""Rewrites wrong in one respect alone: a state, a size, a method, a call, a class of numbers.

Most replace one op by an operator of our own, whose meaning is what the op computes but for that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from eager import Model, Stateful, exported
from torch import Tensor, nn
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue

import stepwell
from stepwell.dialects import aten
from stepwell.dialects.aten.registry import of_overload
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewrite, Rewriter

T = torch.export.Dim("t", min=1, max=40)


def cached(m: Any, x: Tensor) -> Any:
    m.k.index_copy_(1, m.n % 8, x)
    m.n.add_(1)
    return m.k.sum(1) + x


def recurrence(m: Any, x: Tensor) -> Any:
    m.s.copy_(m.s * 0.5 + x)
    return m.s - x


def most(m: Any, x: Tensor) -> Any:
    m.m.copy_(torch.maximum(m.m, x.relu()))
    return x - m.m


def turns(m: Any, x: Tensor) -> Any:
    turn, third = m.n % 2, m.n >= 2
    m.n.add_(1)
    return torch.where(turn == 0, x, -x), torch.where(third, x, x * 2)


def pair(m: Any, x: Tensor) -> Any:
    m.b.copy_(m.a * 1.5)
    m.a.copy_(x)
    return m.a + m.b


def old(m: Any, x: Tensor) -> Any:
    held = m.s * 1.25
    m.s.add_(x)
    return held, m.s


class Shared(nn.Module):
    """Two methods of one state."""

    def __init__(self) -> None:
        super().__init__()
        self.s = nn.Buffer(torch.zeros(4))

    def forward(self, x: Tensor) -> Any:
        self.s.add_(x)
        return self.s * 2

    def second(self, x: Tensor) -> Any:
        self.s.mul_(0.5)
        return torch.maximum(self.s, x)


class Second(nn.Module):
    def __init__(self, core: Shared, name: str) -> None:
        super().__init__()
        self.core, self.name = core, name

    def forward(self, x: Tensor) -> Any:
        return getattr(self.core, self.name)(x)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.eye(4) * 2)

    def forward(self, x: Tensor) -> Any:
        return (x.relu() @ self.w) - self.w[0]


def writes(x: Tensor, y: Tensor) -> Any:
    x.add_(y)
    return y * 2


X, NOTHING, COUNT = torch.linspace(-1, 2.2, 4), torch.zeros(4), torch.zeros(1, dtype=torch.int64)
BYTE, OFF = torch.zeros(1, dtype=torch.uint8), torch.zeros(4, dtype=torch.bool)
MODELS: dict[str, tuple[Callable[[], Model], tuple[Tensor, ...]]] = {
    "Cache": (lambda: Stateful(cached, k=torch.zeros(1, 8, 4), n=COUNT), (torch.ones(1, 1, 4),)),
    "Recurrence": (lambda: Stateful(recurrence, s=torch.zeros(40)), (torch.linspace(-1, 2, 40),)),
    "Most": (lambda: Stateful(most, m=NOTHING), (X,)),
    "Wraps": (lambda: Stateful(lambda m, x: x * m.c.add_(100), c=BYTE), (X,)),
    "Flag": (lambda: Stateful(lambda m, x: torch.where(m.f.logical_not_(), x, -x), f=OFF), (X,)),
    "Turns": (lambda: Stateful(turns, n=COUNT), (X,)),
    "Pair": (lambda: Stateful(pair, a=NOTHING, b=torch.ones(4)), (X,)),
    "Old": (lambda: Stateful(old, s=NOTHING), (X,)),
    "Tied": (Tied, (X,)),
    "Open": (lambda: lambda x: x.cumsum(1), (torch.randn(2, 6, 4),)),
    "Signs": (lambda: lambda x: -x, (X,)),
    "Whole": (lambda: lambda i: (torch.fmod(i, 3), i * 2), (torch.tensor([-2, -1, 0, 1, 2, 5]),)),
    "Empty": (lambda: lambda x: (x.sum(0), x.amax(1)), (torch.zeros(0, 3),)),
    "Writes": (lambda: writes, (X, X + 1)),
}


@cache
def program(model: str) -> Program:
    """A model's program, with the inputs that it was exported with."""
    if model == "Shared":
        core = Shared()
        return stepwell.from_exported_program(
            {name: exported(Second(core, name), X) for name in ("forward", "second")}
        )
    make, given = MODELS[model]
    dynamic = {1: T} if model == "Open" else None
    return stepwell.from_exported_program(exported(make(), *given, dynamic=dynamic))


Meaning = Callable[..., Tensor]
LIBRARY = torch.library.Library("planted", "DEF")


@cache
def planted_op(name: str, operands: int, meaning: Meaning) -> type[Operation]:
    """An operator with a meaning of its own."""
    arguments = ", ".join(f"Tensor a{i}" for i in range(operands))
    LIBRARY.define(f"{name}({arguments}) -> Tensor")
    LIBRARY.impl(name, meaning, "CompositeExplicitAutograd")
    return of_overload(getattr(torch.ops.planted, name).default)


@dataclass(frozen=True)
class Replaces(Rewrite[Any]):
    """One op, by another meaning of its tensor operands."""

    anchor: type[Operation]
    meaning: Meaning
    method: str = ""

    def match(self, op: Any, program: Program) -> Any:
        func = op.parent_op()
        is_asked = type(op) is self.anchor and self.method in ("", func.sym_name.data)
        return op if is_asked else None

    def build(self, match: Any, rw: Rewriter) -> None:
        tensors = [v for v in match.operands if "tensor" in str(v.type)]
        made = planted_op(self.name.replace("-", "_"), len(tensors), self.meaning)
        new = made.create(operands=tensors, result_types=[match.results[0].type])
        rw.replace(match, [rw.insert(new).results[0]])


@dataclass(frozen=True)
class Rewires(Rewrite[Any]):
    """Whatever a function does with an op."""

    anchor: type[Operation]
    change: Callable[[Any, Rewriter], None]

    def match(self, op: Any, program: Program) -> Any:
        return None if type(op) is not self.anchor or DONE in op.attributes else op

    def build(self, match: Any, rw: Rewriter) -> None:
        match.attributes[DONE] = UnitAttr()
        self.change(match, rw)


DONE = "planted.done"
"""The mark of an op that was changed already."""


@dataclass(frozen=True)
class Planted:
    """A row of the table.

    Attributes:
        name: of the rewrite.
        model: what it is planted in.
        anchor: the op.
        wrong: its meaning in place of the op's, or what is done with the op.
        seen: a part of the label of a sample that shows it.
        hidden: whether the random sample and the example do not.
        method: the only one that it is applied in.
    """

    name: str
    model: str
    anchor: type[Operation]
    wrong: Any
    seen: str = "state"
    hidden: bool = True
    method: str = ""
    rewires: bool = False

    @property
    def rewrite(self) -> Rewrite[Any]:
        base = Rewires if self.rewires else Replaces
        space: Mapping[str, Any] = {
            "name": self.name,
            "anchors": (self.anchor,),
            "__module__": __name__,
            "__annotations__": {"name": ClassVar[str], "anchors": ClassVar[Any]},
        }
        cls = dataclass(frozen=True)(type("Planted", (base,), dict(space)))
        return cls(self.anchor, self.wrong) if self.rewires else cls(
            self.anchor, self.wrong, self.method
        )  # fmt: skip


def _erased(op: Any, rw: Rewriter) -> None:
    rw.erase(op)


def _others(op: Any) -> list[Any]:
    return [other for other in op.parent.ops if type(other) is type(op) and other is not op]


def _writes_old(op: Any, rw: Rewriter) -> None:
    (state,) = [o for o in op.parent.ops if isinstance(o, StateOp) and o.key == op.key]
    rw.set_operand(op, 0, state.results[0])


def _writes_what_the_other_does(op: Any, rw: Rewriter) -> None:
    if op.key.data == "b":
        rw.set_operand(op, 0, _others(op)[0].operands[0])


def _reads_the_first_value(op: Any, rw: Rewriter) -> None:
    first = rw.constant(rw.weights.get(op.key.data))
    rw.replace_value(op.results[0], first)


def _returns_the_new_state(op: Any, rw: Rewriter) -> None:
    (update,) = [o for o in op.parent.ops if isinstance(o, UpdateOp)]
    value: SSAValue = update.operands[0]
    last = op.parent.last_op
    last.operands[list(last.operands).index(op.results[0])] = value
    rw.changed(last)


def _doubles_for_one_reader(op: Any, rw: Rewriter) -> None:
    if op.kind.data == "parameter":
        rw.replace_value(op.results[0], rw.constant(rw.weights.get(op.key.data) * 2))


def _if(wrong: Callable[[int], bool]) -> Meaning:
    """`cumsum`, but for some lengths."""
    return lambda x: x.cumsum(1) + (1.0 if wrong(x.shape[1]) else 0.0)


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, n))


A = aten
TABLE = (
    # The state is forgotten, kept, or written elsewhere.
    Planted("cleared-before-write", "Cache", A.IndexCopyDefault,
            lambda k, i, x: torch.zeros_like(k).index_copy(1, i, x)),
    Planted("one-row-off-after-the-wrap", "Cache", A.RemainderScalar, lambda n: n.clamp(max=7)),
    Planted("counts-to-one", "Cache", A.AddScalar, torch.ones_like),
    Planted("old-state-forgotten", "Recurrence", A.AddTensor, lambda s, x: x + 0 * x),
    Planted("no-decay", "Recurrence", A.MulScalar, lambda s: s * 1),
    Planted("never-written", "Recurrence", UpdateOp, _erased, "", False, rewires=True),
    Planted("old-value-written", "Old", UpdateOp, _writes_old, "", False, rewires=True),
    Planted("writes-of-two-swapped", "Pair", UpdateOp, _writes_what_the_other_does, "", False,
            rewires=True),
    Planted("reads-the-first-value", "Recurrence", StateOp, _reads_the_first_value, rewires=True),
    Planted("greatest-forgotten", "Most", A.MaximumDefault, lambda m, x: x * 1),
    Planted("saturates", "Wraps", A.AddScalar,
            lambda c: (c.int() + 100).clamp(max=255).to(torch.uint8), "integers"),
    Planted("flag-taken-for-unset", "Flag", A.LogicalNotDefault, torch.ones_like),
    # Classes of numbers in the state.
    Planted("nan-in-state", "Recurrence", A.MulScalar, lambda s: s.nan_to_num(0) * 0.5, "special"),
    Planted("infinity-in-state", "Recurrence", A.MulScalar,
            lambda s: torch.where(s.isinf(), 1.0, s) * 0.5, "special"),
    Planted("minus-zero-in-state", "Recurrence", A.MulScalar, lambda s: s * 0.5 + 0.0, "mixed"),
    Planted("denormal-in-state", "Recurrence", A.MulScalar,
            lambda s: torch.where(s.abs() < 1e-38, 0.0, s) * 0.5, "special"),
    Planted("greatest-in-state", "Recurrence", A.MulScalar,
            lambda s: s.clamp(-1e38, 1e38) * 0.5, "special"),
    # Calls.
    Planted("every-call-is-even", "Turns", A.RemainderScalar, lambda n: n * 0, "1 in state"),
    Planted("no-third-call", "Turns", A.GeScalar,
            lambda n: torch.zeros_like(n, dtype=torch.bool),
            "2 in state"),
    # Methods.
    Planted("second-method-only", "Shared", A.MaximumDefault, lambda s, x: torch.maximum(s, -x),
            "", False),
    Planted("second-method-from-the-first-state", "Shared", A.MulScalar, lambda s: s * 0,
            method="second"),
    Planted("first-method-from-the-first-state", "Shared", A.AddTensor, lambda s, x: x * 1,
            method="forward"),
    # Aliases.
    Planted("new-state-for-the-old", "Old", A.MulScalar, _returns_the_new_state, "", False,
            rewires=True),
    Planted("tied-weight-changed-for-one", "Tied", WeightOp, _doubles_for_one_reader, "", False,
            rewires=True),
    Planted("input-not-written", "Writes", MutateInputOp, _erased, "", False, rewires=True),
    # Sizes.
    Planted("even-lengths-only", "Open", A.CumsumDefault, _if(lambda n: n % 2 == 1), "size"),
    Planted("odd-lengths-only", "Open", A.CumsumDefault,
            _if(lambda n: n % 2 == 0 and n != 6), "size"),
    Planted("no-multiples-of-four", "Open", A.CumsumDefault, _if(lambda n: n % 4 == 0), "size"),
    Planted("not-one", "Open", A.CumsumDefault, _if(lambda n: n == 1), "smallest"),
    Planted("not-two", "Open", A.CumsumDefault, _if(lambda n: n == 2), "size"),
    Planted("not-the-greatest", "Open", A.CumsumDefault, _if(lambda n: n == 40), "largest"),
    Planted("not-next-to-the-greatest", "Open", A.CumsumDefault, _if(lambda n: n == 39), "size"),
    Planted("no-large-primes", "Open", A.CumsumDefault,
            _if(lambda n: n > 7 and _is_prime(n)), "size"),
    Planted("not-behind-a-power-of-two", "Open", A.CumsumDefault,
            _if(lambda n: n > 4 and _is_power(n - 1)), "size"),
    Planted("not-before-a-power-of-two", "Open", A.CumsumDefault,
            _if(lambda n: n > 4 and _is_power(n + 1)), "size"),
    Planted("nothing-of-nothing", "Empty", A.SumDimIntList, lambda x: x.sum(0) + 1, "", False),
    # Classes of numbers, and integers, in the inputs.
    Planted("minus-zero", "Signs", A.NegDefault, lambda x: 0 - x, "zeros"),
    Planted("nan-with-its-sign", "Signs", A.NegDefault, lambda x: -x.nan_to_num(0.5), "NaN"),
    Planted("integers-are-flags", "Whole", A.MulScalar, lambda i: (i != 0) * 2, "", False),
    Planted("floor-for-fmod", "Whole", A.FmodScalar, lambda i: i % 3, "", False),
)  # fmt: skip


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0
