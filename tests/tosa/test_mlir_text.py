"""What we print for upstream's tools is theirs: tosa-opt validates it, IREE runs it."""

from pathlib import Path

import pytest
import torch
from torch.export import export

import stepwell
from dynamic import dynamic_length
from llama import llama_4layers
from quantized import quantize, small_conv_net
from resnet import resnet8

from .graphs import assert_tosa_opt_accepts, tosa_opt


def fp32():
    model, inputs = resnet8()
    return stepwell.lower(export(model.eval(), inputs), "tosa-1.0+fp"), inputs[0]


def int8():
    model, inputs = small_conv_net()
    lowered = stepwell.lower(quantize(model.eval(), inputs, per_channel=True), "tosa-1.0+int")
    return lowered, torch.randint(-128, 128, inputs[0].shape, dtype=torch.int8)


def any_length():
    model, inputs, shapes = dynamic_length()
    exported = export(model.eval(), inputs, dynamic_shapes=shapes)
    return stepwell.lower(exported, "tosa-1.1+fp+shape"), inputs[0]


@pytest.mark.parametrize(
    ("make", "target"),
    [
        (fp32, "specification_version=1.0 profiles=pro_fp"),
        (int8, "specification_version=1.0 profiles=pro_int"),
        (any_length, "specification_version=1.1.draft profiles=pro_fp extensions=shape"),
    ],
    ids=["fp32", "int8", "symbolic sizes"],
)
def test_tosa_opt_parses_verifies_and_validates_our_text(make, target: str, tmp_path: Path) -> None:
    assert_tosa_opt_accepts(make()[0].to_mlir(), target, tmp_path)


def test_tosa_opts_flatbuffer_of_our_text_computes_what_ours_does(tmp_path: Path) -> None:
    lowered, x = fp32()
    source, target = tmp_path / "model.mlir", tmp_path / "model.tosa"
    source.write_text(lowered.to_mlir())
    options = f"tosa-flatbuffer-filename={target} retain-graph-input-output-names=true"
    assert not tosa_opt(f"tosa-serialize{{{options}}}", source=source)
    back = stepwell.read_tosa(target.read_bytes())
    assert torch.equal(back.run(x, method="main")[0], lowered.program.run(x)[0])


def test_a_program_with_buffers_has_no_text_and_says_why() -> None:
    model, inputs = llama_4layers()
    lowered = stepwell.lower(export(model.eval(), inputs), "tosa-1.1+fp+int+variable")
    with pytest.raises(stepwell.StepwellError, match="kept between calls"):
        lowered.to_mlir()


@pytest.mark.parametrize("make", [fp32, int8], ids=["fp32", "int8"])
def test_iree_compiles_and_runs_our_text(make) -> None:
    reason = "IREE is an optional extra: pip install stepwell[iree]"
    compiler = pytest.importorskip("iree.compiler", reason=reason)
    runtime = pytest.importorskip("iree.runtime", reason=reason)
    lowered, x = make()
    options = ["--iree-llvmcpu-target-cpu=generic"]
    module = compiler.compile_str(
        lowered.to_mlir(), input_type="tosa", target_backends=["llvm-cpu"], extra_args=options
    )
    context = runtime.SystemContext(config=runtime.Config("local-task"))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, module))
    given = context.modules.module["forward"](x.numpy())
    found = torch.from_numpy(given.to_host().copy())
    expected = lowered.program.run(x)[0]
    if x.dtype == torch.int8:
        assert torch.equal(found, expected)
    else:
        assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
