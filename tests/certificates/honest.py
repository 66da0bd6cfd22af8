"""Small lowerings of six kinds with their certificates, and ends of each that are wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators.
from eager import Function, Stateful
from torch import nn

import stepwell
from stepwell.validation.certificates.certificate import Certificate

X = torch.linspace(-2, 2, 12).reshape(3, 4)
MX = "tosa-1.1+fp+mx_common+mx_fp8e4m3+mxfp"


@dataclass(frozen=True)
class Honest:
    """A lowering with its certificate, and what may be put into its last program to make it wrong.

    Attributes:
        source, program: the first program and the last.
        certificate: of the lowering.
        edits: by name, a text of the last program and another for it; all occurrences.
        name: in `PROGRAMS`.
    """

    source: stepwell.Program
    program: stepwell.Program
    certificate: Certificate
    edits: Mapping[str, tuple[str, str]]
    name: str = ""


class Floats(nn.Module):
    """Layers, whose weights are laid out anew, and two results of one type."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(2, 3, 2), nn.Linear(4, 4)

    def forward(self, x: Any, y: Any) -> Any:
        image = self.conv(x.reshape(1, 2, 2, 3)).relu().sum()
        return self.linear(y) - image, torch.softmax(y, -1)


def counts(m: Any, x: Any, y: Any) -> Any:
    """State that is written, and an input."""
    m.total.add_(x.sum(0))
    m.last.copy_(x[0])
    y.mul_(2)
    return x * m.total


def branches(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.relu() * 2, lambda x: (x - 1).exp(), (x,))


class Sizes(nn.Module):
    """Symbolic sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.linear(x), -1).transpose(0, 1) * x.shape[0]


def stored(value: Any, scale: float, zero: int) -> Any:
    """Quantize, and dequantize again."""
    decomposed, limits = torch.ops.quantized_decomposed, (-128, 127, torch.int8)
    kept = decomposed.quantize_per_tensor(value, scale, zero, *limits)
    return decomposed.dequantize_per_tensor(kept, scale, zero, *limits)


def in_bytes(m: Any, x: Any) -> Any:
    """A convolution with a scale for each channel, a sum, a curve and a linear layer in int8."""
    decomposed = torch.ops.quantized_decomposed
    limits = -127, 127, torch.int8

    kernel = decomposed.dequantize_per_channel(m.kernel, m.scales, m.zeros, 0, *limits)
    matrix = decomposed.dequantize_per_tensor(m.matrix, 0.008, 0, *limits)
    x = stored(x.reshape(1, 2, 2, 3), 0.017, -3)
    image = stored(torch.conv2d(x, kernel, m.bias, padding=1), 0.031, 7)
    image = stored(image + stored(torch.sigmoid(image), 1 / 256, -128), 0.033, 5)
    rows = stored(image.mean((2, 3)), 0.021, 2)
    return stored(torch.nn.functional.linear(rows, matrix), 0.013, 11)


DRAW = torch.Generator().manual_seed(3)
HELD = {
    "kernel": torch.randint(-127, 128, (4, 2, 3, 3), generator=DRAW, dtype=torch.int8),
    "matrix": torch.randint(-127, 128, (5, 4), generator=DRAW, dtype=torch.int8),
    "scales": torch.tensor([0.011, 0.004, 0.007, 0.009]),
    "zeros": torch.zeros(4, dtype=torch.int64),
    "bias": torch.tensor([0.5, -0.25, 0.125, 1.0]),
}
INT8 = """builtin.module attributes {stepwell.level = "aten"} {
  func.func @forward(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
    %a = quantized_decomposed.quantize_per_tensor.default(%x, 0.05, 3, -128, 127, i8) : (tensor<3x4xf32>) -> tensor<3x4xi8>
    %b = quantized_decomposed.dequantize_per_tensor.default(%a, 0.05, 3, -128, 127, i8) : (tensor<3x4xi8>) -> tensor<3x4xf32>
    %c = aten.sub.Tensor(%b, %b) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %d = aten.add.Tensor(%b, %c) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %e = quantized_decomposed.quantize_per_tensor.default(%d, 0.1, -7, -128, 127, i8) : (tensor<3x4xf32>) -> tensor<3x4xi8>
    %f = quantized_decomposed.dequantize_per_tensor.default(%e, 0.1, -7, -128, 127, i8) : (tensor<3x4xi8>) -> tensor<3x4xf32>
    func.return %f : tensor<3x4xf32>
  }
}
"""  # noqa: E501


def _exported(model: nn.Module, *inputs: Any, dynamic: Any = None) -> stepwell.Program:
    torch.manual_seed(3)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -1, 1)
    found = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic)
    return stepwell.from_exported_program(found)


def _in_blocks() -> stepwell.Program:
    model = nn.Sequential(nn.Linear(32, 4), nn.ReLU())
    torch.manual_seed(3)
    exported = torch.export.export(model.eval(), (torch.randn(2, 32),))
    made: Any = stepwell.to_mxfp(exported, "fp8e4m3")
    return made if isinstance(made, stepwell.Program) else stepwell.from_exported_program(made)


STEPS = ("cortex-m55", "xnnpack", "tosa-1.0+fp+int")
"""What the quantized layers are lowered for."""
PROGRAMS: dict[str, tuple[Callable[[], stepwell.Program], str]] = {
    "floats": (lambda: _exported(Floats(), X, X), "xnnpack"),
    "state": (
        lambda: _exported(Stateful(counts, total=torch.zeros(4), last=torch.ones(4)), X, X),
        "xnnpack",
    ),
    "branches": (lambda: _exported(Function(branches), X), "xnnpack"),
    "sizes": (
        lambda: _exported(Sizes(), X, dynamic=({0: torch.export.Dim("n", min=2, max=8)},)),
        "xnnpack",
    ),
    "int8": (lambda: stepwell.Program.parse(INT8), "xnnpack"),
    "blocks": (_in_blocks, MX),
    **{
        f"bytes, {target}": (partial(_exported, Stateful(in_bytes, **HELD), X), target)
        for target in STEPS
    },
}
EDITS: dict[str, dict[str, tuple[str, str]]] = {
    "floats": {
        "an activation": ("output_min=0.0", "output_min=-1.0"),
        "a limit": ("output_min=0.0", "output_min=0.0, output_max=6.0"),
        "a NaN as a limit": ("output_min=0.0", "output_min=0x7fc00000"),
        "a permutation": ("perm=[0, 2, 3, 1]", "perm=[0, 3, 2, 1]"),
        "a lost result": ("return %sub, %softmax", "return %sub, %sub"),
        "results that are swapped": ("return %sub, %softmax", "return %softmax, %sub"),
        "an operand": ("subtract(%linear, %sum)", "subtract(%sum, %linear)"),
        "an operator": ("xnnpack.subtract", "xnnpack.add"),
        "an input": ("delegate(%y)", "delegate(%x)"),
        "inputs that are swapped": ("(%x: tensor<3x4xf32>, %y:", "(%y: tensor<3x4xf32>, %x:"),
        "a weight": ('<"linear.bias">', '<"other.bias">'),
        "an axis": ("softmax(%y_1)", "sigmoid(%y_1)"),
        "a name of an input": ('{name = "x"}', '{name = "z"}'),
        "nesting of inputs": ("((*, *), {})", "((*, *, *), {})"),
        "a name of the method": ("@forward", "@backward"),
        "the level": ('level = "xnnpack"', 'level = "aten"'),
    },
    "state": {
        "a lost update": ('stepwell.update <"last">, %select : tensor<4xf32>', ""),
        "updates that are swapped": ('update <"last">, %select', 'update <"last">, %add_'),
        "state of another name": ('update <"last">', 'update <"total">'),
        "state read elsewhere": ('state <"total">', 'state <"last">'),
        "a lost write to an input": ("stepwell.mutate_input 1 : i64, %mul_ : tensor<3x4xf32>", ""),
        "a write to another input": ("mutate_input 1", "mutate_input 0"),
        "another value for an input": ("1 : i64, %mul_ :", "1 : i64, %mul :"),
        "one more update": (
            "    func.return",
            '    stepwell.update <"more">, %select : tensor<4xf32>\n    func.return',
        ),
        "one more draw": (
            "    func.return",
            "    %r = aten.rand.default([4]) : () -> tensor<4xf32>\n    func.return",
        ),
        "a place": ("offsets=[0, 0]", "offsets=[1, 0]"),
        "an aliased result": ("return %mul :", "return %mul_ :"),
        "a constant": ('<"scalar#e1d7141d4124">', '<"scalar#a663703caa25">'),
    },
    "branches": {
        "a test": ("aten.gt.Scalar", "aten.ge.Scalar"),
        "a threshold": ("(%sum, 0)", "(%sum, 1)"),
        "a branch": ("xnnpack.exp(%sub)", "xnnpack.exp(%x_3)"),
        "a constant in a branch": ('<"scalar#fd2be393343d">', '<"scalar#e1d7141d4124">'),
        "an activation in a branch": ("output_min=0.0", "output_min=-0.5"),
        "an operator in a branch": ("xnnpack.exp", "xnnpack.abs"),
        "a test of what is not there": (
            "    %getitem",
            '    aten._assert_scalar.default(%gt, "no") : (tensor<i1>) -> ()\n    %getitem',
        ),
    },
    "sizes": {
        "a range that is wider": ("2 <= s77 <= 8", "2 <= s77 <= 9"),
        "a range without an end": ("2 <= s77 <= 8", "2 <= s77"),
        "a range that begins at 0": ("2 <= s77 <= 8", "0 <= s77 <= 8"),
        "another symbol": ("s77", "s78"),
        "another axis": ("dim_order = array<i64: 1, 0>", "dim_order = array<i64: 0, 1>"),
        "a size of another axis": ("sym_size.int(%x, 0)", "sym_size.int(%x, 1)"),
        "no softmax": ("xnnpack.softmax", "xnnpack.abs"),
        "a factor": (
            "aten.mul.Scalar(%transpose, %sym_size_int)",
            "aten.mul.Scalar(%transpose, 4)",
        ),
    },
    "int8": {
        "a scale": ("0.05:3", "0.06:3"),
        "a zero point": ("0.05:3", "0.05:4"),
        "a scale of the result": ("0.1:-7", "0.1000001:-7"),
        "a range": ("i8:f32, 0.05:3", "i8<-127:127>:f32, 0.05:3"),
        "what is stored": ("i8:f32, 0.05:3", "u8:f32, 0.05:3"),
        "a difference": ("add(%b, %c)", "add(%b, %b)"),
        "a sign": ("xnnpack.add", "xnnpack.subtract"),
    },
    "blocks": {
        "a payload": ("f8E4M3FN", "f8E5M2"),
        "scales for codes": ("0.weight#mx_scales.592d550fbbd0", "0.weight#mx_codes.6643aada2340"),
        "a limit that is minus zero": ("min_val = 0.000000e+00", "min_val = -0.000000e+00"),
        "a limit that is less": ("max_val = 0x7f800000", "max_val = 0x7f7fffff"),
        "an addend": ("tosa.add %5, %6", "tosa.sub %5, %6"),
        "another target": ("tosa-1.1+fp+mx_common", "tosa-1.0+fp+mx_common"),
    },
}


@cache
def honest(name: str) -> Honest:
    """A lowering of `PROGRAMS`."""
    make, target = PROGRAMS[name]
    source = make()
    lowered = stepwell.lower(source, target, certify=True)
    assert lowered.certificate is not None
    return Honest(source, lowered.program, lowered.certificate, EDITS.get(name, {}), name)
