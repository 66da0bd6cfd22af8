"""Block-scaled tensors that only move: the interpreter has the reference model's bits."""

import pytest
import torch

import stepwell
from stepwell.backends.tosa import run_reference_model, to_tosa
from stepwell.ir.diagnostics import StepwellError

PAYLOADS = ("f8E4M3FN", "f4E2M1FN", "!tosa.mxint8")


def sizes(name: str, *values: int) -> str:
    held = f"<{{values = dense<{list(values)}> : tensor<{len(values)}xindex>}}>"
    return f'{name} = "tosa.const_shape"() {held} : () -> !tosa.shape<{len(values)}>\n  '


def moved(payload: str, shape: str, constants: str, op: str, types: str) -> str:
    """A tensor quantized in blocks, moved, and read."""
    held = f"!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:{payload}>"
    return f"""module attributes {{stepwell.level = "tosa"}} {{
func.func @main(%a: tensor<1x4x4x64xf32>) -> tensor<{shape}xf32> {{
  %q = tosa.cast %a : (tensor<1x4x4x64xf32>) -> tensor<1x4x4x64x{held}>
  {constants}%r = {op} : (tensor<1x4x4x64x{held}>, {types}) -> tensor<{shape}x{held}>
  %y = tosa.cast %r : (tensor<{shape}x{held}>) -> tensor<{shape}xf32>
  func.return %y : tensor<{shape}xf32>
}}
}}"""


def resized(payload: str, mode: str) -> str:
    constants = sizes("%s", 4, 2, 6, 4) + sizes("%o", -1, 1) + sizes("%b", 1, -1)
    op = f"tosa.resize %q, %s, %o, %b {{mode = {mode}}}"
    types = "!tosa.shape<4>, !tosa.shape<2>, !tosa.shape<2>"
    return moved(payload, "1x8x5x64", constants, op, types)


def reshaped(payload: str) -> str:
    constants = sizes("%s", 4, 2, 128)
    return moved(payload, "4x2x128", constants, "tosa.reshape %q, %s", "!tosa.shape<3>")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_nearest_elements_and_other_shapes_are_the_reference_models(payload: str) -> None:
    x = torch.randn(1, 4, 4, 64)
    for text in (resized(payload, "NEAREST_NEIGHBOR"), reshaped(payload)):
        program = stepwell.parse(text)
        (wanted,) = run_reference_model(to_tosa(program, "main"), (x,))
        assert torch.equal(program.run(x, method="main")[0], wanted)


def test_between_blocks_there_is_nothing() -> None:
    """The reference model gives up on it too."""
    program = stepwell.parse(resized("f8E4M3FN", "BILINEAR"))
    with pytest.raises(StepwellError, match="nearest elements only"):
        program.run(torch.randn(1, 4, 4, 64), method="main")
