"""WriteByCat: chains of writes, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.slices.write_by_cat import WriteByCat

ROW = "(tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>"


def rows(order: tuple[int, ...]) -> list[str]:
    """One write after the other: row `order[0]` becomes `%r0`, …; the last is `%y`."""
    names = ["%x", *(f"%w{n}" for n in range(len(order) - 1)), "%y"]
    return [
        f"{names[n + 1]} = aten.select_scatter.default({names[n]}, %r{n}, 0, {at}) : {ROW}"
        for n, at in enumerate(order)
    ]


def test_a_loop_over_every_row_is_one_cat(apply: Any, method: Any):
    arguments = "%x: tensor<4x3xf32>, " + ", ".join(f"%r{n}: tensor<3xf32>" for n in range(4))
    done = apply(method(arguments, *rows((2, 0, -1, 1)), gives="tensor<4x3xf32>"), WriteByCat())
    assert done.ops() == ["aten.view.default"] * 4 + ["aten.cat.default"]


def test_the_last_write_to_a_row_counts(apply: Any, method: Any):
    arguments = "%x: tensor<4x3xf32>, %r0: tensor<3xf32>, %r1: tensor<3xf32>"
    done = apply(method(arguments, *rows((2, 2)), gives="tensor<4x3xf32>"), WriteByCat())
    assert done.ops().count("aten.slice.Tensor") == 2


def test_a_write_that_is_read_on_the_way_stays_itself(apply: Any, method: Any):
    arguments = "%x: tensor<4x3xf32>, %r0: tensor<3xf32>, %r1: tensor<3xf32>"
    lines = rows((0, 3))
    read = "%z = aten.neg.default(%w0) : (tensor<4x3xf32>) -> tensor<4x3xf32>"
    total = "%y = aten.add.Tensor(%v, %z) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>"
    lines[1] = lines[1].replace("%y", "%v", 1)
    done = apply(method(arguments, *lines, read, total, gives="tensor<4x3xf32>"), WriteByCat())
    assert done.ops().count("aten.cat.default") == 2


def test_a_slice_in_the_middle_leaves_both_sides(apply: Any, method: Any):
    text = method(
        "%x: tensor<2x7xf32>, %s: tensor<2x3xf32>, %t: tensor<2x3xf32>",
        "%w = aten.slice_scatter.default(%x, %s, 1, 1, 4) : (tensor<2x7xf32>, tensor<2x3xf32>) -> tensor<2x7xf32>",
        "%y = aten.slice_scatter.default(%w, %t, 1, 3, 6) : (tensor<2x7xf32>, tensor<2x3xf32>) -> tensor<2x7xf32>",
        gives="tensor<2x7xf32>",
    )
    assert apply(text, WriteByCat()).ops() == ["aten.slice.Tensor"] * 3 + ["aten.cat.default"]


def test_every_second_element_is_a_part_of_its_own(apply: Any, method: Any):
    text = method(
        "%x: tensor<2x6xf32>, %s: tensor<2x3xf32>",
        "%y = aten.slice_scatter.default(%x, %s, 1, 0, 6, 2) : (tensor<2x6xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>",
        gives="tensor<2x6xf32>",
    )
    assert apply(text, WriteByCat()).ops() == ["aten.slice.Tensor"] * 6 + ["aten.cat.default"]


def test_many_elements_that_lie_apart_are_left_to_a_kernel(refused: Any, method: Any):
    text = method(
        "%x: tensor<2x40xf32>, %s: tensor<2x20xf32>",
        "%y = aten.slice_scatter.default(%x, %s, 1, 0, 40, 2) : (tensor<2x40xf32>, tensor<2x20xf32>) -> tensor<2x40xf32>",
        gives="tensor<2x40xf32>",
    )
    refused(text, WriteByCat(), "20 elements that are not contiguous")


def test_integers_are_left_to_a_kernel(refused: Any, method: Any):
    text = method(
        "%x: tensor<4x3xi64>, %r: tensor<3xi64>",
        "%y = aten.select_scatter.default(%x, %r, 0, 1) : (tensor<4x3xi64>, tensor<3xi64>) -> tensor<4x3xi64>",
        gives="tensor<4x3xi64>",
    )
    refused(text, WriteByCat(), "integers")


def test_several_dtypes_stay(refused: Any, method: Any):
    text = method(
        "%x: tensor<4x3xf32>, %r: tensor<3xf16>",
        "%y = aten.select_scatter.default(%x, %r, 0, 1) : (tensor<4x3xf32>, tensor<3xf16>) -> tensor<4x3xf32>",
        gives="tensor<4x3xf32>",
    )
    refused(text, WriteByCat(), "several dtypes")


def test_a_batch_may_be_open(apply: Any, method: Any):
    whole, part = (f'tensor<?x{n}xf32, #stepwell.shape<["s0", {n}]>>' for n in (6, 2))
    line = f"%y = aten.slice_scatter.default(%x, %s, 1, 1, 3) : ({whole}, {part}) -> {whole}"
    done = apply(method(f"%x: {whole}, %s: {part}", line, gives=whole), WriteByCat())
    assert done.ops() == ["aten.slice.Tensor"] * 2 + ["aten.cat.default"]
