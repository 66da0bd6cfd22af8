"""MX constants in the words of upstream's tools: tosa-opt reads the very codes and scales."""

import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import stepwell
from stepwell.backends.tosa.installed import tool
from stepwell.dialects.tosa.targets import MX_EXTENSIONS
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.translate.mxfp import to_mxfp

TOSA_OPT = tool("tosa-opt")


def lowered(payload: str, form: str, odd: float = 0.0) -> tuple["stepwell.Lowered", str]:
    """A linear layer with large, small and subnormal weights, and its target for tosa-opt."""
    linear = nn.Linear(40, 8)
    with torch.no_grad():
        linear.weight[0], linear.weight[1, :32] = 0.0, 2.0**-140
        linear.weight[2] *= 2.0**120
        linear.weight[3, 4] = odd
    model = to_mxfp(linear, payload, form=form)
    extensions = ["mxfp"] if form == "operators" else ["mx_common", MX_EXTENSIONS[payload]]
    exported = torch.export.export(model, (torch.randn(3, 40),))
    target = "+".join(["tosa-1.1+fp", *extensions])
    if form == "operators" and payload.startswith("fp8"):
        extensions.append(payload)  # tosa-opt wants it for a constant of fp8, mxfp or not
    options = f"specification_version=1.1.draft profiles=pro_fp extensions={','.join(extensions)}"
    return stepwell.lower(exported, target), options


def tosa_opt(pipeline: str, source: str | Path) -> str:
    command = [TOSA_OPT, f"--pass-pipeline=builtin.module({pipeline})", source, "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def constants(text: str) -> set[str]:
    """The elements of the constants, as tosa-opt prints them."""
    return {line.split("<{")[1] for line in text.splitlines() if '"tosa.const"' in line}


@pytest.mark.parametrize("form", ["operators", "types"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_tosa_opt_reads_from_our_text_what_it_reads_from_our_flatbuffer(
    payload: str, form: str, tmp_path: Path
) -> None:
    low, options = lowered(payload, form)
    text, data = tmp_path / "model.mlir", tmp_path / "model.tosa"
    text.write_text(low.to_mlir())
    data.write_bytes(low.to_tosa())
    validated = tosa_opt(
        f"tosa-attach-target{{{options}}},tosa-validate{{strict-op-spec-alignment}}", text
    )
    read = tosa_opt(f"tosa-deserialize{{tosa-flatbuffer-filename={data}}}", "/dev/null")
    assert len(constants(read)) >= 3
    assert constants(validated) == constants(read)


def test_a_scale_of_nan_has_no_text_in_a_type_and_is_a_byte_in_a_tensor() -> None:
    low, _ = lowered("fp6e2m3", "types", torch.inf)
    with pytest.raises(stepwell.StepwellError, match="its scale is NaN") as refused:
        low.to_mlir()
    assert 'form="operators"' in str(refused.value)
    low, _ = lowered("fp6e2m3", "operators", torch.inf)
    assert "tensor<1x8x2xf8E8M0FNU>" in low.to_mlir()
