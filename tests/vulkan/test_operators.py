"""The Vulkan backend's own operators, read from payloads of one call that ExecuTorch serializes.

What is expected is computed here from unpacked weights. The packing is that of ExecuTorch's passes.
"""
# ruff: noqa: RUF005

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.vulkan.op_registry import vulkan_supported_ops
from executorch.backends.vulkan.patterns.weight_packing_utils import pack_4bit_weight_tensor
from executorch.backends.vulkan.serialization import vulkan_graph_schema as vk
from executorch.backends.vulkan.serialization.vulkan_graph_serialize import serialize_vulkan_graph
from executorch.backends.vulkan.utils import get_vk_datatype
from torch import Tensor
from torch.nn import functional as F
from xdsl.dialects.test import TestOp

from stepwell.backends.executorch.container import Delegate
from stepwell.backends.executorch.reading.readers import ReadContext
from stepwell.backends.vulkan.operators import MEANINGS, NUMBERS
from stepwell.backends.vulkan.read import VulkanReader, schema_class
from stepwell.dialects.executorch import DelegateOp, OpaqueDelegateOp
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.types import tensor_like
from stepwell.ir.weights import WeightStore


class Constant:
    """An argument that the payload contains."""

    def __init__(self, value: Tensor) -> None:
        self.value = value.contiguous()


def read(name: str, args: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, WeightStore]:
    """Read a payload of one call with these arguments and results of these types."""
    values: list[Any] = []
    constants: list[Tensor] = []

    def add(value: Any) -> int:
        match value:
            case Constant():
                constants.append(value.value)
                held = tensor(value.value, len(constants) - 1)
            case Tensor():
                held = tensor(value, -1)
            case None:
                held = vk.Null()
            case bool():
                held = vk.Bool(value)
            case int():
                held = vk.Int(value)
            case float():
                held = vk.Double(value)
            case str():
                held = vk.String(value)
            case list():
                held = vk.IntList(value)
            case _:
                held = vk.ValueList(value.ids)
        values.append(vk.VkValue(held))
        return len(values) - 1

    def tensor(value: Tensor, constant: int) -> Any:
        return vk.VkTensor(get_vk_datatype(value.dtype), list(value.shape), constant, -1)

    class Several:
        def __init__(self, ids: list[int]) -> None:
            self.ids = ids

    ids = [add(arg) for arg in args]
    written = [add(result) for result in results]
    last = written[0] if len(written) == 1 else add(Several(written))
    given = [i for i, arg in zip(ids, args, strict=True) if isinstance(arg, Tensor)]
    graph = vk.VkGraph(
        "0", [vk.OperatorCall(0, name, [*ids, last])], values, given, written, [], []
    )
    payload = serialize_vulkan_graph(graph, constants, [])
    inputs = TestOp(result_types=[tensor_like(arg) for arg in args if isinstance(arg, Tensor)])
    context = ReadContext(WeightStore(), {}, "forward.0")
    types = [tensor_like(result) for result in results]
    delegate = Delegate("VulkanBackend", payload)
    return VulkanReader().read(delegate, inputs.results, types, context), context.weights


torch.manual_seed(0)
X, IMAGE = torch.randn(3, 16), torch.randint(-128, 128, (1, 4, 5, 5), dtype=torch.int8)
INT4, BY_GROUP = torch.randint(-8, 8, (12, 16), dtype=torch.int8), torch.rand(12, 2) + 0.1
INT8, SCALES = torch.randint(-127, 128, (12, 16), dtype=torch.int8), torch.rand(12) / 50 + 0.01
BIAS = torch.randn(12)
SUMS = Constant(torch.zeros(12, dtype=torch.int32))
REAL4 = INT4 * BY_GROUP.repeat_interleave(8, 1)
REAL8 = INT8 * SCALES[:, None]
PACKED, TRANSPOSED = Constant(pack_4bit_weight_tensor(INT4)), Constant(BY_GROUP.t())
FILTER = torch.randint(-127, 128, (12, 2, 3, 3), dtype=torch.int8)
NIBBLES = INT4.to(torch.uint8) + 8
TURNED, GROUPED = FILTER[:8].view(4, 4, 3, 3), Constant(FILTER[:, :1].float())
BY_OUTPUT = SCALES[:4].view(4, 1, 1, 1)
IN, OUT = (IMAGE, 0.02, 3), (0.4, 9)
ONES, TWOS = ([1, 1], [0, 0], [1, 1]), ([2, 2], [1, 1], [1, 1])
DEPTHWISE = torch.randint(-127, 128, (4, 1, 3, 3), dtype=torch.int8)


def stored(x: Tensor, scale: float, zero: int) -> Tensor:
    """Integers of reals."""
    return ((x / scale).round() + zero).clamp(-128, 127).to(torch.int8)


def reals(x: Tensor, scale: float, zero: int) -> Tensor:
    """Reals of integers."""
    return (x.float() - zero) * scale


def padded(rows: Tensor) -> Constant:
    """Rows padded to a multiple of four, as ExecuTorch's passes do."""
    return Constant(F.pad(rows, (0, -rows.shape[-1] % 4)))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of neighbors, as complex numbers."""
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.complex(cos, sin)
    return torch.view_as_real(turned).flatten(-2)


def halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Halves of each head."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


Q, K = torch.randn(1, 3, 2, 8), torch.randn(1, 3, 1, 8)
ANGLES = torch.rand(3, 4)
TABLE = torch.rand(6, 8)
TOKEN = (X.amax(1) - X.amin(1)) / 255
ZERO = (-128 - (X.amin(1) / TOKEN).round()).to(torch.int8)
TOKENS = reals(stored(X, TOKEN[:, None], ZERO[:, None]), TOKEN[:, None], ZERO[:, None])  # type: ignore
LABELS, MASK = torch.tensor([2, -1, 5], dtype=torch.int32), torch.tensor([[1.0], [0], [1]])
ONE_HOT = F.one_hot(LABELS.clamp(min=0).long(), 16)
LAYER = (0.02, 3, Constant(INT8), SUMS, Constant(SCALES))
LINEAR = F.linear(reals(INT8[:3], 0.02, 3), REAL8, BIAS)

CASES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "conv_with_clamp": (
        (IN[0].float(), GROUPED, None, *ONES, False, [0, 0], 4, 0, float("inf")),
        F.conv2d(IN[0].float(), GROUPED.value, groups=4).relu(),
    ),
    "rms_norm": ((X, Constant(BIAS[0] + X[0]), 1e-5), F.rms_norm(X, (16,), BIAS[0] + X[0], 1e-5)),
    "sdpa": (
        (Q, Q + 1, Q - 1, torch.zeros(3, 2, 2), None),
        F.scaled_dot_product_attention(Q, Q + 1, Q - 1),
    ),
    "apply_rotary_emb": (
        (Q, K, ANGLES.cos(), ANGLES.sin()),
        tuple(rotated(x, ANGLES.cos()[:, None], ANGLES.sin()[:, None]) for x in (Q, K)),
    ),
    "apply_rotary_emb_hf": (
        (Q, K, TABLE, 1 - TABLE, 2),
        tuple(halves(x, TABLE[2:5, None], 1 - TABLE[2:5, None]) for x in (Q, K)),
    ),
    "apply_rotary_emb_interleaved": (
        (Q[0].transpose(0, 1), torch.stack((ANGLES.cos(), ANGLES.sin()), -1)),
        rotated(Q[0].transpose(0, 1), ANGLES.cos(), ANGLES.sin()),
    ),
    "grid_priors": (
        (IMAGE.float()[..., :2], 8, 0.5),
        torch.tensor([[x, y] for y in (4, 12, 20, 28, 36) for x in (4.0, 12.0)]),
    ),
    "linear_qcs4w": (
        (X, Constant(NIBBLES[:, ::2] << 4 | NIBBLES[:, 1::2]), Constant(SCALES)),
        F.linear(X, INT4 * SCALES[:, None]),
    ),
    "linear_q4gsw": ((X, PACKED, TRANSPOSED, 8, Constant(BIAS)), F.linear(X, REAL4, BIAS)),
    "linear_dq8ca_q4gsw": (
        (X, TOKEN, ZERO, PACKED, SUMS, TRANSPOSED, 8, None),
        F.linear(TOKENS, REAL4),
    ),
    "embedding_q4gsw": (
        (PACKED, Constant(BY_GROUP), 8, torch.tensor([[3, 1]], dtype=torch.int32), True),
        REAL4[torch.tensor([[3, 1]])],
    ),
    "linear_q8ta_q8csw": ((INT8[:3], *LAYER, Constant(BIAS)), LINEAR),
    "q8ta_linear": (
        (INT8[:3], *LAYER, 0.5, -7, Constant(BIAS), "relu"),
        stored(LINEAR.relu(), 0.5, -7),
    ),
    "q8ta_conv2d": (
        (*IN, padded(FILTER.permute(0, 2, 3, 1).flatten(1)), SUMS, Constant(SCALES), *OUT)
        + (Constant(BIAS), [3, 3], *TWOS, 2, "none"),
        stored(F.conv2d(reals(*IN), FILTER * SCALES.view(-1, 1, 1, 1), BIAS, 2, 1, 1, 2), *OUT),
    ),
    "q8ta_conv2d_dw": (
        (*IN, Constant(DEPTHWISE.permute(2, 3, 1, 0)[:, :, 0]), SUMS, Constant(SCALES[:4]), *OUT)
        + (None, [3, 3], *ONES, 4, "relu"),
        stored(F.conv2d(reals(*IN), DEPTHWISE * BY_OUTPUT, groups=4).relu(), *OUT),
    ),
    "q8ta_conv2d_transposed": (
        (*IN, padded(TURNED.permute(1, 2, 3, 0).flatten(1)), SUMS, Constant(SCALES[:4]), *OUT)
        + (Constant(BIAS[:4]), [3, 3], *TWOS[:2], [1, 1], [1, 1], 1, "none"),
        stored(
            F.conv_transpose2d(reals(*IN), TURNED * BY_OUTPUT.view(1, 4, 1, 1), BIAS[:4], 2, 1, 1),
            *OUT,
        ),
    ),
    "q8ta_add": (
        (IMAGE, IMAGE.flip(3), *IN[1:], 0.03, -4, 0.1, 5, 1.0),
        stored(reals(*IN) + reals(IMAGE.flip(3), 0.03, -4), 0.1, 5),
    ),
    "q8ta_relu": ((*IN, 0.03, -128), stored(reals(*IN).relu(), 0.03, -128)),
    "q8ta_pixel_shuffle": (
        (*IN, 1 / 0.03, 5, 2),
        stored(F.pixel_shuffle(reals(*IN), 2), 0.03, 5),
    ),
    "fused_ce": (
        (X, LABELS, 2.0),
        (F.cross_entropy(X, LABELS.long(), ignore_index=-1), MASK * (X.softmax(1) - ONE_HOT) / 2),
    ),
    "linear_dW": ((X, X + 1), X.t() @ (X + 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_has_its_meaning(name: str) -> None:
    args, expected = CASES[name]
    wanted = expected if isinstance(expected, tuple) else (expected,)
    op, weights = read(f"et_vk.{name}.default", args, wanted)
    assert isinstance(op, DelegateOp), getattr(op, "reason", op)
    op.verify()
    rule: Callable[..., Any] | None = rule_for(DelegateOp)
    assert rule is not None
    found = rule(op, [arg for arg in args if isinstance(arg, Tensor)], Interpreter(weights))
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-4)


def test_every_own_operator_with_a_meaning_is_tested() -> None:
    alike = {"q8ta_linear_gemv": "q8ta_linear", "q8ta_conv2d_pw": "q8ta_conv2d"}
    own = {name.split(".")[1] for name in MEANINGS if name.startswith("et_vk.")}
    assert own - {*CASES, *alike} == {"prepack"}


def test_page_lists_the_operators_without_a_meaning() -> None:
    page = (Path(__file__).parents[2] / "docs/vulkan.md").read_text(encoding="utf-8")
    table = page.partition("| operators | reason |")[2]
    keys = (key if isinstance(key, str) else key.__name__ for key in vulkan_supported_ops)
    names = {f"{key.replace('::', '.')}.default" if "::" in key else key for key in keys}
    known = {name for name in names if name in {*MEANINGS, *NUMBERS} or schema_class(name)}
    assert set(re.findall(r"`([^`]+)`", table)) == names - known
    assert f"{len(known)} of the {len(names)} operators" in page


def test_operator_without_a_meaning_makes_the_delegate_opaque() -> None:
    op, _ = read("et_vk.select_as_symint.default", (X, 0, 1), (X,))
    assert isinstance(op, OpaqueDelegateOp) and op.reason is not None
    assert op.reason.data == "et_vk.select_as_symint.default: the operator has no meaning here"
