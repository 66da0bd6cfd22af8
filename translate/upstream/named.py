"""Semantics of named `linalg` operators in PyTorch: products, convolutions, pools and tiles.

Each operator accumulates into its output, in the output's element type (`i8 × i8` into `i32`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from xdsl.ir import Attribute, Operation

from stepwell.dialects.linalg_named import numbers_of
from stepwell.translate.upstream.meanings import CannotImport, Rule, Undefined, defined, shape_of

Product = Callable[..., torch.Tensor]
"""(op, operands in the element type of the output) to the summand."""


def added(product: Product) -> Rule:
    """Return the initial output plus the computed value."""

    def rule(op: Any, args: Sequence[Any]) -> Any:
        *given, initial = args
        if isinstance(initial, Undefined):
            raise CannotImport("it adds to an empty tensor, which is undefined")
        return torch.add(initial, product(op, *(_as(value, initial) for value in given)))

    return rule


def _as(value: Any, initial: torch.Tensor) -> torch.Tensor:
    value = defined(value)
    if value.dtype.is_floating_point and not initial.dtype.is_floating_point:
        raise CannotImport("its operands are floats, and its output integers")
    return value.to(initial.dtype)


def einsum(equation: str) -> Product:
    """Return a product of two tensors, by an einsum equation."""

    def product(op: Operation, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, one, other)

    return product


def _laid(value: torch.Tensor, given: str, wanted: str) -> torch.Tensor:
    """Permute a tensor from one order of axes to another, each written as letters."""
    return value.permute([given.index(letter) for letter in wanted])


def stated(op: Operation, name: str, rank: int) -> list[int]:
    """Return the attribute `strides` or `dilations`, by default 1 along each axis."""
    attribute: Attribute | None = op.attributes.get(name) or op.properties.get(name)
    values = numbers_of(attribute) or [1]
    return values * rank if len(values) == 1 else values


def conv(image: str, kernel: str) -> Product:
    """Return a convolution; letters name its operands' axes, of which `w`, `hw` or `dhw` slide."""
    moving = image.replace("n", "").replace("c", "")
    function = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[len(moving)]

    def product(op: Operation, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        channels = image if "c" in image else f"nc{image}"
        if "c" not in image:  # A single image of one channel.
            x, w = x[None, None], w[None, None]
        x = _laid(x, channels, f"nc{moving}")
        taken = kernel if "c" in kernel else f"fc{kernel}"
        w = _laid(w, taken, f"fc{moving}")
        rank = len(moving)
        made = function(x, w, None, stated(op, "strides", rank), 0, stated(op, "dilations", rank))
        made = _laid(made, f"nc{moving}", channels)
        return made if "c" in image else made[0, 0]

    return product


def depthwise(image: str, kernel: str) -> Product:
    """Return a depthwise convolution; the kernel's axis `m` counts the results per channel."""
    moving = image.replace("n", "").replace("c", "")
    function = {1: torch.conv1d, 2: torch.conv2d}[len(moving)]

    def product(op: Operation, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = _laid(x, image, f"nc{moving}")
        w = _laid(w, kernel, f"cm{moving}" if "m" in kernel else f"c{moving}")
        several = w.shape[1] if "m" in kernel else 1
        channels, window = x.shape[1], list(w.shape[-len(moving) :])
        w = w.reshape([channels * several, 1, *window])
        rank = len(moving)
        strides, dilations = stated(op, "strides", rank), stated(op, "dilations", rank)
        made = function(x, w, None, strides, 0, dilations, channels)
        if "m" not in kernel:
            return _laid(made, f"nc{moving}", image)
        made = made.reshape([made.shape[0], channels, several, *made.shape[2:]])
        return _laid(made, f"ncm{moving}", f"{image}m")

    return product


def pooled(image: str, kind: str) -> Rule:
    """Return a pool over two axes: `max`, `min` or `sum`."""

    def rule(op: Operation, args: Sequence[Any]) -> Any:
        x, window, initial = args
        if isinstance(initial, Undefined):
            raise CannotImport("it adds to an empty tensor, which is undefined")
        x = _laid(defined(x), image, "nchw")
        sizes = list(window.shape)
        strides, dilations = stated(op, "strides", 2), stated(op, "dilations", 2)
        if kind == "sum":
            if dilations != [1, 1]:
                raise CannotImport("a sum over a window with gaps")
            made = torch.nn.functional.avg_pool2d(x, sizes, strides, divisor_override=1)
        else:
            sign = -1 if kind == "min" else 1
            made = sign * torch.max_pool2d(sign * x, sizes, strides, 0, dilations)
        made = _laid(made, "nchw", image)
        of_two = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}[kind]
        return of_two(initial, made)

    return rule


def elementwise(function: Callable[..., Any]) -> Rule:
    """Return an elementwise function; the output only determines the shape."""
    return lambda op, args: function(*map(defined, args[:-1]))


def _softmax(op: Operation, args: Sequence[Any]) -> Any:
    (axis,) = numbers_of(op.attributes.get("dimension"))
    return torch.softmax(defined(args[0]), axis)


def _tiling(op: Operation, rank: int) -> tuple[list[int], list[int], list[int]]:
    """Return (the order of the outer axes, the tiled axes, the tile sizes)."""
    order = numbers_of(op.attributes.get("outer_dims_perm")) or list(range(rank))
    return (
        order,
        numbers_of(op.attributes.get("inner_dims_pos")),
        numbers_of(op.attributes.get("inner_tiles")),
    )


def _pack(op: Operation, args: Sequence[Any]) -> Any:
    value = defined(args[0])
    rank = value.dim()
    order, axes, tiles = _tiling(op, rank)
    widths = [0] * rank
    for axis, tile in zip(axes, tiles, strict=True):
        widths[axis] = -value.shape[axis] % tile
    if any(widths):
        if len(args) < 3 or isinstance(args[2], torch.Tensor):
            raise CannotImport("its last tile is not full, and no number fills it")
        pads = [part for width in reversed(widths) for part in (0, width)]
        value = torch.nn.functional.pad(value, pads, value=args[2])
    shape: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for axis in range(rank):
        outer[axis] = len(shape)
        if axis in axes:
            tile = tiles[axes.index(axis)]
            inner[axis] = len(shape) + 1
            shape += [value.shape[axis] // tile, tile]
        else:
            shape.append(value.shape[axis])
    places = [outer[axis] for axis in order] + [inner[axis] for axis in axes]
    return value.reshape(shape).permute(places)


def _unpack(op: Operation, args: Sequence[Any]) -> Any:
    value, shape = defined(args[0]), shape_of(op.results[0].type)
    rank = len(shape)
    order, axes, tiles = _tiling(op, rank)
    places: list[int] = []
    for axis in range(rank):
        places.append(order.index(axis))
        if axis in axes:
            places.append(rank + axes.index(axis))
    value = value.permute(places)
    whole = [
        value.shape[places.index(order.index(axis))]
        * (tiles[axes.index(axis)] if axis in axes else 1)
        for axis in range(rank)
    ]
    value = value.reshape(whole)
    for axis, (size, wanted) in enumerate(zip(whole, shape, strict=True)):
        if size != wanted:
            value = value.narrow(axis, 0, wanted)
    return value


def _divided(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    mode = None if one.dtype.is_floating_point else "trunc"
    return torch.div(one, other, rounding_mode=mode)


PRODUCTS: dict[str, Product] = {
    "matmul": einsum("mk,kn->mn"),
    "matmul_transpose_a": einsum("km,kn->mn"),
    "matmul_transpose_b": einsum("mk,nk->mn"),
    "batch_matmul": einsum("bmk,bkn->bmn"),
    "batch_matmul_transpose_a": einsum("bkm,bkn->bmn"),
    "batch_matmul_transpose_b": einsum("bmk,bnk->bmn"),
    "batch_reduce_matmul": einsum("bmk,bkn->mn"),
    "matvec": einsum("mk,k->m"),
    "vecmat": einsum("k,kn->n"),
    "batch_matvec": einsum("bmk,bk->bm"),
    "batch_vecmat": einsum("bk,bkn->bn"),
    "dot": einsum("k,k->"),
    "mmt4d": einsum("mkab,nkcb->mnac"),
    "batch_mmt4d": einsum("zmkab,znkcb->zmnac"),
    "conv_1d": conv("w", "w"),
    "conv_2d": conv("hw", "hw"),
    "conv_1d_nwc_wcf": conv("nwc", "wcf"),
    "conv_1d_ncw_fcw": conv("ncw", "fcw"),
    "conv_2d_nchw_fchw": conv("nchw", "fchw"),
    "conv_2d_nhwc_hwcf": conv("nhwc", "hwcf"),
    "conv_2d_nhwc_fhwc": conv("nhwc", "fhwc"),
    "conv_3d_ndhwc_dhwcf": conv("ndhwc", "dhwcf"),
    "conv_3d_ncdhw_fcdhw": conv("ncdhw", "fcdhw"),
    "depthwise_conv_1d_nwc_wc": depthwise("nwc", "wc"),
    "depthwise_conv_2d_nhwc_hwc": depthwise("nhwc", "hwc"),
    "depthwise_conv_2d_nchw_chw": depthwise("nchw", "chw"),
    "depthwise_conv_2d_nhwc_hwcm": depthwise("nhwc", "hwcm"),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": _divided,
    "max": torch.maximum,
    "min": torch.minimum,
    "powf": torch.pow,
    "select": torch.where,
    "negf": torch.neg,
    **{
        name: getattr(torch, name)
        for name in "abs ceil floor tanh erf exp log sqrt rsqrt reciprocal square".split()
    },
}
NAMED: dict[str, Rule] = {
    **{f"linalg.{name}": added(product) for name, product in PRODUCTS.items()},
    **{f"linalg.{name}": elementwise(function) for name, function in FUNCTIONS.items()},
    **{
        f"linalg.pooling_{image}_{kind}": pooled(image, kind)
        for image in ("nhwc", "nchw")
        for kind in ("max", "min", "sum")
    },
    "linalg.softmax": _softmax,
    **dict.fromkeys(("linalg.pack", "tensor.pack"), _pack),
    **dict.fromkeys(("linalg.unpack", "tensor.unpack"), _unpack),
}
"""Name of an op → function of it and its operands."""
