"""Specialization: one method for each bound of a dynamic size, all of which share weights and state.

ExecuTorch plans the memory of a method for the largest size that it takes, and needs that memory at
every size. With one method for each bound ("bucket"), an application loads the method with the
smallest sufficient bound.

    func.func @forward(%x: tensor<?x12xf32, #stepwell.shape<["s0", 12]>>) …      # 1 <= s0 <= 1024

with `buckets=[64, 1024]` becomes `@forward_64`, with `1 <= s0 <= 64`, and `@forward_1024`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.signature import get_signature, set_signature
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import sizes_of_inputs, spelled

Buckets = str | Sequence[int] | Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class BucketSizes(Pass):
    """Copy each method that has a symbolic size, once for each of several upper bounds of the size.

    Args:
        buckets: the bounds, as in `64|1024`, or `s77=64|1024` if there are several symbols.
    """

    buckets: str
    name: ClassVar[str] = "bucket-sizes"

    @classmethod
    def of(cls, buckets: Buckets) -> BucketSizes:
        """Create the pass from `[64, 1024]`, `{"s77": [64, 1024]}`, or the text `s77=64,1024`.

        Raises:
            StepwellError: sizes of several symbols are given.
        """
        if isinstance(buckets, str):
            return cls(buckets.replace(",", "|"))
        if not isinstance(buckets, Mapping):
            return cls("|".join(map(str, buckets)))
        if len(buckets) != 1:
            raise StepwellError(
                f"buckets of {len(buckets)} symbolic sizes", help="give bounds of one of them"
            )
        ((symbol, bounds),) = buckets.items()
        return cls(f"{symbol}=" + "|".join(map(str, bounds)))

    def apply(self, program: Program, history: History) -> int:
        """Copy the methods; return the number of copies.

        Raises:
            StepwellError: a bound is out of the size's range or not a number, there is no such
                size, or the symbol is not stated and there are several.
        """
        sizes = {name: sizes_of_inputs(func) for name, func in program.methods.items()}
        symbol, bounds = self._bounds(
            sorted({s for of_method in sizes.values() for s in of_method})
        )
        made = 0
        for name, func in program.methods.items():
            if symbol not in sizes[name]:
                continue
            low, high = sizes[name][symbol]
            if wrong := [n for n in bounds if n < low or (high is not None and n > high)]:
                raise StepwellError(
                    f"bucket {wrong[0]} is outside the range of {spelled(symbol, low, high)}",
                    f"method @{name}",
                )
            for bound in bounds:
                self._copy(func, f"{name}_{bound}", symbol, (low, bound))
                made += 1
            func.detach()
            func.erase()
        program.samples.clear()
        return made

    def _bounds(self, known: Sequence[str]) -> tuple[str, list[int]]:
        """Return the symbol and its bounds in ascending order."""
        symbol, separator, text = self.buckets.rpartition("=")
        listed = ", ".join(known) or "none"
        if not separator and len(known) != 1:
            raise StepwellError(
                f"buckets need a symbolic size, and the program has {len(known)}",
                help=f"name it, as in {{'s0': [64, 1024]}}; symbolic sizes of inputs: {listed}",
            )
        if separator and symbol not in known:
            raise StepwellError(
                f"no input has the symbolic size {symbol!r}", help=f"they are: {listed}"
            )
        parts = text.split("|")
        if not all(part.isdecimal() for part in parts):
            raise StepwellError(f"{self.buckets!r} is no list of bounds", help="s77=64,256,1024")
        return symbol or known[0], sorted({int(part) for part in parts})

    @staticmethod
    def _copy(func: FuncOp, name: str, symbol: str, bounds: tuple[int, int]) -> None:
        """Insert a copy of a method, with another range of a symbol, before the method."""
        copy = func.clone()
        copy.properties["sym_name"] = StringAttr(name)
        signature = get_signature(copy)
        set_signature(copy, replace(signature, ranges={**signature.ranges, symbol: bounds}))
        block = func.parent
        assert block is not None, "a method is in a module"
        block.insert_op_before(copy, func)
