"""Fits what XNNPACK's nodes cost on this machine: the model that decisions read.

    python bench/costs.py [--rounds 40] [--core cortex-a76] [--write]
    python bench/costs.py --device FOLDER
    python bench/costs.py --times times.json --core cortex-a76 --write

Times single nodes on ExecuTorch's runtime (`bench/_nodes.py`: differences between trials, the
least of many, one thread's CPU time) and fits the nanoseconds of `dialects/xnnpack/costs`.
`--write` keeps them under the kind of this CPU, which is named by what XNNPACK's kernels ask for:
`x86-avx2`, `x86-avx512-vnni`, `arm-neon`, … What whole programs decided (`copy`, `lookup`,
`layout_node`, `block`, `worth`) is kept as it is. With `--core cortex-a76` they are what an Arm
core takes at least, from the instructions it runs (`bench/_arm_cycles.py`). `--device` writes a
folder with all that a device with such a core needs, Android or Linux: `sh measure.sh` there prints
what `--times` makes the core's costs of.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from _nodes import Device, Form, Writer, seconds_here, seconds_on
from _report import cpu_name, prepare, set_threads, show
from xdsl.ir import SSAValue

from stepwell.backends.executorch.running import arm64
from stepwell.dialects import xnnpack
from stepwell.dialects.quant.types import per_tensor
from stepwell.dialects.xnnpack import costs
from stepwell.ir.dtypes import f16
from stepwell.ir.types import tensor

IMAGES = ((96, 56), (80, 28), (160, 14), (320, 7), (64, 56), (128, 28))
"""Channels and size of the images that elements are counted on."""
WINDOWS = ((3, 1), (2, 2), (3, 3), (5, 5))
"""A window for each of XNNPACK's depthwise kernels."""
CONVOLUTIONS = ((64, 56), (128, 28), (256, 14))
"""Channels and size of the images of convolutions."""
PRODUCTS = ((197, 768, 768), (3136, 64, 256), (784, 128, 512), (196, 256, 1024))
"""Rows, inputs, outputs."""


SINGLE, HALF = torch.float32, torch.float16


def image(channels: int, size: int, dtype: torch.dtype = SINGLE) -> torch.Tensor:
    return torch.randn(1, size, size, channels).to(dtype)


def depthwise(
    channels: int, size: int, window: tuple[int, int], dtype: torch.dtype = SINGLE
) -> Form:
    """A depthwise convolution that keeps the image's size."""
    height, width = window
    taps = torch.randn(1, height, width, channels).to(dtype)
    padding = ((height - 1) // 2, width // 2, height // 2, (width - 1) // 2)

    def node(w: Writer, x: SSAValue) -> SSAValue:
        return w(
            xnnpack.DepthwiseConvolution2d.make(
                x, w.weight(taps), padding=padding, stride=(1, 1), dilation=(1, 1)
            )
        )

    return Form((image(channels, size, dtype),), node, chained=True)


def elementwise(name: str, channels: int, size: int) -> Form:
    """One of the nodes that work element by element."""
    x = image(channels, size)

    def node(w: Writer, x: SSAValue, *others: SSAValue) -> SSAValue:
        match name:
            case "element":
                return w(xnnpack.Sigmoid.make(x))
            case "addition":
                return w(xnnpack.Add.make(x, others[0]))
            case "slice":
                sizes = [1, size, size - 3, channels]
                return w(xnnpack.StaticSlice.make(x, offsets=[0, 0, 3, 0], sizes=sizes))
            case "transpose":
                return w(xnnpack.StaticTranspose.make(x, perm=[0, 3, 1, 2]))
            case _:
                return w(xnnpack.Convert.make(x, element=f16))

    # A sum whose operands were both just made is rare: side by side, not in a chain.
    return Form((x, x.clone()) if name == "addition" else (x,), node, name == "element")


def convolution(channels: int, size: int) -> Form:
    """A convolution of 3×3 that keeps the image's size and channels."""
    taps, fields = torch.randn(channels, 3, 3, channels), {"stride": (1, 1), "dilation": (1, 1)}

    def node(w: Writer, x: SSAValue) -> SSAValue:
        return w(
            xnnpack.Convolution2d.make(x, w.weight(taps), padding=(1,) * 4, groups=1, **fields)
        )

    return Form((image(channels, size),), node)


def layer(rows: int, inputs: int, outputs: int) -> Form:
    """A linear layer."""
    weight = torch.randn(outputs, inputs)

    def node(w: Writer, x: SSAValue) -> SSAValue:
        return w(xnnpack.FullyConnected.make(x, w.weight(weight)))

    return Form((torch.randn(rows, inputs),), node)


def of_int8(rows: int, inputs: int, outputs: int) -> Form:
    """A linear layer of int8."""
    held, weight = per_tensor(torch.int8, 0.05), torch.ones(outputs, inputs, dtype=torch.int8)

    def node(w: Writer, x: SSAValue) -> SSAValue:
        operands = w.cast(x, held), w.weight(weight, held)
        return w(xnnpack.FullyConnected.make(*operands, result=tensor((rows, outputs), held)))

    return Form((torch.ones(rows, inputs, dtype=torch.int8),), node)


COUNTED = "{}, from counted instructions and published throughputs, not measured"
"""What the costs of a core say of themselves."""
OF_WHOLE_PROGRAMS = ("run", "far_tap", "lookup", "copy", "layout_node", "block")

CHANNELS, PIXELS = 64, (80, 224, 640)
"""Images of 1.6, 12 and 100 MB: one stays in a second-level cache, the last in none."""

SMALL = 32
"""Nodes in `small`."""


def small() -> Form:
    """A chain of nodes of eight elements."""

    def chain(w: Writer, x: SSAValue) -> SSAValue:
        for _ in range(SMALL // 2):
            x = w(xnnpack.Negate.make(w(xnnpack.Sigmoid.make(x))))
        return x

    return Form((torch.randn(8),), chain, chained=True)


Measure = Callable[[Form], float | None]
"""Seconds of one node of a form."""


def nanoseconds(forms: Iterable[tuple[Form, float]], measure: Measure) -> float:
    """The median over forms of nanoseconds for one of the units that each has so many of."""
    pairs = list(forms)
    found = [measure(form) for form, _ in pairs]
    return statistics.median(
        1e9 * taken / units
        for taken, (_, units) in zip(found, pairs, strict=True)
        if taken is not None
    )


def beyond_the_cache(measure: Measure) -> tuple[int, float]:
    """Bytes that stay in a cache, and nanoseconds of an element beyond them, each way.

    Of n bytes a part of 1 - cache / n is fetched anew: two sizes say what both numbers are.
    """

    def negated(size: int) -> float:
        def node(w: Writer, x: SSAValue) -> SSAValue:
            return w(xnnpack.Negate.make(x))

        form = Form((image(CHANNELS, size),), node, chained=True)
        return nanoseconds([(form, CHANNELS * size * size)], measure)

    near, far, farther = map(negated, PIXELS)
    first, second = far - near, farther - near
    small, large = (4 * CHANNELS * size * size for size in PIXELS[1:])
    cache = max(0.0, (second - first) / (second / small - first / large))
    return int(cache), second / (1 - cache / large) / 2


def fitted(measure: Measure, machine: str, *, counted: bool, is_new: bool = False) -> costs.Costs:
    """The costs of a machine, new or known, or of an Arm core whose instructions are counted."""
    images = IMAGES[1:4] if counted else IMAGES

    def window(size: tuple[int, int], dtype: torch.dtype = SINGLE) -> float:
        return nanoseconds(((depthwise(c, s, size, dtype), c * s * s) for c, s in images), measure)

    def of(name: str) -> float:
        return nanoseconds(((elementwise(name, c, s), c * s * s) for c, s in images), measure)

    singles = tuple(window(size) for size in WINDOWS)
    product = nanoseconds(((layer(*size), float(prod(size))) for size in PRODUCTS), measure)
    indirect = nanoseconds(
        ((convolution(c, s), 9 * c * c * s * s) for c, s in CONVOLUTIONS), measure
    )
    integers = nanoseconds(((of_int8(*size), float(prod(size))) for size in PRODUCTS), measure)
    few, inputs, outputs = 16, 1024, 1024  # Several of these do not fit a second-level cache.
    rows = nanoseconds([(layer(few, inputs, outputs), inputs * outputs)], measure)
    node = nanoseconds([(small(), SMALL)], measure)
    usual = costs.load(costs.DEFAULT)
    cache, far = (usual.cache, usual.far) if counted else beyond_the_cache(measure)
    found = replace(
        usual,
        machine=machine,
        node=node,
        product=product,
        indirect=indirect / product,
        integers=integers / product,
        element=of("element"),
        addition=of("addition"),
        slice=of("slice"),
        transpose=of("transpose"),
        convert=of("convert"),
        depthwise=singles,
        halves=tuple(
            window(size, HALF) / single for size, single in zip(WINDOWS, singles, strict=True)
        ),
        lone_tap=window((7, 7)) / 49,
        weight=max(0.0, rows - few * product),
        cache=cache,
        far=far,
    )
    if not counted and not is_new:
        return found
    # What whole programs decided, by what an element that moves costs there and here; waiting for
    # memory is not counted, so a weight and what the cache does not hold wait as long as here.
    times = found.slice / usual.slice
    moved = {name: times * getattr(usual, name) for name in OF_WHOLE_PROGRAMS}
    return replace(found, **moved, weight=max(found.weight, usual.weight if counted else 0))


def rounded(held: costs.Costs) -> dict[str, Any]:
    """As it is kept: three significant figures."""

    def two(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.3g}")
        return [two(item) for item in value] if isinstance(value, tuple) else value

    return {name: two(value) for name, value in asdict(held).items()}


def asked_for(options: argparse.Namespace) -> costs.Costs:
    """The costs of a device, a core, or this machine."""
    if options.times is not None:
        said = json.loads(options.times.read_text())
        return fitted(Device(times=said["programs"]).seconds, said["machine"], counted=False)
    if options.core is not None:
        on_core = partial(seconds_on, options.core)
        return fitted(on_core, COUNTED.format(options.core), counted=True)
    kind, machine = options.kind or costs.cpu_kind(), cpu_name()
    if kind != costs.cpu_kind():
        machine += ", with features masked by tools/without_avx512.py"
    measure = partial(seconds_here, rounds=options.rounds)
    return fitted(measure, machine, counted=False, is_new=kind not in costs.kinds())


MEASURE = """#!/bin/sh
# Prints what `bench/costs.py --times` reads: on a device with an Arm core, Android or Linux.
cd "$(dirname "$0")" || exit 1
chmod +x lib/ld-linux-aarch64.so.1 runner
exec lib/ld-linux-aarch64.so.1 --library-path lib ./runner --time *.pte
"""


SYSTEM = ("ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1",
          "libdl.so.2", "libpthread.so.0")  # fmt: skip
"""What the runner needs of a Linux, which Android is not."""


def write_device(folder: Path) -> None:
    """Programs, the runner with every library that it loads, and what starts it."""
    if why := arm64.missing():
        raise SystemExit(f"there is no runner for Arm here: {why}")
    libraries = folder / "lib"
    libraries.mkdir(parents=True)
    device = Device(folder=folder)
    fitted(device.seconds, "", counted=False)
    shutil.copy(arm64.folder() / "runner", folder)
    for path in (arm64.folder() / "lib").glob("libexecutorch*.so"):
        shutil.copy(path, libraries)
    for name in SYSTEM:
        shutil.copy(arm64.folder() / "root" / "lib" / name, libraries)
    (folder / "measure.sh").write_text(MEASURE)
    print(f"{device.programs} programs are in {folder}; there: sh measure.sh > times.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="runs of each trial")
    parser.add_argument("--write", action="store_true", help="keep them in the package")
    parser.add_argument("--core", help="an Arm core, from instructions (make arm64)")
    parser.add_argument("--device", type=Path, help="write a folder that measures a device's core")
    parser.add_argument("--kind", help="of this CPU, if features of it are masked")
    parser.add_argument("--times", type=Path, help="what it printed there")
    options = parser.parse_args()
    prepare()
    set_threads(1)
    if options.device is not None:
        write_device(options.device)
        return
    if options.times is not None and options.core is None:
        parser.error("--times is of a core: --core cortex-a76")
    found = rounded(asked_for(options))
    here = options.kind or costs.cpu_kind()
    known = here if options.core is None else f"arm-{options.core}"
    before = rounded(costs.load(known)) if known in costs.kinds() else {}
    rows = [[name, str(before.get(name, "–")), str(value)] for name, value in found.items()]
    show(f"Costs of {known}, nanoseconds", ("", "kept", "measured now"), rows)
    if options.write:
        path = Path(costs.__file__).with_name(f"{known}.json")
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
