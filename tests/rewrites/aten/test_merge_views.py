"""`merge-views` and its neighbors: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.views.merge_views import RULES

MERGE, UNITS, *_ = (rule() for rule in RULES)


def test_a_permute_that_moves_elements_is_no_view(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x2x3xf32>",
            "%y = aten.permute.default(%x, [2, 0, 1]) : (tensor<1x2x3xf32>) -> tensor<3x1x2xf32>",
            gives="tensor<3x1x2xf32>",
        ),
        UNITS,
    )


def test_a_view_and_its_inverse_vanish(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.view.default(%x, [6]) : (tensor<2x3xf32>) -> tensor<6xf32>",
            "%b = aten.view.default(%a, [2, 3]) : (tensor<6xf32>) -> tensor<2x3xf32>",
            "%y = aten.neg.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        MERGE,
    )
    assert done.ops() == ["aten.neg.default"]


def sized(*dims: str) -> str:
    """The type of a tensor with symbolic dimensions."""
    held = "x".join("?" if d[0].isalpha() or "*" in d else d for d in dims)
    names = ", ".join(d if d.isdigit() else f'"{d}"' for d in dims)
    return f"tensor<{held}xf32, #stepwell.shape<[{names}]>>"


def test_a_shape_of_two_new_sizes_is_refused(refused: Any, method: Any):
    x, long, flat = sized("a", "b", "4"), sized("2*a", "b"), sized("4*a*b")
    y = sized("2*a", "2*b")
    text = method(
        f"%x: {x}",
        f"%p = aten.select.int(%x, 2, 0) : ({x}) -> {sized('a', 'b')}",
        f"%l = aten.cat.default([%p, %p], 0) : ({sized('a', 'b')}, {sized('a', 'b')}) -> {long}",
        f'%n = aten.sym_size.int(%l, 0) : ({long}) -> !stepwell.int<"2*a">',
        f"%v = aten.view.default(%x, [-1]) : ({x}) -> {flat}",
        f'%y = aten.view.default(%v, [%n, -1]) : ({flat}, !stepwell.int<"2*a">) -> {y}',
        gives=y,
    )
    refused(text, MERGE, "at run time")


def test_an_empty_tensor_of_a_symbolic_length_is_refused(refused: Any, method: Any):
    x, a, y = sized("n", "0", "4"), sized("n", "0", "2", "2"), sized("n", "0", "2")
    n = '!stepwell.int<"n">'
    text = method(
        f"%x: {x}",
        f"%n = aten.sym_size.int(%x, 0) : ({x}) -> {n}",
        f"%v = aten.view.default(%x, [%n, 0, 2, 2]) : ({x}, {n}) -> {a}",
        f"%y = aten.view.default(%v, [%n, 0, 2]) : ({a}, {n}) -> {y}",
        gives=y,
    )
    refused(text, MERGE, "empty")


def test_a_length_that_is_no_expression_is_refused(refused: Any, method: Any):
    x, a, y = "tensor<?x4xf32>", "tensor<?x2x2xf32>", "tensor<?x2xf32>"
    text = method(
        f"%x: {x}",
        f"%v = aten.view.default(%x, [-1, 2, 2]) : ({x}) -> {a}",
        f"%y = aten.view.default(%v, [-1, 2]) : ({a}) -> {y}",
        gives=y,
    )
    refused(text, MERGE, "not known")


def test_a_known_shape_of_a_length_that_is_no_expression_is_one_view(apply: Any, method: Any):
    x, a, y = "tensor<?x4xf32>", "tensor<?x2x2xf32>", "tensor<4x5xf32>"
    text = method(
        f"%x: {x}",
        f"%v = aten.view.default(%x, [-1, 2, 2]) : ({x}) -> {a}",
        f"%y = aten.view.default(%v, [4, 5]) : ({a}) -> {y}",
        gives=y,
    )
    assert apply(text, MERGE).ops() == ["aten.view.default"]
