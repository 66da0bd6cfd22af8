import pytest
from xdsl.ir import Block
from xdsl.utils.exceptions import VerifyException

import stepwell
from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import YieldOp
from stepwell.ir import verification_cache
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import VerificationError
from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor

CHAIN = """
func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %a = aten.relu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %b = aten.relu.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %c = aten.relu.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %c : tensor<2x3xf32>
}
"""


@pytest.fixture(autouse=True)
def nothing_is_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_cache, "_SOUND", {})


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the schema ops whose own rule was run."""
    names: list[str] = []
    rule = SchemaOp.verify_

    def counted(op: SchemaOp) -> None:
        names.append(op.name)
        rule(op)

    monkeypatch.setattr(SchemaOp, "verify_", counted)
    return names


def test_an_op_that_stands_again_is_checked_once(checked: list[str]) -> None:
    program = stepwell.parse(CHAIN)
    checked.clear()
    program.verify()
    first = len(checked)
    program.verify()
    assert first <= 3
    assert len(checked) == first


def test_a_twin_with_another_result_type_is_looked_at_and_refused() -> None:
    program = stepwell.parse(CHAIN)
    program.verify()
    relu = next(op for op in program.module.walk() if isinstance(op, aten.ReluDefault))
    relu.results[0]._type = tensor([2, 4], f32)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(VerificationError, match="2x4"):
        program.verify()


def test_a_twin_with_another_argument_is_looked_at_and_refused() -> None:
    text = """
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2xf32> {
      %a = aten.sum.dim_IntList(%x, [1]) : (tensor<2x3xf32>) -> tensor<2xf32>
      func.return %a : tensor<2xf32>
    }"""
    stepwell.parse(text).verify()
    with pytest.raises(VerificationError, match=r"sum\.dim_IntList"):
        stepwell.parse(text.replace("[1]", "[0]")).verify()


def test_a_node_whose_filter_is_computed_is_no_twin_of_one_whose_filter_is_constant() -> None:
    image, filters = tensor([1, 8, 8, 3], f32), tensor([4, 3, 3, 3], f32)
    block = Block(arg_types=[image, filters])
    weight = WeightOp("w", filters)
    fixed = xnnpack.Convolution2d.make(block.args[0], weight.result)
    computed = xnnpack.Convolution2d.make(
        block.args[0], block.args[1], result=fixed.results[0].type
    )
    block.add_ops([weight, fixed, computed, YieldOp.create(operands=[])])
    assert verification_cache.verdict_key(fixed) != verification_cache.verdict_key(computed)
    with pytest.raises(VerifyException, match="must be a constant"):
        computed.verify()


def test_a_step_whose_anchors_are_not_in_the_program_visits_nothing() -> None:
    lowered = stepwell.lower(stepwell.parse(CHAIN), "xnnpack")
    passed_by = ("lower-casts", "attention-to-products")
    nothing = [s for s in lowered.report.steps if s.name in passed_by]
    assert [(s.applied, s.seconds) for s in nothing] == [(0, 0.0), (0, 0.0)]
    kept = sum(1 for _ in lowered.program.module.walk())
    assert lowered.report.steps[-1].ops == kept


def test_an_op_that_reads_a_value_and_stands_nowhere_is_named() -> None:
    program = stepwell.parse(CHAIN)
    relu = next(op for op in program.module.walk() if isinstance(op, aten.ReluDefault))
    aten.AbsDefault.make(relu.results[0])
    with pytest.raises(VerificationError, match=r"used by aten\.abs\.default, which is in no"):
        program.verify()
