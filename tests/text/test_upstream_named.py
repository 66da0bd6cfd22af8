"""Named operators of linalg, loops of known bounds and mixtures of MLIR's dialects come in."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stepwell
from stepwell.ir.diagnostics import StepwellError

Case = tuple[str, str, list[list[int]], Callable[..., torch.Tensor]]


def _windows(x: torch.Tensor, window: list[int], result: list[int], step: int = 1) -> Any:
    """(place in the window, what all windows have there) of axes 1 and 2."""
    for row in range(window[0]):
        for column in range(window[1]):
            tall = slice(row, row + step * (result[0] - 1) + 1, step)
            wide = slice(column, column + step * (result[1] - 1) + 1, step)
            yield (row, column), x[:, tall, wide]


def _depthwise(x: torch.Tensor, w: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    for place, part in _windows(x, [2, 2], [2, 2], 2):
        o = o + part[..., None] * w[place]
    return o


def _conv(x: torch.Tensor, w: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    for at in range(2):
        o = o + x[:, at : at + 3] @ w[at]
    return o


def _sum(x: torch.Tensor, w: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    return o + sum(part for _, part in _windows(x, [2, 2], [3, 4]))


def _least(x: torch.Tensor, w: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    parts = torch.stack([part for _, part in _windows(x, [2, 2], [3, 4])])
    return torch.minimum(o, parts.amin(0))


CASES: dict[str, Case] = {
    "dot": ("linalg.dot", "", [[5], [5], []], lambda a, b, o: o + (a * b).sum()),
    "matvec": ("linalg.matvec", "", [[3, 5], [5], [3]], lambda a, b, o: o + a @ b),
    "by batches": (
        "linalg.batch_matmul_transpose_b", "", [[2, 3, 5], [2, 4, 5], [2, 3, 4]],
        lambda a, b, o: o + a @ b.mT,
    ),
    "tiled product": (
        "linalg.mmt4d", "", [[2, 3, 4, 5], [6, 3, 7, 5], [2, 6, 4, 7]],
        lambda a, b, o: o + (a[:, None, :, :, None] * b[None, :, :, None]).sum((-1, 2)),
    ),
    "several of a channel": (
        "linalg.depthwise_conv_2d_nhwc_hwcm", "{strides = dense<2> : vector<2xi64>}",
        [[1, 4, 4, 3], [2, 2, 3, 2], [1, 2, 2, 3, 2]], _depthwise,
    ),
    "along a line": (
        "linalg.conv_1d_nwc_wcf", "{dilations = dense<1> : tensor<1xi64>}",
        [[2, 4, 3], [2, 3, 5], [2, 3, 5]], _conv,
    ),
    "sum of windows": ("linalg.pooling_nhwc_sum", "", [[1, 4, 5, 3], [2, 2], [1, 3, 4, 3]], _sum),
    "least of windows": (
        "linalg.pooling_nhwc_min", "", [[1, 4, 5, 3], [2, 2], [1, 3, 4, 3]], _least
    ),
    "quotient": ("linalg.div", "", [[2, 3], [2, 3], [2, 3]], lambda a, b, o: a / b),
    "softmax": ("linalg.softmax", "dimension(0)", [[4, 3], [4, 3]], lambda a, o: a.softmax(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_named_operator_computes_what_it_says(name: str) -> None:
    op, stated, shapes, wanted = CASES[name]
    types = [f"tensor<{''.join(f'{size}x' for size in shape)}f32>" for shape in shapes]
    values = [f"%{at}" for at in "abcd"[: len(shapes)]]
    arguments = ", ".join(f"{v}: {t}" for v, t in zip(values, types, strict=True))
    text = f"""func.func @f({arguments}) -> {types[-1]} {{
      %r = {op} {stated} ins({", ".join(values[:-1])} : {", ".join(types[:-1])})
           outs({values[-1]} : {types[-1]}) -> {types[-1]}
      return %r : {types[-1]}
    }}"""
    program = stepwell.parse(text)
    given = [torch.rand(shape) + 0.5 for shape in shapes]
    for made in (program, stepwell.parse(str(program))):
        (got,) = made.raise_to("aten").run(*given)
        torch.testing.assert_close(got, wanted(*given))


def test_tiles_are_cut_and_put_together() -> None:
    text = """func.func @f(%a: tensor<5x6xf32>) -> (tensor<2x3x3x2xf32>, tensor<5x6xf32>) {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<2x3x3x2xf32>
      %p = linalg.pack %a padding_value(%zero : f32)
        outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [3, 2]
        into %e : tensor<5x6xf32> -> tensor<2x3x3x2xf32>
      %w = tensor.empty() : tensor<5x6xf32>
      %u = linalg.unpack %p outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [3, 2]
        into %w : tensor<2x3x3x2xf32> -> tensor<5x6xf32>
      return %p, %u : tensor<2x3x3x2xf32>, tensor<5x6xf32>
    }"""
    program, x = stepwell.parse(text), torch.rand(5, 6)
    packed, whole = stepwell.parse(str(program)).raise_to("aten").run(x)
    padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
    assert torch.equal(packed[1, 2, 2], padded[4:6, 5]) and torch.equal(whole, x)
    assert torch.equal(packed[0, 1], padded[2:4, :3].mT)


AROUND = """
#trait = {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
  affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
func.func private @twice(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %u, %v = linalg.generic #trait ins(%x : tensor<4xf32>)
      outs(%e, %e : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: f32, %y: f32, %z: f32):
    %m = arith.mulf %a, %two : f32
    linalg.yield %m, %a : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  return %u, %v : tensor<4xf32>, tensor<4xf32>
}
func.func @f(%x: tensor<4xf32>, %s: f32, %b: i1) -> (tensor<4xf32>, f32) {
  %from = arith.constant 0 : index
  %one = arith.constant 1 : index
  %to = arith.constant 3 : index
  %r = scf.for %i = %from to %to step %one iter_args(%acc = %x) -> (tensor<4xf32>) {
    %n, %o = func.call @twice(%acc) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    scf.yield %n : tensor<4xf32>
  }
  %q = scf.if %b -> (tensor<4xf32>) {
    scf.yield %r : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  %w = tosa.tanh %q : (tensor<4xf32>) -> tensor<4xf32>
  %v = tensor.extract %w[%one] : tensor<4xf32>
  %t = arith.addf %v, %s : f32
  return %w, %t : tensor<4xf32>, f32
}
"""


def test_calls_loops_of_known_bounds_choices_and_tosa_stand_in_one_text() -> None:
    program = stepwell.parse(AROUND)
    assert program.level == "upstream"
    lowered = stepwell.lower(program, "xnnpack")
    x = torch.rand(4) - 0.5
    for choice in (True, False):
        wanted = torch.tanh(8 * x if choice else x)
        given = (x, torch.tensor(0.25), torch.tensor(choice))
        for got in (program.raise_to("aten").run(*given), lowered.run(*given, method="f")):
            torch.testing.assert_close(got[0], wanted)
            torch.testing.assert_close(got[1], wanted[1] + 0.25)


def test_an_integer_without_a_sign_is_widened_without_one() -> None:
    text = """func.func @f(%a: i8) -> (i32, f32) {
      %w = arith.extui %a : i8 to i32
      %r = arith.uitofp %a : i8 to f32
      return %w, %r : i32, f32
    }"""
    found = stepwell.parse(text).raise_to("aten").run(torch.tensor(-1, dtype=torch.int8))
    assert [value.item() for value in found] == [255, 255.0]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("%to = arith.constant 3", "%to = arith.constant 300", "it turns 300 times"),
        ("func.call @twice(%acc)", "func.call @f(%acc)", "has no body of one block"),
        ("step %one iter", "step %i iter", "known only at run time"),
    ],
)
def test_what_is_not_written_in_place_is_named(old: str, new: str, reason: str) -> None:
    text = AROUND.replace(old, new)
    if "step %i" in new:
        text = text.replace("%b: i1)", "%b: i1, %i: index)").replace("%i = %from", "%k = %from")
    with pytest.raises(StepwellError, match=reason):
        stepwell.parse(text).raise_to("aten")
