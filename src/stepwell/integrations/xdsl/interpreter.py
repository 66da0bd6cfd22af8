"""Give xDSL's own `Interpreter` stepwell's semantics of each op.

interpreter = xdsl_interpreter(program)
(y,) = interpreter.call_op("forward", (x,))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xdsl.interpreter import Interpreter as XdslInterpreter
from xdsl.interpreter import InterpreterFunctions, OpImplResult
from xdsl.interpreters.func import FuncFunctions
from xdsl.ir import Operation

from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.program import Program


class StepwellFunctions(InterpreterFunctions):
    """The implementations of a program's ops for xDSL's interpreter."""

    def __init__(self, program: Program) -> None:
        self.ours = Interpreter(program.weights)
        self.classes = dict.fromkeys(type(op) for op in program.module.walk())

    def _impls(self) -> Iterable[tuple[type[Operation], Any]]:  # pyright: ignore
        return [(cls, _run) for cls in self.classes if rule_for(cls) is not None]

    def _cast_impls(self) -> Iterable[Any]:  # pyright: ignore
        return ()

    _attr_impls = _ext_impls = _callable_impls = _cast_impls  # pyright: ignore


def _run(
    functions: StepwellFunctions, interpreter: XdslInterpreter, op: Operation, args: Any
) -> OpImplResult:
    rule = rule_for(type(op))
    assert rule is not None
    return OpImplResult(tuple(rule(op, args, functions.ours)), None)


def xdsl_interpreter(program: Program) -> XdslInterpreter:
    """Create xDSL's interpreter with every op of a program; it does not change the state."""
    interpreter = XdslInterpreter(program.module)
    interpreter.register_implementations(FuncFunctions())
    interpreter.register_implementations(StepwellFunctions(program))
    return interpreter
