"""RemoveProvenAssert: what it leaves to be checked at run time.

The texts are not verified: inference runs the assertion itself.
"""

import pytest

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.ir.syntax.text import parse_module
from stepwell.translate.rewrites.sizes.remove_proven_assert import RemoveProvenAssert


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("none, none, f16", "fails at run time"),
        ("[2, 4]", "sizes"),
        ("none, [3, 1]", "strides"),
    ],
)
def test_an_assertion_that_the_type_does_not_prove_stays(stated: str, reason: str):
    text = f"""
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {{
      aten._assert_tensor_metadata.default(%x, {stated}) : (tensor<2x3xf32>) -> ()
      func.return %x : tensor<2x3xf32>
    }}
    """
    history = History()
    assert run_rewrites(Program(parse_module(text)), [RemoveProvenAssert()], history) == 0
    assert [reason in record.reason for record in history.refusals.values()] == [True]
