"""What the rewrites of TOSA's layout operators leave alone, each with its reason."""

from typing import Any

import pytest

from stepwell.translate.rewrites.tosa.layout.hoist_reshape_over_slice import HoistReshapeOverSlice
from stepwell.translate.rewrites.tosa.layout.merge_layout import RULES
from stepwell.translate.rewrites.tosa.layout.simplify_transpose import SimplifyTranspose
from stepwell.translate.rewrites.tosa.layout.sink_reshape import RULES as SINKS


def sizes(name: str, *values: int) -> str:
    rank = len(values)
    listed = values[0] if rank == 1 else list(values)
    dense = f"dense<{listed}>" if values else "dense<>"
    return (
        f"%{name} = tosa.const_shape {{values = {dense} : tensor<{rank}xindex>}} : () "
        f"-> !tosa.shape<{rank}>"
    )


def reshape(name: str, source: str, given: str, made: str, held: str = "f32") -> tuple[str, str]:
    shape = [int(size) if size.isdigit() else 5 for size in made.split(", ")] if made else []
    return (
        sizes(f"{name}s", *shape),
        f"%{name} = tosa.reshape %{source}, %{name}s : ({held}[{given}], !tosa.shape<{len(shape)}>) "
        f"-> {held}[{made}]",
    )


def transpose(name: str, source: str, order: str, given: str, made: str, held: str = "f32") -> str:
    return (
        f"%{name} = tosa.transpose %{source} {{perms = array<i32: {order}>}} : ({held}[{given}]) "
        f"-> {held}[{made}]"
    )


def cut(name: str, source: str, first: str, given: str, made: str) -> tuple[str, ...]:
    start = [int(at) for at in first.split(", ")]
    size = [int(at) for at in made.split(", ")]
    taken = f"!tosa.shape<{len(size)}>, !tosa.shape<{len(size)}>"
    return (
        sizes(f"{name}b", *start),
        sizes(f"{name}n", *size),
        f"%{name} = tosa.slice %{source}, %{name}b, %{name}n : (f32[{given}], {taken}) "
        f"-> f32[{made}]",
    )


def exp(name: str, source: str, shape: str) -> str:
    return f"%{name} = tosa.exp %{source} : (f32[{shape}]) -> f32[{shape}]"


def total(first: str, second: str, a: str, b: str, made: str) -> str:
    return f"%y = tosa.add %{first}, %{second} : (f32[{a}], f32[{b}]) -> f32[{made}]"


def weight(shape: str) -> str:
    return f'%w = stepwell.weight <"w"> "parameter" : f32[{shape}]'


DIM = "%d = tosa.dim %x {axis = 0 : i32} : (f32[s0, 3]) -> !tosa.shape<1>"
BLOCKS = "tensor<{}x32x!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E4M3FN>>"
SINK_ADDED_AXES, SINK_RESHAPE = (rule() for rule in SINKS)


MERGE = {rule.name: rule() for rule in RULES}
Case = tuple[Any, tuple[str, ...], str]
CASES: dict[str, Case] = {
    # --- hoist-reshape-over-slice ------------------------------------------------------------
    "a reshape of no slice": (
        HoistReshapeOverSlice(),
        (
            "%x: f32[2, 3]",
            transpose("a", "x", "1, 0", "2, 3", "3, 2"),
            *reshape("y", "a", "3, 2", "6"),
        ),
        "",
    ),
    "a slice of unknown rows": (
        HoistReshapeOverSlice(),
        (
            "%x: f32[?, 4]",
            transpose("a", "x", "1, 0", "?, 4", "4, ?"),
            *cut("c", "a", "0, 0", "4, ?", "2, 5"),
            *reshape("y", "c", "2, 5", "10"),
        ),
        "the shape is not known",
    ),
    "a slice that starts at run time": (
        HoistReshapeOverSlice(),
        (
            "%x: f32[s0, 3], %v: f32[2, 4]",
            DIM,
            transpose("a", "v", "1, 0", "2, 4", "4, 2"),
            *reshape("f", "a", "4, 2", "8"),
            sizes("n", 3),
            "%c = tosa.slice %f, %d, %n : (f32[8], !tosa.shape<1>, !tosa.shape<1>) -> f32[3]",
            *reshape("y", "c", "3", "1, 3"),
        ),
        "not of the leading axis alone",
    ),
    "a slice of columns": (
        HoistReshapeOverSlice(),
        (
            "%x: f32[2, 3]",
            transpose("a", "x", "1, 0", "2, 3", "3, 2"),
            *cut("c", "a", "0, 0", "3, 2", "3, 1"),
            *reshape("y", "c", "3, 1", "3"),
        ),
        "not of the leading axis alone",
    ),
    "a slice of what lies as it does": (
        HoistReshapeOverSlice(),
        ("%x: f32[4, 2]", *cut("c", "x", "0, 0", "4, 2", "2, 2"), *reshape("y", "c", "2, 2", "4")),
        "not a reshape or transpose",
    ),
    "a scalar": (
        HoistReshapeOverSlice(),
        (
            "%x: f32[1, 4]",
            transpose("a", "x", "1, 0", "1, 4", "4, 1"),
            *cut("c", "a", "0, 0", "4, 1", "1, 1"),
            *reshape("y", "c", "1, 1", ""),
        ),
        "the result is a scalar",
    ),
    "a start within a row": (
        HoistReshapeOverSlice(),
        (
            "%x: f32[3, 4]",
            transpose("a", "x", "1, 0", "3, 4", "4, 3"),
            *cut("c", "a", "1, 0", "4, 3", "2, 3"),
            *reshape("y", "c", "2, 3", "1, 6"),
        ),
        "does not start at a row",
    ),
    "an end within a row": (
        HoistReshapeOverSlice(),
        (
            "%x: f32[3, 3]",
            transpose("a", "x", "1, 0", "3, 3", "3, 3"),
            *cut("c", "a", "0, 0", "3, 3", "2, 3"),
            *reshape("y", "c", "2, 3", "1, 6"),
        ),
        "does not start at a row",
    ),
    # --- merge-layout ------------------------------------------------------------------------
    "transposes of unknown rows": (
        MERGE["merge-transposes"],
        (
            "%x: f32[?, 4]",
            transpose("a", "x", "1, 0", "?, 4", "4, ?"),
            transpose("y", "a", "1, 0", "4, ?", "?, 4"),
        ),
        "the shape is not known",
    ),
    "reshapes to unknown rows": (
        MERGE["merge-reshapes"],
        ("%x: f32[20]", *reshape("a", "x", "20", "4, 5"), *reshape("y", "a", "4, 5", "?, 4")),
        "the shape is not known",
    ),
    # --- sink-reshape ------------------------------------------------------------------------
    "what was not reshaped": (SINK_RESHAPE, ("%x: f32[4]", exp("y", "x", "4")), ""),
    "a reshape of unknown rows": (
        SINK_RESHAPE,
        ("%x: f32[?, 4]", *reshape("a", "x", "?, 4", "1, ?, 4"), exp("y", "a", "1, ?, 4")),
        "a shape is not known",
    ),
    "blocks": (
        SINK_RESHAPE,
        (
            "%x: f32[2, 32]",
            *reshape("a", "x", "2, 32", "1, 2, 32"),
            f"%b = tosa.cast %a : (f32[1, 2, 32]) -> {BLOCKS.format('1x2')}",
            f"%y = tosa.cast %b : ({BLOCKS.format('1x2')}) -> f32[1, 2, 32]",
        ),
        "its blocks run along the last axis",
    ),
    "reshapes from two shapes": (
        SINK_RESHAPE,
        (
            "%x: f32[12], %v: f32[2, 6]",
            *reshape("a", "x", "12", "3, 4"),
            *reshape("b", "v", "2, 6", "3, 4"),
            total("a", "b", "3, 4", "3, 4", "3, 4"),
        ),
        "reshaped differently",
    ),
    "reshapes that broadcast": (
        SINK_RESHAPE,
        (
            "%x: f32[3], %v: f32[3]",
            *reshape("a", "x", "3", "3, 1"),
            *reshape("b", "v", "3", "1, 3"),
            total("a", "b", "3, 1", "1, 3", "3, 3"),
        ),
        "reshaped differently",
    ),
    "a reshape that two read": (
        SINK_RESHAPE,
        (
            "%x: f32[12]",
            *reshape("a", "x", "12", "3, 4"),
            exp("b", "a", "3, 4"),
            total("a", "b", "3, 4", "3, 4", "3, 4"),
        ),
        "another op reads the reshape",
    ),
    "a value beside a reshape": (
        SINK_RESHAPE,
        (
            "%x: f32[12], %v: f32[3, 4]",
            *reshape("a", "x", "12", "3, 4"),
            total("a", "v", "3, 4", "3, 4", "3, 4"),
        ),
        "an operand was not reshaped",
    ),
    "a value beside an added axis": (
        SINK_RESHAPE,
        (
            "%x: f32[4], %v: f32[1, 4]",
            *reshape("a", "x", "4", "1, 4"),
            total("a", "v", "1, 4", "1, 4", "1, 4"),
        ),
        "an operand was not reshaped",
    ),
    "a constant of both axes": (
        SINK_RESHAPE,
        (
            "%x: f32[12]",
            weight("3, 4"),
            *reshape("a", "x", "12", "3, 4"),
            total("a", "w", "3, 4", "3, 4", "3, 4"),
        ),
        "varies along an axis",
    ),
    "a constant along an added axis": (
        SINK_RESHAPE,
        (
            "%x: f32[4]",
            weight("3, 4"),
            *reshape("a", "x", "4", "1, 4"),
            total("a", "w", "1, 4", "3, 4", "3, 4"),
        ),
        "reshaped differently",
    ),
    "an added axis and another shape": (
        SINK_RESHAPE,
        (
            "%x: f32[4], %v: f32[2, 2]",
            *reshape("a", "x", "4", "1, 4"),
            *reshape("b", "v", "2, 2", "1, 4"),
            total("a", "b", "1, 4", "1, 4", "1, 4"),
        ),
        "reshaped differently",
    ),
    "a sum over an added axis": (
        SINK_ADDED_AXES,
        (
            "%x: f32[4]",
            *reshape("a", "x", "4", "1, 4"),
            "%y = tosa.reduce_sum %a {axis = 0 : i32} : (f32[1, 4]) -> f32[1, 4]",
        ),
        "along an axis that was added",
    ),
    # --- simplify-transpose --------------------------------------------------------------------
    "a transpose of unknown sizes": (
        SimplifyTranspose(),
        ("%x: f32[?, 4]", transpose("y", "x", "1, 0", "?, 4", "4, ?")),
        "the shape is not known",
    ),
    "the fewest axes": (
        SimplifyTranspose(),
        ("%x: f32[2, 3]", transpose("y", "x", "1, 0", "2, 3", "3, 2")),
        "",
    ),
    "no reshape in front": (
        SimplifyTranspose(),
        (
            "%x: f32[1, 3, 4, 8]",
            transpose("a", "x", "0, 2, 1, 3", "1, 3, 4, 8", "1, 4, 3, 8"),
            *reshape("y", "a", "1, 4, 3, 8", "4, 24"),
        ),
        "what it reads is not a reshape",
    ),
    "no reshape behind": (
        SimplifyTranspose(),
        (
            "%x: f32[3, 4, 8]",
            *reshape("a", "x", "3, 4, 8", "1, 3, 4, 8"),
            transpose("b", "a", "0, 2, 1, 3", "1, 3, 4, 8", "1, 4, 3, 8"),
            exp("y", "b", "1, 4, 3, 8"),
        ),
        "one of its readers is not a reshape",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_would_not_cancel_stays_where_it_is(refused: Any, written: Any, name: str) -> None:
    rewrite, lines, reason = CASES[name]
    refused(written(*lines), rewrite, reason)


def test_a_rescale_per_channel_keeps_its_channels(programs: Any, written: Any) -> None:
    flags = (
        "{input_unsigned = false, output_unsigned = false, per_channel = true, "
        "rounding_mode = SINGLE_ROUND, scale32 = true}"
    )
    text = written(
        "%x: i32[12]",
        '%m = stepwell.weight <"m"> "constant" : i32[4]',
        '%s = stepwell.weight <"s"> "constant" : i8[4]',
        '%p = stepwell.weight <"p#zeros"> "constant" : i32[1]',
        '%q = stepwell.weight <"q"> "constant" : i8[1]',
        *reshape("a", "x", "12", "3, 4", "i32"),
        f"%y = tosa.rescale %a, %m, %s, %p, %q {flags} : (i32[3, 4], i32[4], i8[4], i32[1], i8[1]) "
        "-> i8[3, 4]",
    )
    program, _ = programs(text)
    op = next(op for op in program.method().walk() if op.name == "tosa.rescale")
    found: Any = SINK_RESHAPE.match(op, program)
    assert "must be the last axis" in found.reason


ADDED = {
    "a reshape that adds no axis": ((*reshape("a", "x", "3, 4", "2, 6"), exp("y", "a", "2, 6")), ""),
    "axes added to several shapes": (
        (*reshape("a", "x", "3, 4", "1, 3, 4"), *reshape("b", "z", "12", "1, 3, 4"), total("a", "b", "1, 3, 4", "1, 3, 4", "1, 3, 4")),
        "differently",
    ),
    "an axis that an input has": (
        (*reshape("a", "x", "3, 4", "1, 3, 4"), total("a", "i", "1, 3, 4", "1, 3, 4", "1, 3, 4")),
        "was not reshaped",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADDED)
def test_what_is_no_added_axis_stays(refused: Any, written: Any, name: str) -> None:
    lines, reason = ADDED[name]
    arguments = "%x: f32[3, 4], %z: f32[12], %i: f32[1, 3, 4]"
    refused(written(arguments, *lines), SINKS[0](), reason)
