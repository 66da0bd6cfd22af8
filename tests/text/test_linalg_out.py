"""Programs out as `linalg` on tensors: read again, the text computes what torch does.

That upstream's own tools take it, `bench/linalg.py` asks of IREE.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, export

import stepwell
from stepwell.cli.main import main
from stepwell.ir.diagnostics import UnsupportedError


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y, IMAGE = numbers(2, 6, 8), numbers(2, 6, 8, seed=1), numbers(1, 4, 9, 9)
WHOLE = torch.arange(-6, 6, dtype=torch.int32).reshape(3, 4)
OTHER = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 5, 5]], dtype=torch.int32)
POSITIVE = "sqrt rsqrt log log1p asin acos".split()
ANY = (
    "abs exp expm1 sin cos tan tanh erf atan sinh cosh floor ceil round trunc neg sign reciprocal "
    "sigmoid square isnan logical_not"
).split()
CASES: dict[str, tuple[Callable[..., Any] | nn.Module, tuple[Tensor, ...]]] = {
    **{name: (getattr(torch, name), (X.abs() / 4 + 0.01,)) for name in POSITIVE},
    **{name: (getattr(torch, name), (X,)) for name in ANY},
    **{
        name: (getattr(nn, name)(), (X,))
        for name in "GELU SiLU Hardswish ELU Softplus LeakyReLU Mish Hardtanh".split()
    },
    "arithmetic": (lambda a, b: (a + b, torch.sub(a, b, alpha=2), a * b[:1], a / b, 1 - a), (X, Y)),
    "powers": (lambda a, b: (a**2, a.abs() ** 1.5, a.abs() ** b), (X, Y)),
    "limits": (lambda a, b: (torch.maximum(a, b), torch.minimum(a, b), a.clamp(-0.5, 0.5)), (X, Y)),
    "comparisons": (lambda a, b: (a < b, a <= b, a > 0, b <= 0, a == b, a != b), (X, Y)),
    "choices": (lambda a, b: (torch.where(a > b, a, b), a.masked_fill(b > 0, -1.0)), (X, Y)),
    "truth": (lambda a, b: ((a > 0) & (b < 1) | ~(a > b), (a > 0).any(1), (b > 0).all()), (X, Y)),
    "integers": (
        lambda a, b: (a + b, a - b, a * b, -a, a.abs(), a & b, a | b, a ^ b, ~a, a // b, a % b),
        (WHOLE, OTHER),
    ),
    "quotients": (lambda a, b: (a / b, a.sum(1), (a > 0).sum(0)), (WHOLE, OTHER)),
    "casts": (lambda a: (a.int(), a.half(), a.double(), (a > 0).float(), a.bool()), (X,)),
    "folds": (
        lambda a: (a.sum(), a.sum((0, 2)), a.mean(1, keepdim=True), a.amax(2), a.amin(0), a.var(1)),
        (X,),
    ),
    "softmax": (lambda a: (a.softmax(-1), a.log_softmax(1), a.logsumexp(1)), (X,)),
    "products": (
        lambda a, b: (a[0] @ b[0].T, a @ b.transpose(1, 2), torch.addmm(b[0, :, :6], a[0], b[0].T)),
        (X, Y),
    ),
    "itself": (lambda a: (a @ a, a @ a.T, a * a, a - a.T), (numbers(4, 4),)),
    "linear": (nn.Linear(8, 5), (X,)),
    "layer_norm": (nn.LayerNorm(8), (X,)),
    "rms_norm": (nn.RMSNorm(8), (X,)),
    "batch_norm": (nn.BatchNorm2d(4), (IMAGE,)),
    "group_norm": (nn.GroupNorm(3, 6), (X,)),
    "views": (
        lambda a: (a.reshape(12, 8), a.flatten(), a[None], a.view(2, 2, 3, 8).permute(0, 2, 1, 3)),
        (X,),
    ),
    "slices": (lambda a: (a[:, 1:4], a[..., ::3], a[0], a.select(2, -1), *a.unbind(0)), (X,)),
    "parts": (lambda a, b: (*a.chunk(2, 2), torch.cat([a, b], 1), torch.stack([a, b], 1)), (X, Y)),
    "around": (lambda a: (F.pad(a, (1, 2)), F.pad(a, (0, 1, 2, 0), value=3.0)), (X,)),
    "again": (lambda a: (a[:, :1].expand(-1, 5, -1), a.repeat(1, 2, 1), a.roll(2, 1)), (X,)),
    "tables": (
        lambda a, k: (F.embedding(k, a), a.index_select(0, k[0]), a[k], a.gather(0, k)),
        (X[0], torch.tensor([[1, 3, 0], [5, 5, 2]])),
    ),
    "conv1d": (nn.Conv1d(6, 4, 3, 2, 1), (X,)),
    "conv2d": (nn.Conv2d(4, 6, 3, 2, 1, 2), (IMAGE,)),
    "groups": (nn.Conv2d(4, 8, 3, groups=2), (IMAGE,)),
    "conv3d": (nn.Conv3d(2, 3, 2), (numbers(1, 2, 4, 4, 4),)),
    "max_pool": (nn.MaxPool2d(3, 2, 1), (IMAGE,)),
    "avg_pool": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (IMAGE,)),
    "attention": (
        lambda a: F.scaled_dot_product_attention(a, a, a, is_causal=True),
        (numbers(1, 2, 4, 8),),
    ),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (X,)),
    "halves": (nn.Sequential(nn.Linear(8, 5), nn.GELU()).half(), (X.half(),)),
    "bfloat16": (nn.Sequential(nn.Linear(8, 5), nn.Softmax(-1)).bfloat16(), (X.bfloat16(),)),
    "branch": (
        lambda a: torch.cond(a.sum() > 0, lambda v: v + 1, lambda v: v * 2, (a,)),
        (X,),
    ),
}


def tensors(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple | list) else [value]


@pytest.mark.parametrize("name", CASES)
def test_the_text_computes_what_torch_does(name: str) -> None:
    function, inputs = CASES[name]
    module = (function if isinstance(function, nn.Module) else Of(function)).eval()
    program = stepwell.from_exported_program(export(module, inputs))
    text = program.render("linalg")
    assert "aten." not in text and "torch." not in text
    back = stepwell.parse(text).raise_to("aten")
    for given, wanted in zip(back.run(*inputs), tensors(module(*inputs)), strict=True):
        assert given.dtype == wanted.dtype
        bound = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(wanted.dtype, 2e-6)
        torch.testing.assert_close(given, wanted, rtol=bound, atol=bound)


def test_open_sizes_are_asked_of_operands() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Softmax(-1)).eval()
    rows = Dim("rows", min=2, max=64)
    exported = export(model, (numbers(3, 8),), dynamic_shapes=({0: rows},))
    text = stepwell.from_exported_program(exported).render("linalg")
    assert "%arg0: tensor<?x8xf32>" in text and "tensor.dim %arg0" in text
    assert "tensor<3x" not in text


def test_a_loop_is_scfs() -> None:
    def function(x: Tensor, n: Tensor) -> Any:
        start = torch.zeros((), dtype=torch.int64)
        loop = torch._higher_order_ops.while_loop  # pyright: ignore
        return loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 1.5), (start, x))

    exported = export(Of(function), (numbers(3), torch.tensor(4)))
    text = stepwell.from_exported_program(exported).render("linalg")
    assert "scf.while" in text and "scf.condition" in text and "scf.yield" in text


def test_what_has_no_form_is_named_with_its_place() -> None:
    exported = export(Of(lambda a: a.cumsum(1) + a.topk(2)[0].sum()), (X,))
    with pytest.raises(UnsupportedError) as raised:
        stepwell.from_exported_program(exported).render("linalg")
    said = str(raised.value)
    assert "aten.cumsum.default" in said and "aten.topk.default" in said
    assert "test_linalg_out.py" in said


def test_another_level_goes_up_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported = export(nn.ReLU(), (numbers(2, 3),))
    lowered = stepwell.lower(exported, "tosa-1.0+fp")
    with pytest.raises(stepwell.StepwellError, match="cannot be exported to linalg"):
        lowered.program.render("linalg")
    (tmp_path / "relu.mlir").write_text(lowered.program.text())
    assert main(["opt", str(tmp_path / "relu.mlir"), "-t", "linalg"]) == 0
    assert "linalg.generic" in capsys.readouterr().out
