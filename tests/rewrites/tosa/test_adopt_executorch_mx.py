"""`adopt-executorch-mx`: what it leaves alone."""

from typing import Any

import pytest

from stepwell.dialects.tosa_mxfp.executorch import PAYLOADS
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.ir.syntax.text import parse_module, to_text
from stepwell.ir.weights import WeightStore
from stepwell.translate.decompositions import executorch_mx
from stepwell.translate.lowerings.lowering import step

HELD = {"f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2"}
"""ExecuTorch's words for payloads that torch has a type of; the others' codes are bytes."""


def reasons(
    block: int = 32,
    word: str = "f8e4m3",
    computed: bool = False,
    scaled: bool = False,
    codes: str = "f8E4M3FN",
    scale: str = "f8E8M0FNU",
) -> list[str]:
    """Why the rewrite refuses; nothing is computed, so that ExecuTorch need not be there."""
    x, y = "tensor<2x32xf32>", "tensor<2x3xf32>"
    c, s = f"tensor<1x3x32x{codes}>", f"tensor<1x3x1x{scale}>"
    extra = f", %c: {c}" if computed else ""
    line = "" if computed else f'%c = stepwell.weight <"codes"> "buffer" : {c}'
    extra += f", %s: {s}" if scaled else ""
    scales = "" if scaled else f'%s = stepwell.weight <"scales"> "buffer" : {s}'
    text = f"""func.func @forward(%x: {x}{extra}) -> {y} {{
  {line}
  {scales}
  %y = tosa_mxfp.linear.default(%x, %c, %s, none, {block}, "{word}") : ({x}, {c}, {s}) -> {y}
  func.return %y : {y}
}}
"""
    program = Program(parse_module(text), WeightStore())
    before, history = to_text(program.module), History()
    assert run_rewrites(program, (step(executorch_mx.adopt_executorch_mx),), history) == 0
    assert to_text(program.module) == before
    return [record.reason for record in history.refusals.values()]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"block": 16}, "blocks have 16 elements"),
        ({"word": "f3"}, "not an MX payload"),
        ({"scale": "f32"}, "its scales are torch.float32"),
        ({"scale": "i1"}, "its scales are torch.bool"),
        ({"computed": True}, "computed at run time"),
        ({"scaled": True}, "computed at run time"),
    ],
)
def test_what_has_no_form_here_is_refused(case: dict[str, Any], reason: str) -> None:
    (found,) = reasons(**case)
    assert reason in found


@pytest.mark.parametrize("codes", ["f8E4M3FN", "f8E5M2", "ui8", "i8", "f32"])
@pytest.mark.parametrize("word", PAYLOADS)
def test_codes_are_taken_in_the_dtype_of_their_payload_only(word: str, codes: str) -> None:
    (found,) = reasons(word=word, codes=codes, computed=True)
    taken = codes == HELD.get(word, "ui8")
    assert ("computed at run time" if taken else f"those of {PAYLOADS[word]}") in found
