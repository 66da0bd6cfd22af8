"""Doubtful rules as text: wrong ones, labeled with what is wrong, and right twins.

A line is `ops; ops` of one side. `of(operands, result, line)` states element types.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepwell.translate.rules import RuleRewrite, read_rules


@dataclass(frozen=True)
class Doubtful:
    """A rule, and what is wrong with it.

    Attributes:
        kind: what makes it wrong; `right` of one that is not.
        most: the strongest verdict that is true of it: none of a wrong one.
    """

    kind: str
    before: str
    after: str
    clauses: str = ""
    most: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the rule holds."""
        return bool(self.most)

    def rule(self, number: int, names: Mapping[str, Any] | None = None) -> type[RuleRewrite]:
        """The rule, under a name of its own, with the functions of its module."""
        root = self.before.split("; ")[-1].partition(" =")[0]
        after = self.after
        for name in re.findall(r"(%\w+) =", self.before):
            if name != root:
                after = re.sub(rf"{name}\b", f"{name}2", after) if f"{name} =" in after else after
        lines = [
            f"rule doubtful-{number}",
            "    Doubtful.",
            "Before:",
            *(f"    {line}" for line in self.before.split("; ")),
            "After:",
            *(f"    {line}" for line in after.split("; ")),
            *(clause for clause in self.clauses.split("; ") if clause),
        ]
        (found,) = read_rules("\n".join(lines) + "\n", {**globals(), **(names or {})})
        return found


def of(operands: str, result: str, line: str) -> str:
    """A line with the element types of its operands and of its result, all of one shape."""
    given = ", ".join(f"tensor<$*S x {each}>" for each in operands.split())
    return f"{line} : ({given}) -> tensor<$*S x {result}>"


def shaped(shapes: str, line: str) -> str:
    """A line with whole types: `4x5xi8 -> 4xi8`."""
    *given, result = shapes.replace(",", " ").replace("->", " ").split()
    types = [
        " x ".join(["tensor<", *each.split("x")]).replace("< x ", "<") + ">"
        for each in [*given, result]
    ]
    return f"{line} : ({', '.join(types[:-1])}) -> {types[-1]}"


def cast(name: str, value: str, have: str, need: str) -> str:
    """A cast of a value."""
    return of(have, need, f"%{name} = aten._to_copy.default(%{value}, dtype={need})")


def one(name: str, op: str, have: str, value: str = "x", arguments: str = "") -> str:
    """An op of one operand that keeps the element type."""
    return of(have, have, f"%{name} = aten.{op}(%{value}{arguments})")


def swapped(
    kind: str, op: str, have: str, need: str, arguments: str = "", most: str = ""
) -> Doubtful:
    """An op and a cast, in the other order."""
    return Doubtful(
        kind,
        f"{one('a', op, have, 'x', arguments)}; {cast('y', 'a', have, need)}",
        f"{cast('b', 'x', have, need)}; {one('y', op, need, 'b', arguments)}",
        most=most,
    )


def of_two(kind: str, op: str, have: str, need: str, most: str = "") -> Doubtful:
    """An op of two operands and a cast, in the other order."""
    return Doubtful(
        kind,
        f"{of(f'{have} {have}', have, f'%a = aten.{op}(%x, %z)')}; {cast('y', 'a', have, need)}",
        f"{cast('b', 'x', have, need)}; {cast('c', 'z', have, need)}; "
        f"{of(f'{need} {need}', need, f'%y = aten.{op}(%b, %c)')}",
        most=most,
    )


def quantized(name: str, value: str, to: str) -> str:
    """A value in steps of 0.5."""
    limits = "-128, 127" if to == "i8" else "0, 255"
    op = f"quantized_decomposed.quantize_per_tensor.default(%{value}, 0.5, 0, {limits}, {to})"
    return of("f32", to, f"%{name} = {op}")


def dequantized(name: str, value: str, to: str) -> str:
    """What `quantized` stands for."""
    limits = "-128, 127" if to == "i8" else "0, 255"
    op = f"quantized_decomposed.dequantize_per_tensor.default(%{value}, 0.5, 0, {limits}, {to})"
    return of(to, "f32", f"%{name} = {op}")


BOUND = 'bound 1e-5 relative: "roundings"'
MIXED, SATURATION, STEP, ZERO, NAN = "mixed widths", "saturation", "discontinuity", "-0", "NaN"
DOUBTFUL: list[Doubtful] = [
    # -- integers of several widths ------------------------------------------------------------
    *(swapped(MIXED, "neg.default", have, need)
      for have, need in (("i8", "i32"), ("i16", "i32"), ("i32", "i64"), ("i8", "i16"), ("i16", "i64"),
                         ("i8", "i64"))),
    *(swapped(MIXED, "abs.default", have, need) for have, need in (("i8", "i32"), ("i32", "i64"))),
    *(swapped(MIXED, "mul.Scalar", have, need, ", 2")
      for have, need in (("i8", "i32"), ("i16", "i32"), ("i32", "i64"), ("ui8", "i32"))),
    *(swapped(MIXED, "add.Scalar", have, need, ", 1")
      for have, need in (("i8", "i32"), ("i32", "i64"), ("ui8", "i16"))),
    *(swapped(MIXED, "bitwise_not.default", have, need) for have, need in (("ui8", "i32"),)),
    *(of_two(MIXED, op, have, need)
      for op in ("add.Tensor", "mul.Tensor", "sub.Tensor")
      for have, need in (("i8", "i32"), ("i16", "i32"), ("i32", "i64"))),
    *(Doubtful(MIXED, f"{cast('a', 'x', 'i32', narrow)}; {cast('y', 'a', narrow, 'i32')}",
               cast("y", "x", "i32", "i32").replace("_to_copy.default(%x, dtype=i32)", "clone.default(%x)"))
      for narrow in ("i8", "i16", "ui8")),
    Doubtful(MIXED, f"{cast('a', 'x', 'i8', 'ui8')}; {cast('y', 'a', 'ui8', 'i32')}",
             cast("y", "x", "i8", "i32")),
    Doubtful(MIXED, f"{cast('a', 'x', 'ui8', 'i8')}; {cast('y', 'a', 'i8', 'i32')}",
             cast("y", "x", "ui8", "i32")),
    Doubtful(MIXED, f"{cast('a', 'x', 'i64', 'i32')}; {cast('y', 'a', 'i32', 'i64')}",
             of("i64", "i64", "%y = aten.clone.default(%x)")),
    Doubtful(MIXED, f"{one('a', 'mul.Scalar', 'i32', 'x', ', 2')}; %y = aten.sum.dim_IntList(%a, [0], false)",
             of("i32", "i64", "%s = aten.sum.dim_IntList(%x, [0], false)").replace("-> tensor<$*S x i64>", "-> …")
             + "; %y = aten.mul.Scalar(%s, 2)", "for $S = [3]"),
    Doubtful(MIXED, f"{one('a', 'mul.Scalar', 'i32', 'x', ', 2')}; %y = aten.cumsum.default(%a, 0)",
             "%s = aten.cumsum.default(%x, 0); %y = aten.mul.Scalar(%s, 2)", "for $S = [3]"),
    Doubtful(MIXED, f"{of('i32 i32', 'i32', '%a = aten.add.Tensor(%x, %z)')}; %y = aten.sum.dim_IntList(%a, [0], false)",
             "%s = aten.sum.dim_IntList(%x, [0], false); %t = aten.sum.dim_IntList(%z, [0], false); "
             "%y = aten.add.Tensor(%s, %t)", "for $S = [3]"),
    Doubtful(MIXED, shaped("4x5xi8 -> 4x5xi8", "%a = aten.neg.default(%x)") + "; "
             + shaped("4x5xi8 -> 4x5xi32", "%y = aten._to_copy.default(%a, dtype=i32)"),
             shaped("4x5xi8 -> 4x5xi32", "%b = aten._to_copy.default(%x, dtype=i32)") + "; "
             + shaped("4x5xi32 -> 4x5xi32", "%y = aten.neg.default(%b)")),
    *(Doubtful(MIXED, shaped(f"2x3xi{have}, 3x2xi{have} -> 2x2xi{have}", "%a = aten.mm.default(%x, %z)")
               + "; " + shaped(f"2x2xi{have} -> 2x2xi{need}", f"%y = aten._to_copy.default(%a, dtype=i{need})"),
               shaped(f"2x3xi{have} -> 2x3xi{need}", f"%b = aten._to_copy.default(%x, dtype=i{need})") + "; "
               + shaped(f"3x2xi{have} -> 3x2xi{need}", f"%c = aten._to_copy.default(%z, dtype=i{need})") + "; "
               + shaped(f"2x3xi{need}, 3x2xi{need} -> 2x2xi{need}", "%y = aten.mm.default(%b, %c)"))
      for have, need in (("8", "32"), ("32", "64"), ("16", "32"))),
    *(Doubtful(MIXED, f"{one('a', op, have, 'x', arguments)}; %y = aten.{fold}",
               f"%s = aten.{fold.replace('%a', '%x')}; %y = aten.{op}(%s{arguments})", "for $S = [3]")
      for fold in ("sum.dim_IntList(%a, [-1], true)", "cumsum.default(%a, -1)", "sum.default(%a)")
      for have in ("i32", "i8", "i16")
      for op, arguments in (("mul.Scalar", ", 3"), ("neg.default", ""))),
    Doubtful(MIXED, f"{one('a', 'mul.Scalar', 'i32', 'x', ', 2')}; {cast('y', 'a', 'i32', 'f32')}",
             f"{cast('b', 'x', 'i32', 'f32')}; {one('y', 'mul.Scalar', 'f32', 'b', ', 2')}"),
    *(Doubtful(MIXED, before, after) for before, after in (
        ("%a = aten.neg.default(%x); %y = aten.add.Tensor(%a, %z)", "%y = aten.sub.Tensor(%z, %x)"),
        ("%y = tosa.intdiv(%x, %z)", "%y = tosa.intdiv(%z, %x)"),
        ("%y = aten.bitwise_right_shift.Tensor_Scalar(%x, 1)", "%y = aten.div.Scalar_mode(%x, 2, rounding_mode=\"trunc\")"),
        ("%y = tosa.arithmetic_right_shift(%x, %z, round=false)", "%y = tosa.logical_right_shift(%x, %z)"),
    )),
    # -- integers of one width, the least one --------------------------------------------------
    *(Doubtful("least integer", before, after)
      for of_ in ("i8", "i32", "i64")
      for before, after in (
          (f"{one('a', 'abs.default', of_)}; {one('y', 'relu.default', of_, 'a')}", one("y", "abs.default", of_)),
          (f"{one('a', 'mul.Scalar', of_, 'x', ', 2')}; %y = aten.div.Scalar_mode(%a, 2, rounding_mode=\"trunc\")",
           one("y", "clone.default", of_)),
          (f"{one('a', 'neg.default', of_)}; %y = aten.lt.Scalar(%a, 0)",
           of(of_, "i1", "%y = aten.gt.Scalar(%x, 0)")),
          (f"{one('a', 'sub.Scalar', of_, 'x', ', 1')}; %y = aten.lt.Tensor(%a, %x)",
           of(of_, "i1", "%y = aten.ge.Tensor(%x, %x)")),
      )),
    Doubtful("least integer", one("y", "clamp.default", "i32", "x", ", -2147483648, none"),
             one("y", "clamp.default", "i32", "x", ", -1, none")),
    Doubtful("least integer", one("y", "add.Scalar", "i32", "x", ", 2147483647"), one("y", "clone.default", "i32")),
    Doubtful("least integer", f"{one('a', 'mul.Scalar', 'i32', 'x', ', 2147483647')}; %y = aten.sum.default(%a)",
             f"{one('a', 'mul.Scalar', 'i32', 'x', ', 0')}; %y = aten.sum.default(%a)"),
    Doubtful("least integer", f"{one('a', 'mul.Scalar', 'i64', 'x', ', 2147483648')}; %y = aten.sum.default(%a)",
             "%y = aten.sum.default(%x)"),
    Doubtful("least integer", one("y", "mul.Scalar", "f32", "x", ", 2147483648.0"), one("y", "clone.default", "f32"),
             BOUND),
    Doubtful("least integer", f"{one('a', 'mul.Scalar', 'f32', 'x', ', 2147483648.0')}; %y = aten.sum.default(%a)",
             "%y = aten.sum.default(%x)", BOUND),
    # -- saturation ----------------------------------------------------------------------------
    *(Doubtful(SATURATION, f"{cast('a', 'x', 'i32', narrow)}; {cast('y', 'a', narrow, 'i32')}",
               one("y", "clamp.default", "i32", "x", limits))
      for narrow, limits in (("i8", ", -128, 127"), ("ui8", ", 0, 255"), ("i16", ", -32768, 32767"))),
    *(Doubtful(SATURATION, f"{one('a', 'clamp.default', 'f32', 'x', limits)}; {cast('y', 'a', 'f32', 'i8')}",
               cast("y", "x", "f32", "i8"))
      for limits in (", -128.0, 127.0", ", -128.0, none", ", none, 127.0")),
    Doubtful(SATURATION, f"{quantized('q', 'x', 'i8')}; {one('y', 'add.Scalar', 'i8', 'q', ', 1')}",
             f"{one('s', 'add.Scalar', 'f32', 'x', ', 0.5')}; {quantized('y', 's', 'i8')}"),
    Doubtful(SATURATION, f"{quantized('q', 'x', 'i8')}; {one('y', 'neg.default', 'i8', 'q')}",
             f"{one('s', 'neg.default', 'f32')}; {quantized('y', 's', 'i8')}"),
    Doubtful(SATURATION, f"{quantized('q', 'x', 'i8')}; {dequantized('y', 'q', 'i8')}", one("y", "clone.default", "f32"),
             "bound 0.25 absolute: \"half a step\""),
    Doubtful(SATURATION, f"{dequantized('a', 'x', 'i8')}; {one('b', 'add.Scalar', 'f32', 'a', ', 0.5')}; {quantized('y', 'b', 'i8')}",
             one("y", "add.Scalar", "i8", "x", ", 1")),
    Doubtful(SATURATION, f"{dequantized('a', 'x', 'i8')}; {one('b', 'mul.Scalar', 'f32', 'a', ', 2.0')}; {quantized('y', 'b', 'i8')}",
             one("y", "mul.Scalar", "i8", "x", ", 2")),
    Doubtful(SATURATION, f"{dequantized('a', 'x', 'i8')}; {one('b', 'neg.default', 'f32', 'a')}; {quantized('y', 'b', 'i8')}",
             one("y", "neg.default", "i8")),
    Doubtful(SATURATION, f"{dequantized('a', 'x', 'i8')}; {one('b', 'abs.default', 'f32', 'a')}; {quantized('y', 'b', 'i8')}",
             one("y", "abs.default", "i8")),
    Doubtful(SATURATION, "%y = tosa.add(%x, %z)".replace("tosa.add(%x, %z)", "aten.add.Tensor(%x, %z)") + " : (tensor<$*S x i8>, tensor<$*S x i8>) -> tensor<$*S x i8>",
             f"{cast('b', 'x', 'i8', 'i32')}; {cast('c', 'z', 'i8', 'i32')}; {of('i32 i32', 'i32', '%d = aten.add.Tensor(%b, %c)')}; "
             f"{one('e', 'clamp.default', 'i32', 'd', ', -128, 127')}; {cast('y', 'e', 'i32', 'i8')}"),
    # -- steps, claimed within a bound ---------------------------------------------------------
    *(Doubtful(STEP, f"{one('a', 'mul.Scalar', 'f32', 'x', ', 3.0')}; {one('b', 'mul.Scalar', 'f32', 'a', ', 0.7')}; {last}",
               f"{one('b', 'mul.Scalar', 'f32', 'x', ', 2.1')}; {last}", BOUND)
      for last in (
          one("y", "floor.default", "f32", "b"), one("y", "ceil.default", "f32", "b"),
          one("y", "round.default", "f32", "b"), one("y", "trunc.default", "f32", "b"),
          one("y", "frac.default", "f32", "b"),
          of("f32", "i1", "%y = aten.lt.Scalar(%b, 2.1)"), of("f32", "i1", "%y = aten.eq.Scalar(%b, 2.1)"),
          of("f32", "i1", "%y = aten.ne.Tensor(%b, %x)"), of("f32", "i1", "%y = aten.ge.Scalar(%b, 2.1)"),
          cast("y", "b", "f32", "i32"), cast("y", "b", "f32", "i8"), cast("y", "b", "f32", "i64"),
          cast("y", "b", "f32", "i64") + "; %z = aten.clone.default(%y)",
          quantized("y", "b", "i8"),
          f"{quantized('q', 'b', 'i8')}; {dequantized('y', 'q', 'i8')}",
          one("y", "fmod.Scalar", "f32", "b", ", 0.3"), one("y", "remainder.Scalar", "f32", "b", ", 0.3"),
          one("y", "hardshrink.default", "f32", "b", ", 2.1"),
          one("y", "threshold.default", "f32", "b", ", 2.1, 0.0"),
          "%y = aten.argmax.default(%b, 0, false)", "%y = aten.argmin.default(%b)",
          "%y = aten.div.Scalar_mode(%b, 0.3, rounding_mode=\"floor\")",
          f"{of('f32', 'i1', '%c = aten.gt.Scalar(%b, 2.1)')}; {of('i1 f32 f32', 'f32', '%y = aten.where.self(%c, %x, %b)')}",
          f"{one('c', 'floor.default', 'f32', 'b')}; {one('y', 'mul.Scalar', 'f32', 'c', ', 2.0')}",
      ) if "%z" not in last),
    *(Doubtful(STEP, f"{cast('a', 'x', 'f32', 'f16')}; {last('f16', 'a')}", f"{last('f32', 'x')}".replace("%w", "%y"), BOUND)
      for last in (
          lambda of_, name: of(of_, "i1", f"%y = aten.lt.Scalar(%{name}, 0.1)"),
          lambda of_, name: of(of_, "i1", f"%y = aten.eq.Scalar(%{name}, 0.1)"),
          lambda of_, name: cast("y", name, of_, "i32"),
      )),
    Doubtful(STEP, f"{cast('a', 'x', 'f32', 'f16')}; {one('b', 'floor.default', 'f16', 'a')}; {cast('y', 'b', 'f16', 'f32')}",
             one("y", "floor.default", "f32"), BOUND),
    Doubtful(STEP, f"{one('a', 'add.Scalar', 'f32', 'x', ', 1.0')}; {one('b', 'sub.Scalar', 'f32', 'a', ', 1.0')}; {one('y', 'sign.default', 'f32', 'b')}",
             one("y", "sign.default", "f32"), BOUND),
    Doubtful(STEP, "%a = aten.mul.Scalar(%x, 0.1); %y = aten.argmax.default(%a, $d, true)",
             "%y = aten.argmax.default(%x, $d, true)", f"{BOUND}; for $d = -1"),
    Doubtful(STEP, "%a = aten._softmax.default(%x, $d, false); %y = aten.argmax.default(%a, $d, true)",
             "%y = aten.argmax.default(%x, $d, true)", f"{BOUND}; for $d = -1"),
    # -- signs of zeros ------------------------------------------------------------------------
    *(Doubtful(ZERO, before, after) for before, after in (
        (one("y", "add.Scalar", "f32", "x", ", 0.0"), one("y", "clone.default", "f32")),
        (one("y", "rsub.Scalar", "f32", "x", ", 0.0"), one("y", "neg.default", "f32")),
        (one("y", "mul.Scalar", "f32", "x", ", 0.0"), f"{one('a', 'abs.default', 'f32')}; {one('y', 'mul.Scalar', 'f32', 'a', ', 0.0')}"),
        (f"{one('a', 'neg.default', 'f32')}; {one('y', 'relu.default', 'f32', 'a')}",
         f"{one('a', 'clamp.default', 'f32', 'x', ', none, 0.0')}; {one('y', 'neg.default', 'f32', 'a')}"),
        (of("f32 f32", "f32", "%y = aten.maximum.default(%x, %z)"), of("f32 f32", "f32", "%y = aten.maximum.default(%z, %x)")),
        (of("f32 f32", "f32", "%y = aten.sub.Tensor(%x, %z)"),
         f"{of('f32 f32', 'f32', '%a = aten.sub.Tensor(%z, %x)')}; {one('y', 'neg.default', 'f32', 'a')}"),
        (one("y", "sign.default", "f32"), f"{one('a', 'neg.default', 'f32')}; {one('b', 'sign.default', 'f32', 'a')}; {one('y', 'neg.default', 'f32', 'b')}"),
        (one("y", "ceil.default", "f32"), f"{one('a', 'ceil.default', 'f32')}; {one('y', 'add.Scalar', 'f32', 'a', ', 0.0')}"),
        (f"{one('a', 'abs.default', 'f32')}; {one('y', 'sqrt.default', 'f32', 'a')}",
         f"{one('a', 'relu.default', 'f32')}; {one('y', 'sqrt.default', 'f32', 'a')}"),
        (one("y", "trunc.default", "f32"), f"{cast('a', 'x', 'f32', 'i32')}; {cast('y', 'a', 'i32', 'f32')}"),
        (one("y", "mul.Scalar", "f32", "x", ", -1.0"), one("y", "rsub.Scalar", "f32", "x", ", 0.0")),
        (f"{one('a', 'mul.Scalar', 'f16', 'x', ', 1e-8')}; {one('y', 'mul.Scalar', 'f16', 'a', ', 1e8')}", one("y", "clone.default", "f16")),
    )),
    *(Doubtful(ZERO, shaped("1x3xf32 -> 1x3xf32", f"%y = aten.{fold}(%x, {axes})"),
               shaped("1x3xf32 -> 1x3xf32", "%y = aten.clone.default(%x)"))
      for fold, axes in (("sum.dim_IntList", "[0], true"), ("mean.dim", "[0], true"), ("cumsum.default", "0"))),
    Doubtful(ZERO, shaped("3x1xf32 -> 3xf32", "%y = aten.sum.dim_IntList(%x, [1], false)"),
             shaped("3x1xf32 -> 3xf32", "%y = aten.view.default(%x, [3])")),
    Doubtful(ZERO, f"{cast('a', 'x', 'i8', 'f32')}; {one('y', 'mul.Scalar', 'f32', 'a', ', 0.0')}",
             f"{one('b', 'abs.default', 'i8')}; {cast('c', 'b', 'i8', 'f32')}; {one('y', 'mul.Scalar', 'f32', 'c', ', 0.0')}"),
    # -- NaN, infinities -----------------------------------------------------------------------
    *(Doubtful(NAN, before, after) for before, after in (
        (one("y", "relu.default", "f32"), f"{of('f32', 'i1', '%c = aten.gt.Scalar(%x, 0.0)')}; {one('n', 'mul.Scalar', 'f32', 'x', ', 0.0')}; {one('m', 'abs.default', 'f32', 'n')}; {of('i1 f32 f32', 'f32', '%y = aten.where.self(%c, %x, %m)')}"),
        (of("f32 f32", "f32", "%y = aten.maximum.default(%x, %z)"),
         f"{of('f32 f32', 'i1', '%c = aten.gt.Tensor(%x, %z)')}; {of('i1 f32 f32', 'f32', '%y = aten.where.self(%c, %x, %z)')}"),
        (of("f32 f32", "f32", "%y = aten.minimum.default(%x, %z)"), of("f32 f32", "f32", "%y = aten.fmin.default(%x, %z)")),
        (of("f32 f32", "i1", "%y = aten.eq.Tensor(%x, %x)"), of("f32 f32", "i1", "%y = aten.ge.Tensor(%x, %z)").replace("%z", "%x") + "; %b = aten.logical_not.default(%y)"),
        (of("f32 f32", "i1", "%y = aten.lt.Tensor(%x, %z)"),
         f"{of('f32 f32', 'i1', '%c = aten.ge.Tensor(%x, %z)')}; {of('i1', 'i1', '%y = aten.logical_not.default(%c)')}"),
        (of("f32 f32", "f32", "%y = aten.sub.Tensor(%x, %x)"), one("y", "mul.Scalar", "f32", "x", ", 0.0")),
        (of("f32 f32", "f32", "%y = aten.div.Tensor(%x, %x)"), f"{one('a', 'exp.default', 'f32')}; {of('f32 f32', 'f32', '%y = aten.div.Tensor(%a, %a)')}"),
        (f"{one('a', 'add.Scalar', 'f32', 'x', ', 1e38')}; {one('y', 'sub.Scalar', 'f32', 'a', ', 1e38')}", one("y", "clone.default", "f32")),
        (f"{one('a', 'sqrt.default', 'f32')}; {of('f32 f32', 'f32', '%y = aten.mul.Tensor(%a, %a)')}", one("y", "clone.default", "f32")),
        (f"{one('a', 'exp.default', 'f32')}; {one('y', 'log.default', 'f32', 'a')}", one("y", "clone.default", "f32")),
        (f"{one('a', 'reciprocal.default', 'f32')}; {one('y', 'reciprocal.default', 'f32', 'a')}", one("y", "clone.default", "f32")),
        (one("y", "clamp.default", "f32", "x", ", -1.0, 1.0"), f"{one('a', 'tanh.default', 'f32')}; {one('y', 'clamp.default', 'f32', 'a', ', -1.0, 1.0')}"),
        (f"{one('a', 'mul.Scalar', 'f32', 'x', ', 2.0')}; {one('y', 'mul.Scalar', 'f32', 'a', ', 0.5')}", one("y", "clone.default", "f32")),
        (f"{one('a', 'mul.Scalar', 'f32', 'x', ', 0.5')}; {one('y', 'mul.Scalar', 'f32', 'a', ', 2.0')}", one("y", "clone.default", "f32")),
    ) if "%b = aten.logical_not" not in after),
    # -- roundings that are not told -----------------------------------------------------------
    *(Doubtful("rounding", before, after) for before, after in (
        (f"{cast('a', 'x', 'f64', 'f32')}; {cast('y', 'a', 'f32', 'f64')}", one("y", "clone.default", "f64")),
        (f"{cast('a', 'x', 'f32', 'bf16')}; {cast('y', 'a', 'bf16', 'f32')}", one("y", "clone.default", "f32")),
        (f"{cast('a', 'x', 'f32', 'bf16')}; {cast('y', 'a', 'bf16', 'f16')}", cast("y", "x", "f32", "f16")),
        (f"{cast('a', 'x', 'i32', 'f32')}; {cast('y', 'a', 'f32', 'i32')}", one("y", "clone.default", "i32")),
        (f"{cast('a', 'x', 'i64', 'f64')}; {cast('y', 'a', 'f64', 'i64')}", one("y", "clone.default", "i64")),
        (f"{cast('a', 'x', 'f32', 'f16')}; {one('b', 'mul.Scalar', 'f16', 'a', ', 3.0')}; {cast('y', 'b', 'f16', 'f32')}",
         f"{cast('a', 'x', 'f32', 'f16')}; {cast('b', 'a', 'f16', 'f32')}; {one('y', 'mul.Scalar', 'f32', 'b', ', 3.0')}"),
        ("%a = aten.add.Tensor(%x, %z); %y = aten.add.Tensor(%a, %w)", "%a = aten.add.Tensor(%z, %w); %y = aten.add.Tensor(%x, %a)"),
        ("%a = aten.add.Tensor(%x, %z); %y = aten.mul.Tensor(%a, %w)", "%a = aten.mul.Tensor(%x, %w); %b = aten.mul.Tensor(%z, %w); %y = aten.add.Tensor(%a, %b)"),
        ("%y = aten.div.Tensor(%x, %z)", "%a = aten.reciprocal.default(%z); %y = aten.mul.Tensor(%x, %a)"),
        ("%y = aten.rsqrt.default(%x)", "%a = aten.reciprocal.default(%x); %y = aten.sqrt.default(%a)"),
        ("%a = aten.mul.Scalar(%x, 0.1); %y = aten.sum.dim_IntList(%a, [-1], true)", "%a = aten.sum.dim_IntList(%x, [-1], true); %y = aten.mul.Scalar(%a, 0.1)"),
    )),
    # -- element types -------------------------------------------------------------------------
    *(Doubtful("promotion", before, after) for before, after in (
        ("%y = aten.mul.Scalar(%x, 2.0)", "%y = aten.mul.Scalar(%x, 2)"),
        ("%y = aten.add.Tensor(%x, %x)", "%y = aten.mul.Scalar(%x, 2)"),
        ("%y = aten.div.Scalar(%x, 1)", "%y = aten.clone.default(%x)"),
        ("%y = aten.div.Scalar(%x, 2)", "%y = aten.div.Scalar_mode(%x, 2, rounding_mode=\"floor\")"),
        ("%y = aten.sub.Tensor(%x, %z)", "%a = aten.neg.default(%z); %y = aten.add.Tensor(%x, %a)"),
        ("%y = aten.maximum.default(%x, %z)", "%y = aten.logical_or.default(%x, %z)"),
        ("%y = aten.sum.dim_IntList(%x, [-1], true)", "%y = aten.amax.default(%x, [-1], true)"),
        ("%y = aten.square.default(%x)", "%y = aten.abs.default(%x)"),
        ("%y = aten.add.Tensor(%x, %z)", "%a = aten._to_copy.default(%z, dtype=f32); %y = aten.add.Tensor(%x, %a)"),
        ("%y = aten.bitwise_not.default(%x)", "%y = aten.logical_not.default(%x)"),
        ("%y = aten.exp.default(%x)", "%a = aten._to_copy.default(%x, dtype=f32); %y = aten.exp.default(%a)"),
    )),
    # -- axes ----------------------------------------------------------------------------------
    *(Doubtful("rank", before, after, "for $x = [2, 3, 4]") for before, after in (
        ("%y = aten.flip.default(%x, [0, 1, 2])", "%y = aten.flip.default(%x, [-1, -2, -3])"),
        ("%y = aten.sum.dim_IntList(%x, [0, 1, 2], false)", "%y = aten.sum.dim_IntList(%x, [-1, -2, -3], false)"),
        ("%y = aten.amax.default(%x, [0, 1, 2], true)", "%y = aten.amax.default(%x, [-1, -2, -3], true)"),
        ("%y = aten.transpose.int(%x, 1, 2)", "%y = aten.transpose.int(%x, -1, -2)"),
        ("%y = aten.select.int(%x, 2, 0)", "%y = aten.select.int(%x, -1, 0)"),
        ("%y = aten.unsqueeze.default(%x, 3)", "%y = aten.unsqueeze.default(%x, -1)"),
        ("%y = aten._softmax.default(%x, 2, false)", "%y = aten._softmax.default(%x, -1, false)"),
        ("%y = aten.slice.Tensor(%x, 2, 1, 3)", "%y = aten.slice.Tensor(%x, -1, 1, 3)"),
        ("%y = aten.argmax.default(%x, 2)", "%y = aten.argmax.default(%x, -1)"),
        ("%y = aten.cumsum.default(%x, 2)", "%y = aten.cumsum.default(%x, -1)"),
    )),
    *(Doubtful("size 1", before, after, f"for {example}") for before, after, example in (
        ("%y = aten.sum.dim_IntList(%x, [0], true)", "%y = aten.clone.default(%x)", "$x = [1, 3]"),
        ("%y = aten.amax.default(%x, [-1], true)", "%y = aten.clone.default(%x)", "$x = [3, 1]"),
        ("%y = aten.flip.default(%x, [0])", "%y = aten.clone.default(%x)", "$x = [1, 3]"),
        ("%y = aten.slice.Tensor(%x, 0, 0, 1)", "%y = aten.clone.default(%x)", "$x = [1, 3]"),
        ("%y = aten.select.int(%x, 0, 0)", "%y = aten.squeeze.dim(%x, 0)", "$x = [1, 3]"),
        ("%y = aten.select.int(%x, 0, -1)", "%y = aten.select.int(%x, 0, 0)", "$x = [1, 3]"),
        ("%y = aten.squeeze.default(%x)", "%y = aten.squeeze.dim(%x, 0)", "$x = [1, 3]"),
        ("%a = aten.squeeze.dim(%x, 0); %y = aten.unsqueeze.default(%a, 0)", "%y = aten.clone.default(%x)", "$x = [1, 3]"),
        ("%y = aten._softmax.default(%x, 0, false)", "%a = aten.mul.Scalar(%x, 0.0); %y = aten.add.Scalar(%a, 1.0)", "$x = [1, 3]"),
        ("%y = aten.cumsum.default(%x, 0)", "%y = aten.clone.default(%x)", "$x = [1, 3]"),
        ("%y = aten.argmax.default(%x, 0)", "%y = aten.argmin.default(%x, 0)", "$x = [1, 3]"),
        ("%y = aten.view.default(%x, [-1])", "%y = aten.squeeze.default(%x)", "$x = [1, 3]"),
    )),
    *(Doubtful("axis", before, after, f"for {example}") for before, after, example in (
        ("%y = aten.select.int(%x, -1, 0)", "%y = aten.select.int(%x, 0, 0)", "$x = [3, 3]"),
        ("%y = aten.unsqueeze.default(%x, -1)", "%y = aten.unsqueeze.default(%x, 1)", "$x = [3, 3]"),
        ("%y = aten.transpose.int(%x, -1, 0)", "%y = aten.transpose.int(%x, 0, 0)", "$x = [3, 3]"),
        ("%y = aten.cat.default([%x, %z], -1)", "%y = aten.cat.default([%x, %z], 0)", "$x = [2, 2], $z = [2, 2]"),
        ("%y = aten.cat.default([%x, %z], 0)", "%y = aten.cat.default([%z, %x], 0)", "$x = [2, 2], $z = [2, 2]"),
        ("%y = aten.stack.default([%x, %z], 0)", "%y = aten.stack.default([%x, %z], -1)", "$x = [2, 2], $z = [2, 2]"),
        ("%y = aten.roll.default(%x, [1], [0])", "%y = aten.roll.default(%x, [-1], [0])", "$x = [3, 3]"),
        ("%y = aten.slice.Tensor(%x, 0, -2, 9223372036854775807)", "%y = aten.slice.Tensor(%x, 0, 1, 9223372036854775807)", "$x = [3, 3]"),
        ("%y = aten.mean.dim(%x, [-2], true)", "%y = aten.mean.dim(%x, [0], true)", "$x = [3, 3]"),
        ("%y = aten.mm.default(%x, %z)", "%y = aten.mm.default(%z, %x)", "$x = [2, 2], $z = [2, 2]"),
        ("%a = aten.t.default(%x); %y = aten.mm.default(%a, %z)", "%y = aten.mm.default(%x, %z)", "$x = [2, 2], $z = [2, 2]"),
        ("%y = aten.expand.default(%x, [2, 2])", "%a = aten.t.default(%x); %y = aten.expand.default(%a, [2, 2])", "$x = [2, 1]"),
    ) if "expand" not in before),
    # -- TOSA ----------------------------------------------------------------------------------
    *(Doubtful("TOSA", before, after, f"for {example}" if example else "") for before, after, example in (
        ("%y = tosa.reduce_max(%x, axis=1)", "%y = tosa.reduce_min(%x, axis=1)", "$x = [2, 2]"),
        ("%y = tosa.reshape(%x, [2, 3])", "%a = tosa.reshape(%x, [3, 2]); %y = tosa.transpose(%a, perms=[1, 0])", "$x = [6]"),
        ("%y = tosa.greater(%x, %z)", "%y = tosa.greater_equal(%x, %z)", ""),
        ("%y = tosa.select(%c, %x, %z)", "%y = tosa.select(%c, %z, %x)", ""),
        ("%y = tosa.exp(%x)", "%y = tosa.log(%x)", ""),
    )),
    *(Doubtful("index", before, after) for before, after in (
        ("%y = aten.argmax.default(%x, 0)", "%a = aten.neg.default(%x); %y = aten.argmin.default(%a, 0)"),
        ("%y = aten.argmax.default(%x)", "%y = aten.argmin.default(%x)"),
        ("%y = aten.argmax.default(%x, $d, $k)", "%y = aten.argmin.default(%x, $d, $k)"),
    )),
    Doubtful("axis", "%y = tosa.reduce_sum(%x, axis=0)", "%y = tosa.reduce_sum(%x, axis=1)", "for $x = [2, 2]"),
    Doubtful("TOSA", "%y = tosa.add(%x, %z)", "%y = tosa.sub(%x, %z)"),
    Doubtful("TOSA", "%y = tosa.argmax(%x, axis=0)", "%y = tosa.argmax(%x, axis=1)", "for $x = [2, 2]"),
    Doubtful("TOSA", "%y = tosa.reverse(%x, axis=0)", "%y = tosa.reverse(%x, axis=1)", "for $x = [2, 2]"),
    # == right twins ===========================================================================
    *(swapped("right", "bitwise_not.default", have, need, most="bits") for have, need in (("i8", "i32"), ("i32", "i64"), ("i16", "i32"))),
    *(swapped("right", "relu.default", have, need, most="bits") for have, need in (("i8", "i32"), ("i32", "i64"), ("i16", "i64"))),
    *(swapped("right", "clamp.default", have, need, ", -5, 100", most="bits") for have, need in (("i8", "i32"), ("i32", "i64"))),
    *(swapped("right", op, have, need, arguments, most="bits")
      for op, arguments in (("neg.default", ""), ("mul.Scalar", ", 3"), ("add.Scalar", ", 7"))
      for have, need in (("i32", "i8"), ("i64", "i32"))),
    *(of_two("right", op, have, need, most="bits")
      for op in ("add.Tensor", "mul.Tensor", "sub.Tensor")
      for have, need in (("i32", "i8"),)),
    *(of_two("right", op, have, need, most="bits")
      for op in ("maximum.default", "minimum.default")
      for have, need in (("i8", "i32"), ("i32", "i64"))),
    *(Doubtful("right", before, after, clauses, "bits") for before, after, clauses in (
        (f"{cast('a', 'x', 'i8', 'i32')}; {cast('y', 'a', 'i32', 'i8')}", one("y", "clone.default", "i8"), ""),
        (f"{cast('a', 'x', 'i8', 'i16')}; {cast('y', 'a', 'i16', 'i32')}", cast("y", "x", "i8", "i32"), ""),
        (f"{cast('a', 'x', 'ui8', 'i16')}; {cast('y', 'a', 'i16', 'i32')}", cast("y", "x", "ui8", "i32"), ""),
        (f"{cast('a', 'x', 'i64', 'i32')}; {cast('y', 'a', 'i32', 'i8')}", cast("y", "x", "i64", "i8"), ""),
        (f"{cast('a', 'x', 'f64', 'f32')}; {cast('y', 'a', 'f32', 'f16')}", cast("y", "x", "f64", "f16"), ""),
        (f"{cast('a', 'x', 'f16', 'f32')}; {cast('y', 'a', 'f32', 'f16')}", one("y", "clone.default", "f16"), ""),
        (f"{one('a', 'neg.default', 'i32')}; %y = aten.add.Scalar(%a, 1)", one("y", "rsub.Scalar", "i32", "x", ", 1"), ""),
        (f"{one('a', 'bitwise_not.default', 'i32')}; {one('y', 'add.Scalar', 'i32', 'a', ', 1')}", one("y", "neg.default", "i32"), ""),
        ("%a = aten.neg.default(%x); %y = aten.neg.default(%a)", "%y = aten.clone.default(%x)", ""),
        ("%y = aten.ne.Tensor(%x, %z)", "%a = aten.eq.Tensor(%x, %z); %y = aten.logical_not.default(%a)", ""),
        ("%y = aten.gt.Tensor(%x, %z)", "%y = aten.lt.Tensor(%z, %x)", ""),
        (one("y", "sub.Scalar", "f32", "x", ", 0.0"), one("y", "clone.default", "f32"), ""),
        (one("y", "mul.Scalar", "f32", "x", ", -1.0"), one("y", "neg.default", "f32"), ""),
        (f"{one('a', 'neg.default', 'f32')}; {one('y', 'abs.default', 'f32', 'a')}", one("y", "abs.default", "f32"), ""),
        (shaped("2x3xf32 -> 2x3xf32", "%y = aten.flip.default(%x, [0, 1])"), shaped("2x3xf32 -> 2x3xf32", "%y = aten.flip.default(%x, [-1, -2])"), ""),
        ("%a = aten.flip.default(%x, [0]); %y = aten.flip.default(%a, [0])", "%y = aten.clone.default(%x)", "for $x = [2, 3]"),
        ("%y = aten.transpose.int(%x, 0, 1)", "%y = aten.transpose.int(%x, 1, 0)", "for $x = [2, 3]"),
        (f"{of('i32 i32', 'i32', '%a = aten.add.Tensor(%x, %z)')}; {of('i32 i32', 'i32', '%y = aten.sub.Tensor(%a, %z)')}", one("y", "clone.default", "i32"), ""),
        (f"{of('f32 f32', 'f32', '%y = aten.add.Tensor(%x, %z)')}", of("f32 f32", "f32", "%y = aten.add.Tensor(%z, %x)"), ""),
        (f"{one('a', 'mul.Scalar', 'i64', 'x', ', 2')}; %y = aten.sum.dim_IntList(%a, [-1], true)", "%a = aten.sum.dim_IntList(%x, [-1], true); %y = aten.mul.Scalar(%a, 2)", "for $S = [3]"),
        (f"{of('i64 i64', 'i64', '%a = aten.add.Tensor(%x, %z)')}; %y = aten.sum.dim_IntList(%a, [-1], true)", "%a = aten.sum.dim_IntList(%x, [-1], true); %b = aten.sum.dim_IntList(%z, [-1], true); %y = aten.add.Tensor(%a, %b)", "for $S = [3]"),
        (shaped("2x3xi32, 3x2xi32 -> 2x2xi32", "%a = aten.mm.default(%x, %z)") + "; %y = aten.t.default(%a)",
         "%a = aten.t.default(%z); %b = aten.t.default(%x); " + shaped("2x3xi32, 3x2xi32 -> 2x2xi32", "%y = aten.mm.default(%a, %b)"), ""),
    )),
    *(Doubtful("right", before, after, BOUND, "reals") for before, after in (
        (f"{one('a', 'mul.Scalar', 'f32', 'x', ', 3.0')}; {one('y', 'mul.Scalar', 'f32', 'a', ', 0.7')}", one("y", "mul.Scalar", "f32", "x", ", 2.1")),
        (of("f32 f32", "f32", "%y = aten.div.Tensor(%x, %z)"), f"{one('a', 'reciprocal.default', 'f32', 'z')}; {of('f32 f32', 'f32', '%y = aten.mul.Tensor(%x, %a)')}"),
        (f"{one('a', 'mul.Scalar', 'f32', 'x', ', 3.0')}; {one('b', 'mul.Scalar', 'f32', 'a', ', 0.7')}; {one('y', 'relu.default', 'f32', 'b')}",
         f"{one('b', 'mul.Scalar', 'f32', 'x', ', 2.1')}; {one('y', 'relu.default', 'f32', 'b')}"),
        (f"{of('f32', 'i1', '%c = aten.gt.Scalar(%x, 0.0)')}; {one('a', 'mul.Scalar', 'f32', 'x', ', 3.0')}; {one('b', 'mul.Scalar', 'f32', 'a', ', 0.7')}; {of('i1 f32 f32', 'f32', '%y = aten.where.self(%c, %b, %x)')}",
         f"{of('f32', 'i1', '%c = aten.gt.Scalar(%x, 0.0)')}; {one('b', 'mul.Scalar', 'f32', 'x', ', 2.1')}; {of('i1 f32 f32', 'f32', '%y = aten.where.self(%c, %b, %x)')}"),
    )),
]  # fmt: skip
