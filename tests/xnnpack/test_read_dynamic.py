"""A `.pte` of sizes that vary is read at the largest that it declares; else it says how to."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.dtypes import i64
from stepwell.ir.types import dims, element

MODELS = (
    "dynamic:dynamic_batch",
    "wavenet:wavenet_of_any_length",
    "decoders:qwen3_block_of_any_length",
)


@pytest.fixture(params=MODELS, scope="module")
def dynamic(request: Any) -> tuple[torch.nn.Module, bytes]:
    """A model, and its program."""
    file, _, function = request.param.partition(":")
    model, inputs, shapes = getattr(importlib.import_module(file), function)()
    exported = torch.export.export(model, inputs, dynamic_shapes=shapes)
    return model, stepwell.lower(stepwell.from_exported_program(exported), "xnnpack").to_pte()


def test_what_is_read_at_the_largest_sizes_computes_the_same(
    dynamic: tuple[torch.nn.Module, bytes],
) -> None:
    model, pte = dynamic
    program = stepwell.read_pte(pte, largest=True)
    program.verify()
    assert "?" not in str(program)
    inputs: list[torch.Tensor] = []
    for type_ in program.method().function_type.inputs.data:
        shape = [size for size in dims(type_) if isinstance(size, int)]
        is_index = element(type_) == i64
        inputs.append(torch.randint(0, 5, shape) if is_index else torch.randn(shape))
    wanted = model(*inputs)
    torch.testing.assert_close(program.run(*inputs)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 5, 13])
def test_what_is_read_at_given_sizes_computes_the_same(
    dynamic: tuple[torch.nn.Module, bytes], size: int
) -> None:
    model, pte = dynamic
    (most,) = stepwell.read_pte(pte, largest=True).method().function_type.inputs.data
    shape = [each for each in dims(most) if isinstance(each, int)]
    axis = 1 if shape[0] == 1 else 0
    shape[axis] = size
    program = stepwell.read_pte(pte, sizes={"forward": [shape]})
    program.verify()
    assert "?" not in str(program)
    given = torch.randint(0, 5, shape) if element(most) == i64 else torch.randn(shape)
    torch.testing.assert_close(program.run(given)[0], model(given), rtol=1e-4, atol=1e-5)


def test_sizes_that_the_method_does_not_take_are_refused(
    dynamic: tuple[torch.nn.Module, bytes],
) -> None:
    _, pte = dynamic
    for sizes in ([], [[1]], [[10**6] * 4]):
        with pytest.raises(StepwellError, match="sizes"):
            stepwell.read_pte(pte, sizes={"forward": sizes})


def test_without_that_the_error_says_what_to_do_and_a_command_does_it(
    dynamic: tuple[torch.nn.Module, bytes], tmp_path: Path, capsys: Any
) -> None:
    _, pte = dynamic
    with pytest.raises(UnsupportedError, match=re.escape("read_pte(data, largest=True)")):
        stepwell.read_pte(pte)
    (tmp_path / "m.pte").write_bytes(pte)
    assert main(["show", str(tmp_path / "m.pte"), "--summary"]) == 0
    said = capsys.readouterr()
    assert "read at the largest sizes that it declares" in said.err
    assert main(["show", str(tmp_path / "m.pte"), "--summary", "--largest"]) == 0
    assert capsys.readouterr().out == said.out
