"""SplitBatch: what does not stay in the cache is computed in pieces, and what must not is whole."""

from typing import Any

import pytest

from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.translate.rewrites.documentation import examples_of, module_of
from stepwell.translate.rewrites.xnnpack.partitioning.split_batch import SplitBatch

IMAGES, THIN = "tensor<4x512x16x256xf32>", "tensor<4x512x16x1xf32>"
PIECE = "tensor<1x512x16x256xf32>"
W, V = "tensor<256x1xf32>", "tensor<1x256xf32>"
WEIGHTS = tuple(
    f'%{name} = stepwell.weight <"{name}"> "parameter" : {type_}'
    for name, type_ in (("w", W), ("v", V))
)


def widened(given: str, made: str) -> str:
    return f"%{made} = xnnpack.fully_connected(%{given}, %w) : ({THIN}, {W}) -> {IMAGES}"


def narrowed(given: str, made: str) -> str:
    return f"%{made} = xnnpack.fully_connected(%{given}, %v) : ({IMAGES}, {V}) -> {THIN}"


def unary(kind: str, given: str, made: str, type_: str = IMAGES) -> str:
    return f"%{made} = xnnpack.{kind}(%{given}) : ({type_}) -> {type_}"


def types(done: Any, kind: str) -> list[str]:
    return [
        str(op.results[0].type) for op in done.program.module.walk() if op.name == f"xnnpack.{kind}"
    ]


def test_the_documented_before_becomes_pieces(apply: Any):
    ((before, _),) = examples_of(module_of("xnnpack.partitioning.split_batch"))
    done = apply(before, SplitBatch())
    assert done.count == 3
    assert types(done, "negate") == ["tensor<1x16384x128xf32>"] * 2


def test_a_wide_middle_is_computed_image_by_image(apply: Any, method: Any):
    lines = (widened("x", "a"), unary("gelu", "a", "b"), narrowed("b", "y"))
    done = apply(method(f"%x: {THIN}", *WEIGHTS, *lines, gives=THIN), SplitBatch())
    assert types(done, "gelu") == [PIECE] * 4
    assert types(done, "static_slice") == ["tensor<1x512x16x1xf32>"] * 4
    assert types(done, "concatenate4") == [THIN]


def test_pieces_are_as_many_as_fit_and_no_more(apply: Any, method: Any):
    most = COSTS.cache // (4 * 1024)
    wide, thin = f"tensor<6x{most // 3}x1024xf32>", f"tensor<6x{most // 3}x1xf32>"
    lines = (
        f"%a = xnnpack.batch_matrix_multiply(%x, %k) : ({thin}, tensor<1x1x1024xf32>) -> {wide}",
        unary("gelu", "a", "b", wide),
        f"%y = xnnpack.batch_matrix_multiply(%b, %l) : ({wide}, tensor<1x1024x1xf32>) -> {thin}",
    )
    ports = f"%x: {thin}, %k: tensor<1x1x1024xf32>, %l: tensor<1x1024x1xf32>"
    done = apply(method(ports, *lines, gives=thin), SplitBatch())
    assert types(done, "gelu") == [f"tensor<3x{most // 3}x1024xf32>"] * 2


def test_what_is_read_across_the_batch_is_joined_first(apply: Any, method: Any):
    turned = "tensor<512x4x16x256xf32>"
    lines = (
        widened("x", "a"),
        unary("gelu", "a", "b"),
        f"%t = xnnpack.static_transpose(%b, perm=[1, 0, 2, 3]) : ({IMAGES}) -> {turned}",
        unary("abs", "t", "y", turned),
    )
    done = apply(method(f"%x: {THIN}", *WEIGHTS, *lines, gives=turned), SplitBatch())
    assert types(done, "static_transpose") == types(done, "abs") == [turned]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("tensor<1x2048x16x1xf32>", "tensor<1x2048x16x256xf32>"),
        ("tensor<4x32x16x1xf32>", "tensor<4x32x16x256xf32>"),
    ],
    ids=["one image", "images that stay in the cache"],
)
def test_it_stays_whole(apply: Any, method: Any, given: str, made: str):
    lines = (
        f"%a = xnnpack.fully_connected(%x, %w) : ({given}, {W}) -> {made}",
        unary("gelu", "a", "b", made),
        f"%y = xnnpack.fully_connected(%b, %v) : ({made}, {V}) -> {given}",
    )
    assert apply(method(f"%x: {given}", *WEIGHTS, *lines, gives=given), SplitBatch()).count == 0


def test_a_single_node_between_large_ports_stays_whole(apply: Any, method: Any):
    text = method(f"%x: {IMAGES}", unary("gelu", "x", "y"), gives=IMAGES)
    assert apply(text, SplitBatch()).count == 0


def test_what_no_node_is_stays_whole_and_so_does_all_around(apply: Any, method: Any):
    lines = (
        widened("x", "a"),
        f"%b = aten.erf.default(%a) : ({IMAGES}) -> {IMAGES}",
        narrowed("b", "y"),
    )
    assert apply(method(f"%x: {THIN}", *WEIGHTS, *lines, gives=THIN), SplitBatch()).count == 0


def test_a_number_is_the_same_for_every_piece(apply: Any, method: Any):
    lines = (
        widened("x", "a"),
        unary("abs", "k", "l", "tensor<f32>"),
        f"%b = xnnpack.multiply(%a, %l) : ({IMAGES}, tensor<f32>) -> {IMAGES}",
        narrowed("b", "y"),
    )
    done = apply(method(f"%x: {THIN}, %k: tensor<f32>", *WEIGHTS, *lines, gives=THIN), SplitBatch())
    assert types(done, "multiply") == [PIECE] * 4 and types(done, "abs") == ["tensor<f32>"]
