"""`index-to-slices`: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.decompositions import slices

test_index_to_slices = cases(
    slices,
    """
index-to-slices: scattered indices stay a gather -> refused: form 6 runs
    %y = aten.index_select.default(%x: f32[6], 0, %i: constant "i#zeros" i64[6])
index-to-slices: indices known at run time -> unchanged
    %y = aten.index_select.default(%x: f32[6], 0, %i: i64[2])
index-to-slices: an index behind a whole axis is sliced -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default
    %y = aten.index.Tensor(%x: f32[2, 6], [none, %i: constant "i#rolled" i64[6]])
index-to-slices: two indices -> unchanged
    %y = aten.index.Tensor(%x: f32[6, 6], [%i: constant i64[6], %i])
index-to-slices: a symbolic axis -> refused: symbolic
    %y = aten.index.Tensor(%x: f32[n, 6], [none, %i: constant i64[6]])
index-to-slices: a matrix -> refused: not a vector
    %y = aten.index.Tensor(%x: f32[6], [%i: constant i64[2, 3]])
index-to-slices: a mask -> refused: a mask
    %y = aten.index.Tensor(%x: f32[3], [%i: constant "i#ones" i1[3]])
""",
)
