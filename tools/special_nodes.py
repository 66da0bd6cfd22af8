"""The delegates of one node each that `special_values.py` measures."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "xnnpack"))


def container_of(trials: list[Any]) -> Any:
    """Trials as the methods of one program."""
    return importlib.import_module("isolated_run").container_of(trials)


def nodes() -> tuple[list[Any], list[dict[str, Any]]]:
    """Trials, and for each what it is: {node, dtype, kind, variant, method}."""
    cases = importlib.import_module("dialect_cases")
    building = importlib.import_module("dialect_building")
    xnn: Any = importlib.import_module("stepwell.dialects.xnnpack")
    f16, f32 = cases.f16, cases.f32
    trials: list[Any] = []
    about: list[dict[str, Any]] = []

    def add(kind: str, node: str, dtype: str, inputs: Any, write: Any, **more: Any) -> None:
        trials.append(building.Case(node, inputs, write).trial())
        about.append({"kind": kind, "node": node, "dtype": dtype, **more})

    def of(count: int, half: bool) -> torch.Tensor:
        return torch.zeros(count, dtype=torch.float16 if half else torch.float32)

    def a_node(cls: Any, **fields: Any) -> Any:
        return lambda w, *args: w(cls.make(*args, **fields))

    unary, binary = cases.Unary, cases.Binary
    for cls in xnn.NODES.values():
        for half in (False, True):
            dtype, made = ("f16", f16) if half else ("f32", f32)
            fields = cases.FIELDS.get(cls.name, {})
            if cls in (xnn.NODES["XNNSoftmax"], xnn.Convert):
                continue
            if issubclass(cls, unary):
                for size in (1 << 16, 5):
                    add(
                        "unary",
                        cls.name,
                        dtype,
                        (of(size, half),),
                        a_node(cls, element=made, **fields),
                    )
            elif issubclass(cls, binary):
                for a, b in ((67, 67), (67, 1), (1, 67)):
                    add("binary", cls.name, dtype, (of(a, half), of(b, half)), a_node(cls))
                if issubclass(cls, xnn.elementwise.ClampedBinary):
                    write = a_node(cls, output_min=-1.0, output_max=1.0)
                    add("binary", f"{cls.name} clamped", dtype, (of(67, half),) * 2, write)
    for given, made in ((f32, f16), (f16, f32), (f32, cases.bf16), (cases.bf16, f32)):
        for size in (1 << 16, 5):
            x = torch.zeros(size, dtype=cases.torch_dtype(given))
            write = a_node(xnn.Convert, element=made)
            add("unary", f"xnnpack.convert to {made}", str(given), (x,), write)
    for half in (False, True):
        for what in ("qint8", "quint8"):
            name, dtype = f"xnnpack.convert to {what}", "f16" if half else "f32"
            for size in (1 << 16, 5):
                add(
                    "quantize",
                    name,
                    dtype,
                    (of(size, half),),
                    a_node(xnn.Convert, element=cases.MADE[what]),
                )
        several(add, xnn, cases, torch.float16 if half else torch.float32)
    bfloats(add, xnn, cases)
    return trials, about


def bfloats(add: Any, xnn: Any, cases: Any) -> None:
    """Linear layers of bfloat16, with results in f32 and in bfloat16."""
    drawn = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 19, generator=drawn).bfloat16() for n in (3, 7))
    bias = torch.randn(7, generator=drawn)
    limits: dict[str, Any] = {"output_min": -0.3, "output_max": 0.3}
    plain: dict[str, Any] = {}
    for suffix, fields in (("", plain), (" clamped", limits)):
        for made in (cases.f32, cases.bf16):

            def write(w: Any, x: Any, fields: Any = fields, made: Any = made) -> Any:
                result = cases.tensor((3, 7), made)
                held = w.weight(weight), w.weight(bias)
                return w(xnn.FullyConnected.make(x, *held, result=result, **fields))

            add("several", xnn.FullyConnected.name + suffix, "bf16", (x,), write)


def several(add: Any, xnn: Any, cases: Any, dtype: torch.dtype) -> None:
    """Nodes whose result is of several elements: sums, products, windows, rows."""
    drawn = torch.Generator().manual_seed(0)
    short = "f16" if dtype == torch.float16 else "f32"

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=drawn).to(dtype)

    def a_node(cls: Any, weights: Sequence[torch.Tensor] = (), **fields: Any) -> Any:
        def write(w: Any, *args: Any) -> Any:
            return w(cls.make(*args, *(w.weight(weight) for weight in weights), **fields))

        return write

    limits: dict[str, Any] = {"output_min": -0.3, "output_max": 0.3}
    image, row = random(1, 5, 6, 4), random(3, 19)
    add("several", "xnnpack.softmax", short, (row,), a_node(xnn.NODES["XNNSoftmax"]))
    pool = {"kernel": [2, 3], "stride": [1, 1]}
    plain: dict[str, Any] = {}
    for suffix, fields in (("", plain), (" clamped", limits)):
        for cls in (xnn.MaxPooling2d, xnn.AveragePooling2d):
            for padding in ({}, {"padding": [1, 1, 1, 1]}):
                add(
                    "several",
                    cls.name + suffix,
                    short,
                    (image,),
                    a_node(cls, **pool, **padding, **fields),
                )
        add(
            "several",
            xnn.GlobalAveragePooling2d.name + suffix,
            short,
            (image,),
            a_node(xnn.GlobalAveragePooling2d, keep_dims=True, **fields),
        )
        for cls, shape in (
            (xnn.Convolution2d, (8, 2, 3, 4)),
            (xnn.Convolution2d, (8, 1, 1, 4)),
            (xnn.DepthwiseConvolution2d, (1, 2, 3, 4)),
            (xnn.Deconvolution2d, (8, 2, 3, 4)),
        ):
            if cls is xnn.Deconvolution2d and short == "f16":
                continue
            weights = (random(*shape) * 0.3, random(shape[cls.CHANNEL_AXIS]))
            add("several", cls.name + suffix, short, (image,), a_node(cls, weights, **fields))
        weights = (random(7, 19), random(7))
        add(
            "several",
            xnn.FullyConnected.name + suffix,
            short,
            (row,),
            a_node(xnn.FullyConnected, weights, **fields),
        )
        add(
            "several",
            xnn.FullyConnected.name + suffix,
            short,
            (row, random(7, 19)),
            a_node(xnn.FullyConnected, **fields),
        )
    add(
        "several",
        "xnnpack.batch_matrix_multiply",
        short,
        (random(2, 3, 9), random(2, 9, 5)),
        a_node(xnn.BatchMatrixMultiply),
    )
    add(
        "several",
        "xnnpack.static_resize_bilinear_2d",
        short,
        (image,),
        a_node(xnn.StaticResizeBilinear2d, new_size=(7, 9)),
    )
    for cls, fields in (
        (xnn.StaticTranspose, {"perm": [0, 3, 1, 2]}),
        (xnn.StaticReshape, {"new_shape": [4, 30]}),
        (xnn.StaticSlice, {"offsets": [0, 1, 0, 0], "sizes": [1, 3, 5, 4]}),
        (
            xnn.StaticConstantPad,
            {"pre_paddings": [0, 1, 0, 0], "post_paddings": [0, 0, 1, 0], "padding_value": 1.5},
        ),
    ):
        add("several", cls.name, short, (image,), a_node(cls, **fields))
    for count, cls in xnn.CONCATENATES.items():

        def join(w: Any, a: Any, b: Any, cls: Any = cls, count: int = count) -> Any:
            return w(cls.make(*[a, b, a, b, a][:count], axis=0))

        add("several", cls.name, short, (row,) * 2, join)
    if short == "f32":
        shape = (1, 2, 3, 4)

        def argmax(w: Any, x: Any) -> Any:
            op = xnn.ArgMaxPooling2d.create(
                operands=[x],
                result_types=[cases.tensor(shape, cases.f32), cases.tensor(shape, cases.i64)],
                properties={"kernel": xnn.base.to_attribute([2, 2])},
            )
            w(op)
            return op.results[0]

        add("several", "xnnpack.argmax_pooling_2d", short, (image[:, :4],), argmax)
