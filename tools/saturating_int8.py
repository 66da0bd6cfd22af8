"""Show which runtimes saturate int8 products on this CPU: a convolution whose exact sum is known.

    python tools/saturating_int8.py
    python tools/without_avx512.py --keep FOLDER --packages PEERS -- tools/saturating_int8.py

CPUs with AVX2 and without VNNI multiply unsigned by signed bytes and add pairs of products in 16
bits with saturation (`vpmaddubsw`): 255 · 127 · 2 is beyond 32 767. A convolution of ones over
ones, quantized to 8 bits, has the result 576 in exact arithmetic. XNNPACK's kernels are exact.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from _report import cpu_name, prepare
from peers import LOADERS, OPENVINO, ORT, Model


def main() -> None:
    """Print the least and the greatest element of each runtime's result over ones."""
    prepare()
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(64, 32, 3, padding=1, bias=False).eval()
    torch.nn.init.ones_(layer.weight)
    image = torch.rand(1, 64, 16, 16)
    image[:, :, 8:] = 1
    with tempfile.TemporaryDirectory() as folder:
        model = Model("ones", layer, (image,), "static", Path(folder))
        print(f"{cpu_name()}: 576 is exact")
        for name in (ORT, OPENVINO):
            try:
                run = LOADERS[name](model.file(name), (image,), 1)
                inner = torch.as_tensor(run())[0, :, 9:-1, 1:-1]
            except ImportError as problem:
                print(f"{name}: not run: {problem}")
                continue
            print(f"{name}: {float(inner.min()):.1f} to {float(inner.max()):.1f}")


if __name__ == "__main__":
    main()
