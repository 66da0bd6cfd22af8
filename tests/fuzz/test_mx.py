"""Random small MX models: the interpreter's bits are the reference model's, in both forms."""

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stepwell
from stepwell.backends.tosa.installed import tool
from stepwell.dialects.tosa.targets import MX_EXTENSIONS
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.translate.mxfp import MxMatmul, to_mxfp

ACTIVATIONS = (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Hardswish, nn.SiLU, nn.Identity)


class Mixing(nn.Module):
    """Rows multiplied with their own transpose."""

    def __init__(self, payload: str, form: str) -> None:
        super().__init__()
        self.product = MxMatmul(payload, form=form)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.product(x, x.transpose(-1, -2)), -1)


def random_model(seed: int, form: str) -> tuple[nn.Module, torch.Tensor, set[str]]:
    """Convolutions, then rows of linear layers, norms and products, and one of their inputs."""
    draw, layers, used = random.Random(seed), list[nn.Module](), set[str]()
    known = [name for name in PAYLOADS if form == "types" or name != "mxint8"]

    def mx(layer: nn.Module) -> nn.Module:
        payload = draw.choice(known)
        second = draw.choice(known) if form == "types" else payload
        used.update((payload, second))
        return to_mxfp(layer, payload, weight_payload=second, convolutions=True, form=form)

    groups, channels, size = draw.choice((1, 2)), draw.choice((6, 32, 40)), draw.choice((4, 7))
    out, stride = 2 * draw.randint(1, 6), draw.choice((1, 2))
    bias = draw.random() < 0.5
    conv = nn.Conv2d(channels, out, 3, stride, draw.choice((0, 1)), groups=groups, bias=bias)
    x = torch.randn(1, channels, size, size) * 2.0 ** draw.randint(-20, 20)
    layers += [mx(conv), draw.choice(ACTIVATIONS)(), nn.Flatten(2)]
    width = nn.Sequential(*layers)(x).shape[-1]
    for _ in range(draw.randint(1, 3)):
        kind = draw.choice(("linear", "linear", "norm", "product"))
        if kind == "linear":
            wider = draw.choice((5, 32, 70))
            layers += [mx(nn.Linear(width, wider, bias=draw.random() < 0.5))]
            width = wider
        elif kind == "norm":
            layers.append(nn.LayerNorm(width))
        else:
            payload = draw.choice(known)
            used.add(payload)
            layers.append(Mixing(payload, form))
            width = out
        layers.append(draw.choice(ACTIVATIONS)())
    return nn.Sequential(*layers).eval(), x, used


@pytest.mark.parametrize("form", ["operators", "types"])
@pytest.mark.parametrize("seed", range(8))
def test_a_random_mx_model_equals_the_reference_model(seed: int, form: str) -> None:
    torch.manual_seed(seed)
    model, x, used = random_model(seed, form)
    needed = (
        ["mxfp", "mxfp_conv"]
        if form == "operators"
        else ["mx_common", *(MX_EXTENSIONS[p] for p in used)]
    )
    low = stepwell.lower(torch.export.export(model, (x,)), "+".join(["tosa-1.1+fp", *needed]))
    (found,), (expected,) = low.program.run(x), low.run(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_tosa_opt_validates_block_scaled_types(tmp_path: Path) -> None:
    model, x, used = random_model(1, "types")
    needed = ["mx_common", *sorted(MX_EXTENSIONS[p] for p in used)]
    low = stepwell.lower(torch.export.export(model, (x,)), "+".join(["tosa-1.1+fp", *needed]))
    file = tmp_path / "model.tosa"
    file.write_bytes(low.to_tosa())
    read = f"tosa-deserialize{{tosa-flatbuffer-filename={file}}}"
    target = f"specification_version=1.1.draft profiles=pro_fp extensions={','.join(needed)}"
    steps = f"{read},tosa-attach-target{{{target}}},tosa-validate{{strict-op-spec-alignment}}"
    done: Any = subprocess.run(
        [
            tool("tosa-opt"),
            f"--pass-pipeline=builtin.module({steps})",
            "/dev/null",
            "-o",
            str(tmp_path / "model.mlir"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "!tosa.block_scaled<BLOCK_SHAPE_32" in (tmp_path / "model.mlir").read_text()
