"""MX models on the specification's reference model: elements that the interpreter has otherwise.

    python bench/mx_models.py [model ...]

Eight models in six payloads and both forms, every product of theirs in MX (linear layers,
attention, convolutions that are not depthwise): 92 cases, for CONV2D_BLOCK_SCALED has no mxint8.
Each case is lowered, run on the reference model of tosa-tools and in the interpreter, and the
elements whose bits differ are counted, with inputs of a normal distribution (seed 0).
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

# The folder of this script holds a `tosa.py`, which hides the package of that name.
HERE = Path(__file__).parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != HERE]
sys.path.insert(0, str(HERE.parent / "examples" / "models"))

PAYLOADS = ("fp8e4m3", "fp8e5m2", "fp6e2m3", "fp6e3m2", "fp4e2m1", "mxint8")
FORMS = ("types", "operators")
Maker = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


def grouped() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Convolutions with groups, strides, uneven kernels and padding."""
    layers = nn.Sequential(
        nn.Conv2d(40, 32, (3, 2), (1, 2), 1, groups=2), nn.ReLU(), nn.Conv2d(32, 8, 1), nn.GELU()
    )
    return layers, (torch.randn(2, 40, 9, 8),)


def small_vit() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A vision transformer of two blocks; its patches are a convolution."""
    from deit import VisionTransformer

    model = VisionTransformer(64, 2, 2, size=32, patch=8, classes=10)
    for parameter in (model.cls_token, model.pos_embed):
        nn.init.normal_(parameter, std=0.02)
    return model, (torch.randn(1, 3, 32, 32),)


def of_examples(place: str) -> Maker:
    """A model of examples/models, as `file:name`."""
    file, _, name = place.partition(":")
    return lambda: getattr(importlib.import_module(file), name)()


MODELS: dict[str, tuple[Maker, bool]] = {
    "mlp": (of_examples("tiny:mlp"), False),
    "mlp_autoencoder": (of_examples("tiny:mlp_autoencoder"), False),
    "transformer_encoder": (of_examples("transformer:transformer_encoder_2layers"), False),
    "llama_block": (of_examples("llama:llama_block"), False),
    "small_vit": (small_vit, True),
    "resnet8": (of_examples("resnet:resnet8"), True),
    "ds_cnn": (of_examples("tiny:ds_cnn"), True),
    "grouped": (grouped, True),
}
"""Maker of each model, and whether it has convolutions in MX."""


def differing(make: Maker, payload: str, form: str) -> tuple[int, int, int]:
    """Elements that differ, elements of the results, products in MX."""
    import stepwell
    from stepwell.dialects.tosa.targets import MX_EXTENSIONS

    torch.manual_seed(0)
    model, inputs = make()
    exported = torch.export.export(model.eval(), inputs)
    program: Any = stepwell.to_mxfp(exported, payload, convolutions=True, attention=True, form=form)
    types = f"tosa-1.1+fp+mx_common+{MX_EXTENSIONS[payload]}"
    target = types if form == "types" else "tosa-1.1+fp+mxfp+mxfp_conv"
    lowered = stepwell.lower(program, target)
    scaled = ("matmul_t", "conv2d", "matmul_t_block_scaled", "conv2d_block_scaled")
    products = sum(op.name.removeprefix("tosa.") in scaled for op in lowered.program.module.walk())
    pairs = list(zip(lowered.run(*inputs), lowered.program.run(*inputs), strict=True))
    off = sum(int((a.view(torch.int32) != b.view(torch.int32)).sum()) for a, b in pairs)
    return off, sum(a.numel() for a, _ in pairs), products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    torch.set_num_threads(1)
    cases = wrong = 0
    for name in parser.parse_args().models:
        make, has_convolutions = MODELS[name]
        for payload in PAYLOADS:
            for form in FORMS:
                if has_convolutions and (payload, form) == ("mxint8", "operators"):
                    continue
                off, elements, products = differing(make, payload, form)
                cases, wrong = cases + 1, wrong + (off > 0)
                said = f"{off} of {elements} elements off, {products} products"
                print(f"{name:20} {payload:8} {form:10} {said}", flush=True)
    print(f"{wrong} of {cases} cases have an element off the reference model")


if __name__ == "__main__":
    main()
