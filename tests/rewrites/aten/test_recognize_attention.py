"""Attention is put together only where it computes what stood there."""

from typing import Any

import pytest

from stepwell.translate.rewrites.attention.recognize_attention import RecognizeAttention

T = "tensor<1x2x4x8xf32>"
S = "tensor<1x2x4x4xf32>"
K = "tensor<1x2x8x4xf32>"


def text(
    *between: str, last: str = "scores", axis: int = -1, after: str = "", gives: str = T
) -> str:
    return "\n".join(
        (
            f"func.func @forward(%q: {T}, %k: {K}, %v: {T}, %m: {S}) -> {gives} {{",
            f"%scores = aten.matmul.default(%q, %k) : ({T}, {K}) -> {S}",
            *between,
            f"%w = aten._softmax.default(%{last}, {axis}, false) : ({S}) -> {S}",
            f"%o = aten.matmul.default(%w, %v) : ({S}, {T}) -> {T}",
            after or f"func.return %o : {T}",
            "}",
        )
    )


SCALED = f"%a = aten.mul.Scalar(%scores, 0.5) : ({S}) -> {S}"
MASKED = f"%b = aten.add.Tensor(%{{}}, %m) : ({S}, {S}) -> {S}"


def test_a_scale_on_the_scores_becomes_the_scale(apply: Any) -> None:
    done = apply(text(SCALED, last="a"), RecognizeAttention())
    assert done.count == 1
    assert "scale=0.5" in done.text


def test_a_softmax_over_another_axis_is_no_attention(refused: Any) -> None:
    refused(text(axis=-2), RecognizeAttention())


def test_a_mask_that_may_close_a_row_needs_the_guard(refused: Any) -> None:
    refused(text(MASKED.format("scores"), last="b"), RecognizeAttention(), "all −inf")


def test_a_scaled_mask_is_refused(refused: Any) -> None:
    scaled = f"%c = aten.mul.Scalar(%b, 0.5) : ({S}) -> {S}"
    refused(text(MASKED.format("scores"), scaled, last="c"), RecognizeAttention(), "scaled")


def test_weights_read_elsewhere_keep_the_softmax(refused: Any) -> None:
    after = f"%y = aten.sum.default(%w) : ({S}) -> tensor<f32>\nfunc.return %y : tensor<f32>"
    both = text(after=after, gives="tensor<f32>")
    done = both.replace(
        "%y = aten.sum.default(%w)",
        f"%z = aten.sum.default(%o) : ({T}) -> tensor<f32>\n%u = aten.sum.default(%w)",
    ).replace(
        "func.return %y",
        "%y = aten.add.Tensor(%u, %z) : (tensor<f32>, tensor<f32>) -> tensor<f32>\nfunc.return %y",
    )
    refused(done, RecognizeAttention(), "used elsewhere")


@pytest.mark.parametrize("op", ["relu", "tanh"])
def test_other_arithmetic_on_the_scores_is_no_attention(op: str, refused: Any) -> None:
    refused(text(f"%a = aten.{op}.default(%scores) : ({S}) -> {S}", last="a"), RecognizeAttention())


CONSTANT = '%c = stepwell.weight <"{}"> "constant" : tensor<4x4xf32>'
OUT = f"%o = aten.matmul.default(%w, %v) : ({S}, {T}) -> {T}"


@pytest.mark.parametrize(
    ("sum_", "reason"),
    [
        ("add.Tensor(%m, %m)", ""),
        ("add.Tensor(%scores, %scores)", "no mask"),
        ("add.Tensor(%m, %scores, alpha=2)", "no mask"),
    ],
)
def test_a_sum_that_masks_no_product_is_no_attention(sum_: str, reason: str, refused: Any) -> None:
    refused(text(f"%a = aten.{sum_} : ({S}, {S}) -> {S}", last="a"), RecognizeAttention(), reason)


def test_a_multiple_of_a_mask_is_no_mask(refused: Any) -> None:
    total = f"%a = aten.add.Tensor(%scores, %c, alpha=2) : ({S}, tensor<4x4xf32>) -> {S}"
    refused(text(CONSTANT.format("c"), total, last="a"), RecognizeAttention(), "no mask")


@pytest.mark.parametrize("element", ["i1", "i64", "f16"])
def test_a_term_of_another_dtype_is_no_mask(element: str, refused: Any) -> None:
    held = f"tensor<4x4x{element}>"
    term = f'%c = stepwell.weight <"c#ones"> "constant" : {held}'
    total = f"%a = aten.add.Tensor(%scores, %c) : ({S}, {held}) -> {S}"
    refused(text(term, total, last="a"), RecognizeAttention(), "no mask")


def test_positions_that_depend_on_the_queries_are_a_mask(apply: Any) -> None:
    lines = (
        '%r = stepwell.weight <"r"> "parameter" : tensor<8x4xf32>',
        f"%p = aten.matmul.default(%q, %r) : ({T}, tensor<8x4xf32>) -> {S}",
        f"%n = aten.neg.default(%p) : ({S}) -> {S}",
        f"%a = aten.add.Tensor(%scores, %n) : ({S}, {S}) -> {S}",
    )
    done = apply(text(*lines, last="a"), RecognizeAttention())
    assert "aten.scaled_dot_product_attention.default" in done.ops()


BOUNDED = f"%p = aten.tanh.default(%m) : ({S}) -> {S}"
SUM_OF_MASKS = f"%n = aten.add.Tensor(%p, %c) : ({S}, tensor<4x4xf32>) -> {S}"


def test_a_constant_mask_beside_bounded_numbers_decides_which_rows_are_open(
    apply: Any, refused: Any
) -> None:
    total = f"%a = aten.add.Tensor(%scores, %n) : ({S}, {S}) -> {S}"
    lines = (CONSTANT.format("c#causal"), BOUNDED, SUM_OF_MASKS, total)
    assert apply(text(*lines, last="a"), RecognizeAttention()).count == 1
    unbounded = (line.replace("aten.tanh", "aten.exp") for line in lines)
    refused(text(*unbounded, last="a"), RecognizeAttention(), "only at run time")


def test_a_number_of_run_time_is_no_mask(refused: Any) -> None:
    size = f'%n = aten.sym_size.int(%q, 0) : ({T}) -> !stepwell.int<"1">'
    total = f'%a = aten.add.Tensor(%scores, %n) : ({S}, !stepwell.int<"1">) -> {S}'
    refused(text(size, total, last="a"), RecognizeAttention(), "no mask")


def test_a_term_that_repeats_the_only_key_is_no_mask(refused: Any) -> None:
    one = "tensor<1x2x4x1xf32>"
    total = f"%a = aten.add.Tensor(%scores, %m) : ({one}, {S}) -> {S}"
    given = text(total, last="a").replace(K, "tensor<1x2x8x1xf32>")
    refused(
        given.replace(f"1x2x8x1xf32>) -> {S}", f"1x2x8x1xf32>) -> {one}"),
        RecognizeAttention(),
        "no mask",
    )


def test_columns_picked_out_of_a_mask_may_close_a_row(refused: Any) -> None:
    lines = (
        CONSTANT.format("c#causal"),
        '%i = stepwell.weight <"i#ones"> "constant" : tensor<4xi64>',
        "%p = aten.index_select.default(%c, 1, %i) : (tensor<4x4xf32>, tensor<4xi64>) -> tensor<4x4xf32>",
        f"%a = aten.add.Tensor(%scores, %p) : ({S}, tensor<4x4xf32>) -> {S}",
    )
    refused(text(*lines, last="a"), RecognizeAttention(), "may cut rows")


@pytest.mark.parametrize(
    ("lines", "gives"),
    [
        ([f"%n = aten.neg.default(%w) : ({S}) -> {S}", OUT.replace("%w", "%n")], T),
        ([f"%o = aten.matmul.default(%k, %w) : ({K}, {S}) -> {K}"], K),
        (
            [
                f"%n = aten.view.default(%w, [1, 2, 2, 8]) : ({S}) -> tensor<1x2x2x8xf32>",
                f"%o = aten.matmul.default(%n, %k) : (tensor<1x2x2x8xf32>, {K}) -> tensor<1x2x2x4xf32>",
            ],
            "tensor<1x2x2x4xf32>",
        ),
    ],
    ids=["something between", "weights on the right", "weights regrouped"],
)
def test_weights_that_do_not_weigh_a_tensor_are_no_attention(
    lines: list[str], gives: str, refused: Any
) -> None:
    given = text(after=f"func.return %o : {gives}", gives=gives)
    refused(given.replace(OUT, "\n".join(lines)), RecognizeAttention())


def test_a_softmax_that_casts_is_no_attention(refused: Any) -> None:
    wide, v, gives = (of.replace("f32", "f64") for of in (S, T, T))
    lines = (
        f"%w = aten.softmax.int(%scores, -1, f64) : ({S}) -> {wide}",
        f"%d = aten._to_copy.default(%v, dtype=f64) : ({T}) -> {v}",
        f"%o = aten.matmul.default(%w, %d) : ({wide}, {v}) -> {gives}",
    )
    given = text(after=f"func.return %o : {gives}", gives=gives).replace(OUT, "")
    soft = f"%w = aten._softmax.default(%scores, -1, false) : ({S}) -> {S}"
    refused(given.replace(soft, "\n".join(lines)), RecognizeAttention())


def test_keys_shared_by_all_heads_are_refused(refused: Any) -> None:
    refused(text().replace(K, "tensor<8x4xf32>"), RecognizeAttention(), "broadcast")


@pytest.mark.parametrize("first", [True, False], ids=["on the scores", "with the weights"])
def test_a_product_that_adds_a_third_tensor_is_no_attention(
    first: bool, refused: Any, method: Any
) -> None:
    held = "tensor<2x4x4xf32>"
    plain = f"aten.bmm.default(%{{}}, %x) : ({held}, {held}) -> {held}"
    adding = f"aten.baddbmm.default(%{{}}, %x, %x) : ({held}, {held}, {held}) -> {held}"
    text = method(
        f"%x: {held}",
        "%s = " + (adding if first else plain).format("x"),
        f"%w = aten._softmax.default(%s, 2, false) : ({held}) -> {held}",
        "%y = " + (plain if first else adding).format("w"),
        gives=held,
    )
    refused(text, RecognizeAttention(), "adds a third" if first else "")


def test_a_mask_is_added_where_its_heads_stand(apply: Any) -> None:
    """Heads and batch are split for the mask and merged again for the softmax."""
    q, k, s, wide = (
        "tensor<6x4x8xf32>",
        "tensor<6x8x4xf32>",
        "tensor<6x4x4xf32>",
        "tensor<2x3x4x4xf32>",
    )
    mask = "tensor<2x1x4x4xf32>"
    done = apply(
        "\n".join(
            (
                f"func.func @forward(%q: {q}, %k: {k}, %v: {q}) -> {q} {{",
                f'%m = stepwell.weight <"m"> "buffer" : {mask}',
                f"%p = aten.bmm.default(%q, %k) : ({q}, {k}) -> {s}",
                f"%a = aten.view.default(%p, [2, 3, 4, 4]) : ({s}) -> {wide}",
                f"%b = aten.add.Tensor(%a, %m) : ({wide}, {mask}) -> {wide}",
                f"%c = aten.view.default(%b, [6, 4, 4]) : ({wide}) -> {s}",
                f"%w = aten._softmax.default(%c, -1, false) : ({s}) -> {s}",
                f"%o = aten.bmm.default(%w, %v) : ({s}, {q}) -> {q}",
                f"func.return %o : {q}",
                "}",
            )
        ),
        RecognizeAttention(),
    )
    assert done.count == 1
    assert "tensor<2x3x4x8xf32>" in done.text
