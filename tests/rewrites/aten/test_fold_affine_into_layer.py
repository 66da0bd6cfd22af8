"""A scale and shift go into the weights behind them only where every reader is such a layer."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer

test_fold_affine_into_layer = cases(FoldAffineIntoLayer)("""
scale and shift go into weight and bias -> aten.linear.default
    %s = aten.mul.Tensor(%x: f32[2, 4], %g: weight f32[4])
    %t = aten.add.Tensor(%s, %b: weight f32[4])
    %y = aten.linear.default(%t, %w: weight f32[3, 4], %c: weight f32[3])
a factor computed at run time -> unchanged
    %s = aten.mul.Tensor(%x: f32[2, 4], %r: f32[2, 4])
    %y = aten.linear.default(%s, %w: weight f32[3, 4])
a factor for each row -> unchanged
    %s = aten.mul.Tensor(%x: f32[2, 4], %g: weight f32[2, 1])
    %y = aten.linear.default(%s, %w: weight f32[3, 4])
a shift times alpha -> unchanged
    %s = aten.add.Tensor(%x: f32[2, 4], %b: weight f32[4], alpha=2)
    %y = aten.linear.default(%s, %w: weight f32[3, 4])
a scaled value with another reader -> refused: nothing is saved
    %s = aten.mul.Tensor(%x: f32[2, 4], %g: weight f32[4]); %n = aten.neg.default(%s)
    %l = aten.linear.default(%n, %w: weight f32[3, 4]); %k = aten.linear.default(%s, %w)
    %y = aten.add.Tensor(%k, %l)
a shifted value with another reader -> refused: nothing is saved
    %t = aten.add.Tensor(%x: f32[2, 4], %b: weight f32[4]); %n = aten.neg.default(%t)
    %l = aten.linear.default(%n, %w: weight f32[3, 4]); %k = aten.linear.default(%t, %w)
    %y = aten.add.Tensor(%k, %l)
a scaled value that is also a weight -> refused: nothing is saved
    %s = aten.mul.Tensor(%x: f32[4, 4], %g: weight f32[4])
    %k = aten.linear.default(%s, %v: weight f32[4, 4]); %y = aten.linear.default(%k, %s)
a weight computed at run time takes no scale -> refused: weight is computed at run time
    %s = aten.mul.Tensor(%x: f32[2, 4], %g: weight f32[4])
    %y = aten.linear.default(%s, %w: f32[3, 4])
a bias computed at run time takes no shift -> refused: bias is computed at run time
    %t = aten.add.Tensor(%x: f32[2, 4], %b: weight f32[4])
    %y = aten.linear.default(%t, %w: weight f32[3, 4], %c: f32[3])
next to a bias computed at run time a scale goes -> aten.linear.default
    %s = aten.mul.Tensor(%x: f32[2, 4], %g: weight f32[4])
    %y = aten.linear.default(%s, %w: weight f32[3, 4], %c: f32[3])
a layer without output features takes no shift -> refused: vector
    %t = aten.add.Tensor(%x: f32[2, 4], %b: weight f32[4])
    %y = aten.linear.default(%t, %w: weight f32[4])
a table that an embedding reads too takes no scale -> refused: kept twice
    %x = aten.embedding.default(%w: weight f32[3, 4], %i: i64[2])
    %s = aten.mul.Tensor(%x, %g: weight f32[4]); %y = aten.linear.default(%s, %w)
a scale read elsewhere stays and the shift goes -> 1 aten.mul.Tensor; applied once; omits #scale_columns
    %s = aten.mul.Tensor(%x: f32[2, 4], %g: weight f32[4])
    %t = aten.add.Tensor(%s, %b: weight f32[4]); %z = aten.neg.default(%s)
    %l = aten.linear.default(%t, %w: weight f32[3, 4]); %m = aten.linear.default(%z, %w)
    %y = aten.add.Tensor(%l, %m)
""")


def test_three_layers_that_read_one_normalized_value_each_take_the_whole_of_it(apply: Any) -> None:
    text = """
        %s = aten.mul.Tensor(%x: f32[2, 4], %g: weight f32[4])
        %t = aten.add.Tensor(%s, %b: weight f32[4])
        %j = aten.linear.default(%t, %w: weight f32[3, 4]); %k = aten.linear.default(%t, %w)
        %l = aten.linear.default(%t, %w); %m = aten.add.Tensor(%j, %k)
        %y = aten.add.Tensor(%m, %l)
    """
    done = apply(text, FoldAffineIntoLayer())
    assert done.count == 1 and not done.reasons
    assert "aten.mul.Tensor" not in done.ops()
