"""Clamp nodes and FuseClamp: bounds that make a range, and nodes that can take it in."""

from rewrite_cases import cases

from stepwell.translate.rewrites.xnnpack.nodes.fuse_clamp import FuseClamp
from stepwell.translate.rewrites.xnnpack.nodes.lower_clamp import RULES

test_lower_clamp = cases(
    RULES,
    FuseClamp,
    """
lower-clamp: 2.0, 1.0 -> refused: is not below
    %y = aten.clamp.default(%x: f32[2, 4], 2.0, 1.0)
lower-clamp: 1.0, 1.0 -> refused: is not below
    %y = aten.clamp.default(%x: f32[2, 4], 1.0, 1.0)
lower-clamp: 1.0, 1.00000000001 -> refused: is not below
    %y = aten.clamp.default(%x: f32[2, 4], 1.0, 1.00000000001)
lower-clamp: a bound that is no number -> refused: nan is not below
    %y = aten.clamp.default(%x: f32[2, 4], nan)
lower-clamp: 0.25, none -> xnnpack.clamp
    %y = aten.clamp.default(%x: f32[2, 4], 0.25, none)
lower-clamp: none, 0.25 -> xnnpack.clamp
    %y = aten.clamp.default(%x: f32[2, 4], none, 0.25)
lower-clamp: -0.5, 0.5 -> xnnpack.clamp
    %y = aten.clamp.default(%x: f32[2, 4], -0.5, 0.5)
fuse-clamp: a clamp becomes the range of the node before it -> xnnpack.add
    %a = xnnpack.add(%x: f32[2, 4], %x)
    %y = xnnpack.clamp(%a, output_max=0.5) : (f32[2, 4]) -> f32[2, 4]
fuse-clamp: a clamp of an argument -> unchanged
    %x: f32[2, 4]; %y = xnnpack.clamp(%x, output_max=0.5) : (f32[2, 4]) -> f32[2, 4]
fuse-clamp: a clamp behind a node without a range -> unchanged
    %a = xnnpack.abs(%x: f32[2, 4])
    %y = xnnpack.clamp(%a, output_max=0.5) : (f32[2, 4]) -> f32[2, 4]
fuse-clamp: a range is not written over -> refused: clamps its output already
    %x: f32[2, 4]; %a = xnnpack.add(%x, %x, output_max=-0.5) : (f32[2, 4], f32[2, 4]) -> f32[2, 4]
    %y = xnnpack.clamp(%a, output_max=0.5) : (f32[2, 4]) -> f32[2, 4]
fuse-clamp: what is read without the clamp too keeps its values -> refused: without the clamp
    %a = xnnpack.add(%x: f32[2, 4], %x)
    %c = xnnpack.clamp(%a, output_max=0.5) : (f32[2, 4]) -> f32[2, 4]
    %y = xnnpack.subtract(%a, %c)
fuse-clamp: a clamp that changes the scale -> refused: also changes the type
    %a = xnnpack.add(%x: i8<0.125>[2, 4], %x)
    %y = xnnpack.clamp(%a, output_max=0.5) : (i8<0.125>[2, 4]) -> i8<0.5>[2, 4]
""",
)
