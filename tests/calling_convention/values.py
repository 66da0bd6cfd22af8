"""Tensors of every kind that a caller may hold: each made anew from the same numbers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Plain(torch.Tensor):
    """A subclass that adds nothing to how a tensor is kept."""


def _transposed(t: Tensor) -> Tensor:
    return t.T.contiguous().T if t.dim() == 2 else t.clone()


def _stepped(t: Tensor) -> Tensor:
    wide = t.repeat_interleave(2, -1) if t.dim() else t.repeat(2)
    return wide[..., ::2] if t.dim() else wide[1]


def _offset(t: Tensor) -> Tensor:
    return torch.cat([torch.zeros(3, dtype=t.dtype), t.flatten()])[3:].view(t.shape)


def _expanded(t: Tensor) -> Tensor:
    return t[:1].clone().expand(t.shape) if t.dim() else t.clone()


def _gapped(t: Tensor) -> Tensor:
    padded = torch.zeros(*t.shape[:-1], t.shape[-1] + 3, dtype=t.dtype) if t.dim() else t.clone()
    if t.dim():
        padded[..., : t.shape[-1]] = t
        padded = padded[..., : t.shape[-1]]
    return padded


def _inference(t: Tensor) -> Tensor:
    with torch.inference_mode():
        return t.clone()


def _non_leaf(t: Tensor) -> Tensor:
    return t.clone().requires_grad_() * 1


def _two(t: Tensor) -> Tensor:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(t.clone(), t.clone())


def _fake(t: Tensor) -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(t)


def _freed(t: Tensor) -> Tensor:
    lost = t.clone()
    lost.untyped_storage().resize_(0)
    return lost


def _imaginary(t: Tensor) -> Tensor:
    return torch.complex(torch.zeros_like(t), -t).conj().imag


VALUES: dict[str, Callable[[Tensor], Any]] = {
    "contiguous": lambda t: t.clone(),
    "transposed": _transposed,
    "every second": _stepped,
    "with gaps": _gapped,
    "at an offset": _offset,
    "one row for all": _expanded,
    "negative bit": lambda t: torch._neg_view(-t),
    "imaginary part of a conjugate": _imaginary,
    "parameter": lambda t: torch.nn.Parameter(t.clone(), requires_grad=t.is_floating_point()),
    "frozen parameter": lambda t: torch.nn.Parameter(t.clone(), requires_grad=False),
    "requires gradients": lambda t: t.clone().requires_grad_(),
    "with a history": _non_leaf,
    "made in inference mode": _inference,
    "plain subclass": lambda t: t.clone().as_subclass(Plain),
    "buffer": lambda t: torch.nn.Buffer(t.clone()),
    "wrapper of two": _two,
    "fake": _fake,
    "sparse": lambda t: t.to_sparse(),
    "sparse rows": lambda t: t.to_sparse_csr(),
    "quantized": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    "nested": lambda t: torch.nested.nested_tensor([t[0], t[1]]),
    "jagged": lambda t: torch.nested.nested_tensor([t[0], t[1]], layout=torch.jagged),
    "meta": lambda t: t.to("meta"),
    "without its memory": _freed,
    "oneDNN": lambda t: t.to_mkldnn(),
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "int32": lambda t: t.int(),
    "uint16": lambda t: t.abs().to(torch.uint16),
    "bool": lambda t: t.bool(),
    "complex": lambda t: t.to(torch.complex64),
    "scalar": lambda t: t.flatten()[0].clone(),
    "one axis more": lambda t: t[None].clone(),
    "a row more": lambda t: torch.cat([t, t]),
    "empty": lambda t: t[:0].clone(),
    "NaN, infinity and -0": lambda t: (t * torch.nan).nan_to_num(-0.0) / (t - t.flatten()[0]),
    "numpy": lambda t: t.numpy(),
    "list": lambda t: t.tolist(),
    "number": lambda t: 2,
    "None": lambda t: None,
    "text": lambda t: "x",
    "dtype": lambda t: t.dtype,
    "module": lambda t: torch.nn.ReLU(),
}
"""By name: from a contiguous tensor to what a caller holds. What raises there is no such value."""
