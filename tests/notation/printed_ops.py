"""The ops of a method as text: what `ir/syntax/snippets.py` reads."""

import re

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.syntax.printer import TextPrinter, float_text

_SCIENTIFIC = re.compile(r"-?\d\.\d+e[+-]\d+")


def text_of_ops(method: FuncOp) -> str:
    """Print the ops of a method, one a line; constants with known elements are inline."""
    block = method.body.block
    printer = _OpsPrinter()
    for value in block.args:
        printer.value_name(value)
    shown = [op for op in block.ops if not _is_in_place(op)]
    if len(shown) > 1 and list(shown[-1].operands) == list(shown[-2].results):
        shown.pop()
    for op in shown:
        printer.print_op(op)
        printer.print_string("\n")
    return printer.text()


class _OpsPrinter(TextPrinter):
    """Print constants inline instead of their names."""

    def value_name(self, value: SSAValue) -> str:
        op = value.owner
        if isinstance(op, Operation) and _is_in_place(op):
            literal = self.spelled(op.properties["value"]).rpartition(" : ")[0]
            return _SCIENTIFIC.sub(lambda number: float_text(float(number[0])), literal)
        return super().value_name(value)


def _is_in_place(op: Operation) -> bool:
    return isinstance(op, WeightOp) and "value" in op.properties
