"""Texts of ops, by which two ops are one function, and what a caller observes of a program."""

from typing import Any

import pytest
from xdsl.ir import Operation

from stepwell.dialects.op_text import ONCE, is_repeatable, text_of
from stepwell.ir.observed import changed_signature, observed, signatures
from stepwell.ir.program import Program
from stepwell.ir.weights import WeightStore

R = "tensor<4xf32>"
ONE = f"({R}) -> {R}"


def ops(*lines: str) -> list[Operation]:
    body = "\n".join(lines)
    text = f"func.func @forward(%x: {R}, %y: {R}, %t: tensor<i1>) -> {R} {{\n{body}\n"
    text = f"builtin.module {{\n{text}func.return %x : {R}\n}}\n}}"
    return list(Program.parse(text, WeightStore()).methods["forward"].body.block.ops)[:-1]


def texts(*lines: str) -> list[str]:
    return [text_of(op) for op in ops(*lines)]


def test_names_are_no_part_of_a_text() -> None:
    one, other = texts(f"%a = aten.add.Tensor(%x, %y) : ({R}, {R}) -> {R}",
                       f"%other = aten.add.Tensor(%y, %x) : ({R}, {R}) -> {R}")  # fmt: skip
    assert one == other
    assert one.startswith("aten.add.Tensor ")


def test_other_functions_have_other_texts() -> None:
    made = texts(
        f"%a = aten.clamp.default(%x, 0, 6) : {ONE}", f"%b = aten.clamp.default(%x, 0, 5) : {ONE}",
        f"%c = aten.add.Tensor(%x, %y) : ({R}, {R}) -> {R}",
        f"%e = aten.add.Tensor(%x, %y, alpha = 2) : ({R}, {R}) -> {R}",
        f"%f = aten.abs.default(%x) : {ONE}",
    )  # fmt: skip
    assert len(set(made)) == len(made)


def choice(left: str, names: str = "abc") -> str:
    a, b, c = names
    return f"""%{c} = control.cond %t(%x) : (tensor<i1>, {R}) -> {R} {{
    ^bb0(%{a}: {R}):
      %{b} = {left} : {ONE}
      control.yield %{b} : {R}
    }} else {{
    ^bb0(%{a}: {R}):
      control.yield %{a} : {R}
    }}"""


def test_names_in_regions_are_no_part_of_a_text() -> None:
    (one,), (other,) = (texts(choice("aten.abs.default(%a)")),
                        texts(choice("aten.abs.default(%p)", "pqr")))  # fmt: skip
    assert one == other
    assert texts(choice("aten.neg.default(%a)")) != [one]
    assert not one.startswith(ONCE)


def test_an_op_that_reads_values_around_it_is_equal_to_none() -> None:
    (op,) = ops(choice("aten.abs.default(%y)"))
    assert "of values around it" in text_of(op)
    assert text_of(op) != text_of(op)


@pytest.mark.parametrize(
    ("text", "wanted"),
    {
        f"aten.abs.default(%x) : {ONE}": True,
        f"aten.bernoulli.default(%x) : {ONE}": False,
        "aten.rand.default([4]) : () -> tensor<4xf32>": False,
        f"aten.dropout.default(%x, 0.5, true) : {ONE}": False,
        f"aten.dropout.default(%x, 0.5, false) : {ONE}": True,
        f"aten.dropout.default(%x, 0.0, true) : {ONE}": True,
    }.items(),
)
def test_which_ops_are_one_function(text: str, wanted: bool) -> None:
    (op,) = ops(f"%a = {text}")
    assert is_repeatable(op) is wanted
    assert text_of(op).startswith(ONCE) is not wanted


def test_a_draw_in_a_branch_is_a_draw() -> None:
    (op,) = ops(choice("aten.bernoulli.default(%a)"))
    assert not is_repeatable(op)
    assert text_of(op).startswith(ONCE)


def test_an_assertion_is_an_effect() -> None:
    (op,) = ops(f"aten._assert_tensor_metadata.default(%x, dtype = f32) : ({R}) -> ()")
    assert not is_repeatable(op)


def test_properties_that_are_left_out() -> None:
    one, other = ops(f"%a = aten.clamp.default(%x, 0, 6) : {ONE}",
                     f"%b = aten.clamp.default(%x, 1, 6) : {ONE}")  # fmt: skip
    names = [name for name in one.properties if one.properties[name] != other.properties.get(name)]
    assert names
    assert text_of(one, names) == text_of(other, names)
    assert names[0] in one.properties, "the op itself is not changed"


# -- what is observed ------------------------------------------------------------------------------

TEXT = f"""builtin.module attributes {{stepwell.level = "aten"}} {{
  func.func @second(%x: {R}) -> {R} {{
    func.return %x : {R}
  }}
  func.func @first(%x: {R}, %y: {R}) -> ({R}, {R}) {{
    %z = aten.neg.default(%x) : {ONE}
    stepwell.update <"t">, %z : {R}
    stepwell.mutate_input 1 : i64, %x : {R}
    stepwell.update <"s">, %y : {R}
    func.return %y, %z : {R}, {R}
  }}
}}"""


def program(text: str = TEXT) -> Program:
    store = WeightStore()
    types: Any = Program.parse(TEXT.replace("stepwell.update", "// "), store)
    for key in "st":
        store.add_unknown(key, types.methods["second"].body.block.args[0].type)
    return Program.parse(text, store)


def test_all_that_a_caller_observes() -> None:
    made = [(name, value.name_hint) for name, value in observed(program())]
    assert made == [
        ("result of first", "y"), ("result of first", "z"), ("input 1", "x"), ("state s", "y"),
        ("state t", "z"), ("result of second", "x"),
    ]  # fmt: skip


def test_signatures() -> None:
    known = signatures(program())
    assert sorted(known) == ["first", "second"]
    assert changed_signature(known, program()) is None
    for old, new in (("@second", "@third"), (f"-> {R} {{", f"-> {R} attributes {{a}} {{")):
        other = program(TEXT.replace(old, new))
        assert "another signature" in str(changed_signature(known, other))
    less = Program.parse(TEXT[: TEXT.index("  func.func @first")] + "}", WeightStore())
    assert changed_signature(known, less) == (
        "method @first has another signature than the first program's"
    )
