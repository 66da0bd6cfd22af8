"""Every class of the table: regeneration gives its line, and any legal call survives text."""

import ast
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region
from xdsl.irdl import (
    OperandDef,
    OptOperandDef,
    OptPropertyDef,
    ResultDef,
    VarOperandDef,
    VarResultDef,
)
from xdsl.utils.test_value import create_ssa_value

import stepwell.dialects.aten as aten
from stepwell.dialects.aten import generate, registry
from stepwell.dialects.aten.op import EXPLICIT_NONE, SchemaOp
from stepwell.dialects.aten.operators import OPERATORS
from stepwell.dialects.aten.registry import class_name, define, op_class, torch_overload
from stepwell.dialects.aten.schema import Argument, parse_schema
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f16, f32, f64, i1, ui8
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text
from stepwell.ir.types import FloatType, IntType, NoneType, tensor

X = tensor([2, 3], f32)
SYMBOLIC = tensor(["s77", 3], f16)


def test_the_checked_in_table_is_what_generation_gives() -> None:
    for name, text in generate.render().items():
        held = (generate.FOLDER / name).read_text()
        assert held == text, f"{name}: run python -m stepwell.dialects.aten.generate"


FIELD_TYPES = {
    OperandDef: "Operand",
    OptOperandDef: "OptOperand",
    VarOperandDef: "VarOperand",
    OptPropertyDef: "Attribute | None",
    ResultDef: "OpResult[Attribute]",
    VarResultDef: "VarOpResult",
}


def test_type_checkers_see_every_field_that_a_class_has() -> None:
    stub = ast.parse((generate.FOLDER / "operators.pyi").read_text())
    declared = {
        node.name: (
            ast.get_docstring(node),
            {
                field.target.id: ast.unparse(field.annotation)
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            },
        )
        for node in stub.body
        if isinstance(node, ast.ClassDef)
    }
    assert list(declared) == [cls.__name__ for cls in OPERATORS]
    for cls in OPERATORS:
        definition = cls.get_irdl_definition()
        fields = dict((*definition.operands, *definition.results))
        accessors = {prop: field for field, (prop, _) in definition.accessor_names.items()}
        fields |= {accessors.get(name, name): held for name, held in definition.properties.items()}
        fields.pop("operandSegmentSizes", None)
        doc, types = declared[cls.__name__]
        assert doc == cls.__doc__
        assert types == {name: FIELD_TYPES[type(held)] for name, held in fields.items()}


def test_a_class_is_the_one_that_is_found_by_name() -> None:
    for cls in OPERATORS:
        assert registry.find(cls.name) is cls
        assert registry.of_overload(torch_overload(cls)) is cls
        assert class_name(cls.SCHEMA) == cls.__name__


def test_a_class_declares_what_the_schema_of_torch_says() -> None:
    for cls in OPERATORS:
        assert parse_schema(str(torch_overload(cls)._schema)) == cls.SCHEMA


def test_a_class_made_on_demand_has_the_same_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (aten.Conv2dDefault, aten.CatDefault, aten.IndexTensor, aten.RandDefault):
        monkeypatch.setattr(registry, "_CLASSES", {})
        again = define(cls.SCHEMA.text, pure=bool(cls.traits.traits))
        ours, theirs = cls.get_irdl_definition(), again.get_irdl_definition()
        assert re.sub("0x[0-9a-f]+", "", str(ours)) == re.sub("0x[0-9a-f]+", "", str(theirs))
        assert again.HAS_SEGMENTS == cls.HAS_SEGMENTS


def test_threads_that_make_the_first_op_of_a_class_read_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_CLASSES", {})
    cls, type_ = define(aten.ReluDefault.SCHEMA.text), tensor([2], f32)
    assert "create" in vars(cls)
    with ThreadPoolExecutor(8) as pool:
        value = create_ssa_value(type_)
        jobs = [pool.submit(cls.create, operands=[value], result_types=[type_]) for _ in range(32)]
        ops = [job.result() for job in jobs]
    assert "create" not in vars(cls)
    for op in ops:
        op.verify()


def test_random_ops_and_checks_are_not_pure() -> None:
    from xdsl.traits import Pure

    impure = {cls.name for cls in OPERATORS if not cls.has_trait(Pure)}
    assert {"aten.rand.default", "aten.bernoulli.default", "aten._assert_scalar.default"} <= impure
    assert "aten.add.Tensor" not in impure


FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)
INTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=6)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int": INTS,
    "SymInt": INTS,
    "DeviceIndex": INTS,
    "float": FLOATS,
    "bool": st.booleans(),
    "SymBool": st.booleans(),
    "Scalar": INTS | FLOATS | st.booleans() | st.complex_numbers(allow_nan=False),
    "complex": st.complex_numbers(allow_nan=False),
    "str": TEXTS,
    "Layout": st.sampled_from(["strided", "torch.strided"]),
    "Device": st.sampled_from(["cpu", "cuda:0"]),
    "MemoryFormat": st.sampled_from(["contiguous_format", "torch.channels_last"]),
    "ScalarType": st.sampled_from([f16, f32, f64, i1, ui8]),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[type[SchemaOp], Block, dict[str, Any], str | None, list[str]]:
    """An op class, legal arguments for it, where names begin, and which Nones are explicit."""
    cls = draw(st.sampled_from(OPERATORS))
    block = Block(arg_types=[X, SYMBOLIC, IntType("s0 + 1"), FloatType("f0")])
    tensors = st.sampled_from(block.args[:2])
    given_: dict[str, Any] = {}
    for argument in cls.SCHEMA.arguments:
        if argument.default and draw(st.booleans()):
            continue
        value = draw(_value(argument, block, tensors))
        if value is None and argument.type.is_tensor and not argument.type.is_list:
            continue
        given_[argument.name] = value
    optional = [
        a.name
        for a in cls.SCHEMA.arguments
        if a.type.is_tensor and not a.type.is_list and a.type.nullable and a.name not in given_
    ]
    said = draw(st.lists(st.sampled_from(optional), unique=True)) if optional else []
    names = [a.name for a in cls.SCHEMA.arguments]
    keyword = draw(st.none() | st.sampled_from(names)) if names else None
    return cls, block, given_, keyword, sorted(said, key=names.index)


def _value(argument: Argument, block: Block, tensors: st.SearchStrategy[Any]) -> Any:
    kind = argument.type
    if kind.is_tensor:
        if not kind.is_list:
            return st.none() | tensors if kind.nullable else tensors
        items = st.lists(st.none() | tensors if kind.element_nullable else tensors, max_size=3)
        return st.none() | items if kind.nullable else items
    if kind.base in ("Generator", "Stream"):
        return st.none()
    scalar = SCALARS[kind.base]
    if kind.base in ("int", "SymInt"):
        scalar = scalar | st.just(block.args[2])
    elif kind.base in ("float", "Scalar"):
        scalar = scalar | st.just(block.args[3])
    value = st.lists(scalar, max_size=4) if kind.is_list else scalar
    return st.none() | value if kind.nullable else value


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(calls())
def test_any_legal_call_comes_back_from_both_forms(call: Any) -> None:
    from xdsl.dialects.builtin import ArrayAttr, StringAttr

    cls, block, arguments, keyword, nones = call
    results: list[Attribute] = []
    for returned in cls.SCHEMA.returns:
        results += [X, SYMBOLIC] if returned.type.is_list else [NoneType() if nones else X]
    op = cls.from_arguments(arguments, results)
    if keyword is not None:
        op.attributes["aten.keywords_from"] = StringAttr(keyword)
    if nones:
        op.attributes[EXPLICIT_NONE] = ArrayAttr([StringAttr(name) for name in nones])
    block.add_op(op)
    block.add_op(ReturnOp())
    func = FuncOp("f", ([a.type for a in block.args], []), Region(block))
    module = ModuleOp([func])
    module.verify()
    for generic in (False, True):
        text = to_text(module, generic=generic)
        back = parse_module(text)
        assert structurally_equal(module, back), text
        assert to_text(back, generic=generic) == text
    again = next(iter(back.ops)).regions[0].block.first_op  # pyright: ignore
    assert isinstance(again, cls)
    assert repr(again.bind()[1].keys()) == repr(op.bind()[1].keys())


def test_an_unknown_class_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchClass"):
        getattr(aten, "NoSuchClass")  # noqa: B009


def test_an_op_that_writes_has_no_class() -> None:
    with pytest.raises(StepwellError, match="writes to its arguments"):
        op_class("aten.add_.Tensor")


def test_a_default_dtype_is_an_element_type() -> None:
    block = Block(arg_types=[X])
    op = op_class("torchao.dequantize_affine.default").make(
        block.args[0], [1, 3], block.args[0], None, f32, result_types=[X]
    )
    assert op.arg("output_dtype") == f32
    contiguous = op_class("aten.contiguous.default").make(block.args[0], result_types=[X])
    assert contiguous.arg("memory_format") == "contiguous_format"
