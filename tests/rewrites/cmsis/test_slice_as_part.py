"""Slices and selections as parts: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.cmsis.layout.slice_as_part import RULES

test_slice_as_part = cases(
    RULES,
    """
select-as-part: one step is a part and a view -> cmsis.minimum, cmsis.part, quant.scast, aten.view.default, quant.scast, quant.scast, quant.scast, cmsis.minimum
    %a = cmsis.minimum(%x: i8<0.5>[1, 3, 4], %x) -> i8<0.5>[1, 3, 4]
    %r = quant.scast(%a) -> i8[1, 3, 4]; %s = aten.select.int(%r, 1, -1)
    %p = quant.scast(%s) -> i8<0.5>[1, 4]; %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 4]
slice-as-part: what is no run of memory is copied -> refused: is not contiguous
    %a = cmsis.minimum(%x: i8<0.5>[2, 4], %x) -> i8<0.5>[2, 4]; %r = quant.scast(%a) -> i8[2, 4]
    %s = aten.slice.Tensor(%r, 1, 0, 2); %p = quant.scast(%s) -> i8<0.5>[2, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[2, 2]
slice-as-part: what is no run of memory is copied -> refused: the step is 2
    %a = cmsis.minimum(%x: i8<0.5>[1, 4], %x) -> i8<0.5>[1, 4]; %r = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%r, 1, 0, 4, 2); %p = quant.scast(%s) -> i8<0.5>[1, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
slice-as-part: what is no run of memory is copied -> refused: channels last
    %a = cmsis.minimum(%x: i8<0.5>[1, 2, 2, 2], %x) -> i8<0.5>[1, 2, 2, 2]
    %r = quant.scast(%a) -> i8[1, 2, 2, 2]; %s = aten.slice.Tensor(%r, 1, 0, 1)
    %p = quant.scast(%s) -> i8<0.5>[1, 1, 2, 2]; %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 1, 2, 2]
slice-as-part: a part of an input is copied -> refused: an input's or a constant's
    %r = quant.scast(%a: i8<0.5>[1, 4]) -> i8[1, 4]; %s = aten.slice.Tensor(%r, 1, 0, 2)
    %p = quant.scast(%s) -> i8<0.5>[1, 2]; %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
slice-as-part: a result has bytes of its own -> refused: memory of its own
    %a = cmsis.minimum(%x: i8<0.5>[1, 4], %x) -> i8<0.5>[1, 4]; %r = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%r, 1, 0, 2); %y = quant.scast(%s) -> i8<0.5>[1, 2]
""",
)


test_slice_as_part_unrun = cases(
    RULES,
    """
slice-as-part: an axis of run time is copied -> refused: known only at run time
    %a = cmsis.minimum(%x: i8<0.5>[s, 4], %x) -> i8<0.5>[s, 4]; %r = quant.scast(%a) -> i8[s, 4]
    %s = aten.slice.Tensor(%r, 0, 0, 2); %p = quant.scast(%s) -> i8<0.5>[2, 4]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[2, 4]
slice-as-part: a place of run time is copied -> refused: known only at run time
    %n = aten.sym_size.int(%q: f32[2], 0)
    %a = cmsis.minimum(%x: i8<0.5>[1, 4], %x) -> i8<0.5>[1, 4]; %r = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%r, 1, 0, %n); %p = quant.scast(%s) -> i8<0.5>[1, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
slice-as-part: a part of a constant is copied -> refused: an input's or a constant's
    %a = quant.scast(%r: constant "w" i8[1, 4]) -> i8<0.5>[1, 4]; %t = quant.scast(%a) -> i8[1, 4]
    %s = aten.slice.Tensor(%t, 1, 0, 2); %p = quant.scast(%s) -> i8<0.5>[1, 2]
    %y = cmsis.minimum(%p, %p) -> i8<0.5>[1, 2]
""",
    run=False,
)
