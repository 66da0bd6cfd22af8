"""Models of torchvision: every registered model except the largest, at small images."""

from collections.abc import Iterator
from typing import Any

import torch

from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.catalogue.weights import scaled
from stepwell.model_zoo.catalogue.wrapping import TensorFunction, tensors_in

MOST = 60_000_000
"""Parameters beyond which a model is a larger copy of another."""
KINDS = {
    "classification": "image classification",
    "segmentation": "segmentation",
    "detection": "detection",
    "video": "video classification",
    "optical_flow": "optical flow",
}


def entries() -> Iterator[Entry]:
    """Return every model by name, with its purpose."""
    models = imported("torchvision").models
    for name in models.list_models():
        if name.startswith("quantized_"):
            continue
        weights = models.get_model_weights(name)
        held = next(iter(weights)).meta["num_params"] if len(weights) else 0
        if held > MOST:
            continue
        parts = models.get_model_builder(name).__module__.split(".")
        kind = next((KINDS[part] for part in parts if part in KINDS), KINDS["classification"])
        yield Entry(
            f"torchvision/{name}",
            parts[-1],
            kind,
            lambda name=name, kind=kind: make(name, kind),
            size=4.0 + held / 5e6 + 20.0 * (kind in ("detection", "video classification")),
            distributions=("torchvision",),
            module="stepwell.model_zoo.catalogue.torchvision",
        )


@torch.no_grad()
def make(name: str, kind: str) -> Made:
    """Return a model with the smallest input that it accepts."""
    models = imported("torchvision").models
    torch.manual_seed(0)
    extra: dict[str, Any] = {}
    if kind in ("segmentation", "detection"):
        extra["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        extra["init_weights"] = False
    if name == "googlenet":
        extra["aux_logits"] = False
    module = models.get_model(name, weights=None, **extra).eval()
    if kind == "video classification":
        inputs: tuple[Any, ...] = (
            torch.randn(1, 3, 16, *((224,) * 2 if "mvit" in name else (64,) * 2)),
        )
    elif kind == "optical flow":
        inputs = (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))
    else:
        fixed = name.startswith(("vit", "maxvit"))
        pixels = 224 if fixed else 299 if name == "inception_v3" else 96
        inputs = (torch.randn(1, 3, pixels, pixels),)
    if kind == "detection":
        return Made(Detection(module), inputs)
    module = scaled(module, inputs)
    return Made(module if kind == KINDS["classification"] else TensorFunction(module), inputs)


class Detection(torch.nn.Module):
    """The network of a detector (backbone and heads), without the loops that select boxes."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.backbone = module.backbone
        self.head = module.rpn.head if hasattr(module, "rpn") else module.head

    def forward(self, image: torch.Tensor) -> Any:
        """Compute the tensors of the detector's heads."""
        features = self.backbone(image)
        levels = list(features.values()) if isinstance(features, dict) else [features]
        return tensors_in(self.head(levels))
