"""A certificate that somebody wrote to deceive is refused, whatever it says of itself."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import stepwell
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.audit import verify_certificate
from stepwell.validation.certificates.certificate import Certificate, Entry

W = torch.tensor([1.0, 2.0, 3.0, 4.0])


def method(name: str, takes: str, gives: str, *lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"  func.func @{name}({takes}) -> {gives} {{\n{body}\n  }}\n"


def module(*methods: str) -> str:
    return 'builtin.module attributes {stepwell.level = "aten"} {\n' + "".join(methods) + "}\n"


def equal(takes: str, of: str, *lines: str) -> str:
    pair = f"({of}, {of})"
    return f"builtin.module {{\n{method('equal', takes, pair, *lines)}}}\n"


def rows(store: WeightStore) -> dict[str, Any]:
    """What an honest certificate says of weights."""
    dtype = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}
    return {
        key: {
            "digest": store.content_hash(key),
            "shape": list(store.get(key).shape),
            "dtype": dtype[store.get(key).dtype],
        }
        for key in store
    }


def forged(
    start: str, end: str, entries: Sequence[Entry], weights: dict[str, torch.Tensor] | None = None
) -> Any:
    """What comes of checking a certificate with programs that are what its texts say."""
    store = WeightStore()
    for key, tensor in (weights or {}).items():
        store.add(key, tensor)
    source, last = (stepwell.Program.parse(text, store) for text in (start, end))
    made = Certificate("xnnpack", start, end, tuple(entries), rows(store))
    return verify_certificate(made, last, source=source)


def claim(statement: str, by: str = "bits", rewrite: str = "remove-first-power") -> Entry:
    return Entry("a step", rewrite, "aten.add.Tensor", None, by, statement)


T, R, F = "tensor<3x4xf32>", "tensor<4xf32>", "tensor<f32>"
WEIGHT = f'stepwell.weight <"w"> "parameter" : {R}'
RAND = 'aten.rand.default([4], device="cpu", pin_memory=false) : () -> tensor<4xf32>'


def op(name: str, operands: str, takes: str, gives: str) -> str:
    return f"{name}({operands}) : ({takes}) -> {gives}"


def ends(left: str, right: str, takes: str, of: str, *shared: str) -> tuple[str, str]:
    """Two programs of one input that give one value each; `%v9` is named by both."""
    return (
        module(method("forward", takes, of, *shared, f"%v8 = {left}", f"func.return %v8 : {of}")),
        module(method("forward", takes, of, *shared, f"%v8 = {right}", f"func.return %v8 : {of}")),
    )


def said(left: str, right: str, takes: str, of: str, *shared: str) -> str:
    lines = (*shared, f"%v8 = {left}", f"%v9 = {right}", f"func.return %v8, %v9 : {of}, {of}")
    return equal(takes, of, *lines)


def simple(left: str, right: str, by: str = "bits", of: str = R, **options: Any) -> Any:
    """Programs of `%v0` of which one op is another, and the statement that both are equal."""
    takes, shared = f"%v0: {of}", options.pop("shared", ())
    start, end = ends(left, right, takes, of, *shared)
    return forged(start, end, [claim(said(left, right, takes, of, *shared), by, **options)],
                  {"w": W} if any('<"w' in line for line in shared) else None)  # fmt: skip


def test_an_honest_one_is_proved() -> None:
    left, right = op("aten.neg.default", "%v0", R, R), op("aten.mul.Scalar", "%v0, -1.0", R, R)
    found = simple(left, right, "reals")
    assert found.is_proved, found


def _of_another_size() -> Any:
    sum_ = "aten.sum.dim_IntList(%v0, [0])"
    row = "aten.select.int(%v0, 0, 0)"
    start, end = ends(f"{sum_} : ({T}) -> {R}", f"{row} : ({T}) -> {R}", f"%v0: {T}", R)
    one = "tensor<1x4xf32>"
    lie = said(f"{sum_} : ({one}) -> {R}", f"{row} : ({one}) -> {R}", f"%v0: {one}", R)
    return forged(start, end, [claim(lie)])


def _of_another_input() -> Any:
    left = op("aten.relu.default", "%v0", R, R)
    start, _ = ends(left, left, f"%v0: {R}", R)
    end = start.replace("4xf32", "5xf32")
    return forged(start, end, [])


def _of_weights_that_are_said() -> Any:
    left = op("aten.add.Tensor", "%v0, %v1", f"{R}, {R}", R)
    right = op("aten.sub.Tensor", "%v0, %v1", f"{R}, {R}", R)
    takes, shared = f"%v0: {R}", (f"%v1 = {WEIGHT}",)
    start, end = ends(left, right, takes, R, *shared)
    store, zeros = WeightStore(), WeightStore()
    store.add("w", W), zeros.add("w", torch.zeros(4))
    source, last = (stepwell.Program.parse(text, store) for text in (start, end))
    by = "bits, by the numbers of small weights"
    lies = [claim(said(left, right, takes, R, *shared), by)]
    made = Certificate("xnnpack", start, end, tuple(lies), rows(zeros))
    return verify_certificate(made, last, source=source)


def _of_random_numbers() -> Any:
    body = (f"%v1 = {RAND}", f"%v2 = {RAND}")
    left = op("aten.sub.Tensor", "%v1, %v2", f"{R}, {R}", R)
    right = op("aten.sub.Tensor", "%v1, %v1", f"{R}, {R}", R)
    return forged(*ends(left, right, f"%v0: {R}", R, *body), [])


def _without_a_statement() -> Any:
    left, right = op("aten.neg.default", "%v0", R, R), op("aten.relu.default", "%v0", R, R)
    return forged(*ends(left, right, f"%v0: {R}", R), [claim("", "bits")])


NEG, RELU = op("aten.neg.default", "%v0", R, R), op("aten.relu.default", "%v0", R, R)
FORGERIES = {
    "a statement of another size": _of_another_size,
    "an end that takes another size": _of_another_input,
    "numbers of weights that are said": _of_weights_that_are_said,
    "two draws as one": _of_random_numbers,
    "no statement": _without_a_statement,
    "an unknown label": lambda: simple(NEG, RELU, "by a friend"),
    "a label of nothing": lambda: simple(NEG, RELU, "nothing"),
    "a label of a step": lambda: simple(NEG, RELU, "step"),
    "a trusted rewrite that does something else": lambda: simple(
        NEG, RELU, "nothing", rewrite="lower-dynamic-linear"
    ),
    "a rewrite that there is not": lambda: simple(NEG, NEG, "run", rewrite="of mine"),
    "a constant that is off by the prime of Mersenne": lambda: simple(
        op("aten.mul.Scalar", "%v0, 2147483648.0", R, R),
        op("aten.mul.Scalar", "%v0, 1.0", R, R), "reals",
    ),
    "a constant that is off by the prime": lambda: simple(
        op("aten.mul.Scalar", "%v0, 1686630000.0", "tensor<4xf64>", "tensor<4xf64>"),
        op("aten.mul.Scalar", "%v0, 1.0", "tensor<4xf64>", "tensor<4xf64>"), "reals",
        of="tensor<4xf64>",
    ),
    "zero for minus zero": lambda: simple(
        op("aten.mul.Scalar", "%v0, 0.0", R, R), op("aten.mul.Scalar", "%v0, -0.0", R, R)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_certificate_is_refused(kind: str) -> None:
    found = FORGERIES[kind]()
    assert not found.ok
    assert all(fault and "\n" not in fault for fault in found.faults), found.faults
