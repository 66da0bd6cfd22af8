import subprocess
import sys

import pytest
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, UnitAttr, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region

import stepwell.dialects  # noqa: F401  (makes the dialects known)
from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.dtypes import f32, i64
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text
from stepwell.ir.types import NoneType, tensor

X = tensor([1, 4, 8, 8], f32)


def module_of(op: Operation, block: Block) -> ModuleOp:
    block.add_op(op)
    block.add_op(ReturnOp())
    types: list[Attribute] = [arg.type for arg in block.args]
    return ModuleOp([FuncOp("f", (types, []), Region(block))])


def line_of(op: Operation, block: Block) -> str:
    """The op's line, after checking that the module comes back from both forms."""
    module = module_of(op, block)
    for generic in (False, True):
        text = to_text(module, generic=generic)
        back = parse_module(text)
        assert structurally_equal(module, back), text
        assert to_text(back, generic=generic) == text
    return to_text(module).splitlines()[2].strip().split(" : (")[0]


def parsed(call: str, types: str) -> SchemaOp:
    text = f"""
    func.func @f(%x: tensor<1x4x8x8xf32>, %w: tensor<8x1x3x3xf32>, %s: !stepwell.int<"s0">) {{
      %y = {call} : {types}
      func.return
    }}"""
    op = next(iter(parse_module(text).ops)).regions[0].block.first_op
    assert isinstance(op, SchemaOp)
    return op


CONV = "(tensor<1x4x8x8xf32>, tensor<8x1x3x3xf32>) -> tensor<1x4x8x8xf32>"


def test_arguments_may_be_named_in_any_order() -> None:
    ours = parsed("aten.conv2d.default(%x, groups=4, weight=%w, padding=[1, 1])", CONV)
    assert ours.arg("groups") == 4 and ours.arg("padding") == [1, 1]
    assert ours.operand("weight") is not None and ours.operand("bias") is None
    assert ours.bind()[1].keys() == {"weight", "padding", "groups"}


def test_an_int_for_a_float_argument_reads_as_a_float() -> None:
    op = parsed("aten.layer_norm.default(%x, [8], eps=1)", "(tensor<1x4x8x8xf32>) -> f32")
    assert type(op.arg("eps")) is float


def test_run_time_numbers_stand_inline_and_their_types_last() -> None:
    types = '(tensor<1x4x8x8xf32>, !stepwell.int<"s0">) -> tensor<1xf32>'
    op = parsed("aten.view.default(%x, [%s, -1])", types)
    assert op.arg("size")[0] is op.operands[1] and op.arg("size")[1] == -1


def test_an_omitted_argument_is_left_out_and_the_ones_after_it_are_named() -> None:
    block = Block(arg_types=[X, X])
    op = aten.Conv2dDefault.make(*block.args, groups=4, result_types=[X])
    assert line_of(op, block) == "%2 = aten.conv2d.default(%0, %1, groups=4)"


def test_none_fills_the_place_of_an_omitted_tensor_before_a_positional_argument() -> None:
    block = Block(arg_types=[X])
    op = aten.LayerNormDefault.make(block.args[0], [8], None, None, 1e-6, result_types=[X])
    assert line_of(op, block) == "%1 = aten.layer_norm.default(%0, [8], none, none, 1.0e-06)"


def test_several_results_and_results_that_are_none() -> None:
    block = Block(arg_types=[X])
    op = aten.NativeLayerNormDefault.make(
        block.args[0], [8], None, None, 1e-5, result_types=[X, NoneType(), NoneType()]
    )
    assert line_of(op, block).startswith("%1, %2, %3 = aten.native_layer_norm.default(")


def test_an_op_without_results_reads_back() -> None:
    block = Block(arg_types=[X])
    op = aten._AssertTensorMetadataDefault.make(block.args[0], [1, 4], result_types=[])
    assert line_of(op, block) == "aten._assert_tensor_metadata.default(%0, [1, 4])"


@pytest.mark.parametrize(
    "held",
    [
        IntegerAttr(2, i32),
        DenseArrayBase.from_list(i64, [1]),
        StringAttr("x"),
        UnitAttr(),
        NoneType(),
    ],
    ids=str,
)
def test_a_property_that_a_call_cannot_say_follows_it(held: Attribute) -> None:
    block = Block(arg_types=[X, X])
    op = aten.AddTensor.make(*block.args, alpha=3, result_types=[X])
    op.properties["alpha"] = held
    op.properties["strange name"] = UnitAttr()
    line_of(op, block)


def test_attributes_follow_the_call() -> None:
    block = Block(arg_types=[X])
    op = aten.ReluDefault.make(block.args[0], result_types=[X])
    op.attributes["test.note"] = StringAttr("kept")
    assert line_of(op, block).endswith('aten.relu.default(%0) {"test.note" = "kept"}')


def test_an_op_that_breaks_its_schema_prints_in_the_generic_form() -> None:
    block = Block(arg_types=[X])
    operands = [block.args[0]] * 3
    broken = aten.ReluDefault.create(operands=operands, result_types=[X])
    assert line_of(broken, block).startswith('%1 = "aten.relu.default"(%0, %0, %0)')
    block = Block(arg_types=[X])
    unsegmented = aten.Conv2dDefault.create(operands=block.args, result_types=[X])
    assert line_of(unsegmented, block).startswith('%1 = "aten.conv2d.default"(%0)')


@pytest.mark.parametrize(
    "call, types, reason",
    [
        ("aten.relu.default(%x, %x)", "() -> i1", "takes 1 positional arguments"),
        ("aten.relu.default()", "() -> i1", "tensor self is missing"),
        ("aten.relu.default(%x)", "() -> i1", "given 1 values and 0 types"),
        ("aten.relu.default(%x)", "(f32) -> i1", "used with type f32"),
        ("aten.relu.default(other=%x)", "() -> i1", "'other' is unknown or was passed twice"),
        (
            "aten.relu.default(self=%x, self=%x)",
            "() -> i1",
            "'self' is unknown or was passed twice",
        ),
        ("aten.add.Tensor(self=%x, %x)", "() -> i1", "after one passed by name"),
        ("aten.add.Scalar(%x, [1])", "() -> i1", "other of type Scalar is not a list"),
        ("aten.add.Scalar(%x, -)", "() -> i1", "float literal expected"),
        ("aten.add.Scalar(%x, {})", "() -> i1", "argument other has no such value"),
        ("aten.add.Scalar(%x %x)", "() -> i1", "or ')' after an argument"),
        ("aten.cat.default([%x %x])", "() -> i1", "or ']' in a list"),
        ("aten.add_.Tensor(%x, %x)", "() -> i1", "writes to its arguments"),
    ],
)
def test_a_wrong_call_is_refused_with_the_reason(call: str, types: str, reason: str) -> None:
    with pytest.raises(ParseFailure) as caught:
        parsed(call, types)
    (problem,) = caught.value.problems
    assert reason in problem.fact
    assert problem.where is not None and problem.where.startswith("<text>:3:")


def test_text_without_the_dialects_says_what_to_import() -> None:
    script = (
        "from stepwell.ir.syntax.text import parse_module\n"
        "try: parse_module('aten.relu.default()')\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "help: import stepwell.dialects" in done.stdout
