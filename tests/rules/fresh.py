"""Sixty wrong rules that the prover was not written for: off by an axis, wrong at ranks above 3 or
above 4 only, at size 1, for −0, NaN, the least integer, by a promoted type, a negative axis, or on an
engine only. All must be refuted, by numbers that can be run.
"""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from stepwell.ir.types import dims

from .by_rank import BY_RANK, axis
from .by_rank import NAMES as OF_RANKS
from .doubtful import Doubtful, cast, of, one


def plus_one(at: int) -> int:
    """The next axis."""
    return at + 1


def rotated(order: Sequence[int]) -> list[int]:
    """The order, begun at its second axis."""
    return [*order[1:], *order[:1]]


def inverse_of(order: Sequence[int]) -> list[int]:
    """The inverse order, of axes from the front."""
    held = [axis(at, len(order)) for at in order]
    return [held.index(at) for at in range(len(held))]


def as_if_positive(order: Sequence[int]) -> list[int]:
    """Each axis as it stands, one counted from the back as one from the front."""
    return [abs(at) % len(order) if at < 0 else at for at in order]


def not_from_back(value: SSAValue, at: int) -> int:
    """An axis counted from the back, off by one."""
    return at % len(dims(value.type)) if at >= 0 else (at - 1) % len(dims(value.type))


def fourth_for_third(value: SSAValue, at: int) -> int:
    """An axis, but the fourth in place of the third where there are four."""
    rank = len(dims(value.type))
    return 3 if rank > 3 and axis(at, rank) == 2 else axis(at, rank)


def last_two_turned(order: Sequence[int]) -> list[int]:
    """The order, from four axes on with the last two exchanged."""
    return [*order[:-2], order[-1], order[-2]] if len(order) > 3 else list(order)


def first_of_four(order: Sequence[int]) -> list[int]:
    """The order, of four axes the identity."""
    return list(range(len(order))) if len(order) == 4 else list(order)


def never_first(value: SSAValue, at: int) -> int:
    """An axis; of more than three axes not the first one."""
    rank = len(dims(value.type))
    return axis(at, rank) if rank < 4 or axis(at, rank) else 1


def ones(value: SSAValue) -> list[int]:
    """The axes that may have size 1: all."""
    return list(range(len(dims(value.type))))


def is_of_some_size(value: SSAValue) -> bool:
    """Whether no axis is empty."""
    return 0 not in dims(value.type)


P = "for $p = [1, 2, 0], $x = [2, 3, 4]"
PERMUTE, SOFT = "%y = aten.permute.default(%x, $p)", "%y = aten._softmax.default(%x, $d, false)"


def ordered(kind: str, function: str) -> Doubtful:
    """A permutation, with its order changed by a function."""
    return Doubtful(kind, PERMUTE, f"%y = aten.permute.default(%x, {function}($p))", P)


def along(kind: str, function: str) -> Doubtful:
    """A softmax, along an axis changed by a function."""
    return Doubtful(
        kind, SOFT, f"%y = aten._softmax.default(%x, {function}(%x, $d), false)", "for $d = -1"
    )


AXIS, RANK, FAR, SIZE = "off by an axis", "ranks above 3", "ranks above 4", "size 1"
ZERO, NAN, LEAST, PROMOTED = "-0", "NaN", "least integer", "promoted type"
BACK, ENGINE = "negative axis", "engine only"
FRESH: list[Doubtful] = [
    Doubtful(AXIS, "%y = aten._log_softmax.default(%x, 0, false)", "%y = aten._log_softmax.default(%x, plus_one(0), false)", "for %x = \"tensor<2x3xf32>\""),
    ordered(AXIS, "rotated"),
    ordered(AXIS, "inverse_of"),
    Doubtful(AXIS, "%y = aten.amin.default(%x, [-1], true)", "%a = aten.amin.default(%x, [-2], true); %y = aten.clone.default(%a)", "for $x = [2, 2]"),
    Doubtful(AXIS, "%y = aten.cumsum.default(%x, 0)", "%y = aten.cumsum.default(%x, 1)", "for $x = [3, 3]"),
    Doubtful(AXIS, "%a = aten.unsqueeze.default(%x, 0); %y = aten.squeeze.dim(%a, 0)", "%y = aten.flip.default(%x, [0])", "for $x = [2, 3]"),
    Doubtful(AXIS, "%p = aten.permute.default(%x, $p); %y = aten.relu.default(%p)", "%r = aten.relu.default(%x); %y = aten.permute.default(%r, inverse_of($p))", "for $p = [1, 2, 0], $x = [2, 2, 2]"),
    Doubtful(AXIS, "%y = aten.select.int(%x, 0, 1)", "%y = aten.select.int(%x, 1, 1)", "for $x = [2, 2]"),
    ordered(RANK, "last_two_turned"),
    ordered(RANK, "first_of_four"),
    along(RANK, "fourth_for_third"),
    along(RANK, "never_first"),
    Doubtful(RANK, "%y = aten.flip.default(%x, [-4])", "%y = aten.clone.default(%x)"),
    Doubtful(RANK, "%y = aten.mT.default(%x)", "%y = aten.permute.default(%x, last_two_turned(ones(%x)))"),
    *(Doubtful(FAR, each.before, each.after, each.clauses) for each in BY_RANK),
    Doubtful(SIZE, "%y = aten.mean.dim(%x, [-1], true)", "%y = aten.sum.dim_IntList(%x, [-1], true)", "where is_of_some_size(%x); for $x = [2, 3]"),
    Doubtful(SIZE, "%y = aten.flip.default(%x, [0])", "%y = aten.clone.default(%x)", "where is_of_some_size(%x); for $x = [1, 3]"),
    Doubtful(SIZE, "%y = aten._softmax.default(%x, -1, false)", "%a = aten.sub.Tensor(%x, %x); %y = aten.exp.default(%a)", "for $x = [3, 1]"),
    Doubtful(SIZE, "%a = aten.expand.default(%x, [2, 3]); %y = aten.sum.dim_IntList(%a, [0], true)", "%y = aten.sum.dim_IntList(%x, [0], true)", "for %x = \"tensor<1x3xf32>\""),
    Doubtful(SIZE, "%y = aten.roll.default(%x, [1], [0])", "%y = aten.clone.default(%x)", "for $x = [1, 3]"),
    Doubtful(ZERO, "%a = aten.neg.default(%x); %y = aten.neg.default(%a)", "%y = aten.add.Scalar(%x, 0.0)"),
    Doubtful(ZERO, one("y", "neg.default", "f32"), one("y", "rsub.Scalar", "f32", "x", ", 0.0")),
    Doubtful(ZERO, one("y", "mul.Scalar", "f32", "x", ", 0.0"), one("y", "sub.Tensor", "f32", "x", ", %x")),
    Doubtful(ZERO, of("f32 f32", "f32", "%y = aten.sub.Tensor(%x, %z)"), f"{of('f32 f32', 'f32', '%a = aten.sub.Tensor(%z, %x)')}; {one('y', 'neg.default', 'f32', 'a')}"),
    Doubtful(ZERO, one("y", "trunc.default", "f32"), f"{cast('a', 'x', 'f32', 'i64')}; {cast('y', 'a', 'i64', 'f32')}"),
    Doubtful(ZERO, one("y", "abs.default", "f32"), f"{one('a', 'neg.default', 'f32')}; {of('f32 f32', 'f32', '%y = aten.maximum.default(%x, %a)')}"),
    Doubtful(NAN, of("f32 f32", "i1", "%y = aten.le.Tensor(%x, %z)"), f"{of('f32 f32', 'i1', '%a = aten.gt.Tensor(%x, %z)')}; {of('i1', 'i1', '%y = aten.logical_not.default(%a)')}"),
    Doubtful(NAN, of("f32", "i1", "%y = aten.isnan.default(%x)"), of("f32", "i1", "%y = aten.eq.Tensor(%x, %x)")),
    Doubtful(NAN, of("f32 f32", "f32", "%y = aten.minimum.default(%x, %z)"), f"{of('f32 f32', 'i1', '%c = aten.lt.Tensor(%x, %z)')}; {of('i1 f32 f32', 'f32', '%y = aten.where.self(%c, %x, %z)')}"),
    Doubtful(NAN, of("f32 f32", "f32", "%y = aten.maximum.default(%x, %z)"), of("f32 f32", "f32", "%y = aten.fmax.default(%x, %z)")),
    Doubtful(NAN, of("f32 f32", "f32", "%y = aten.div.Tensor(%x, %x)"), one("y", "full_like.default", "f32", "x", ", 1.0")),
    Doubtful(NAN, one("y", "relu.default", "f32"), f"{of('f32', 'i1', '%c = aten.gt.Scalar(%x, 0.0)')}; {of('i1', 'f32', '%m = aten._to_copy.default(%c, dtype=f32)')}; {of('f32 f32', 'f32', '%y = aten.mul.Tensor(%x, %m)')}"),
    Doubtful(LEAST, one("y", "abs.default", "i32"), f"{one('a', 'neg.default', 'i32')}; {one('b', 'clamp_min.default', 'i32', 'x', ', 0')}; {one('c', 'clamp_min.default', 'i32', 'a', ', 0')}; {of('i32 i32', 'i32', '%y = aten.add.Tensor(%b, %c)')}"),
    Doubtful(LEAST, of("i8", "i1", "%y = aten.gt.Scalar(%x, 0)"), f"{one('a', 'neg.default', 'i8')}; {of('i8', 'i1', '%y = aten.lt.Scalar(%a, 0)')}"),
    Doubtful(LEAST, of("i32 i32", "i1", "%y = aten.lt.Tensor(%x, %z)"), f"{of('i32 i32', 'i32', '%a = aten.sub.Tensor(%x, %z)')}; {of('i32', 'i1', '%y = aten.lt.Scalar(%a, 0)')}"),
    Doubtful(LEAST, f"{cast('a', 'x', 'i8', 'i32')}; {one('y', 'neg.default', 'i32', 'a')}", f"{one('a', 'neg.default', 'i8')}; {cast('y', 'a', 'i8', 'i32')}"),
    Doubtful(LEAST, of("i16 i16", "i16", "%y = aten.maximum.default(%x, %z)"), f"{one('a', 'neg.default', 'i16')}; {one('b', 'neg.default', 'i16', 'z')}; {of('i16 i16', 'i16', '%c = aten.minimum.default(%a, %b)')}; {one('y', 'neg.default', 'i16', 'c')}"),
    Doubtful(PROMOTED, of("i32", "f32", "%y = aten.div.Scalar(%x, 2)"), f"{one('a', 'bitwise_right_shift.Tensor_Scalar', 'i32', 'x', ', 1')}; {cast('y', 'a', 'i32', 'f32')}"),
    Doubtful(PROMOTED, f"{cast('a', 'x', 'f16', 'f32')}; {one('b', 'mul.Scalar', 'f32', 'a', ', 3.0')}; {cast('y', 'b', 'f32', 'f16')}", f"{one('a', 'mul.Scalar', 'f16', 'x', ', 1.5')}; {one('y', 'mul.Scalar', 'f16', 'a', ', 2.0')}"),
    Doubtful(PROMOTED, f"{cast('a', 'x', 'ui8', 'i32')}; {one('y', 'add.Scalar', 'i32', 'a', ', 200')}", f"{one('a', 'add.Scalar', 'ui8', 'x', ', 200')}; {cast('y', 'a', 'ui8', 'i32')}"),
    Doubtful(PROMOTED, of("f32 f64", "f64", "%y = aten.add.Tensor(%x, %z)"), f"{cast('a', 'z', 'f64', 'f32')}; {of('f32 f32', 'f32', '%b = aten.add.Tensor(%x, %a)')}; {cast('y', 'b', 'f32', 'f64')}"),
    Doubtful(PROMOTED, of("i64", "i64", "%y = aten.mul.Scalar(%x, 3)"), f"{cast('a', 'x', 'i64', 'i32')}; {one('b', 'mul.Scalar', 'i32', 'a', ', 3')}; {cast('y', 'b', 'i32', 'i64')}"),
    ordered(BACK, "as_if_positive"),
    along(BACK, "not_from_back"),
    Doubtful(BACK, "%y = aten.transpose.int(%x, -1, 0)", "%y = aten.transpose.int(%x, -2, 0)", "for $x = [2, 2, 2]"),
    Doubtful(BACK, "%y = aten.cat.default([%x, %z], -1)", "%a = aten.cat.default([%z, %x], -1); %y = aten.flip.default(%a, [-2])", "for %x = \"tensor<2x2xf32>\", %z = \"tensor<2x2xf32>\""),
    Doubtful(BACK, "%y = aten.slice.Tensor(%x, -1, -2, 9223372036854775807, 1)", "%y = aten.slice.Tensor(%x, -1, 0, 2, 1)", "for $x = [2, 3]"),
    Doubtful(ENGINE, of("f32", "f32", "%y = aten.cosh.default(%x)"), "%n = xnnpack.negate(%x); %p = xnnpack.exp(%x); %q = xnnpack.exp(%n); %s = xnnpack.add(%p, %q); " + of("f32", "f32", "%y = aten.mul.Scalar(%s, 0.5)"), "bound of roundings: \"sums of exponentials\""),
    Doubtful(ENGINE, of("f32", "f32", "%y = aten.exp.default(%x)"), "%y = xnnpack.exp(%x)", "bound of roundings: \"another polynomial\""),
    Doubtful(ENGINE, of("f32", "f32", "%y = aten.log.default(%x)"), "%y = xnnpack.log(%x)", "bound of roundings: \"another polynomial\""),
    Doubtful(ENGINE, of("f32", "f32", "%a = aten.neg.default(%x)") + "; " + of("f32", "f32", "%y = aten.exp.default(%a)"), "%a = xnnpack.negate(%x); %y = xnnpack.exp(%a)", "bound of roundings: \"another polynomial\""),
]  # fmt: skip
NAMES: dict[str, Any] = {
    **OF_RANKS,
    **{name: held for name, held in globals().items() if callable(held)},
}
