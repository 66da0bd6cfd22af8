"""Functions of one or two floats as the C library computes them, on whole tensors.

The reference model calls the C library's `expf`, `erff`, `logf`, `sinf` and `cosf` for each
element, and computes the other functions from them. torch's vectorized functions differ by an ulp
for one argument in a hundred, which a subsequent cast to MX can amplify. Calling the same library
makes every operator of the interpreter equal the reference model bit for bit.

numpy's C API has a loop over a C function of one float (`PyUFunc_f_f`), with which a million calls
take 30 ms.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

from stepwell.ir.diagnostics import StepwellError

_PYUFUNC_F_F = 6
"""The index of `PyUFunc_f_f` in the table of numpy's C API, which is stable across versions."""

_LEAST_TANH = -44.0
"""Below this value e**(-2x) overflows float32, and the quotient of tanh is -1."""


@cache
def _loop() -> Any:
    """Return numpy's loop over a C function of one float, through `ctypes`:
    `void PyUFunc_f_f(char **args, intp *count, intp *strides, void *function)`.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule: Any = importlib.import_module("numpy._core._multiarray_umath")._UFUNC_API
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    counts = ctypes.POINTER(ctypes.c_ssize_t)
    arguments = ctypes.POINTER(ctypes.c_void_p)
    kind = ctypes.CFUNCTYPE(None, arguments, counts, counts, ctypes.c_void_p)
    return kind(table[_PYUFUNC_F_F] or 0)


@cache
def _function(name: str) -> ctypes.c_void_p:
    """Return the address of a function of the C mathematics library."""
    library = ctypes.util.find_library("ucrtbase" if sys.platform == "win32" else "m")
    if library is None:
        raise StepwellError("the C mathematics library was not found")
    return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p)


def _each(name: str, x: Tensor) -> Tensor:
    """Apply a C function of one float to every element of a float32 tensor."""
    if hasattr(x, "held"):
        return _exactly(name.removesuffix("f"), x)
    x = x.contiguous()
    y = torch.empty_like(x)
    pointers = (ctypes.c_void_p * 2)(x.data_ptr(), y.data_ptr())
    steps = (ctypes.c_ssize_t * 2)(x.itemsize, y.itemsize)
    _loop()(pointers, (ctypes.c_ssize_t * 1)(x.numel()), steps, _function(name))
    return y


def _exactly(name: str, *operands: Tensor) -> Tensor:
    """Apply a function to expressions (`held`), which have no elements to read: it is that of
    real numbers, and its rounding is not PyTorch's.
    """
    return getattr(torch, name)(*(each.double() for each in operands)).float()


def exp(x: Tensor) -> Tensor:
    """Compute e**x in float32."""
    return _each("expf", x)


def erf(x: Tensor) -> Tensor:
    """Compute the error function in float32."""
    return _each("erff", x)


def log(x: Tensor) -> Tensor:
    """Compute the natural logarithm in float32."""
    return _each("logf", x)


def sin(x: Tensor) -> Tensor:
    """Compute the sine in float32."""
    return _each("sinf", x)


def cos(x: Tensor) -> Tensor:
    """Compute the cosine in float32."""
    return _each("cosf", x)


def sigmoid(x: Tensor) -> Tensor:
    """Compute 1 / (1 + e**-x), each operation rounded to float32."""
    return 1 / (1 + exp(-x))


def tanh(x: Tensor) -> Tensor:
    """Compute (1 - e**-2x) / (1 + e**-2x), each operation rounded: a relative error of 1e-4 near
    zero.
    """
    if hasattr(x, "held"):
        return _exactly("tanh", x)
    power = exp(-2 * x)
    quotient = (1 - power) / (1 + power)
    return torch.where(x == 0, x, torch.where(x < _LEAST_TANH, -1.0, quotient))


def power(base: Tensor, exponent: Tensor) -> Tensor:
    """Compute e**(exponent * log(base)), each operation rounded to float32."""
    if hasattr(base, "held"):
        return _exactly("pow", base, exponent)
    return exp(exponent * log(base))
