"""CenterResidualStream: what it takes the mean out of, what it computes then, and near misses."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

import stepwell
from stepwell.translate.rewrites.norms.center_residual_stream import CenterResidualStream, centered

ROWS, WIDE = "tensor<2x5x4xf32>", "tensor<2x5x3xf32>"
WEIGHTS = (
    '%w = stepwell.weight <"w"> "parameter" : tensor<4x3xf32>',
    '%b = stepwell.weight <"b"> "parameter" : tensor<4xf32>',
    '%g = stepwell.weight <"g"> "parameter" : tensor<4xf32>',
)
WRITE = f"%s = aten.linear.default(%x, %w, %b) : ({WIDE}, tensor<4x3xf32>, tensor<4xf32>) -> {ROWS}"


def norm(value: str, result: str, type_: str = ROWS) -> str:
    return f"%{result} = aten.layer_norm.default(%{value}, [4], eps=1.0e-5) : ({type_}) -> {type_}"


def add(one: str, other: str, result: str) -> str:
    return f"%{result} = aten.add.Tensor(%{one}, %{other}) : ({ROWS}, {ROWS}) -> {ROWS}"


test_center_residual_stream = cases(
    CenterResidualStream,
    """
the documented before becomes the documented after -> aten.linear.default, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor
    %s = aten.linear.default(%x: f32[2, 3], %w: weight f32[4, 3])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-06)
scale shift and bias are kept -> aten.linear.default, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor, aten.mul.Tensor, aten.add.Tensor
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %y = aten.layer_norm.default(%s, [4], %g: weight f32[4], %b2: weight f32[4], 1e-05)
a stream of two writers and two norms loses both means -> applied 2 times; aten.linear.default, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor, aten.linear.default, aten.add.Tensor, aten.mul.Tensor, aten.linear.default, aten.rsqrt.default, aten.mul.Tensor
    %s = aten.linear.default(%x: f32[2, 5, 3], %w: weight f32[4, 3], %b: weight f32[4])
    %n = aten.layer_norm.default(%s, [4], none, none, 1e-05)
    %m = aten.linear.default(%n, %w2: weight f32[4, 4])
    %t = aten.add.Tensor(%s, %m)
    %y = aten.layer_norm.default(%t, [4], none, none, 1e-05)
rows of an embedding table are centered -> applied once
    %s = aten.embedding.default(%w: weight f32[7, 4], %x: i64[2, 5])
    %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
a stream of one channel or a whole slice is centered -> applied once
    - %l = aten.linear.default(%x: f32[2, 5, 3], %k: weight f32[1, 3])
      %v = aten.view.default(%l, [2, 1, 5, 1])
      %w = aten.view.default(%v, [2, 5, 1])
      %s = aten.slice.Tensor(%w, 2, 0, 1)
      %y = aten.layer_norm.default(%s, [1], none, none, 1e-05)
    - %l = aten.linear.default(%x: f32[2, 5, 3], %k: weight f32[4, 3])
      %v = aten.view.default(%l, [2, 1, 5, 4])
      %w = aten.view.default(%v, [2, 5, 4])
      %s = aten.slice.Tensor(%w, 2, 0, 4)
      %y = aten.layer_norm.default(%s, [4], none, none, 1e-05)
""",
)


def test_the_mean_of_a_derived_weight_is_zero():
    weight = 3 + torch.randn(64, 7)
    assert centered(weight, axis=0).double().mean(0).abs().max() < 1e-7


def test_patches_a_class_token_and_positions_are_centered(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3x4x4xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<4x3x2x2xf32>',
            '%c = stepwell.weight <"c"> "parameter" : tensor<1x1x4xf32>',
            '%p = stepwell.weight <"p"> "parameter" : tensor<1x5x4xf32>',
            "%a = aten.convolution.default(%x, %w, none, [2, 2], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<2x3x4x4xf32>, tensor<4x3x2x2xf32>) -> tensor<2x4x2x2xf32>",
            "%f = aten.view.default(%a, [2, 4, 4]) : (tensor<2x4x2x2xf32>) -> tensor<2x4x4xf32>",
            "%t = aten.permute.default(%f, [0, 2, 1]) : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>",
            "%e = aten.expand.default(%c, [2, 1, 4]) : (tensor<1x1x4xf32>) -> tensor<2x1x4xf32>",
            f"%k = aten.cat.default([%e, %t], 1) : (tensor<2x1x4xf32>, tensor<2x4x4xf32>) -> {ROWS}",
            f"%s = aten.add.Tensor(%k, %p) : ({ROWS}, tensor<1x5x4xf32>) -> {ROWS}",
            norm("s", "y"),
            gives=ROWS,
        ),
        CenterResidualStream(),
    )
    assert done.count == 1
    assert sum("#centered" in line for line in done.text.splitlines()) == 3


SIDE = (
    f"%r = aten.relu.default(%s) : ({ROWS}) -> {ROWS}",
    norm("s", "n"),
    add("r", "n", "y"),
)
NEAR_MISSES = {
    "a reader that is no layer norm": ((WRITE, *SIDE), "reads the stream and is no layer norm"),
    "a writer that is no layer": (
        (
            WRITE.replace("%s", "%l"),
            f"%s = aten.relu.default(%l) : ({ROWS}) -> {ROWS}",
            norm("s", "y"),
        ),
        "no weight contains its mean",
    ),
    "a norm over other axes": (
        (WRITE, f"%y = aten.layer_norm.default(%s, [5, 4], eps=1.0e-5) : ({ROWS}) -> {ROWS}"),
        "normalizes other axes",
    ),
    "an argument": (
        (
            WRITE.replace("%s", "%l"),
            f"%o = aten.expand.default(%e, [2, 5, 4]) : (tensor<1x5x4xf32>) -> {ROWS}",
            add("l", "o", "s"),
            norm("s", "y"),
        ),
        "an argument writes",
    ),
    "one number added to all channels": (
        (
            WRITE.replace("%s", "%l"),
            '%o = stepwell.weight <"o"> "parameter" : tensor<1xf32>',
            f"%s = aten.add.Tensor(%l, %o) : ({ROWS}, tensor<1xf32>) -> {ROWS}",
            norm("s", "y"),
        ),
        "not whole rows",
    ),
    "parts of rows joined": (
        (
            "%l = aten.linear.default(%x, %v) : (tensor<2x5x3xf32>, tensor<2x3xf32>) -> tensor<2x5x2xf32>",
            f"%s = aten.cat.default([%l, %l], 2) : (tensor<2x5x2xf32>, tensor<2x5x2xf32>) -> {ROWS}",
            norm("s", "y"),
        ),
        "not whole rows",
    ),
    "channels split by a view": (
        (
            WRITE,
            f"%h = aten.view.default(%s, [2, 10, 2]) : ({ROWS}) -> tensor<2x10x2xf32>",
            f"%i = aten.view.default(%h, [2, 5, 4]) : (tensor<2x10x2xf32>) -> {ROWS}",
            norm("s", "n"),
            add("i", "n", "y"),
        ),
        "splits the channel axis",
    ),
    "a linear along another axis of the same size": (
        (
            f"%t = aten.permute.default(%x, [0, 2, 1]) : ({WIDE}) -> tensor<2x3x5xf32>",
            "%l = aten.linear.default(%t, %q) : (tensor<2x3x5xf32>, tensor<3x5xf32>) -> tensor<2x3x3xf32>",
            "%s = aten.permute.default(%l, [0, 2, 1]) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%n = aten.layer_norm.default(%s, [3], eps=1.0e-5) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%m = aten.linear.default(%n, %w) : (tensor<2x3x3xf32>, tensor<4x3xf32>) -> tensor<2x3x4xf32>",
            f"%y = aten.cat.default([%m, %z], 1) : (tensor<2x3x4xf32>, tensor<2x2x4xf32>) -> {ROWS}",
        ),
        "is linear along another axis",
    ),
    "a weight that something else reads": (
        (
            WRITE,
            norm("s", "n"),
            f"%l = aten.linear.default(%x, %w) : ({WIDE}, tensor<4x3xf32>) -> {ROWS}",
            f"%r = aten.relu.default(%l) : ({ROWS}) -> {ROWS}",
            add("r", "n", "y"),
        ),
        "kept twice",
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_stream_stays_because_of(name: str, apply: Any, method: Any):
    lines, reason = NEAR_MISSES[name]
    constants = (
        *WEIGHTS,
        '%v = stepwell.weight <"v"> "parameter" : tensor<2x3xf32>',
        '%q = stepwell.weight <"q"> "parameter" : tensor<3x5xf32>',
        '%z = stepwell.weight <"z"> "parameter" : tensor<2x2x4xf32>',
    )
    text = method(f"%x: {WIDE}, %e: tensor<1x5x4xf32>", *constants, *lines, gives=ROWS)
    done = apply(text, CenterResidualStream())
    assert done.count == 0
    assert any(reason in held for held in done.reasons), done.reasons


CUBE, HALF, SQUARE = "tensor<2x4x4xf32>", "tensor<2x5x4xf16>", "tensor<2x4x4x4xf32>"
PLACED = '%k = stepwell.weight <"k"> "parameter" : '
OTHER_WRITERS: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "halves": (
        f"%x: {HALF}",
        (
            f"{PLACED}tensor<4x4xf16>",
            f"%s = aten.linear.default(%x, %k) : ({HALF}, tensor<4x4xf16>) -> {HALF}",
            norm("s", "y", HALF),
        ),
        HALF,
        "rounded to f16",
    ),
    "a computed weight": (
        f"%x: {WIDE}, %k: tensor<4x3xf32>",
        (
            f"%s = aten.linear.default(%x, %k) : ({WIDE}, tensor<4x3xf32>) -> {ROWS}",
            norm("s", "y"),
        ),
        ROWS,
        "computed at run time",
    ),
    "a computed table": (
        "%x: tensor<2x5xi64>, %k: tensor<7x4xf32>",
        (
            f"%s = aten.embedding.default(%k, %x) : (tensor<7x4xf32>, tensor<2x5xi64>) -> {ROWS}",
            norm("s", "y"),
        ),
        ROWS,
        "reads a computed table",
    ),
    "a table read across": (
        "%x: tensor<2x4xi64>",
        (
            f"{PLACED}tensor<7x4xf32>",
            f"%e = aten.embedding.default(%k, %x) : (tensor<7x4xf32>, tensor<2x4xi64>) -> {CUBE}",
            f"%s = aten.permute.default(%e, [0, 2, 1]) : ({CUBE}) -> {CUBE}",
            norm("s", "y", CUBE),
        ),
        CUBE,
        "embeds along another axis",
    ),
    "a transposed convolution": (
        "%x: tensor<2x3x2x2xf32>",
        (
            f"{PLACED}tensor<3x4x2x2xf32>",
            "%a = aten.convolution.default(%x, %k, none, [2, 2], [0, 0], [1, 1], true, [0, 0], 1)"
            f" : (tensor<2x3x2x2xf32>, tensor<3x4x2x2xf32>) -> {SQUARE}",
            f"%s = aten.permute.default(%a, [0, 2, 3, 1]) : ({SQUARE}) -> {SQUARE}",
            norm("s", "y", SQUARE),
        ),
        SQUARE,
        "is a transposed convolution",
    ),
    "a convolution whose columns are normalized": (
        f"%x: {SQUARE}",
        (
            f"{PLACED}tensor<4x4x1x1xf32>",
            "%s = aten.convolution.default(%x, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)"
            f" : ({SQUARE}, tensor<4x4x1x1xf32>) -> {SQUARE}",
            norm("s", "y", SQUARE),
        ),
        SQUARE,
        "writes other channels",
    ),
    "a constant and its transpose": (
        f"%x: {CUBE}",
        (
            f"{PLACED}{CUBE}",
            f"%t = aten.permute.default(%k, [0, 2, 1]) : ({CUBE}) -> {CUBE}",
            f"%s = aten.add.Tensor(%k, %t) : ({CUBE}, {CUBE}) -> {CUBE}",
            norm("s", "y", CUBE),
        ),
        CUBE,
        "two different channel axes",
    ),
}


@pytest.mark.parametrize("name", OTHER_WRITERS)
def test_a_stream_is_not_centered_by(name: str, apply: Any, method: Any):
    arguments, lines, gives, reason = OTHER_WRITERS[name]
    done = apply(method(arguments, *lines, gives=gives), CenterResidualStream())
    assert done.count == 0
    assert any(reason in held for held in done.reasons), done.reasons


def test_a_stream_that_is_returned_stays(apply: Any, method: Any):
    text = method(f"%x: {WIDE}", *WEIGHTS, WRITE, norm("s", "y"), gives=ROWS)
    text = text.replace(f"-> {ROWS} {{", f"-> ({ROWS}, {ROWS}) {{")
    text = text.replace(f"return %y : {ROWS}", f"return %y, %s : {ROWS}, {ROWS}")
    done = apply(text, CenterResidualStream())
    assert done.count == 0
    assert any("func.return reads the stream" in held for held in done.reasons)


def test_a_row_of_large_mean_is_normalized_better_than_in_f32():
    """The mean that f32 would have to subtract at run time is gone before the sums."""
    torch.manual_seed(0)

    class Embedded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.write = torch.nn.Linear(16, 64)
            self.norm = torch.nn.LayerNorm(64)
            torch.nn.init.constant_(self.write.bias, 1000.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.write(x))

    module, x = Embedded().eval(), torch.randn(3, 16)
    (ours,) = stepwell.lower(torch.export.export(module, (x,)), "xnnpack").run(x)
    exact = module.double()(x.double())
    assert (ours - exact).abs().max() < 1e-5


def test_a_depthwise_convolution_keeps_its_weights(apply: Any, method: Any):
    image, rows = "tensor<2x4x3x3xf32>", "tensor<2x3x3x4xf32>"
    text = method(
        f"%x: {image}",
        '%w = stepwell.weight <"w"> "parameter" : tensor<4x1x1x1xf32>',
        "%a = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 4)"
        f" : ({image}, tensor<4x1x1x1xf32>) -> {image}",
        f"%s = aten.permute.default(%a, [0, 2, 3, 1]) : ({image}) -> {rows}",
        norm("s", "y", rows),
        gives=rows,
    )
    done = apply(text, CenterResidualStream())
    assert done.count == 0
    assert any("works in groups" in held for held in done.reasons)


TABLE, WORDS = "tensor<7x4xf32>", "tensor<2x5x7xf32>"
SCALED = (
    f"%n = aten.layer_norm.default(%s, [4], %g, eps=1.0e-5) : ({ROWS}, tensor<4xf32>) -> {ROWS}"
)
HEAD = f"%y = aten.linear.default(%n, %t) : ({ROWS}, {TABLE}) -> {WORDS}"


def tied(*lines: str, method: Any) -> str:
    """An embedding whose table a head reads too."""
    return method(
        "%i: tensor<2x5xi64>",
        *WEIGHTS,
        f'%t = stepwell.weight <"t"> "parameter" : {TABLE}',
        f"%s = aten.embedding.default(%t, %i) : ({TABLE}, tensor<2x5xi64>) -> {ROWS}",
        *lines,
        gives=WORDS,
    )


def test_a_head_tied_to_the_embedding_keeps_its_own_weight(apply: Any):
    """The norm's scale goes into it, so that it is another tensor anyway."""
    done = apply(
        """
        %s = aten.embedding.default(%t: weight f32[7, 4], %i: i64[2, 5])
        %n = aten.layer_norm.default(%s, [4], %g: weight f32[4], none, 1e-05)
        %y = aten.linear.default(%n, %t)
        """,
        CenterResidualStream(),
    )
    assert done.count == 1
    assert '%t = stepwell.weight <"t">' in done.text and "t#centered" in done.text


HEADS = {
    "behind a norm without a scale": (norm("s", "n"), HEAD),
    "whose norm something else reads too": (
        SCALED,
        f"%r = aten.relu.default(%n) : ({ROWS}) -> {ROWS}",
        f"%l = aten.linear.default(%n, %t) : ({ROWS}, {TABLE}) -> {WORDS}",
        f"%m = aten.amax.default(%r, [2], true) : ({ROWS}) -> tensor<2x5x1xf32>",
        f"%y = aten.add.Tensor(%l, %m) : ({WORDS}, tensor<2x5x1xf32>) -> {WORDS}",
    ),
    "behind another norm": (
        norm("s", "n"),
        f"%r = aten.relu.default(%n) : ({ROWS}) -> {ROWS}",
        f"%o = aten.layer_norm.default(%r, [4], %g, eps=1.0e-5) : ({ROWS}, tensor<4xf32>) -> {ROWS}",
        f"%y = aten.linear.default(%o, %t) : ({ROWS}, {TABLE}) -> {WORDS}",
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_an_embedding_stays_that_is_tied_to_a_head(name: str, apply: Any, method: Any):
    done = apply(tied(*HEADS[name], method=method), CenterResidualStream())
    assert done.count == 0
    assert any("kept twice" in reason for reason in done.reasons)
