"""What the rewrites of TOSA's layout operators leave alone, each with its reason."""

from typing import Any

from rewrite_cases import cases

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


SINK_ADDED_AXES, SINK_RESHAPE = (rule() for rule in SINKS)


test_what_layout_leaves = cases(HoistReshapeOverSlice, RULES, SINKS, SimplifyTranspose)("""
hoist-reshape-over-slice: a reshape of no slice -> unchanged
    %a = tosa.transpose(%x: f32[2, 3], perms=[1, 0]); %y = tosa.reshape(%a, [6])
hoist-reshape-over-slice: a slice of unknown rows -> refused: the shape is not known
    %a = tosa.transpose(%x: f32[?, 4], perms=[1, 0]) -> f32[4, ?]
    %c = tosa.slice(%a, [0, 0], [2, 5]); %y = tosa.reshape(%c, [10])
hoist-reshape-over-slice: a slice that starts at run time -> refused: not of the leading axis alone
    %d = tosa.dim(%x: f32[s0, 3], axis=0) -> !tosa.shape<1>
    %a = tosa.transpose(%v: f32[2, 4], perms=[1, 0]); %f = tosa.reshape(%a, [8])
    %c = tosa.slice(%f, %d, [3]); %y = tosa.reshape(%c, [1, 3])
hoist-reshape-over-slice: a slice of columns -> refused: not of the leading axis alone
    %a = tosa.transpose(%x: f32[2, 3], perms=[1, 0]); %c = tosa.slice(%a, [0, 0], [3, 1])
    %y = tosa.reshape(%c, [3])
hoist-reshape-over-slice: a slice of what lies as it does -> refused: not a reshape or transpose
    %c = tosa.slice(%x: f32[4, 2], [0, 0], [2, 2]); %y = tosa.reshape(%c, [4])
hoist-reshape-over-slice: a scalar -> refused: the result is a scalar
    %a = tosa.transpose(%x: f32[1, 4], perms=[1, 0]); %c = tosa.slice(%a, [0, 0], [1, 1])
    %y = tosa.reshape(%c, [])
hoist-reshape-over-slice: a start within a row -> refused: does not start at a row
    %a = tosa.transpose(%x: f32[3, 4], perms=[1, 0]); %c = tosa.slice(%a, [1, 0], [2, 3])
    %y = tosa.reshape(%c, [1, 6])
hoist-reshape-over-slice: an end within a row -> refused: does not start at a row
    %a = tosa.transpose(%x: f32[3, 3], perms=[1, 0]); %c = tosa.slice(%a, [0, 0], [2, 3])
    %y = tosa.reshape(%c, [1, 6])
merge-transposes: transposes of unknown rows -> refused: the shape is not known
    %a = tosa.transpose(%x: f32[?, 4], perms=[1, 0]) -> f32[4, ?]
    %y = tosa.transpose(%a, perms=[1, 0]) -> f32[?, 4]
merge-reshapes: reshapes to unknown rows -> refused: the shape is not known
    %a = tosa.reshape(%x: f32[20], [4, 5]); %y = tosa.reshape(%a, [5, 4]) -> f32[?, 4]
sink-reshape: what was not reshaped -> unchanged
    %y = tosa.exp(%x: f32[4])
sink-reshape: a reshape of unknown rows -> refused: a shape is not known
    %a = tosa.reshape(%x: f32[?, 4], [1, 5, 4]) -> f32[1, ?, 4]; %y = tosa.exp(%a) -> f32[1, ?, 4]
sink-reshape: what would not cancel -> refused: block-scaled along the last axis
    %a = tosa.reshape(%x: f32[2, 32], [1, 2, 32])
    %b = tosa.cast(%a) -> !tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E4M3FN>[1, 2, 32]
    %y = tosa.cast(%b) -> f32[1, 2, 32]
sink-reshape: reshapes from two shapes -> refused: reshaped differently
    %a = tosa.reshape(%x: f32[12], [3, 4]); %b = tosa.reshape(%v: f32[2, 6], [3, 4])
    %y = tosa.add(%a, %b)
sink-reshape: reshapes that broadcast -> refused: reshaped differently
    %a = tosa.reshape(%x: f32[3], [3, 1]); %b = tosa.reshape(%v: f32[3], [1, 3])
    %y = tosa.add(%a, %b)
sink-reshape: a reshape that two read -> refused: another op reads the reshape
    %a = tosa.reshape(%x: f32[12], [3, 4]); %b = tosa.exp(%a); %y = tosa.add(%a, %b)
sink-reshape: a value next to a reshape -> refused: an operand was not reshaped
    %a = tosa.reshape(%x: f32[12], [3, 4]); %y = tosa.add(%a, %v: f32[3, 4])
sink-reshape: a value next to an added axis -> refused: an operand was not reshaped
    %a = tosa.reshape(%x: f32[4], [1, 4]); %y = tosa.add(%a, %v: f32[1, 4])
sink-reshape: a constant of both axes -> refused: varies along an axis
    %a = tosa.reshape(%x: f32[12], [3, 4]); %y = tosa.add(%a, %w: weight f32[3, 4])
sink-reshape: a constant along an added axis -> refused: reshaped differently
    %a = tosa.reshape(%x: f32[4], [1, 4]); %y = tosa.add(%a, %w: weight f32[3, 4])
sink-reshape: an added axis and another shape -> refused: reshaped differently
    %a = tosa.reshape(%x: f32[4], [1, 4]); %b = tosa.reshape(%v: f32[2, 2], [1, 4])
    %y = tosa.add(%a, %b)
sink-added-axes: a sum over an added axis -> refused: along an axis that was added
    %a = tosa.reshape(%x: f32[4], [1, 4]); %y = tosa.reduce_sum(%a, axis=0)
simplify-transpose: a transpose of unknown sizes -> refused: the shape is not known
    %y = tosa.transpose(%x: f32[?, 4], perms=[1, 0]) -> f32[4, ?]
simplify-transpose: the fewest axes -> unchanged
    %y = tosa.transpose(%x: f32[2, 3], perms=[1, 0])
simplify-transpose: no reshape in front -> refused: what it reads is not a reshape
    %a = tosa.transpose(%x: f32[1, 3, 4, 8], perms=[0, 2, 1, 3]); %y = tosa.reshape(%a, [4, 24])
simplify-transpose: no reshape after -> refused: one of its readers is not a reshape
    %a = tosa.reshape(%x: f32[3, 4, 8], [1, 3, 4, 8]); %b = tosa.transpose(%a, perms=[0, 2, 1, 3])
    %y = tosa.exp(%b)
sink-added-axes: a reshape that adds no axis -> unchanged
    %a = tosa.reshape(%x: f32[3, 4], [2, 6]); %y = tosa.exp(%a)
sink-added-axes: axes added to several shapes -> refused: differently
    %a = tosa.reshape(%x: f32[3, 4], [1, 3, 4]); %b = tosa.reshape(%z: f32[12], [1, 3, 4])
    %y = tosa.add(%a, %b)
sink-added-axes: an axis that an input has -> refused: was not reshaped
    %a = tosa.reshape(%x: f32[3, 4], [1, 3, 4]); %y = tosa.add(%a, %i: f32[1, 3, 4])
""")


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
