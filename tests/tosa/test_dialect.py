"""The dialect is the shipped schema's, and its text is upstream MLIR's."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stepwell.backends.tosa.read import read_tosa
from stepwell.dialects.tosa import generate
from stepwell.dialects.tosa.codes import class_of_code
from stepwell.dialects.tosa.constants import tensor_of_dense
from stepwell.dialects.tosa.schema import read_schema, schema_path
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.syntax.text import parse_module

from .graphs import conformance, deserialize, tosa_opt


def test_the_generated_operators_are_what_the_shipped_schema_gives(tmp_path: Path) -> None:
    fresh = tmp_path / "generated.py"
    fresh.write_text(generate.generate(read_schema(schema_path().read_text())))
    root = Path(__file__).parents[2]
    ruff = Path(sys.executable).with_name("ruff")
    subprocess.run([ruff, "format", "-q", "--config", root / "pyproject.toml", fresh], check=True)
    assert fresh.read_text() == (root / "dialects/tosa/generated.py").read_text()


def test_every_operator_of_the_schema_has_a_class_of_its_number_and_attributes() -> None:
    schema = read_schema(schema_path().read_text())
    assert len(schema.operators) == 100
    for name, code, table in schema.operators:
        cls = class_of_code(code)
        assert cls is not None and cls.name == f"tosa.{name.lower()}"
        assert [f.name for f in cls.FIELDS] == [field for field, _ in table.fields]


SAMPLES = sorted({name.split("_")[0]: name for name in conformance("positive")}.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_tosa_opt_prints_the_same_for_our_text_as_for_the_flatbuffer(
    name: str, tmp_path: Path
) -> None:
    source, theirs, ours, again = (tmp_path / f for f in ("a.tosa", "b.mlir", "c.mlir", "d.mlir"))
    source.write_bytes(conformance("positive")[name]["test.tosa"])
    assert not tosa_opt(deserialize(source), output=theirs)
    ours.write_text(str(parse_module(theirs.read_text())))
    assert not tosa_opt(source=ours, output=again)
    assert again.read_text() == theirs.read_text()


def test_minus_infinity_survives_parsing() -> None:
    module = parse_module(
        '%0 = "tosa.const"() <{values = dense<[0xFF800000, 1.0]> : tensor<2xf32>}>'
        " : () -> tensor<2xf32>"
    )
    (const,) = (op for op in module.walk() if isinstance(op, ConstOp))
    values = tensor_of_dense(const.values, torch.float32)  # pyright: ignore
    assert values.tolist() == [-torch.inf, 1.0]


def test_text_with_a_wrong_case_of_an_enumeration_is_a_parse_failure() -> None:
    with pytest.raises(ParseFailure, match=r"not a case of tosa.nan_mode: PROPAGATE, IGNORE"):
        parse_module(
            "func.func @f(%x: tensor<4xf32>) {\n"
            "  %0 = tosa.argmax %x {axis = 0 : i32, nan_mode = SOMETIMES}"
            " : (tensor<4xf32>) -> tensor<i32>\n  func.return\n}"
        )


def test_a_program_read_from_a_flatbuffer_prints_operators_by_upstreams_names() -> None:
    name = next(n for n in conformance("positive") if n.startswith("rescale"))
    text = str(read_tosa(conformance("positive")[name]["test.tosa"]).module)
    assert "tosa.rescale %" in text and "rounding_mode = " in text
