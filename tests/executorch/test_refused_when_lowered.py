"""`lower` refuses what `to_pte` or the runtime would refuse, with the place and a remedy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import exported, lower
from torch import nn

import stepwell
from stepwell.ir.diagnostics import UnsupportedError, VerificationError

STEPS = """
builtin.module attributes {stepwell.level = "aten"} {
  func.func @forward(%x: tensor<1x?x2xf32, #stepwell.shape<[1, "s0", 2]>>) -> RESULT attributes {
    stepwell.inputs = [{name = "x"}], stepwell.outputs = [{name = "y"}],
    stepwell.ranges = ["2 <= s0 <= 9"]
  } {
    %w = aten.full.default([GATES, 2], 0.5) : () -> tensor<GATESx2xf32>
    %u = aten.full.default([GATES, 3], 0.5) : () -> tensor<GATESx3xf32>
    %h = aten.full.default([1, 1, 3], 0.0) : () -> tensor<1x1x3xf32>
    %y, STATES = aten.KIND.input(%x, HIDDEN, [%w, %u], false, 1, 0.0, false, false, true)
      : (tensor<1x?x2xf32, #stepwell.shape<[1, "s0", 2]>>, OPERANDS tensor<GATESx2xf32>,
         tensor<GATESx3xf32>) -> (RESULT, RESULTS)
    func.return %y : RESULT
  }
}
"""
SYMBOLIC = 'tensor<1x?x3xf32, #stepwell.shape<[1, "s0", 3]>>'


def recurrence(kind: str, result: str) -> str:
    states = 2 if kind == "lstm" else 1
    state = ", ".join(["tensor<1x1x3xf32>"] * states)
    words = {
        "KIND": kind,
        "GATES": str({"lstm": 12, "gru": 9}.get(kind, 3)),
        "HIDDEN": "[%h, %h]" if kind == "lstm" else "%h",
        "STATES": ", ".join(f"%s{i}" for i in range(states)),
        "OPERANDS": f"{state},",
        "RESULTS": state,
        "RESULT": result,
    }
    text = STEPS
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    return text


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_a_recurrence_of_symbolic_length_is_typed(kind: str) -> None:
    with pytest.raises(VerificationError, match=r'"s0", 3'):
        stepwell.parse(recurrence(kind, "tensor<1x20x3xf32>")).verify()
    program = stepwell.parse(recurrence(kind, SYMBOLIC))
    program.verify()
    assert program.run(torch.ones(1, 5, 2))[0].shape == (1, 5, 3)
    lowered = stepwell.lower(program, "xnnpack", sizes={"s0": 4})
    x = torch.randn(1, 4, 2)
    torch.testing.assert_close(lowered.run(x)[0], program.run(x)[0])


def test_a_size_without_an_upper_bound_is_refused() -> None:
    program = exported(nn.ReLU(), torch.ones(3), dynamic={0: torch.export.Dim("n", min=2)})
    with pytest.raises(UnsupportedError, match="no upper bound") as caught:
        stepwell.lower(program, "xnnpack")
    assert "input input" in str(caught.value) or "@forward" in str(caught.value)
    lowered = stepwell.lower(program, "xnnpack", sizes=4)
    assert torch.equal(lowered.run(torch.ones(4))[0], torch.ones(4))


@pytest.mark.parametrize("rank", range(1, 5))
@pytest.mark.parametrize("is_weight", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_linear_layer_by_a_vector_runs(
    rank: int, is_weight: bool, is_open: bool, has_bias: bool
) -> None:
    held, bias = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(())) if has_bias else None

    def model(x: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, held if is_weight else vector, bias)

    x, vector = torch.randn((2, 3, 4, 6)[4 - rank :]), torch.randn(6)
    try:
        wanted = model(x, vector)
    except RuntimeError:
        pytest.skip("PyTorch refuses it")
    shapes = ({0: torch.export.Dim("n", min=2, max=8)}, {}) if is_open and rank > 1 else None
    lowered = lower(model, x, vector, dynamic=shapes)
    torch.testing.assert_close(lowered.run(x, vector)[0], wanted)
    assert lowered.report.delegates == 1


IMPOSSIBLE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], str]] = {
    "a rank": (lambda x: x.reshape([1] * 16 + [4]) * 2, (torch.ones(4),), "17 axes|rank 17"),
    "the rank of an input": (lambda x: x * 2, (torch.ones([1] * 17),), "17 axes|rank 17"),
    "an input that is not read, complex": (
        lambda x, y: x * 2,
        (torch.ones(4), torch.ones(4, dtype=torch.complex64)),
        "input .*: .*(real tensors only|no element type complex64)",
    ),
    "an input that is not read, long": (
        lambda x, y: x * 2,
        (torch.ones(4), torch.ones(1).expand(2**31)),
        "input .*: an axis of 2147483648|input .*: a tensor of 8589934592 bytes",
    ),
    "a tensor of 2^42 elements": (
        lambda x: (x.expand(2**20, 2**20, 4) + 1).sum(),
        (torch.ones(4),),
        "a tensor of [0-9]* (elements|bytes) is above",
    ),
}


@pytest.mark.parametrize("target", ["xnnpack", "cortex-m55", "tosa-1.0+fp"])
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_tensor_that_no_artifact_holds_is_refused(name: str, target: str) -> None:
    function, inputs, fact = IMPOSSIBLE[name]
    with pytest.raises(UnsupportedError, match=fact):
        lower(function, *inputs, target=target)


@pytest.mark.parametrize(
    ("target", "name", "value", "fact"),
    [
        ("xnnpack", "n", 2**63, "the integer 9223372036854775808 does not fit 64 bits"),
        ("xnnpack", "n", "\ud800", "is not Unicode text"),
        ("cortex-m55", "stepwell_target", 1, "has a method 'stepwell_target' of its own"),
    ],
)
def test_a_method_that_no_artifact_holds_is_refused(
    target: str, name: str, value: int | str, fact: str
) -> None:
    methods = {"forward": exported(nn.ReLU(), torch.ones(4)), name: value}
    with pytest.raises(UnsupportedError, match=fact):
        stepwell.lower(methods, target)
