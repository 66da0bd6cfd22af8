"""AssignLayouts on TOSA: what a transpose passes, to the one behind it, and what it does not."""

from typing import Any

import pytest

from stepwell.ir.rewriting.rewrite import History
from stepwell.translate.rewrites.documentation import module_of
from stepwell.translate.rewrites.tosa.layout.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.tosa.layout.order import LAYOUT

LAST, FIRST = "1, 4, 5, 8", "1, 8, 4, 5"
ROUNDED = (
    "{input_unsigned = false, output_unsigned = false, per_channel = true, "
    "rounding_mode = SINGLE_ROUND, scale32 = true}"
)
BLOCKS = "tensor<{}x32x!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E4M3FN>>"


def turn(name: str, source: str, order: str, given: str, made: str, held: str = "f32") -> str:
    perms = f"{{perms = array<i32: {order}>}}"
    return f"%{name} = tosa.transpose %{source} {perms} : ({held}[{given}]) -> {held}[{made}]"


def sizes(name: str, *values: int) -> str:
    rank = len(values)
    held = f"values = dense<{list(values)}> : tensor<{rank}xindex>"
    return f"%{name} = tosa.const_shape {{{held}}} : () -> !tosa.shape<{rank}>"


PASSED: dict[str, tuple[tuple[str, ...], str]] = {
    "an elementwise operator": ((f"%b = tosa.exp %a : (f32[{FIRST}]) -> f32[{FIRST}]",), FIRST),
    "a sum with a constant": (
        (
            '%w = stepwell.weight <"w"> "parameter" : f32[1, 8, 1, 1]',
            f"%b = tosa.add %a, %w : (f32[{FIRST}], f32[1, 8, 1, 1]) -> f32[{FIRST}]",
        ),
        FIRST,
    ),
    "a reduction": (
        (f"%b = tosa.reduce_max %a {{axis = 1 : i32}} : (f32[{FIRST}]) -> f32[1, 1, 4, 5]",),
        "1, 1, 4, 5",
    ),
    "a reversal": (
        (f"%b = tosa.reverse %a {{axis = 3 : i32}} : (f32[{FIRST}]) -> f32[{FIRST}]",),
        FIRST,
    ),
    "a concatenation": (
        (
            f"%b = tosa.concat %a, %a {{axis = 1 : i32}} : (f32[{FIRST}], f32[{FIRST}]) "
            "-> f32[1, 16, 4, 5]",
        ),
        "1, 16, 4, 5",
    ),
    "a pad": (
        (
            sizes("p", 0, 0, 0, 2, 1, 0, 0, 0),
            '%z = stepwell.weight <"z"> "constant" : f32[1]',
            f"%b = tosa.pad %a, %p, %z : (f32[{FIRST}], !tosa.shape<8>, f32[1]) "
            "-> f32[1, 10, 5, 5]",
        ),
        "1, 10, 5, 5",
    ),
    "a slice": (
        (
            sizes("s", 0, 2, 1, 0),
            sizes("n", 1, 3, 2, 5),
            f"%b = tosa.slice %a, %s, %n : (f32[{FIRST}], !tosa.shape<4>, !tosa.shape<4>) "
            "-> f32[1, 3, 2, 5]",
        ),
        "1, 3, 2, 5",
    ),
}


@pytest.mark.parametrize("name", PASSED)
def test_a_transpose_passes_and_meets_the_one_behind(apply: Any, written: Any, name: str) -> None:
    lines, made = PASSED[name]
    one, channels, *image = made.split(", ")
    gives = ", ".join((one, *image, channels))
    text = written(
        f"%x: f32[{LAST}]",
        turn("a", "x", "0, 3, 1, 2", LAST, FIRST),
        *lines,
        turn("y", "b", "0, 2, 3, 1", made, gives),
    )
    done = apply(apply(text, AssignLayouts()).text, *LAYOUT)
    assert "tosa.transpose" not in done.ops()


def test_the_documented_example_loses_both_transposes(apply: Any) -> None:
    text = module_of("tosa.layout.assign_layouts").__doc__ or ""
    text = text[text.index("Before:") + 7 : text.index("After,")]
    assert "tosa.transpose" not in apply(apply(text, AssignLayouts()).text, *LAYOUT).ops()


def test_a_transpose_passes_a_reshape_that_merges_what_stands_together(
    apply: Any, written: Any
) -> None:
    text = written(
        f"%x: f32[{LAST}]",
        turn("a", "x", "0, 3, 1, 2", LAST, FIRST),
        sizes("s", 1, 8, 20),
        f"%b = tosa.reshape %a, %s : (f32[{FIRST}], !tosa.shape<3>) -> f32[1, 8, 20]",
        turn("y", "b", "0, 2, 1", "1, 8, 20", "1, 20, 8"),
    )
    done = apply(apply(text, AssignLayouts()).text, *LAYOUT)
    assert done.ops() == ["tosa.const_shape", "tosa.reshape"]


def test_of_two_transposes_around_axes_that_merge_one_is_left(apply: Any, written: Any) -> None:
    text = written(
        "%x: f32[2, 3, 4]",
        turn("a", "x", "1, 0, 2", "2, 3, 4", "3, 2, 4"),
        sizes("s", 6, 4),
        "%b = tosa.reshape %a, %s : (f32[3, 2, 4], !tosa.shape<2>) -> f32[6, 4]",
        turn("y", "b", "1, 0", "6, 4", "4, 6"),
    )
    done = apply(apply(text, AssignLayouts()).text, *LAYOUT)
    assert done.ops().count("tosa.transpose") == 1


STAYS = {
    "rows of unknown number": (
        "%x: f32[?, 4]",
        turn("a", "x", "1, 0", "?, 4", "4, ?"),
        "%b = tosa.exp %a : (f32[4, ?]) -> f32[4, ?]",
        turn("y", "b", "1, 0", "4, ?", "?, 4"),
    ),
    "blocks": (
        "%x: f32[32, 2]",
        turn("a", "x", "1, 0", "32, 2", "2, 32"),
        f"%b = tosa.cast %a : (f32[2, 32]) -> {BLOCKS.format(2)}",
        f"%c = tosa.cast %b : ({BLOCKS.format(2)}) -> f32[2, 32]",
        turn("y", "c", "1, 0", "2, 32", "32, 2"),
    ),
    "channels that are rescaled one by one": (
        "%x: i32[4, 3]",
        '%m = stepwell.weight <"m"> "constant" : i32[4]',
        '%s = stepwell.weight <"s"> "constant" : i8[4]',
        '%p = stepwell.weight <"p#zeros"> "constant" : i32[1]',
        '%q = stepwell.weight <"q"> "constant" : i8[1]',
        turn("a", "x", "1, 0", "4, 3", "3, 4", "i32"),
        f"%b = tosa.rescale %a, %m, %s, %p, %q {ROUNDED} : "
        "(i32[3, 4], i32[4], i8[4], i32[1], i8[1]) -> i8[3, 4]",
        turn("y", "b", "1, 0", "3, 4", "4, 3", "i8"),
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_wants_its_order_keeps_it(programs: Any, written: Any, name: str) -> None:
    program, _ = programs(written(*STAYS[name]))
    assert AssignLayouts().apply(program, History()) == 0
