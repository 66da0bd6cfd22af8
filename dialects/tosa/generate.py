"""Generate `generated.py`: one op class for each operator of the schema.

    python -m stepwell.dialects.tosa.generate

Numbers and attributes are the schema's. The schema identifies operands only by position; their
names, and which of them are lists, are those of the specification and are written in `OPERANDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from stepwell.dialects.tosa.schema import OperatorSchema, Table, read_schema, schema_path

_CONVOLUTION = "input weight bias input_zp weight_zp -> output"
_MATMUL = "a b a_zp b_zp -> output"

OPERANDS = {
    "ARGMAX": "input -> output",
    "AVG_POOL2D": "input input_zp output_zp -> output",
    "AVG_POOL2D_ADAPTIVE": "input input_zp output_zp kernel stride pad -> output",
    "CONV2D": _CONVOLUTION,
    "CONV2D_BLOCK_SCALED": "input_data input_scale weight_data weight_scale bias"
    " pad stride dilation -> output",
    "CONV3D": _CONVOLUTION,
    "DEPTHWISE_CONV2D": _CONVOLUTION,
    "TRANSPOSE_CONV2D": _CONVOLUTION,
    "FFT2D": "input_real input_imag -> output_real output_imag",
    "RFFT2D": "input_real -> output_real output_imag",
    "MATMUL": _MATMUL,
    "MATMUL_T": _MATMUL,
    "MATMUL_T_BLOCK_SCALED": "a_data a_scale b_data b_scale -> output",
    "MAX_POOL2D_ADAPTIVE": "input kernel stride pad -> output",
    "TABLE": "input1 table -> output",
    "MUL": "input1 input2 shift -> output",
    "NEGATE": "input1 input1_zp output_zp -> output",
    "SELECT": "input1 input2 input3 -> output",
    "CONCAT": "input1* -> output",
    "CONCAT_SHAPE": "input* -> output",
    "PAD": "input1 padding pad_const -> output",
    "RESHAPE": "input1 shape -> output",
    "RESHAPE_BLOCK_SCALED": "input* new_shape -> output*",
    "SLICE": "input1 start size -> output",
    "SLICE_SHAPE": "input start size -> output",
    "TILE": "input1 multiples -> output",
    "GATHER": "values indices -> output",
    "ROW_GATHER": "values indices row_count -> output",
    "ROW_GATHER_BLOCK_SCALED": "values* indices row_count -> output*",
    "SCATTER": "values_in indices input -> values_out",
    "RESIZE": "input scale offset border -> output",
    "RESCALE": "input multiplier shift input_zp output_zp -> output",
    "CONST_SHAPE": "-> output",
    "CAST_TO_BLOCK_SCALED": "input_data -> output_data output_scale",
    "CAST_FROM_BLOCK_SCALED": "input_data input_scale -> output_data",
    "CUSTOM": "input_list* -> output_list*",
    "ASSERT_EQUAL_SHAPE": "input1 input2 ->",
}
"""Operands and results by name; `*` marks a list. Operators that are missing here are regular."""

_BINARY = frozenset(
    "ADD SUB ARITHMETIC_RIGHT_SHIFT BITWISE_AND BITWISE_OR BITWISE_XOR INTDIV LOGICAL_AND"
    " LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT LOGICAL_OR LOGICAL_XOR MAXIMUM MINIMUM POW EQUAL"
    " GREATER GREATER_EQUAL ADD_SHAPE SUB_SHAPE MUL_SHAPE MAX_SHAPE MIN_SHAPE MOD_SHAPE"
    " DIV_CEIL_SHAPE DIV_FLOOR_SHAPE".split()
)

STRUCTURAL = frozenset(
    ("CONST", "COND_IF", "WHILE_LOOP", "VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ")
)
"""Operators defined by hand in `structural.py`: regions, symbols, constants with two sources."""

EFFECTS = frozenset({"CUSTOM", "ASSERT_EQUAL_SHAPE"})
"""Operators that must be kept even if their results are unused."""

FULL_CASES = frozenset({"RESHAPE_BLOCK_SCALED", "ROW_GATHER_BLOCK_SCALED"})
"""Operators whose enumerations upstream prints in full."""

_KINDS = {
    "int32": "i32",
    "bool": "bool",
    "DType": "type",
    "[int32]": "i64s",
    "string": "string",
    "NanPropagationMode": "NanModeAttr",
    "ResizeMode": "ResizeModeAttr",
    "RoundingMode": "RoundingModeAttr",
    "BlockSize": "BlockSizeAttr",
}
_DEFAULTS = {"nan_mode": "PROPAGATE", "local_bound": "false"}
_CONSTRAINTS = {
    "i32": "IntegerAttr",
    "bool": "BoolAttr",
    "type": "TypeAttribute",
    "i64s": "DenseArrayBase",
    "i32s": "DenseArrayBase",
    "value": "IntegerAttr | FloatAttr",
    "string": "StringAttr",
    "bytes": "StringAttr",
}

HEADER = '''"""TOSA's operators. Written by `generate.py` from the shipped schema: do not edit."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
)
from xdsl.ir import TypeAttribute
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from stepwell.dialects.tosa.attributes import (
    BlockSizeAttr,
    NanModeAttr,
    ResizeModeAttr,
    RoundingModeAttr,
)
from stepwell.dialects.tosa.base import Enumerations, Field, TosaOp
'''


def class_name(table: Table) -> str:
    """Return a class's name: `Conv2dOp` for `Conv2dAttribute`."""
    return re.sub(r"Attribute$", "Op", table.name)


def operands_of(operator: str) -> tuple[list[str], list[str]]:
    """Return the names of an operator's operands and results."""
    regular = "input1 input2 -> output" if operator in _BINARY else "input -> output"
    taken, given = OPERANDS.get(operator, regular).split("->")
    return taken.split(), given.split()


def fields_of(operator: str, table: Table) -> Iterator[tuple[str, int, str, str | None]]:
    """Yield name, slot, kind and default of each attribute."""
    for slot, (name, kind) in enumerate(table.fields):
        found = _KINDS.get(kind)
        if kind == "[ubyte]":
            found = "value" if operator == "CLAMP" else "bytes"
        if name == "perms":
            found = "i32s"
        if found is None:
            raise NotImplementedError(f"{operator}: attribute {name} has kind {kind}")
        yield name, slot, found, _DEFAULTS.get(name)


def class_text(operator: str, code: int, table: Table) -> str:
    """Render the source of one op class."""
    lines = ["", "", "@irdl_op_definition", f"class {class_name(table)}(TosaOp):"]
    lines += [f'    """{operator} of the specification."""', ""]
    lines += [f'    name = "tosa.{operator.lower()}"', f"    CODE: ClassVar[int] = {code}"]
    fields = list(fields_of(operator, table))
    if fields:
        shown = [
            f'Field("{name}", {slot}, "{kind}"' + (f', "{default}")' if default else ")")
            for name, slot, kind, default in fields
        ]
        lines += (
            ["    FIELDS: ClassVar[tuple[Field, ...]] = ("]
            + [f"        {field}," for field in shown]
            + ["    )"]
        )
    enumerated = [(name, kind) for name, _, kind, _ in fields if kind.endswith("Attr")]
    if enumerated:
        pairs = ", ".join(f'"{name}": {kind}' for name, kind in enumerated)
        lines.append(f"    ENUMERATIONS: ClassVar[Enumerations] = {{{pairs}}}")
        if operator in FULL_CASES:
            lines.append("    BARE_CASES: ClassVar[bool] = False")
    taken, given = operands_of(operator)
    for name in taken:
        define = "var_operand_def()" if name.endswith("*") else "operand_def()"
        lines.append(f"    {_attribute(name)} = {define}")
    for name, _, kind, default in fields:
        define = "opt_prop_def" if default else "prop_def"
        lines.append(f"    {_attribute(name)} = {define}({_CONSTRAINTS.get(kind, kind)})")
    if operator == "CONST_SHAPE":
        lines.append("    values = prop_def(DenseIntOrFPElementsAttr)")
    for name in given:
        define = "var_result_def()" if name.endswith("*") else "result_def()"
        lines.append(f"    {_attribute(name)} = {define}")
    if operator not in EFFECTS:
        lines.append("    traits = traits_def(Pure())")
    return "\n".join(lines)


def _attribute(name: str) -> str:
    return name.rstrip("*")


def generate(schema: OperatorSchema) -> str:
    """Return the text of `generated.py`."""
    regular = [entry for entry in schema.operators if entry[0] not in STRUCTURAL]
    classes = "".join(class_text(*entry) for entry in regular)
    names = "\n".join(f"    {class_name(table)}," for _, _, table in regular)
    types = ", ".join(f'"{name}": {code}' for name, code in schema.enumerations["DType"].items())
    return HEADER + classes + f"\n\n\nOPERATORS = (\n{names}\n)\n\nDTYPE_CODES = {{{types}}}\n"


if __name__ == "__main__":
    Path(__file__).with_name("generated.py").write_text(
        generate(read_schema(schema_path().read_text()))
    )
