"""Flatbuffers come in, go out, and mean the same; damaged ones are refused with a reason."""

import random

import pytest
import torch
from xdsl.ir import Attribute

import stepwell.dialects.tosa.meaning
from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.flatbuffer import read_graph
from stepwell.backends.tosa.read import read_tosa
from stepwell.backends.tosa.reference_model import run_reference_model
from stepwell.backends.tosa.storage import from_bytes, to_bytes
from stepwell.dialects.tosa.codes import ELEMENTS, element_of_code
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import ArtifactError, StepwellError

from .graphs import bits, conformance

assert stepwell.dialects.tosa.meaning.BlockScaled

FLOAT_BOUND = {torch.float32: 3e-5, torch.float16: 0.15, torch.bfloat16: 0.05}
"""Relative to the largest magnitude: float operators may sum in any order, fp16 ones in fp16."""

INEXACT = {"resize": "bilinear fp8: the reference model rounds between the axes"}


def arrays(name: str, stem: str) -> list[torch.Tensor]:
    files = conformance("positive")[name]
    main = read_graph(files["test.tosa"]).regions[0]
    tensors = {tensor.name: tensor for tensor in main.tensors}
    found: list[torch.Tensor] = []
    for index, port in enumerate(main.inputs if stem == "in" else main.outputs):
        element = element_of_code(tensors[port].dtype)
        assert element is not None
        found.append(from_bytes(files[f"{stem}{index}"], tensors[port].shape, element))
    return found


RUNNABLE = [name for name, files in conformance("positive").items() if "out0" in files]


@pytest.mark.parametrize("name", sorted(conformance("positive")))
def test_a_conformance_graph_keeps_its_text_through_a_flatbuffer_of_ours(name: str) -> None:
    program = read_tosa(conformance("positive")[name]["test.tosa"])
    program.verify()
    assert str(read_tosa(to_tosa(program)).module) == str(program.module)


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_reference_model_computes_the_same_from_our_flatbuffer(name: str) -> None:
    program = read_tosa(conformance("positive")[name]["test.tosa"])
    outputs = run_reference_model(to_tosa(program), arrays(name, "in"))
    for ours, theirs in zip(outputs, arrays(name, "out"), strict=True):
        assert torch.equal(bits(ours), bits(theirs))


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_interpreter_computes_what_the_reference_model_does(name: str) -> None:
    program = read_tosa(conformance("positive")[name]["test.tosa"])
    outputs = Interpreter(program.weights).call(program.method(), arrays(name, "in")).outputs
    for ours, theirs in zip(outputs, arrays(name, "out"), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if torch.equal(bits(ours), bits(theirs)):
            continue
        if ours.dtype.itemsize == 1 and name.split("_")[0] in INEXACT:
            continue
        bound = FLOAT_BOUND[ours.dtype]
        a, b = ours.double(), theirs.double()
        finite = torch.isfinite(b)
        if name.startswith("depthwise"):
            # The model skips taps in the padding, torch multiplies its zeros by an inf weight.
            finite &= ~torch.isnan(a)
        else:
            assert torch.equal(torch.isfinite(a), finite)
        largest = b[finite].abs().max().item()
        assert (a - b)[finite].abs().max().item() <= bound * largest


@pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS.keys())
def test_every_element_type_comes_back_from_its_stored_bytes(element: Attribute) -> None:
    size = 7 * 32
    data = random.Random(0).randbytes(8 * size)
    first = from_bytes(data, [7, 32], element)
    stored = to_bytes(first, element)
    again = from_bytes(stored, [7, 32], element)
    assert torch.equal(bits(first), bits(again))


def test_bytes_of_another_kind_are_refused() -> None:
    with pytest.raises(StepwellError):
        read_tosa(b"not a flatbuffer at all")


def test_the_reference_models_refusal_is_an_error_of_ours() -> None:
    name = next(n for n in RUNNABLE if n.startswith("add_shape"))
    data = conformance("positive")[name]["test.tosa"]
    program = read_tosa(data)
    op = next(op for op in program.method().walk() if op.name == "tosa.reshape")
    wrong = op.operands[0].type
    op.results[0]._type = wrong  # pyright: ignore
    with pytest.raises(ArtifactError, match="gave up"):
        run_reference_model(to_tosa(program), arrays(name, "in"))
