"""Axis maps say what is so: operands are changed element by element, and the result looked at."""

from itertools import product
from typing import Any

import pytest
import torch
from short_ir import program_text
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

import stepwell
from stepwell.dialects import xnnpack
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import LIBRARY_OPS, Copy, Join, Part, Relabel
from stepwell.dialects.tosa.generated import OPERATORS
from stepwell.ir.axes.maps import Along, AxisMap, HasAxes, Once, axis_map, mapped_names
from stepwell.ir.declared.families import families_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import dims, element

from .elementwise_samples import elementwise_ops
from .samples import OPAQUE, SAMPLES, name_of

Values = dict[SSAValue, Any]


def method_of(sample: str) -> tuple[FuncOp, stepwell.Program]:
    program = stepwell.Program(program_text(sample))
    return program.method(), program


def random_value(value: SSAValue, generator: torch.Generator) -> torch.Tensor:
    shape = [int(size) for size in dims(value.type)]
    dtype = torch_dtype(element(value.type))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=dtype)
    low, high = {torch.int8: (-90, 90), torch.int32: (1, 3)}.get(dtype, (0, 2))
    return torch.randint(low, high, shape, generator=generator, dtype=dtype)


def changed(value: torch.Tensor, index: tuple[int, ...], how: int) -> torch.Tensor:
    made = value.clone()
    if value.dtype == torch.bool:
        made[index] = ~value[index]
    elif value.dtype.is_floating_point:
        made[index] += (4.0, -3.0)[how]
    elif value.dtype == torch.int8:
        made[index] += (30, -30)[how]
    else:
        made[index] = (3 if value.dtype == torch.int32 else 1) - value[index]
    return made


class Op:
    """A sample's last op with values for what the lines before it compute."""

    def __init__(self, sample: str) -> None:
        method, program = method_of(sample)
        self.interpreter = Interpreter(program.weights)
        generator = torch.Generator().manual_seed(3)
        block = method.body.block
        self.values: Values = {a: random_value(a, generator) for a in block.args}
        *before, op, last = block.ops
        assert isinstance(last, ReturnOp)
        for earlier in before:
            self.interpreter.step(earlier, self.values)
        self.op: Operation = op
        self.free = [i for i, value in enumerate(op.operands) if value in block.args]

    def run(self, operands: dict[int, torch.Tensor] | None = None) -> list[torch.Tensor]:
        values = dict(self.values)
        for index, given in (operands or {}).items():
            values[self.op.operands[index]] = given
        self.interpreter.step(self.op, values)
        return [values[result] for result in self.op.results]


def read(map_: AxisMap, operand: int) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """For each element of an operand, the elements of the result that may read it."""
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for index in product(*(range(int(size)) for size in map_.shape)):
        box = map_.reads(operand, tuple((i, i + 1) for i in index))
        for source in product(*(range(int(a), int(b)) for a, b in box)):
            found.setdefault(source, set()).add(index)
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.splitlines()[-1][:60])
def test_a_map_names_all_that_is_read(sample: str) -> None:
    held = Op(sample)
    for result in range(len(held.op.results)):
        map_ = axis_map(held.op, result)
        if result and map_ is None:
            continue  # Opaque, like what a norm saves.
        assert map_ is not None
        assert any(map_.links[operand] is not None for operand in held.free), "says nothing"
        before = held.run()[result]
        for operand in held.free:
            value, readers = held.values[held.op.operands[operand]], read(map_, operand)
            for index in product(*map(range, value.shape)):
                for how in range(2):
                    after = held.run({operand: changed(value, index, how)})[result]
                    same = (after == before) | ((after != after) & (before != before))
                    moved = {tuple(i) for i in (~same).nonzero().tolist()}
                    assert moved <= readers.get(index, set()), (operand, index)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.splitlines()[-1][:60])
def test_an_order_along_an_axis_that_all_operands_keep_passes(sample: str) -> None:
    held = Op(sample)
    map_ = axis_map(held.op)
    assert map_ is not None
    for axis, size in enumerate(map_.shape):
        turned: dict[int, torch.Tensor] = {}
        order = torch.arange(int(size)).roll(1)
        for operand, value in enumerate(held.op.operands):
            links = map_.links[operand] if operand < len(map_.links) else None
            mine = [(a, link) for a, link in enumerate(links or ()) if axis in _axes(link)]
            if links is None or any(isinstance(link, Once) for _, link in mine):
                if operand in held.free and links is None:
                    break
                continue
            if not mine:
                continue
            if operand not in held.free or map_.after(operand, mine[0][0]) != axis:
                break
            turned[operand] = held.values[value].index_select(mine[0][0], order)
        else:
            if turned:
                expected = held.run()[0].index_select(axis, order)
                torch.testing.assert_close(held.run(turned)[0], expected, equal_nan=True)


def _axes(link: Any) -> tuple[int | None, ...]:
    return link.targets if hasattr(link, "targets") else (link.axis,)


def classes() -> list[type[HasAxes]]:
    tosa = {cls.name: cls for cls in OPERATORS}
    others = (name for name in mapped_names("aten") if "elementwise" not in families_of(name))
    return [
        *xnnpack.NODES.values(),
        *(*LIBRARY_OPS, Relabel, Part, Join, Copy),
        *(*map(op_class, others), *elementwise_ops()),
        *(tosa[name] for name in mapped_names("tosa")),
    ]


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.name)
def test_every_op_has_a_map_that_is_tried_or_says_why_not(cls: Any) -> None:
    assert (cls.name in {name_of(sample) for sample in SAMPLES}) != (cls.name in OPAQUE)


def test_a_window_reads_its_reach_and_no_padding() -> None:
    map_ = AxisMap((1, 3), ((1, 6),), ((Along(0), Along(1, 2, -1, 3)),))
    assert map_.reads(0, ((0, 1), (0, 1))) == ((0, 1), (0, 2))
    assert map_.reads(0, ((0, 1), (1, 3))) == ((0, 1), (1, 6))
