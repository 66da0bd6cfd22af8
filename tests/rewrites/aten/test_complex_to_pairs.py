"""Complex numbers that are not taken apart, each with its reason."""

from rewrite_cases import cases

from stepwell.translate.decompositions import complex

test_complex_to_pairs = cases(
    complex,
    """
complex numbers that -> refused: of single precision
    %y = aten.abs.default(%x: complex<f64>[3])
rows repeated as often as is known at run time -> refused: repeated as often as is known only at run time
    %n = aten.sym_size.int(%z: f32[s0, 3], 0)
    %y = aten.expand.default(%x: complex<f32>[1, 3], [%n, 3])
open rows beside one another -> refused: the shape is symbolic
    %y = aten.cat.default([%x: complex<f32>[s0, 3], %x], 1)
real rows of run time -> refused: the shape is symbolic
    %x: f32[s0, 3]
    %y = aten._to_copy.default(%x, dtype=complex<f32>) : (f32[s0, 3]) -> complex<f32>[s0, 3]
""",
)
