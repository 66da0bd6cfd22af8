"""Programs for an Ethos-U with a Cortex-M beside it: what runs where, and Vela's payloads."""

import contextlib
import io
from collections import Counter
from typing import Any, get_args

import pytest
import torch
from eager import Function
from torch import Tensor, nn
from torch.export import ExportedProgram, export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from xdsl.utils.test_value import create_ssa_value

import stepwell
from stepwell.backends.ethos_u.emit import tosa_of
from stepwell.backends.ethos_u.vela import compile_tosa, read_stream
from stepwell.backends.tosa.reference_model import run_reference_model
from stepwell.dialects.ethosu import BinaryOp, DelegateOp
from stepwell.dialects.quant.ports import meanings
from stepwell.dialects.tosa import generated as t
from stepwell.ir.dtypes import i8, i16, i32
from stepwell.ir.types import tensor
from stepwell.pipelines.npu import OVER_INTEGERS, ethosu_pipeline, steps_to_npu
from stepwell.translate.lowerings.tosa.integers.layers import Rows as RowsAre
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer
from stepwell.translate.rewrites.ethosu.lower_for_npu import LowerForNpu, refuses

pytestmark = pytest.mark.usefixtures("forked")  # Vela is asked some thirty times.
U55, U85 = "ethos-u55-128", "ethos-u85-256"


def classifier(x: Tensor, conv: nn.Module, fc: nn.Module) -> Tensor:
    """A convolution, a row of probabilities, and a quotient, which no Ethos-U has."""
    x = torch.relu(conv(x)).mean((2, 3))
    x = torch.softmax(fc(x), -1)
    return fc(x / (x * x + 2.0))


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    torch.manual_seed(0)
    model = Function(classifier, nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 8))
    return quantized(model, torch.randn(1, 3, 8, 8))


@pytest.fixture(scope="module")
def lowered(exported: ExportedProgram) -> Any:
    return stepwell.lower(exported, U55, io="int8")


def test_what_the_npu_lacks_runs_on_the_cpu_in_the_same_program(lowered: Any) -> None:
    ops = Counter(op.name for op in lowered.program.method().body.block.ops)
    assert (ops["ethosu.delegate"], ops["cmsis.quantized_div"]) == (2, 1)
    assert lowered.report.delegates == 2
    assert dict(lowered.report.outside) == {"cmsis.quantized_div": 1}
    again = stepwell.parse(str(lowered.program), weights=lowered.program.weights)
    assert str(again) == str(lowered.program)


def quantized(model: nn.Module, *inputs: Tensor) -> ExportedProgram:
    """By this project's quantizer."""
    prepared = prepare_pt2e(
        export(model.eval(), inputs).module(check_guards=False), CortexMQuantizer()
    )
    prepared(*inputs)
    return export(convert_pt2e(prepared), inputs)


@pytest.mark.parametrize(("held", "is_lacking"), [(i8, False), (i16, False), (i32, True)])
def test_a_u55_takes_the_maximum_of_bytes_alone(held: Any, is_lacking: bool) -> None:
    op = t.ReduceMaxOp.create(
        operands=[create_ssa_value(tensor([2, 4], held))], result_types=[tensor([2, 1], held)]
    )
    assert (refuses(U55, op) == "the NPU has no REDUCE_MAX") == is_lacking
    assert refuses(U85, op) is None


@pytest.mark.parametrize("accelerator", [U55, U85])
@pytest.mark.parametrize("size", [2, 12, 64, 600, 2000])
def test_a_softmax_is_one_delegate_within_a_unit_of_the_real_one(
    accelerator: str, size: int
) -> None:
    torch.manual_seed(size)
    lowered = stepwell.lower(
        quantized(nn.Softmax(-1), 3 * torch.randn(6, size)), accelerator, io="int8"
    )
    assert (lowered.report.delegates, lowered.report.outside.total()) == (1, 0)
    x = torch.randint(-128, 128, (6, size), dtype=torch.int8)
    x[0], x[1], x[2, 1:] = -128, 127, -128
    (held,) = meanings(lowered.program.method(), "input")
    assert held is not None
    real = (torch.softmax(x.double() * held.scale, -1) * 256 - 128).clamp(max=127)
    (made,) = lowered.program.run(x)
    assert float((made.double() - real).abs().max()) < 1.0
    if size == 64:
        assert lowered.estimate()[0].cycles > 0  # Vela takes it whole.


@pytest.mark.parametrize(
    ("mode", "factor", "delegates"),
    [("nearest", 2, 1), ("nearest", 8, 1), ("nearest", 3, 2), ("bilinear", 2, 2)],
)
def test_a_resize_that_vela_refuses_runs_on_the_cpu_with_its_words(
    mode: str, factor: int, delegates: int
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Upsample(scale_factor=factor, mode=mode), nn.Conv2d(8, 4, 3)
    )
    x = torch.randn(1, 3, 8, 8)
    exported = export(stepwell.quantize(model, "int8-tosa", [x]), (x,))
    lowered = stepwell.lower(exported, U55)
    assert lowered.report.delegates == delegates
    reasons = " ".join(refusal.reason for refusal in lowered.report.refusals)
    assert ("(Resize) could not run on NPU" in reasons) == (delegates == 2)
    again = stepwell.read_pte(lowered.to_pte())
    assert sum(isinstance(op, BinaryOp) for op in again.module.walk()) == delegates
    named = [n for n in exported.graph.nodes if "dequantize_per_tensor" in str(n.target)]
    (got,) = lowered.program.run(x)
    # A convolution, a resize and a convolution, each within a unit: of the last one's scale.
    assert (got - exported.module()(x)).abs().max() <= 3 * named[-1].args[1]


def test_the_program_computes_what_the_cpu_alone_does_within_its_steps(
    exported: ExportedProgram, lowered: Any
) -> None:
    x = torch.randint(-128, 128, (1, 3, 8, 8), dtype=torch.int8)
    (alone,) = stepwell.lower(exported, "cortex-m55", io="int8").program.run(x)
    (beside,) = lowered.program.run(x)
    # Eight quantized layers, each within a unit of real arithmetic on either side.
    assert int((alone.int() - beside.int()).abs().max()) <= 16


def test_a_pte_holds_velas_streams_and_opens_up_again(lowered: Any) -> None:
    program = stepwell.read_pte(lowered.to_pte())
    program.verify()
    binaries = [op for op in program.module.walk() if isinstance(op, BinaryOp)]
    assert len(binaries) == 2
    for op in binaries:
        payload = bytes(program.weights.get(op.payload.data).numpy().tobytes())
        stream = read_stream(payload)
        assert op.accelerator.data == U55
        assert op.scratch_bytes.value.data == stream.scratch > 0
        assert len(stream.inputs) == len(op.operands) and len(stream.outputs) == len(op.results)
        assert stream.commands


def test_payloads_are_those_of_executorchs_own_flow(lowered: Any) -> None:
    from executorch.backends.arm.arm_vela import vela_compile
    from executorch.backends.arm.ethosu import EthosUCompileSpec

    op = next(op for op in lowered.program.module.walk() if isinstance(op, DelegateOp))
    data = tosa_of(op, lowered.program.weights)
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = vela_compile(data, list(EthosUCompileSpec(U55).compiler_flags))
    assert compile_tosa(data, U55).payload == theirs.processed_bytes


def test_velas_estimate_is_told_for_each_delegate(lowered: Any) -> None:
    estimates = lowered.estimate()
    assert len(estimates) == 2
    assert all(e.cycles > 0 and e.sram > 0 for e in estimates)


def test_what_is_damaged_or_cannot_be_is_refused(exported: ExportedProgram, lowered: Any) -> None:
    with pytest.raises(stepwell.StepwellError, match="lacks the blocks"):
        read_stream(b"")
    whole = compile_tosa(
        tosa_of(next(o for o in lowered.program.module.walk() if isinstance(o, DelegateOp)),
                lowered.program.weights), U55
    ).payload  # fmt: skip
    with pytest.raises(stepwell.StepwellError, match=r"ends after its payload|lacks the blocks"):
        read_stream(whole[: len(whole) // 2])
    with pytest.raises(stepwell.StepwellError, match="no simulator"):
        lowered.run(torch.zeros(1, 3, 8, 8, dtype=torch.int8))
    with pytest.raises(stepwell.StepwellError, match="there is no target 'ethos-u55-100'"):
        stepwell.lower(exported, "ethos-u55-100")
    with pytest.raises(stepwell.StepwellError, match="Vela refuses"):
        compile_tosa(b"no flatbuffer", U55)


@pytest.fixture(scope="module")
def rows() -> ExportedProgram:
    """Two layers over sixteen rows."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    return quantized(layers, torch.randn(1, 16, 32))


def with_rows(kind: Any, accelerator: str = U85) -> Any:
    """The pipeline whose linear layers have rows of one kind."""
    pipeline = ethosu_pipeline(accelerator, io="int8")
    lower = LowerForNpu(accelerator, steps_to_npu(accelerator, kind), OVER_INTEGERS)
    return pipeline.replace("lower-for-npu", lower)


def test_vela_is_asked_for_the_form_with_the_fewest_cycles(rows: ExportedProgram) -> None:
    asked = stepwell.lower(rows, U85, io="int8", optimize="cycles")
    forms = [stepwell.lower(rows, U85, pipeline=with_rows(kind)) for kind in get_args(RowsAre)]
    cycles = [sum(e.cycles for e in lowered.estimate()) for lowered in forms]
    assert sum(e.cycles for e in asked.estimate()) == min(cycles) < max(cycles)
    x = torch.randint(-128, 128, (1, 16, 32), dtype=torch.int8)
    (expected,) = asked.program.run(x)
    for lowered in forms:
        assert torch.equal(lowered.program.run(x)[0], expected)


@pytest.mark.parametrize("is_last", [True, False], ids=["at the end", "between layers"])
def test_a_pixel_shuffle_is_convolutions_with_the_same_bytes(is_last: bool) -> None:
    torch.manual_seed(0)
    end = [] if is_last else [nn.Conv2d(2, 3, 3)]
    model = nn.Sequential(nn.Conv2d(3, 18, 3, padding=1), nn.PixelShuffle(3), *end)
    x = torch.randint(-128, 128, (1, 3, 7, 6), dtype=torch.int8)
    program = quantized(model, torch.randn(1, 3, 7, 6))
    lowered = stepwell.lower(program, U85, io="int8")
    transposes = [op for op in lowered.program.module.walk() if isinstance(op, t.TransposeOp)]
    assert {len(op.perms.get_values()) for op in transposes} == {4}
    on_cpu = stepwell.lower(program, "cortex-m55", io="int8").program.run(x)[0].int()
    (made,) = lowered.program.run(x)
    assert int((made.int() - on_cpu).abs().max()) <= 1  # One rounding, or two as in CMSIS-NN.
    (delegate,) = [op for op in lowered.program.module.walk() if isinstance(op, DelegateOp)]
    graph = tosa_of(delegate, lowered.program.weights)
    assert torch.equal(run_reference_model(graph, [x])[0], made)
