"""Powers, gelus and norms as expressions of nodes."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import assert_whole, lower
from rewrite_cases import cases
from torch import Tensor

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.decompositions import arithmetic, norms
from stepwell.translate.lowerings.lowering import Lowering, step
from stepwell.translate.rewrites.documentation import examples_of, module_of, rewrites_of
from stepwell.translate.rewrites.xnnpack.expressions.recognize_gelu import recognize_gelu
from stepwell.translate.rewrites.xnnpack.nodes.lower_clamp import RULES as CLAMPS
from stepwell.translate.rewrites.xnnpack.nodes.lower_elementwise import RULES as ELEMENTWISE

WHOLE = (4, 5, 7, 10, 31, 64, -3, -4, -9, 6.0)
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -2.0, 1e-3, 3e38, -3e38, 1e10, float("inf")])


def test_whole_powers_run_in_one_delegate() -> None:
    x = torch.cat([EDGES, torch.tensor([float("-inf"), float("nan")]), torch.randn(99)])

    def powers(x: Tensor) -> list[Tensor]:
        return [x**exponent for exponent in WHOLE]

    lowered = lower(powers, x, numerics="finite")  # Reciprocals of denormals.
    assert_whole(lowered)
    tiny = torch.finfo(torch.float32).tiny
    for found, wanted in zip(lowered.run(x), powers(x), strict=True):
        limit = arithmetic.LARGEST_EXPONENT * 2.0**-24
        torch.testing.assert_close(found, wanted, rtol=limit, atol=4 * tiny, equal_nan=True)
        large = wanted.abs() >= tiny
        assert torch.equal(found[large].signbit(), wanted[large].signbit())


test_expand_power = cases(arithmetic)("""
expand-power: a fractional exponent -> refused: roots lose the sign
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 2.5)
expand-power: exponents of too many products, or none -> refused: is not in the range 2 to 64
    - %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 65)
    - %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], -65)
    - %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 1)
    - %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 0)
expand-power: powers of doubles and of integers -> refused: in float32
    - %y = aten.pow.Tensor_Scalar(%x: f64[2, 3], 4)
    - %y = aten.pow.Tensor_Scalar(%x: i64[2, 3], 4)
    - %y = aten.pow.Tensor_Scalar(%x: i64[2, 3], 4.0)
expand-power: an exponent of run time -> refused: only at run time
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], %n: int<u0>)
""")


WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "BERT": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "the half in front": lambda x: 0.5 * x * (1 + torch.erf(x / 1.41421)),
    "the half behind": lambda x: x * (torch.erf(x * 2**-0.5) + 1) * 0.5,
    "a distribution": lambda x: (0.5 * (1 + torch.erf(x / 1.4142))) * x,
    "of a scaled value": lambda x: (h := 3 * x) * 0.5 * (1 + torch.erf(h / math.sqrt(2))),
    "another factor": lambda x: x * (1 + torch.erf(x / math.sqrt(2))),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_gelu_runs_as_one_node_in_one_delegate(name: str) -> None:
    x = torch.cat([torch.linspace(-9, 9, 181), torch.tensor([-0.0, 1e-30, 60.0, -60.0])])
    lowered = lower(WRITTEN[name], x)
    assert_whole(lowered)
    inside = [op.name for op in lowered.program.module.walk() if op.name.startswith("xnnpack.")]
    assert inside.count("xnnpack.gelu") == 1
    exact = WRITTEN[name](x.double())
    torch.testing.assert_close(lowered.run(x)[0].double(), exact, rtol=1e-6, atol=4e-6)


ROOT = "0.7071067811865476"
OF_B = "%c = aten.erf.default(%b); %d = aten.add.Scalar(%c, 1); %y = aten.mul.Tensor(%x, %d)"

test_recognize_gelu = cases(step(recognize_gelu))(f"""
a function of another product -> refused: the op is not a product
    - %b = aten.mul.Scalar(%x: f32[3], 0.707); {OF_B}
    - %b = aten.mul.Scalar(%x: f32[3], 1.0); {OF_B}
    - %b = aten.mul.Scalar(%x: f32[3], 0); {OF_B}
    - %b = aten.div.Scalar(%x: f32[3], 0); {OF_B}
    - %b = aten.mul.Scalar(%z: f32[3], {ROOT}); %x: f32[3]; {OF_B}
another number than one -> unchanged
    - %b = aten.mul.Scalar(%x: f32[3], {ROOT}); {OF_B.replace("1)", "2)")}
    - %b = aten.mul.Scalar(%x: f32[3], {ROOT}); {OF_B.replace("1)", "1, alpha=2)")}
halves -> refused: float32 only
    %b = aten.mul.Scalar(%x: f16[3], {ROOT}); {OF_B}
a factor known only at run time is no number -> applied 0 times
    %b = aten.mul.Scalar(%x: f32[3], %n: int<u0>); {OF_B}
a product with one plus another function is not looked at -> unchanged
    %b = aten.mul.Scalar(%x: f32[3], 0.7071067811865476); %c = aten.tanh.default(%b)
    %d = aten.add.Scalar(%c, 1); %y = aten.mul.Tensor(%x, %d)
""")


test_decompose_norms = cases(norms)("""
decompose-layer-norm: a layer norm of nothing -> refused: empty
    %y = aten.layer_norm.default(%x: f32[2, 0], [0])
decompose-layer-norm: a layer norm of two axes and two symbolic ones -> refused: several axes
    %y = aten.layer_norm.default(%x: f32[s0, s1, 3, 4], [3, 4])
decompose-layer-norm: a layer norm of a symbolic axis -> refused: symbolic size
    %n = aten.sym_size.int(%x: f32[2, s0], 1); %y = aten.layer_norm.default(%x, [%n])
decompose-layer-norm: a layer norm of known axes is decomposed -> applied once
    - %y = aten.layer_norm.default(%x: f32[2, 3, 4], [4])
    - %y = aten.layer_norm.default(%x: f32[2, 3, 4], [3, 4])
decompose-group-norm: a group norm with a computed scale -> refused: the scale is computed
    %y = aten.group_norm.default(%x: f32[2, 4, 3], 2, %w: f32[4])
decompose-group-norm: a group norm of lines of dynamic length is of images -> applied once
    %y = aten.group_norm.default(%x: f32[2, 4, s0], 2, %w: weight f32[4])
decompose-group-norm: a group norm of an dynamic volume -> refused: not an image, are symbolic
    %y = aten.group_norm.default(%x: f32[2, 4, 3, 3, s0], 2, %w: weight f32[4])
decompose-group-norm: a group norm of a constant scale is decomposed -> applied once
    %y = aten.group_norm.default(%x: f32[2, 4, 3], 2, %w: weight f32[4])
decompose-group-norm: a group norm of images moves no elements -> applied once; without aten.view.default
    - %y = aten.group_norm.default(%x: f32[2, 4, 3, 5], 1, %w: weight f32[4])
    - %y = aten.group_norm.default(%x: f32[2, 4, 3, 5], 2, %w: weight f32[4])
    - %y = aten.group_norm.default(%x: f32[2, 4, 3, 5], 4, %w: weight f32[4])
""")


def test_a_number_that_is_none_stays_in_its_group(programs: Any):
    program, (image,) = programs(
        "%y = aten.group_norm.default(%x: f32[1, 4, 3, 5], 2, %w: weight f32[4])"
    )
    image[0, 0, 0, 0] = torch.inf
    assert run_rewrites(program, [step(norms.decompose_group_norm)], History()) == 1
    (result,) = program.run(image)
    assert not result[0, :2].isfinite().any()
    assert result[0, 2:].isfinite().all()


OF_FLOATS = (
    "xnnpack.convolutions",
    "xnnpack.images",
    "xnnpack.nodes.lower_clamp",
    "xnnpack.nodes.lower_elementwise",
    "xnnpack.nodes.lower_shape",
    "xnnpack.products",
    "xnnpack.reductions",
)


@pytest.mark.parametrize("name", OF_FLOATS)
def test_doubles_stay_where_they_are(name: str, refused: Any):
    module = module_of(name)
    held = rewrites_of(module)
    held = held if issubclass(held[0], Lowering) else held[:1]
    for rewrite, (before, _) in zip(held, examples_of(module), strict=False):
        if "xf32" in before:
            refused(re.sub(r"xf32\b", "xf64", before), rewrite(), "float64")


test_what_nodes_hold = cases(norms, ELEMENTWISE, CLAMPS)("""
decompose-layer-norm: norms of doubles -> refused: float64
    %y = aten.layer_norm.default(%x: f64[2, 4], [4], none, none, 1e-06)
decompose-group-norm: norms of doubles -> refused: float64
    %y = aten.group_norm.default(%x: f64[2, 4, 3], 2, none, none, 1e-05)
lower-unary: a tensor that no node holds -> refused: rank 7
    %y = aten.abs.default(%x: f32[1, 1, 1, 1, 1, 1, 4])
lower-unary: a tensor that no node holds -> refused: a dimension is 0
    %y = aten.abs.default(%x: f32[2, 0])
lower-unary: a tensor that no node holds -> refused: not known
    %y = aten.abs.default(%x: f32[?, 4]) -> f32[?, 4]
lower-unary: a tensor that no node holds -> refused: not int32
    %y = aten.abs.default(%x: i32[2, 4])
lower-unary: six axes a named size and halves are held -> xnnpack.abs
    - %y = aten.abs.default(%x: f32[1, 1, 1, 1, 2, 4])
    - %y = aten.abs.default(%x: f32[s0, 4])
    - %y = aten.abs.default(%x: f16[2, 4])
lower-sum: floats of two kinds do not meet -> refused: cast one
    %y = aten.add.Tensor(%x: f32[2, 4], %h: f16[2, 4])
lower-clamp: a number known only at run time is no field -> refused: only at run time
    %n = aten.sym_size.int(%x: f32[s0, 4], 0); %y = aten.clamp.default(%x, %n)
""")
