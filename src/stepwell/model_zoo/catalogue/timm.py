"""Models of timm: the smallest model of each size series of each architecture, at small images."""

import re
from collections.abc import Iterator

import torch

from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.catalogue.weights import scaled

SIZES = (
    "atto femto pico nano xxsmall xxs xx xxt xs xsmall xt t ti tiny wee pwee dwee mini "
    "s small little m medium betwixt mediumd b base l large xl xlarge xxl xxlarge "
    "h huge so150m so150m2 so400m g giant gigantic giantopt e enormous"
).split()
"""Names of sizes, the smallest first."""
IMAGE = 96
"""Pixels along a side for networks that take any image; the others have a size of their own."""
LARGE = (
    "giant gigantic huge enormous so400m _1b_ _2b _3b_ 7b intern300m big large efficientnet_l2 "
    "v2_xl"
).split()
"""Parts of the names of models that are too large for a sweep on a laptop."""


def entries() -> Iterator[Entry]:
    """Yield one model of each series; names that differ only in sizes are one series."""
    timm = imported("timm")
    lines: dict[tuple[str, str], list[str]] = {}
    for name in timm.list_models():
        family = timm.models.model_entrypoint(name).__module__.rpartition(".")[2]
        lines.setdefault((family, line_of(name)), []).append(name)
    for (family, _), names in lines.items():
        smallest = min(names, key=size_of)
        large = any(part in smallest for part in LARGE)
        yield Entry(
            f"timm/{smallest}",
            family,
            "image classification",
            lambda name=smallest: make(name),
            size=(40.0 if large else 5.0) + sum(size_of(smallest)[:1]) / 10,
            distributions=("timm", "torchvision"),
            module="stepwell.model_zoo.catalogue.timm",
        )


def line_of(name: str) -> str:
    """Remove size words and numbers from a name."""
    parts = [part for part in name.split("_") if part not in SIZES]
    return re.sub(r"\d+", "#", "_".join(parts))


def size_of(name: str) -> tuple[int, list[int], int]:
    """Return the sort key within a series: the size word, then numbers."""
    words = [SIZES.index(part) for part in name.split("_") if part in SIZES]
    return (words or [0])[0], [int(number) for number in re.findall(r"\d+", name)], len(name)


@torch.no_grad()
def make(name: str) -> Made:
    """Create a model with the smallest tried image that it accepts."""
    timm = imported("timm")
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False).eval()
    own = module.pretrained_cfg.get("input_size", (3, 224, 224))
    fixed = module.pretrained_cfg.get("fixed_input_size", False)
    for pixels in (own[-1],) if fixed else (IMAGE, 128, own[-1]):
        image = torch.randn(1, own[0], pixels, pixels)
        try:
            module(image)
        except (RuntimeError, ValueError, AssertionError):
            if pixels == own[-1]:
                raise
            continue
        return Made(scaled(module, (image,)), (image,))
    raise AssertionError(f"{name} accepts an image of no tried size")
