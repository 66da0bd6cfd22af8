"""Look-ups and writes at indices from a tensor, and factories, as loops in C."""

from typing import Any

import torch
from xdsl.ir import SSAValue

from stepwell.backends.cortex_m.c.misc_kernels import KERNEL_WRITERS, index_at, index_of, writes
from stepwell.backends.cortex_m.c.operators import KernelOperator
from stepwell.backends.cortex_m.c.terms import C_KIND, constant, kind_of, loops
from stepwell.backends.cortex_m.c.writer import MethodWriter
from stepwell.ir.declared.families import ops_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.types import element
from stepwell.ir.weights import WeightStore

# -- indices from a tensor -----------------------------------------------------------------------


def _checked(index: str, size: int, number: int | str = "") -> list[str]:
    """Return lines that compute `at` from a possibly negative index; `number` distinguishes
    several.
    """
    at, named = f"at{number}", f"named{number}"
    return [
        f"const int64_t {named} = {index};",
        f"const int64_t {at} = ({named} < 0) ? ({named} + {size}) : {named};",
        f"if (({at} < 0) || ({at} >= {size})) {{", "    return 3;", "}",
    ]  # fmt: skip


@writes("embedding.default", "index_select.default", "gather.default")
def _lookup(w: MethodWriter, found: KernelOperator) -> None:
    op, source, result = found.op, found.operands[0], found.results[0]
    sizes, made = w.tensor(source).sizes, w.tensor(result).sizes
    axes = [f"i{a}" for a in range(len(made))]
    if op.name == "aten.embedding.default":
        index = found.operands[1]
        named = axes[: len(w.tensor(index).sizes)]
        axis, read = 0, ["(int32_t)at", axes[-1]]
    else:
        held = index_of(found, "index")
        assert held is not None
        index, axis = held, op.arg("dim") % len(sizes)
        named = axes if op.name == "aten.gather.default" else [axes[axis]]
        named = named[: len(w.tensor(index).sizes)]
        read = ["(int32_t)at" if a == axis else axes[a] for a in range(len(sizes))]
    body = [
        *_checked(f"x1[{index_at(w, index, named)}]", sizes[axis]),
        f"y0[{index_at(w, result, axes)}] = x0[{index_at(w, source, read)}];",
    ]
    reads = [("x0", source), ("x1", index)]
    w.function(
        loops(dict(zip(axes, made, strict=True)), body), reads, [("y0", result)], checked=True
    )


@writes("index.Tensor")
def _indexed(w: MethodWriter, operator: KernelOperator) -> None:
    """Write `x[i, :, j]` with adjacent indices."""
    op, source, result = operator.op, operator.operands[0], operator.results[0]
    given: list[Any] = list(op.arg("indices"))
    at = [axis for axis, index in enumerate(given) if index is not None]
    if any(kind_of(element(given[axis].type)) != "whole" for axis in at):
        raise UnsupportedError("boolean indices are not supported")
    sizes, made = w.tensor(source).sizes, w.tensor(result).sizes
    tensors = [operator.place(given[axis]) for axis in at]
    wide = max(len(w.tensor(index).sizes) for index in tensors)
    first = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    axes = [f"i{a}" for a in range(len(made))]
    common = axes[first : first + wide]
    others = iter([*axes[:first], *axes[first + wide :]])
    body: list[str] = []
    read: list[str] = []
    for axis, size in enumerate(sizes):
        if axis not in at:
            read.append(next(others))
            continue
        number = at.index(axis)
        held = w.tensor(tensors[number]).sizes
        named = [
            "0" if n == 1 else c for n, c in zip(held, common[wide - len(held) :], strict=True)
        ]
        index = f"x{number + 1}[{index_at(w, tensors[number], named)}]"
        body += _checked(index, size, number)
        read.append(f"(int32_t)at{number}")
    body.append(f"y0[{index_at(w, result, axes)}] = x0[{index_at(w, source, read)}];")
    reads = [("x0", source), *((f"x{n + 1}", index) for n, index in enumerate(tensors))]
    w.function(
        loops(dict(zip(axes, made, strict=True)), body), reads, [("y0", result)], checked=True
    )


@writes("index_put.default")
def _put(w: MethodWriter, found: KernelOperator) -> None:
    """Write rows at indices along the first axes, in place."""
    op, into = found.op, found.results[0]
    given: list[Any] = list(op.arg("indices"))
    rows = index_of(found, "values")
    at = [axis for axis, index in enumerate(given) if index is not None]
    if into != found.operands[0] or op.arg("accumulate") or len(at) != 1 or rows is None:
        raise UnsupportedError("only in-place writes along one axis are supported")
    (axis,) = at
    index = found.place(given[axis])
    sizes, made = w.tensor(into).sizes, w.tensor(rows).sizes
    if len(made) != len(sizes) or len(w.tensor(index).sizes) != 1:
        raise UnsupportedError("rows must have the tensor's rank, and indices one axis")
    axes = [f"i{a}" for a in range(len(sizes))]
    into_at = ["(int32_t)at" if a == axis else axes[a] for a in range(len(sizes))]
    count = w.tensor(index).sizes[0]
    trips = {axes[a]: count if a == axis else size for a, size in enumerate(sizes)}
    named = ["0" if n == 1 else axes[a] for a, n in enumerate(made)]
    body = [
        *_checked(f"x1[{index_at(w, index, [axes[axis]])}]", sizes[axis]),
        f"y0[{index_at(w, into, into_at)}] = x0[{index_at(w, rows, named)}];",
    ]
    reads = [("x0", rows), ("x1", index)]
    w.function(loops(trips, body), reads, [("y0", into)], checked=True)


# -- constants from factories --------------------------------------------------------------------


def _filled(w: MethodWriter, operator: KernelOperator) -> None:
    """Compute a factory's result at compile time, and copy it."""
    op, result = operator.op, operator.results[0]
    given = {
        value: torch.zeros(w.tensor(index).sizes)
        for value, index in zip(op.operands, operator.operands, strict=True)
    }
    Interpreter(WeightStore()).step(op, environment := dict[SSAValue, Any](given))
    kind = kind_of(element(op.results[0].type))
    numbers = environment[op.results[0]].permute(w.tensor(result).dim_order).flatten().tolist()
    if not numbers:
        return
    one = constant(numbers[0], kind)
    if len(set(numbers)) > 1:
        text = ", ".join(constant(number, kind) for number in numbers)
        one = f"{w.table(C_KIND[kind], text, len(numbers))}[i]"
    body = [f"y0[i] = ({w.c_element(result)}){one};"]
    w.function(loops({"i": len(numbers)}, body), [], [("y0", result)])


KERNEL_WRITERS.update(dict.fromkeys(ops_of("factory", "aten"), _filled))
