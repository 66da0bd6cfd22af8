"""AbsorbFlatten: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.cmsis.layout.absorb_flatten import AbsorbFlatten

FIELDS = """{input_offset = -3 : i64, filter_offset = 0 : i64, output_offset = -1 : i64,
    requantize_multipliers = array<i64: 1073741824>, requantize_shifts = array<i64: -3>,
    activation_max = 127 : i64, activation_min = -128 : i64}"""


def program(
    words: Any,
    method: Any,
    *,
    order: str = "0, 3, 1, 2",
    turned: str = "2x3x2x2",
    rows: tuple[int, int] = (2, 12),
    weight: str | None = None,
    taken: str = "",
    more: tuple[str, ...] = (),
    gives: str | None = None,
) -> str:
    held, flat = "0.5:3", f"{rows[0]}x{rows[1]}"
    made = f"{rows[0]}x1"
    columns = f"1x{rows[1]}"
    if weight is None:
        weight = "\n  ".join(
            (
                f'%ws = stepwell.weight <"w"> "parameter" : {words.raw(columns)}',
                f"%w = quant.scast %ws : {words.raw(columns)} to {words.typed(columns, '0.25')}",
            )
        )
    return method(
        f"%x: {words.typed('2x2x2x3', held)}{taken}",
        weight,
        f"%t = cmsis.transpose(%x) {{perm = array<i64: {order}>}} : "
        f"({words.typed('2x2x2x3', held)}) -> {words.typed(turned, held)}",
        f"%r = quant.scast %t : {words.typed(turned, held)} to {words.raw(turned)}",
        f"%v = aten.view.default(%r, [{rows[0]}, {rows[1]}]) : "
        f"({words.raw(turned)}) -> {words.raw(flat)}",
        f"%f = quant.scast %v : {words.raw(flat)} to {words.typed(flat, held)}",
        f"%y = cmsis.quantized_linear(%f, %w) {FIELDS} : ({words.typed(flat, held)}, "
        f"{words.typed(columns, '0.25')}) -> {words.typed(made, '2.0:-1')}",
        *more,
        gives=gives or words.typed(made, "2.0:-1"),
    )


def test_another_order_of_the_image_is_absorbed_too(apply: Any, method: Any, words: Any):
    done = apply(program(words, method, order="0, 2, 3, 1", turned="2x2x3x2"), AbsorbFlatten())
    assert "cmsis.transpose" not in done.ops()


def test_rows_that_are_part_of_an_image_are_left(refused: Any, method: Any, words: Any):
    refused(program(words, method, rows=(4, 6)), AbsorbFlatten())


def test_an_order_that_moves_the_batch_is_left(refused: Any, method: Any, words: Any):
    text = program(words, method, order="1, 0, 2, 3", turned="2x2x2x3")
    refused(text, AbsorbFlatten())


def test_without_a_transposition_there_is_nothing_to_absorb(refused: Any, method: Any, words: Any):
    text = program(words, method)
    first, rest = text.split("  %t = ", 1)
    _, rest = rest.split("\n", 1)
    refused(first + rest.replace("%t", "%x").replace("2x3x2x2", "2x2x2x3"), AbsorbFlatten())


def test_a_weight_that_is_computed_keeps_its_columns(refused: Any, method: Any, words: Any):
    taken = f", %w: {words.typed('1x12', '0.25')}"
    text = program(words, method, weight="", taken=taken)
    refused(text, AbsorbFlatten(), "computed at run time")


def test_a_transposed_value_with_another_user_is_transposed_anyway(
    refused: Any, method: Any, words: Any
):
    turned = words.typed("2x3x2x2", "0.5:3")
    text = program(words, method).replace("  func.return %y", "  func.return %y, %t")
    one = words.typed("2x1", "2.0:-1")
    text = text.replace(f"-> {one} {{", f"-> ({one}, {turned}) {{").replace(
        f"%t : {one}", f"%t : {one}, {turned}"
    )
    refused(text, AbsorbFlatten())


def test_a_weight_with_another_user_keeps_its_columns(refused: Any, method: Any, words: Any):
    one, other = words.typed("2x1", "2.0:-1"), words.typed("1x12", "0.25")
    text = program(words, method).replace("  func.return %y", "  func.return %y, %w")
    text = text.replace(f"-> {one} {{", f"-> ({one}, {other}) {{").replace(
        f"%w : {one}\n", f"%w : {one}, {other}\n"
    )
    refused(text, AbsorbFlatten(), "used elsewhere")


def test_a_window_over_rows_is_no_layer_over_each(refused: Any, method: Any, words: Any):
    held, flat, made = "0.5:3", "1x2x1x12", "1x1x1x1"
    fields = """{stride = array<i64: 1, 1>, padding = array<i64: 0, 0>,
        dilation = array<i64: 1, 1>, input_offset = -3 : i64, output_offset = -1 : i64,
        requantize_multipliers = array<i32: 1073741824>, requantize_shifts = array<i32: -3>,
        activation_min = -128 : i64, activation_max = 127 : i64, scratch = 0 : i64}"""
    text = method(
        f"%x: {words.typed('2x2x2x3', held)}",
        f'%ws = stepwell.weight <"w"> "parameter" : {words.raw("1x2x1x12")}',
        f"%w = quant.scast %ws : {words.raw('1x2x1x12')} to {words.typed('1x2x1x12', '0.25')}",
        "%t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : "
        f"({words.typed('2x2x2x3', held)}) -> {words.typed('2x3x2x2', held)}",
        f"%r = quant.scast %t : {words.typed('2x3x2x2', held)} to {words.raw('2x3x2x2')}",
        f"%v = aten.view.default(%r, [1, 2, 1, 12]) : ({words.raw('2x3x2x2')}) -> {words.raw(flat)}",
        f"%f = quant.scast %v : {words.raw(flat)} to {words.typed(flat, held)}",
        f"%y = cmsis.quantized_conv2d_nhwc(%f, %w) {fields} : ({words.typed(flat, held)}, "
        f"{words.typed('1x2x1x12', '0.25')}) -> {words.typed(made, '2.0:-1')}",
        gives=words.typed(made, "2.0:-1"),
    )
    refused(text, AbsorbFlatten())


def test_a_batch_known_only_at_run_time_is_left(refused: Any, method: Any, words: Any):
    def sized(shape: str, rest: str) -> str:
        return f'tensor<?x{shape}x{rest}, #stepwell.shape<["s0", {shape.replace("x", ", ")}]>>'

    held, made = "!quant.uniform<i8:f32, 0.5:3>", "!quant.uniform<i8:f32, 2.0:-1>"
    columns = words.typed("1x12", "0.25")
    text = method(
        f"%x: {sized('2x2x3', held)}",
        f'%ws = stepwell.weight <"w"> "parameter" : {words.raw("1x12")}',
        f"%w = quant.scast %ws : {words.raw('1x12')} to {columns}",
        "%t = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>} : "
        f"({sized('2x2x3', held)}) -> {sized('3x2x2', held)}",
        f"%r = quant.scast %t : {sized('3x2x2', held)} to {sized('3x2x2', 'i8')}",
        f"%v = aten.flatten.using_ints(%r, 1) : ({sized('3x2x2', 'i8')}) -> {sized('12', 'i8')}",
        f"%f = quant.scast %v : {sized('12', 'i8')} to {sized('12', held)}",
        f"%y = cmsis.quantized_linear(%f, %w) {FIELDS} : ({sized('12', held)}, {columns}) "
        f"-> {sized('1', made)}",
        gives=sized("1", made),
    )
    refused(text, AbsorbFlatten())
