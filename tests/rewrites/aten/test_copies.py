"""Copies and casts: beyond their examples, and what stays."""

from rewrite_cases import cases

from stepwell.translate.canonicalize.copies import RULES

test_copies = cases(
    RULES,
    """
remove-copy: a copy to channels last -> refused: memory format
    %y = aten.contiguous.default(%x: f32[1, 2, 3, 4], memory_format="torch.channels_last")
remove-copy: a copy whose strides are read -> refused: reads the strides
    %t = aten.permute.default(%x: f32[2, 3], [1, 0])
    %c = aten.contiguous.default(%t)
    %v = aten.view.default(%c, [6])
    %y = aten.as_strided.default(%v, [2], [3])
remove-noop-cast: a cast to another dtype -> unchanged
    %y = aten.to.dtype(%x: f32[2, 3], f16)
remove-noop-cast: a cast that asks for channels last -> refused: memory format
    %y = aten._to_copy.default(%x: f32[1, 2, 3, 4], memory_format="torch.channels_last")
type-as-to-copy: a cast to the dtype it has is not respelled -> unchanged
    %y = aten.type_as.default(%x: f32[2, 3], %z: f32[4])
""",
)
