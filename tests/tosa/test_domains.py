"""Where functions have no value, overflow or tie, a lowered model does what PyTorch does.

One graph holds all functions of a kind; it runs on the reference model, and the interpreter agrees.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stepwell

from .graphs import agree, lowered

inf, nan = torch.inf, torch.nan
EDGES = torch.tensor(
    [0, 1, -1, inf, -inf, nan, 3e38, -3e38, 0.5, -0.5, 2.5, -2.5, 1.5, 7, -3, 88, 1e-6]
)

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("sqrt", "rsqrt", "log", "reciprocal", "exp")},
    **{name: getattr(torch, name) for name in ("log2", "log10", "log1p", "expm1", "exp2", "tan")},
    **{name: getattr(torch, name) for name in ("sign", "round", "trunc", "frac", "nan_to_num")},
    **{name: getattr(torch, name) for name in ("isnan", "isinf", "isfinite", "erf", "sigmoid")},
    **{f"pow {n}": partial(torch.pow, exponent=n) for n in (0, 1, 2, 3, 4, 7, -1, -2, -3)},
    "pow 0.5": lambda x: x**0.5,
    "pow -0.5": lambda x: x**-0.5,
    "2 ** x": lambda x: 2**x,
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp_min": lambda x: x.clamp(min=0),
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "leaky_relu 0": lambda x: F.leaky_relu(x, 0.0),
    "leaky_relu 2": lambda x: F.leaky_relu(x, 2.0),
    "elu": F.elu,
    "silu": F.silu,
    "threshold": lambda x: F.threshold(x, 1, 5),
    "hardshrink": F.hardshrink,
    "x / 0": lambda x: x / 0.0,
    "x / -0": lambda x: x / -0.0,
    "x / 3": lambda x: x / 3,
    "x / 1e-39": lambda x: x / 1e-39,
    "argmax of all": lambda x: x.argmax(),
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(0),
    "softmax": lambda x: x.softmax(0),
    "softmax of a masked row": lambda x: torch.minimum(x, x - inf).softmax(0),
    "logsumexp": lambda x: x[:4].logsumexp(0),
    "logsumexp of -inf": lambda x: x[4:5].logsumexp(0),
    "max_pool2d": lambda x: F.max_pool2d(x[:16].reshape(1, 1, 4, 4), 3, 2, 1),
    "argmax of ties": lambda x: torch.round(x[6:].reshape(-1, 11).clamp(0, 1)).argmax(1),
    "argmin of ties": lambda x: torch.round(x[6:].reshape(-1, 11).clamp(0, 1)).argmin(1),
    "argmin": lambda x: x.argmin(),
    "prod": lambda x: x[6:].prod(0),
    "any": lambda x: (x > 1).any(0),
    "all": lambda x: (x > -1).all(0),
    "norm": lambda x: torch.linalg.vector_norm(x[8:]),
    "norm of inf": lambda x: torch.linalg.vector_norm(x, ord=inf),
}

BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "where": lambda a, b: torch.where(a > b, a, b),
    "a / sqrt(b)": lambda a, b: a / b.sqrt(),
}


@pytest.mark.parametrize(
    ("dtype", "target", "close"),
    [
        (torch.float32, "tosa-1.0+fp", 1e-5),
        (torch.float16, "tosa-1.0+fp", 2**-9),
        (torch.bfloat16, "tosa-1.0+fp+bf16", 2**-6),
    ],
    ids=["fp32", "fp16", "bf16"],
)
def test_functions_at_the_ends_of_their_domains(
    dtype: torch.dtype, target: str, close: float
) -> None:
    functions = dict(UNARY)
    if dtype != torch.float32:  # torch's power, not its square root, is inf of -inf in halves
        for name in ("pow 0.5", "pow -0.5", "x / 1e-39"):
            del functions[name]
    agree(functions, EDGES.to(dtype), target=target, rtol=close, atol=close / 100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_operators_on_pairs_of_edges(dtype: torch.dtype) -> None:
    x = EDGES.to(dtype)
    agree(BINARY, x[:, None].contiguous(), x[None].contiguous(), rtol=2**-9, atol=2**-9 / 100)


def test_a_power_of_two_tensors_takes_negative_bases() -> None:
    base = torch.tensor([0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, inf, nan])
    exponent = torch.tensor([0, 1, -1, 2, -2, 3, 0.5, -0.5, inf, -inf, nan])
    pairs = (base[:, None].contiguous(), exponent[None].contiguous())
    agree(torch.pow, *pairs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (-2.0) ** x, "the base is not a finite positive number"),
        (lambda x: x**65, "is larger than 64"),
        (lambda x: torch.floor_divide(x, 3.0), "floor_divide"),
    ],
)
def test_what_has_no_defined_form_is_refused(
    function: Callable[[Tensor], Tensor], reason: str
) -> None:
    with pytest.raises(stepwell.StepwellError, match=reason):
        lowered(function, torch.ones(3))
