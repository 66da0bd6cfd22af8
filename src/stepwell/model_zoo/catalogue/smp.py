"""Models of segmentation-models-pytorch: every decoder with encoders of each kind."""

from collections.abc import Iterator

import torch

from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.catalogue.weights import scaled

ENCODERS = (
    "resnet18", "mobilenet_v2", "efficientnet-b0", "densenet121", "mobileone_s0", "vgg11_bn",
    "timm-regnetx_002", "mit_b0", "se_resnet50", "dpn68", "xception", "inceptionv4",
)  # fmt: skip
"""One of each family that the library has."""


def entries() -> Iterator[Entry]:
    """Yield a catalogue entry for every decoder with each encoder."""
    library = imported("segmentation_models_pytorch")
    for name in library.MODEL_ARCHITECTURES_MAPPING:
        for index, encoder in enumerate(ENCODERS):
            yield Entry(
                f"smp/{name}-{encoder}",
                name,
                "segmentation",
                lambda name=name, encoder=encoder: make(name, encoder),
                size=9.0 + index,
                distributions=("segmentation-models-pytorch", "timm", "torchvision"),
                module="stepwell.model_zoo.catalogue.smp",
            )


@torch.no_grad()
def make(name: str, encoder: str) -> Made:
    """Return a decoder with an encoder, for 3 classes."""
    library = imported("segmentation_models_pytorch")
    torch.manual_seed(0)
    module = library.create_model(name, encoder_name=encoder, encoder_weights=None, classes=3)
    image = torch.randn(1, 3, 96, 96)
    return Made(scaled(module.eval(), (image,)), (image,))
