"""Operators that users wrote: effects come from the schema, meaning from what is registered."""

from typing import Any

import pytest
import torch
from eager import EXACT, Function, Model, assert_as_eager, exported
from torch import Tensor, nn

import stepwell
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import StepwellError, UnsupportedError

LIBRARY = torch.library.Library("stepwell_custom", "DEF")
LIBRARY.define("store(Tensor value, Tensor(a!) cache, SymInt at) -> Tensor")
LIBRARY.define("bump(Tensor(a!) x, float by=1.0) -> ()")
LIBRARY.define("swap(Tensor(a!) x, Tensor(b!) y) -> ()")
LIBRARY.define("opposite(Tensor self) -> Tensor")
LIBRARY.define("mystery(Tensor x, int k=2) -> Tensor")
LIBRARY.define("bump_all(Tensor(a!)[] xs) -> ()")


def store(value: Tensor, cache: Tensor, at: int) -> Tensor:
    cache[at : at + value.shape[0]] = value
    return value.new_full((1,), float(at))


def bump(x: Tensor, by: float = 1.0) -> None:
    x.add_(by)


def swap(x: Tensor, y: Tensor) -> None:
    held = x.clone()
    x.copy_(y)
    y.copy_(held)


LIBRARY.impl("store", store, "CPU")
LIBRARY.impl("store", lambda value, cache, at: value.new_empty((1,)), "Meta")
LIBRARY.impl("bump", bump, "CompositeExplicitAutograd")
LIBRARY.impl("swap", swap, "CompositeExplicitAutograd")
LIBRARY.impl("opposite", torch.neg, "CompositeExplicitAutograd")
LIBRARY.impl("mystery", lambda x, k=2: torch.empty_like(x), "Meta")
LIBRARY.impl("bump_all", lambda xs: None, "CompositeExplicitAutograd")
OPS: Any = torch.ops.stepwell_custom


class Stores(nn.Module):
    """Writes into a cache that it keeps, reads it, and writes again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        told = OPS.store(x, self.cache, 1)
        seen = self.cache * 2
        OPS.store(seen[:2], self.cache, 3)
        return seen + told, self.cache + 0


def bumps(x: Tensor) -> tuple[Tensor, Tensor]:
    """Writes to a temporary, and to a slice of one."""
    y, z = x * 2, x * 3
    OPS.bump(y, 4.0)
    OPS.bump(z[1:3])
    OPS.swap(y, z)
    return y, z


MODELS = {
    "of state": (Stores, torch.randn(2, 2, 2)),
    "of values": (lambda: Function(bumps), torch.randn(2, 4, 2)),
}


def export(model: Model, *inputs: Any, decompose: bool = False) -> Any:
    program = exported(model, *inputs)
    return program.run_decompositions({}) if decompose else program


@pytest.mark.parametrize("decompose", [False, True], ids=["as written", "made functional by torch"])
@pytest.mark.parametrize("name", MODELS)
def test_what_a_custom_operator_writes_is_seen_by_later_reads_and_calls(
    name: str, decompose: bool
) -> None:
    made, calls = MODELS[name]
    program = stepwell.from_exported_program(export(made(), calls[0], decompose=decompose))
    program.verify()
    session, model = program.start(), made()
    for x in calls:
        assert_as_eager(session, model, x, **EXACT)


@pytest.mark.parametrize("name", MODELS)
def test_a_custom_operator_that_writes_survives_text_and_the_way_back_to_torch(name: str) -> None:
    made, (x, _) = MODELS[name]
    program = stepwell.from_exported_program(export(made(), x))
    again = stepwell.parse(str(program), weights=program.weights)
    assert str(again) == str(program)
    assert_as_eager(again, made(), x, **EXACT)
    back = again.to_exported_program().module()
    assert all(map(torch.equal, back(x), made()(x)))


def test_a_call_that_nobody_reads_goes_and_one_that_writes_state_stays() -> None:
    class Idle(Stores):
        def forward(self, x: Tensor) -> Tensor:  # pyright: ignore
            lost = x * 1
            OPS.bump(lost)
            OPS.store(x, self.cache, 0)
            return x + 1

    program = stepwell.from_exported_program(export(Idle(), torch.randn(2, 2)))
    stepwell.PIPELINES["xnnpack"].run(program)
    left = [op.name for op in program.module.walk() if isinstance(op, SchemaOp)]
    assert left == ["stepwell_custom.store.default"]


def test_writes_to_a_list_of_tensors_are_refused_by_name_and_line() -> None:
    class Lists(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            OPS.bump_all([y])
            return y

    with pytest.raises(UnsupportedError) as refused:
        stepwell.from_exported_program(export(Lists(), torch.randn(3)))
    said = str(refused.value)
    assert "xs has type Tensor[]" in said
    assert "test_custom_operators.py" in said


# -- on the runtime ----------------------------------------------------------------------------


def opposite(x: Tensor) -> Tensor:
    return OPS.opposite(x * 3) + 1


def test_an_operator_with_a_registered_kernel_runs_in_the_pte() -> None:
    x = torch.randn(2, 5)
    program = export(opposite, x)
    with pytest.raises(UnsupportedError, match=r"stepwell_custom\.opposite.* no kernel"):
        stepwell.lower(program, "xnnpack").to_pte()
    stepwell.register_op(OPS.opposite.default, kernel="aten::neg.out")
    assert_as_eager(stepwell.lower(program, "xnnpack"), opposite, x, **EXACT)


def test_an_operator_that_torch_cannot_run_takes_its_meaning_and_shape_from_the_registration() -> (
    None
):
    x = torch.randn(2, 5)
    program = stepwell.from_exported_program(export(lambda x: OPS.mystery(x, 3) + 1, x))
    stepwell.register_op(
        OPS.mystery.default,
        meaning=lambda x, k=2: x.roll(k, 1),
        shape=lambda x, k=2: x.new_empty(x.shape),
    )
    program.verify()
    assert torch.equal(program.run(x)[0], x.roll(3, 1) + 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kernel": "aten::no_such.out"}, "the kernel"),
        ({"kernel": "aten::add.out"}, "do not take the same arguments"),
        ({"library": "math"}, "library= needs kernel="),
        (
            {"kernel": "aten::neg.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"},
            "registered with another schema",
        ),
    ],
)
def test_a_registration_that_cannot_be_right_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(StepwellError, match=said):
        stepwell.register_op(OPS.bump.default, **given)  # pyright: ignore


def test_what_is_registered_twice_or_is_no_operator_is_refused() -> None:
    with pytest.raises(StepwellError, match="not an operator with a schema"):
        stepwell.register_op(torch.relu)
    stepwell.register_op(OPS.swap.default, meaning=swap)
    with pytest.raises(StepwellError, match="already"):
        stepwell.register_op(OPS.swap.default, meaning=swap)
