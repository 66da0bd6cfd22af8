"""PyTorch on CPU (x86, AVX-512)."""

import torch
from torch.nn import functional as F


def byte_image_resized_to_one_column() -> None:
    """A bilinear resize of a three-channel image of bytes to one column ends at an assertion."""
    torch.manual_seed(0)
    image = torch.randint(0, 256, (1, 3, 37, 40), dtype=torch.uint8)
    for height in range(1, 21):
        F.interpolate(image, (height, 1), mode="bilinear")


def gelu_of_infinity() -> None:
    """`gelu(inf)` is inf for one element and NaN for sixteen: vectors do otherwise."""
    one = F.gelu(torch.tensor([float("inf")]))
    many = F.gelu(torch.full((16,), float("inf")))
    assert torch.equal(one, many[:1]), f"{one.tolist()} and {many[:2].tolist()}"
