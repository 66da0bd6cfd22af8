"""`tosa-…+cpu`: what TOSA lacks runs on the CPU, and the rest is still TOSA."""

from typing import Any

import pytest
import torch
from eager import Function
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.tosa import run_reference_model
from stepwell.dialects.ethosu import DelegateOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.tosa.integers.distributions import softmax_by_table
from stepwell.translate.on_npu import OnNpu

from .arm_quantized import quantized_by_ours, rounded
from .graphs import Of


def words(
    i: Tensor, embedding: nn.Module, norm: nn.Module, first: nn.Module, last: nn.Module
) -> Tensor:
    """int64 indices, which TOSA of floats has not, between what it has."""
    x = norm(torch.relu(first(embedding(i))))
    greatest = last(torch.tanh(x)).argmax(-1)
    return torch.softmax(last(torch.tanh(embedding(greatest))), -1)


def of_words() -> Function:
    layers = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 4)
    return Function(words, *layers).eval()


def images(x: Tensor, first: nn.Module, last: nn.Module) -> Tensor:
    """A convolution, a running product of floats, a convolution."""
    return last(torch.cumprod(torch.sigmoid(first(x)), 2))


def delegates(lowered: Any) -> list[DelegateOp]:
    return [op for op in lowered.program.module.walk() if isinstance(op, DelegateOp)]


def in_order_of_program(lowered: Any, inputs: tuple[Tensor, ...]) -> list[tuple[Any, Any]]:
    """Each delegate's operands and results as the interpreter computes them."""
    func = lowered.program.method()
    environment: dict[Any, Any] = dict(zip(func.body.block.args, inputs, strict=True))
    interpreter, seen = Interpreter(lowered.program.weights), []
    for op in func.body.block.ops:
        if op.name == "func.return":
            break
        with torch.no_grad():
            interpreter.step(op, environment)
        if isinstance(op, DelegateOp):
            seen.append(
                ([environment[v] for v in op.operands], [environment[v] for v in op.results])
            )
    return seen


def test_floats_that_tosa_lacks_run_on_the_cpu_between_delegates() -> None:
    torch.manual_seed(0)
    model, i = of_words(), torch.randint(0, 20, (2, 5))
    exported = export(model, (i,))
    lowered = stepwell.lower(exported, "tosa-1.0+fp+cpu")
    assert lowered.report.delegates == 2
    assert "aten.embedding.default" in lowered.report.outside
    reasons = {r.op: r.reason for r in lowered.report.refusals}
    assert "i64" in reasons["aten.embedding.default"]
    torch.testing.assert_close(lowered.program.run(i)[0], model(i))
    for data, (given, wanted) in zip(
        lowered.emit("delegates"), in_order_of_program(lowered, (i,)), strict=True
    ):
        torch.testing.assert_close(run_reference_model(data, given), tuple(wanted))


def test_integers_go_as_tosa_and_floats_between_them_to_the_cpu() -> None:
    torch.manual_seed(0)
    model = Function(images, nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
    exported = quantized_by_ours(model, torch.randn(1, 3, 8, 8))
    with pytest.raises(stepwell.StepwellError, match="cumprod"):
        stepwell.lower(exported, "tosa-1.0+int")
    lowered = stepwell.lower(exported, "tosa-1.0+int+cpu", io="int8")
    assert (len(delegates(lowered)), lowered.report.delegates) == (2, 2)
    x = torch.randint(-128, 128, (1, 3, 8, 8), dtype=torch.int8)
    seen = in_order_of_program(lowered, (x,))
    for data, (given, wanted) in zip(lowered.emit("delegates"), seen, strict=True):
        for mine, theirs in zip(run_reference_model(data, given), wanted, strict=True):
            assert torch.equal(mine, theirs)
    read = stepwell.read_pte(lowered.to_pte())
    read.verify()
    assert sum(isinstance(op, DelegateOp) for op in read.module.walk()) == 2


def through_bytes(x: Tensor) -> Tensor:
    return rounded(x, 0.5, 3)


def branches(x: Tensor) -> Tensor:
    """Quantized sums in the branches of a condition, whose operands are floats."""

    def summed(y: Tensor) -> Tensor:
        return through_bytes(through_bytes(y) + through_bytes(y))

    return torch.cond(x.sum() > 0, summed, torch.relu, (x,))


@pytest.mark.parametrize("target", ["tosa-1.0+int+cpu", "ethos-u85-256"])
def test_what_stands_in_a_branch_of_the_cpus_stays_there(target: str) -> None:
    x = torch.randn(2, 5) * 4
    lowered = stepwell.lower(export(Of(branches), (x,)), target)
    assert not delegates(lowered)
    reasons = " ".join(refusal.reason for refusal in lowered.report.refusals)
    assert "it is inside control.cond, which runs on the CPU" in reasons
    lowered.to_pte()
    for value in (x.abs(), -x.abs()):
        torch.testing.assert_close(lowered.program.run(value)[0], branches(value))


def put_by_mask(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    return through_bytes(torch.index_put(through_bytes(x), (mask,), through_bytes(values)))


def test_what_only_tosa_could_do_over_bytes_is_done_over_floats() -> None:
    inputs = (torch.randn(6) * 4, torch.arange(6) % 2 == 0, torch.randn(3))
    lowered = stepwell.lower(export(Of(put_by_mask), inputs), "tosa-1.0+int+cpu")
    assert lowered.report.outside["aten.index_put.default"] == 1
    lowered.to_pte()
    assert torch.equal(lowered.program.run(*inputs)[0], put_by_mask(*inputs))


def test_a_rewrite_for_some_ops_promises_what_it_does_for_all() -> None:
    inner = step(softmax_by_table)
    assert OnNpu(inner).bound == inner.bound != EXACT


def test_a_pte_holds_each_delegate_as_executorchs_tosa_backend_does() -> None:
    exported = export(of_words(), (torch.randint(0, 20, (2, 5)),))
    lowered = stepwell.lower(exported, "tosa-1.0+fp+cpu")
    held = read_container(lowered.to_pte()).methods[0].delegates
    assert [bytes(d.payload) for d in held] == lowered.emit("delegates")
    theirs = TosaCompileSpec("TOSA-1.0+FP")._to_list()
    for delegate in held:
        assert delegate.backend == "TOSABackend"
        assert dict(delegate.options).items() <= {s.key: s.value for s in theirs}.items()
    with pytest.raises(stepwell.StepwellError, match="no backend for TOSA"):
        lowered.run(torch.randint(0, 20, (2, 5)))


def test_what_has_no_engine_is_checked_up_to_its_artifact() -> None:
    exported = export(of_words(), (torch.randint(0, 20, (2, 5)),))
    stepwell.lower(exported, "tosa-1.0+fp+cpu", check=True)
    told = str(stepwell.check(exported, target="tosa-1.0+fp+cpu"))
    assert "no backend for TOSA" in told and "the engine fails" not in told
