"""`check` names the rewrite, the op and both values; it raises no false alarm."""

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from eager import Function, Stateful, exported
from rewrite_runs import program_of
from torch import Tensor, nn
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation

import stepwell
from stepwell.dialects import aten
from stepwell.ir.program import Program
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import EXACT, Bound, History, Pass, Rewrite, Rewriter
from stepwell.targets.table import find_target
from stepwell.validation.check import check
from stepwell.validation.compare import differs
from stepwell.validation.engine import check_artifact
from stepwell.validation.recording import record
from stepwell.validation.samples import make_samples


class Model(nn.Module):
    """Linear, layer norm, relu, linear, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return self.last(y) * torch.sigmoid(x[:, :4])


INPUTS = (torch.linspace(-2, 2, 24).reshape(3, 8),)


def program() -> stepwell.Program:
    torch.manual_seed(1)
    return stepwell.from_exported_program(exported(Model(), *INPUTS))


@dataclass(frozen=True)
class MulToAdd(Rewrite[Any]):
    """Wrong: a product becomes a sum."""

    name: ClassVar[str] = "mul-to-add"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulTensor,)

    def match(self, op: Any, program: Program) -> Any:
        return op

    def build(self, match: Any, rw: Rewriter) -> None:
        left, right = match.operands
        new = aten.AddTensor.make(left, right, result_types=[match.results[0].type])
        rw.replace(match, [rw.insert(new).results[0]])


@dataclass(frozen=True)
class AddNothing(Rewrite[Any]):
    """Wrong only for infinities: relu(x) becomes relu(x) + (x - x)."""

    name: ClassVar[str] = "add-nothing"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ReluDefault,)

    def match(self, op: Any, program: Program) -> Any:
        return (
            None if any(isinstance(u.operation, aten.AddTensor) for u in op.results[0].uses) else op
        )

    def build(self, match: Any, rw: Rewriter) -> None:
        kept = [match.results[0].type]
        x = match.operands[0]
        relu = rw.insert(aten.ReluDefault.make(x, result_types=kept)).results[0]
        zero = rw.insert(aten.SubTensor.make(x, x, result_types=kept)).results[0]
        new = rw.insert(aten.AddTensor.make(relu, zero, result_types=kept))
        rw.replace(match, [new.results[0]])


@dataclass(frozen=True)
class NegateLast(Pass):
    """Wrong, and no rewrite: the last linear's bias becomes another weight."""

    name: ClassVar[str] = "swap-relu-for-neg"

    def apply(self, program: Program, history: History) -> int:
        for op in program.method().body.block.ops:
            if isinstance(op, aten.ReluDefault):
                new = aten.NegDefault.make(op.operands[0], result_types=[op.results[0].type])
                new.location = op.location
                block = op.parent
                assert block is not None
                block.insert_op_before(new, op)
                op.results[0].replace_all_uses_with(new.results[0])
                op.detach()
                op.erase()
                return 1
        return 0


def only(*steps: Any) -> Pipeline:
    return Pipeline("planted", steps)


def test_a_lowering_to_xnnpack_keeps_every_promise() -> None:
    torch.manual_seed(1)
    model = Model().eval()
    source = stepwell.from_exported_program(exported(model, *INPUTS))
    result = check(source, "xnnpack", inputs=INPUTS, reference=model)
    assert result.ok, str(result)
    assert result.steps[0].name == "import" and result.steps[0].samples >= 3
    assert result.steps[-1].name == "artifact (pte)" and result.steps[-1].samples >= 3
    assert sum(step.applications for step in result.steps) > 5


class OneColor(nn.Module):
    """An instance norm, whose image of zeros cancels, and a layer on an expanded parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 5, padding=2)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.query = nn.Parameter(torch.randn(1, 1, 8))
        self.project = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(self.stem(x)).flatten(2)
        return self.project(self.query.expand(len(x), -1, -1)) @ tokens


@pytest.mark.kernels
def test_numbers_that_cancel_and_constants_that_lie_otherwise_are_no_findings() -> None:
    result = check(exported(OneColor(), torch.randn(2, 1, 16, 16)), "xnnpack")
    assert result.ok, result.findings


def test_a_wrong_rewrite_is_found_and_named_with_its_op_line_and_values() -> None:
    own = find_target("xnnpack").pipeline
    planted = replace(own, steps=(MulToAdd(), *own.steps))
    result = check(program(), "xnnpack", planted, inputs=INPUTS)
    assert not result.ok
    finding = result.findings[0]
    assert finding.rewrite == "mul-to-add"
    assert finding.op == "aten.mul.Tensor" and finding.node == "mul"
    assert finding.where is not None and "test_check.py" in finding.where
    assert "became" in finding.what
    assert finding.replacement is not None and "aten.add.Tensor" in finding.replacement
    assert {finding.step for finding in result.findings} == {"mul-to-add"}, "and it alone"


def test_a_rewrite_wrong_only_for_infinities_is_found_on_the_sample_that_holds_them() -> None:
    source = program_of("%y = aten.relu.default(%x: f32[64])")
    result = check(source, "xnnpack", only(AddNothing()), artifact=False)
    samples = {finding.sample for finding in result.findings if finding.rewrite}
    assert "random" not in samples
    assert "infinities and NaNs" in samples


def test_a_wrong_pass_is_located_at_the_first_node_that_differs() -> None:
    result = check(program(), "xnnpack", only(NegateLast()), inputs=INPUTS, artifact=False)
    finding = result.findings[0]
    assert finding.rewrite is None and finding.step == "swap-relu-for-neg"
    assert finding.node == "relu" and finding.op == "aten.relu.default"


def test_a_fault_too_small_for_the_outputs_is_still_found() -> None:
    """The product is lost in the rounding of the sum: only a look at the rewrite itself sees it."""
    source = program_of("""
        %s = aten.mul.Scalar(%x: f32[4], 1.0e-20); %t = aten.mul.Tensor(%s, %s)
        %y = aten.add.Scalar(%t, 1.0)""")
    result = check(source, "xnnpack", only(MulToAdd()), artifact=False)
    assert result.findings and result.findings[0].rewrite == "mul-to-add"


def test_an_engine_that_computes_something_else_is_found() -> None:
    lowered = stepwell.lower(program(), "xnnpack")
    func = lowered.program.method()
    recordings = {
        "forward": [record(func, lowered.program.weights, s) for s in make_samples(func, INPUTS)]
    }
    target = replace(lowered.target, runner=lambda a, inputs, method: (torch.zeros(3, 4),))
    verdicts, findings, _ = check_artifact(target, lowered.program, recordings, {})
    assert findings and not verdicts[0].ok and findings[0].step == "artifact"


def test_a_program_that_runs_on_no_sample_says_so() -> None:
    source = program_of("%y = aten.embedding.default(%w: weight f32[1, 3], %i: i64[2])")
    with pytest.raises(stepwell.StepwellError, match="fails on every sample"):
        check(source, "xnnpack", inputs=(torch.tensor([5, 6]),))


def test_results_come_as_json_and_as_a_page() -> None:
    result = check(program(), "xnnpack", only(MulToAdd()), inputs=INPUTS, artifact=False)
    told = json.loads(result.to_json())
    assert told["ok"] is False and told["findings"][0]["rewrite"] == "mul-to-add"
    page = result.to_html()
    assert "mul-to-add" in page and "http" not in page


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_exact_means_equal_bits_but_for_nans(dtype: torch.dtype) -> None:
    nan, other = torch.tensor([torch.nan], dtype=dtype), torch.tensor([-torch.nan], dtype=dtype)
    assert differs(nan, other, EXACT) is None
    zero = torch.tensor([0.0], dtype=dtype)
    assert differs(zero, -zero, EXACT) is not None


def test_a_bound_is_met_element_by_element() -> None:
    before = torch.tensor([100.0, 1.0])
    after = torch.tensor([100.5, 1.0])
    assert differs(before, after, Bound(0.01)) is None
    assert differs(before, torch.tensor([100.0, 1.5]), Bound(0.01)) is not None
    assert differs(before, torch.tensor([100.0, torch.inf]), Bound(0.01)) is not None


def test_samples_are_the_same_for_the_same_seed() -> None:
    func = program().method()
    one, two = make_samples(func, INPUTS, 3), make_samples(func, INPUTS, 3)
    assert [s.label for s in one] == [s.label for s in two]
    for a, b in zip(one, two, strict=True):
        assert differs(a.inputs[0], b.inputs[0], EXACT) is None


HALF = torch.export.Dim("half", min=2, max=5)
ROWS: dict[str, tuple[Any, tuple[int, int]]] = {
    "a range": (torch.export.Dim("rows", min=2, max=7), (2, 7)),
    # Torch writes 0 for a lower bound that nobody states.
    "no lower bound": (torch.export.Dim("rows", max=7), (1, 7)),
    "a derived size": (2 * HALF, (4, 10)),
}


@pytest.mark.parametrize("name", ROWS)
def test_dynamic_dimensions_are_tried_at_both_ends_of_their_range(name: str) -> None:
    rows, ends = ROWS[name]
    inputs = (torch.randn(6, *INPUTS[0].shape[1:]),)
    source = stepwell.from_exported_program(exported(Model(), *inputs, dynamic={0: rows}))
    samples = make_samples(source.method(), inputs)
    sizes = {sample.label: sample.inputs[0].shape[0] for sample in samples}
    assert sizes["random"] == 6
    assert (sizes["random, smallest shapes"], sizes["random, largest shapes"]) == ends


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_steps_on_halves_may_round_to_the_next_half(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4))
    inputs = (torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).to(dtype),)
    assert check(exported(model.to(dtype), *inputs), "xnnpack", inputs=inputs).ok


@pytest.mark.parametrize(("moved", "fits"), [(2.0, True), (2.5, False)])
def test_a_half_may_move_by_two_steps_of_the_largest(moved: float, fits: bool) -> None:
    before = torch.tensor([1.0, 0.25], dtype=torch.float16)
    after = before + moved * torch.tensor([0.0, torch.finfo(torch.float16).eps]).half()
    assert (differs(before, after, Bound(1e-6)) is None) == fits
    assert differs(before, after, EXACT) is not None


def test_a_sum_may_move_by_the_size_of_its_channel_and_no_further() -> None:
    before = torch.ones(1, 2, 4, 4)
    before[0, 1] = 1000.0
    before[0, :, 0, 0] = 0.0
    after = before.clone()
    after[0, :, 0, 0] = 1e-4
    found = differs(before, after, Bound(1e-6), against="slice")
    assert found is not None and found.count == 1 and found.index == (0, 0, 0, 0)
    assert differs(before, after, Bound(1e-6), against="tensor") is None
    assert differs(before, after, Bound(1e-6)) is not None


def gates(x: Tensor, scale: Tensor, *layers: nn.Module) -> Tensor:
    """Layers and gates in halves, scaled by a number of another type."""
    for layer in layers:
        x = nn.functional.silu(layer(x))
    return x * scale.to(x.dtype)


def test_an_assertion_that_goes_does_not_leave_halves_to_be_judged_by_the_outputs() -> None:
    inputs = (torch.randn(4, 16).half(), torch.ones(1))
    layers = [nn.Linear(16, 16) for _ in range(12)]
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.7)
    source = exported(Function(gates, *layers).half(), *inputs)
    found = check(source, "xnnpack", inputs=inputs, artifact=False)
    assert found.ok, found.findings
    (normalize,) = (step for step in found.steps if step.name == "normalize")
    assert normalize.applied == normalize.applications + 1 and not normalize.note


@dataclass(frozen=True)
class RoundFactor(Rewrite[Any]):
    """A factor of four bits, which moves a product by less than it declares."""

    name: ClassVar[str] = "round-factor"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulScalar,)
    bound: ClassVar[Bound] = Bound(0.02, reason="the factor is rounded")

    def match(self, op: Any, program: Program) -> Any:
        return None if op.other == FloatAttr(1.5, 64) else op

    def build(self, match: Any, rw: Rewriter) -> None:
        kept = [match.results[0].type]
        new = rw.insert(aten.MulScalar.make(match.operands[0], 1.5, result_types=kept))
        rw.replace(match, new.results)


def sums(held: Any, x: Tensor) -> Tensor:
    """Adds up what it was called with, scaled."""
    held.sum += x * 1.51
    return held.sum + 0


def test_what_a_bound_allowed_is_taken_over_where_nothing_hangs_on_the_state() -> None:
    """A sample from another state looks at the factor no more, and still ends with the new one."""
    inputs = (torch.linspace(1, 2, 4),)
    source = exported(Stateful(sums, sum=torch.zeros(4)), *inputs)
    found = check(source, "xnnpack", only(RoundFactor()), inputs=inputs, artifact=False)
    assert found.ok, found.findings
    assert [step.name for step in found.steps] == ["round-factor", "all steps"]
