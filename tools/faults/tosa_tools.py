"""TOSA's reference model and serializer in Python."""

from typing import Any

import numpy as np
import tosa_reference_model as model
import tosa_serializer as ts

D = ts.DType
BLOCK = ts.BlockSize.BLOCK_SIZE_32


class Graph:
    """A graph of one block, written line by line."""

    def __init__(self) -> None:
        self.ser = ts.TosaSerializer("", targetMajor=1, targetMinor=1, targetDraft=True)

    def input(self, name: str, shape: list[int], dtype: Any) -> str:
        """Add an input, and return its name."""
        self.ser.addInputTensor(ts.TosaSerializerTensor(name, shape, dtype))
        return name

    def op(
        self, name: str, inputs: list[str], results: list[tuple[list[int], Any]], *of: Any
    ) -> list[Any]:
        """Add an operator with attributes `of`, and return its results."""
        made = [self.ser.addIntermediate(shape, dtype) for shape, dtype in results]
        attribute = ts.TosaSerializerAttribute()
        getattr(attribute, f"{name}Attribute")(*of)
        words = "".join(f"_{c}" if c.isupper() else c for c in name)[1:].upper()
        code = getattr(ts.Op, words.replace("MAT_MUL", "MATMUL"))
        self.ser.addOperator(code, inputs, [each.name for each in made], attribute)
        return made

    def run(self, results: list[Any], *inputs: np.ndarray) -> list[np.ndarray]:
        """Return the reference model's results."""
        for each in results:
            self.ser.addOutputTensor(each)
        outputs, status = model.run(self.ser.serialize(), list(inputs))
        assert status == model.GraphStatus.TOSA_VALID, f"{status}"
        return outputs


def product(payload: Any, scales: list[int]) -> None:
    """Run MATMUL_T_BLOCK_SCALED of zeros, with another payload or other scales on one side."""
    graph = Graph()
    inputs = [
        graph.input("a", [1, 2, 32], D.FP8E4M3),
        graph.input("sa", scales, D.FP8UE8M0),
        graph.input("b", [1, 2, 32], payload),
        graph.input("sb", [1, 2, 1], D.FP8UE8M0),
    ]
    results = graph.op("MatMulTBlockScaled", inputs, [([1, 2, 2], D.FP32)], BLOCK)
    shapes = ((1, 2, 32), tuple(scales), (1, 2, 32), (1, 2, 1))
    try:
        graph.run(results, *(np.zeros(shape, np.uint8) for shape in shapes))
    except (ValueError, RuntimeError, AssertionError):
        return  # An error is expected.
    raise AssertionError("it runs, and says TOSA_VALID")


def product_of_two_payloads() -> None:
    """A block-scaled product of E4M3 and E5M2, which is no valid graph, ends the process."""
    product(D.FP8E5M2, [1, 2, 1])


def product_with_too_many_scales() -> None:
    """A block-scaled product with two scales for one block is valid."""
    product(D.FP8E4M3, [1, 2, 2])


def product_with_too_few_scales() -> None:
    """A block-scaled product with scales for one row of two."""
    product(D.FP8E4M3, [1, 1, 1])


def scales_as_a_result() -> None:
    """A result of type FP8UE8M0 is an empty array of float64, with TOSA_VALID."""
    graph = Graph()
    x = graph.input("x", [1, 32], D.FP32)
    types = [([1, 32], D.FP8E4M3), ([1, 1], D.FP8UE8M0)]
    results = graph.op("CastToBlockScaled", [x], types, BLOCK)
    scales = graph.run(results, np.ones((1, 32), np.float32))[1]
    assert scales.shape == (1, 1), f"{scales.dtype}{list(scales.shape)} should be uint8[1, 1]"


def small_numbers_of_a_block() -> None:
    """Casting to MXINT8 shifts by an exponent modulo 64: 2^-50 beside 1 becomes 1/64, not 0."""
    graph = Graph()
    x = graph.input("x", [1, 32], D.FP32)
    types = [([1, 32], D.MXINT8), ([1, 1], D.FP8UE8M0)]
    parts = [each.name for each in graph.op("CastToBlockScaled", [x], types, BLOCK)]
    results = graph.op("CastFromBlockScaled", parts, [([1, 32], D.FP32)], BLOCK)
    numbers = np.array([[1.0] + [1.3 * 2.0 ** -(47 + k) for k in range(1, 32)]], np.float32)
    (result,) = graph.run(results, numbers)
    assert not result[0, 1:].any(), f"{result[0, 1:8].tolist()} should be zeros"


def constant_of_codes() -> None:
    """Codes (uint8) of an FP8E4M3 constant are taken for numbers: 0x38 is 56, not 1."""
    graph = Graph()
    constant = graph.ser.addConst([2], D.FP8E4M3, np.array([0x38, 0x40], np.uint8), "c")
    name = constant if isinstance(constant, str) else constant.name
    (result,) = graph.run(graph.op("Cast", [name], [([2], D.FP32)]))
    assert result.tolist() == [1.0, 2.0], f"{result.tolist()} should be [1.0, 2.0]"
