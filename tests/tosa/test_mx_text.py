"""MX constants in the words of upstream's tools: tosa-opt reads the very codes and scales."""

from pathlib import Path

import pytest
import torch
from torch import nn

import stepwell
from stepwell.dialects.tosa.targets import MX_EXTENSIONS
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.translate.mxfp import to_mxfp

from .graphs import deserialize, tosa_opt, validate


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


def constants(text: str) -> set[str]:
    """The elements of the constants, as tosa-opt prints them."""
    return {line.split("<{")[1] for line in text.splitlines() if '"tosa.const"' in line}


@pytest.mark.parametrize("form", ["operators", "types"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_tosa_opt_reads_from_our_text_what_it_reads_from_our_flatbuffer(
    payload: str, form: str, tmp_path: Path
) -> None:
    low, options = lowered(payload, form)
    text, data, ours, theirs = (tmp_path / name for name in ("text", "data", "ours", "theirs"))
    text.write_text(low.to_mlir())
    data.write_bytes(low.to_tosa())
    for said in (
        tosa_opt(validate(options), source=text, output=ours),
        tosa_opt(deserialize(data), output=theirs),
    ):
        assert not said, said
    assert len(constants(theirs.read_text())) >= 3
    assert constants(ours.read_text()) == constants(theirs.read_text())


def test_a_scale_of_nan_has_no_text_in_a_type_and_is_a_byte_in_a_tensor() -> None:
    low, _ = lowered("fp6e2m3", "types", torch.inf)
    with pytest.raises(stepwell.StepwellError, match="its scale is NaN") as refused:
        low.to_mlir()
    assert 'form="operators"' in str(refused.value)
    low, _ = lowered("fp6e2m3", "operators", torch.inf)
    assert "tensor<1x8x2xf8E8M0FNU>" in low.to_mlir()
