"""Detectors: YOLOv5 (Jocher et al. 2020) with its head, and DETR's decoder (Carion et al. 2020)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

CLASSES, WIDTH, QUERIES = 5, 32, 6
ANCHORS = ((10, 13, 16, 30, 33, 23), (30, 61, 62, 45, 59, 119))


class Conv(nn.Sequential):
    """A convolution, a batch norm and SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(inplace=True),
        )


class Bottleneck(nn.Module):
    """A pointwise and a square convolution, with an optional residual."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels), Conv(channels, channels, 3)
        self.add = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return x + self.cv2(self.cv1(x)) if self.add else self.cv2(self.cv1(x))


class C3(nn.Module):
    """Half of the channels through bottlenecks; the other half bypasses them."""

    def __init__(self, inputs: int, outputs: int, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.cv1, self.cv2 = Conv(inputs, half), Conv(inputs, half)
        self.cv3 = Conv(2 * half, outputs)
        self.m = nn.Sequential(Bottleneck(half, shortcut))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class SPPF(nn.Module):
    """Three consecutive poolings, all of which are concatenated."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels // 2), Conv(channels * 2, channels)
        self.m = nn.MaxPool2d(kernel_size=5, stride=1, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.cv1(x)
        y = self.m(x)
        z = self.m(y)
        return self.cv2(torch.cat((x, y, z, self.m(z)), 1))


class Detect(nn.Module):
    """Boxes in pixels, and scores, for three anchors of each cell."""

    def __init__(self, channels: tuple[int, ...], strides: tuple[int, ...]) -> None:
        super().__init__()
        self.outputs, self.strides = CLASSES + 5, strides
        self.register_buffer("anchors", torch.tensor(ANCHORS).float().view(2, 3, 2))
        self.m = nn.ModuleList(nn.Conv2d(c, self.outputs * 3, 1) for c in channels)

    def forward(self, features: list[Tensor]) -> Tensor:
        found: list[Tensor] = []
        for index, layer in enumerate(self.m):
            x = layer(features[index])
            batch, _, height, width = x.shape
            x = x.view(batch, 3, self.outputs, height, width).permute(0, 1, 3, 4, 2).contiguous()
            rows, columns = torch.arange(height), torch.arange(width)
            grid_y, grid_x = torch.meshgrid(rows, columns, indexing="ij")
            grid = torch.stack((grid_x, grid_y), 2).expand(1, 3, height, width, 2) - 0.5
            anchors = self.anchors[index].view(1, 3, 1, 1, 2).expand(1, 3, height, width, 2)
            place, size, scores = x.sigmoid().split((2, 2, CLASSES + 1), 4)
            place = (place * 2 + grid) * self.strides[index]
            size = (size * 2) ** 2 * anchors
            x = torch.cat((place, size, scores), 4)
            found.append(x.view(batch, 3 * height * width, self.outputs))
        return torch.cat(found, 1)


class YOLOv5(nn.Module):
    """Two scales of an image ``[batch, 3, height, width]``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Conv(3, 8, 5, 2)
        self.down1, self.c1 = Conv(8, 16, 3, 2), C3(16, 16)
        self.down2, self.c2 = Conv(16, 32, 3, 2), C3(32, 32)
        self.sppf = SPPF(32)
        self.lateral, self.up = Conv(32, 16), nn.Upsample(None, 2, "nearest")
        self.c3 = C3(32, 16, False)
        self.down3, self.c4 = Conv(16, 16, 3, 2), C3(32, 32, False)
        self.detect = Detect((16, 32), (4, 8))

    def forward(self, image: Tensor) -> Tensor:
        near = self.c1(self.down1(self.stem(image)))
        far = self.lateral(self.sppf(self.c2(self.down2(near))))
        near = self.c3(torch.cat((self.up(far), near), 1))
        far = self.c4(torch.cat((self.down3(near), far), 1))
        return self.detect([near, far])


class DecoderLayer(nn.Module):
    """Post-norm; positions are added to the inputs of queries and keys, not of values."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, places: Tensor, queries: Tensor) -> Tensor:
        q = k = x + queries
        x = self.norm1(x + self.self_attn(q, k, x, need_weights=False)[0])
        y = self.cross_attn(x + queries, memory + places, memory, need_weights=False)[0]
        x = self.norm2(x + y)
        return self.norm3(x + self.linear2(F.relu(self.linear1(x))))


class DETR(nn.Module):
    """Features ``[batch, channels, height, width]`` to classes and boxes of each query."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.input_proj = nn.Conv2d(24, WIDTH, 1)
        self.rows = nn.Parameter(torch.empty(height, WIDTH // 2))
        self.columns = nn.Parameter(torch.empty(width, WIDTH // 2))
        self.queries = nn.Embedding(QUERIES, WIDTH)
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.classes = nn.Linear(WIDTH, CLASSES + 1)
        self.boxes = nn.Sequential(
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 4),
        )

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, height, width = features.shape
        memory = self.input_proj(features).flatten(2).permute(0, 2, 1)
        rows = self.rows[:height].unsqueeze(1).repeat(1, width, 1)
        columns = self.columns[:width].unsqueeze(0).repeat(height, 1, 1)
        places = torch.cat([columns, rows], dim=-1).flatten(0, 1).unsqueeze(0)
        queries = self.queries.weight.unsqueeze(0).repeat(batch, 1, 1)
        x = torch.zeros_like(queries)
        for layer in self.layers:
            x = layer(x, memory, places, queries)
        x = self.norm(x)
        return self.classes(x), self.boxes(x).sigmoid()


def yolov5() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An image of 64 x 96 pixels; 1152 boxes at a quarter of it, 288 at an eighth."""
    return randomize(YOLOv5()), (random_input(1, 3, 64, 96),)


def detr_decoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Six queries over features of 6 x 8."""
    return randomize(DETR(6, 8)), (random_input(1, 24, 6, 8),)
