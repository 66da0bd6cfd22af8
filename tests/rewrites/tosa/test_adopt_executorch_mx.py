"""AdoptExecutorchMx: what it leaves alone."""

from typing import Any

import pytest

from stepwell.ir.program import Program
from stepwell.ir.rewriting import History, run_rewrites
from stepwell.ir.text import parse_module, to_text
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.tosa.adopt_executorch_mx import AdoptExecutorchMx

CODES, SCALES = "tensor<1x3x32xf8E4M3FN>", "tensor<1x3x1xf8E8M0FNU>"


def reasons(
    block: int = 32, word: str = "f8e4m3", computed: bool = False, scaled: bool = False
) -> list[str]:
    """Why the rewrite refuses; nothing is computed, so that ExecuTorch need not be there."""
    x, y = "tensor<2x32xf32>", "tensor<2x3xf32>"
    extra = f", %c: {CODES}" if computed else ""
    line = "" if computed else f'%c = stepwell.weight <"codes"> "buffer" : {CODES}'
    extra += f", %s: {SCALES}" if scaled else ""
    scales = "" if scaled else f'%s = stepwell.weight <"scales"> "buffer" : {SCALES}'
    text = f"""func.func @forward(%x: {x}{extra}) -> {y} {{
  {line}
  {scales}
  %y = tosa_mxfp.linear.default(%x, %c, %s, none, {block}, "{word}") : ({x}, {CODES}, {SCALES}) -> {y}
  func.return %y : {y}
}}
"""
    program = Program(parse_module(text), WeightStore())
    before, history = to_text(program.module), History()
    assert run_rewrites(program, (AdoptExecutorchMx(),), history) == 0
    assert to_text(program.module) == before
    return [record.reason for record in history.refusals.values()]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"block": 16}, "blocks have 16 elements"),
        ({"word": "f3"}, "not an MX payload"),
        ({"computed": True}, "computed at run time"),
        ({"scaled": True}, "computed at run time"),
    ],
)
def test_what_has_no_form_here_is_refused(case: dict[str, Any], reason: str) -> None:
    (found,) = reasons(**case)
    assert reason in found
