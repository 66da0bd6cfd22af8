"""Vision: a ViT with registers and rotary positions, SegFormer, U-Net, DenseNet,
super-resolution.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

WIDTH, HEADS, PATCH, REGISTERS, CLASSES = 32, 4, 8, 4, 10


class Attention(nn.Module):
    """Rotary positions in two directions on patches; class token and registers have none."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = [t.transpose(1, 2) for t in torch.unbind(qkv, 2)]

        def turn(x: Tensor) -> Tensor:
            first, rest = x[:, :, : 1 + REGISTERS], x[:, :, 1 + REGISTERS :]
            left, right = rest.chunk(2, dim=-1)
            return torch.cat((first, rest * cos + torch.cat((-right, left), dim=-1) * sin), dim=2)

        y = F.scaled_dot_product_attention(turn(q), turn(k), v)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, WIDTH))


class ViTBlock(nn.Module):
    """Pre-norm, each branch scaled by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.gamma1, self.gamma2 = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        x = x + self.gamma1 * self.attn(self.norm1(x), sin, cos)
        return x + self.gamma2 * self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """As DINOv3 (Siméoni et al. 2025): the class token and the mean patch, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.registers = nn.Parameter(torch.zeros(1, REGISTERS, WIDTH))
        self.blocks = nn.ModuleList([ViTBlock() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(2 * WIDTH, CLASSES)

    def turns(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Sines and cosines ``[patches, WIDTH / HEADS]`` of both coordinates."""
        size = WIDTH // HEADS
        rows = (torch.arange(height) + 0.5) / height * 2 - 1
        columns = (torch.arange(width) + 0.5) / width * 2 - 1
        places = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1)
        periods = 100.0 ** (2 * torch.arange(size // 4) / (size // 2))
        angles = (2 * torch.pi * places[:, :, None] / periods).flatten(1, 2).tile(2)
        return torch.sin(angles), torch.cos(angles)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch_embed(image)
        batch, _, height, width = x.shape
        x = x.flatten(2).transpose(1, 2)
        first = self.cls_token.expand(batch, -1, -1)
        x = torch.cat((first, self.registers.expand(batch, -1, -1), x), dim=1)
        sin, cos = self.turns(height, width)
        for block in self.blocks:
            x = block(x, sin, cos)
        x = self.norm(x)
        return self.head(torch.cat((x[:, 0], x[:, 1 + REGISTERS :].mean(dim=1)), dim=-1))


class MixBlock(nn.Module):
    """SegFormer's block: keys and values from a smaller image, and a depthwise layer in the MLP."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.sr = nn.Conv2d(width, width, reduction, reduction)
        self.proj = nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dwconv = nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width)

    def attention(self, x: Tensor, height: int, width: int) -> Tensor:
        """Two heads over ``[batch, height * width, channels]``."""
        batch, tokens, channels = x.shape
        q = self.q(x).reshape(batch, tokens, 2, channels // 2).permute(0, 2, 1, 3)
        image = x.permute(0, 2, 1).reshape(batch, channels, height, width)
        small = self.norm(self.sr(image).reshape(batch, channels, -1).permute(0, 2, 1))
        kv = self.kv(small).reshape(batch, -1, 2, 2, channels // 2).permute(2, 0, 3, 1, 4)
        k, v = kv[0], kv[1]
        weights = ((q @ k.transpose(-2, -1)) * (channels // 2) ** -0.5).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, channels))

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        x = x + self.attention(self.norm1(x), height, width)
        y = self.fc1(self.norm2(x))
        batch, _, channels = y.shape
        y = self.dwconv(y.transpose(1, 2).view(batch, channels, height, width))
        return x + self.fc2(F.gelu(y.flatten(2).transpose(1, 2)))


class SegFormer(nn.Module):
    """Two stages (Xie et al. 2021) and the decoder of linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed1 = nn.Conv2d(3, 16, 7, 4, 3)
        self.embed2 = nn.Conv2d(16, 32, 3, 2, 1)
        self.block1, self.block2 = MixBlock(16, 4), MixBlock(32, 2)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(32)
        self.linear1, self.linear2 = nn.Linear(16, WIDTH), nn.Linear(32, WIDTH)
        self.fuse = nn.Conv2d(2 * WIDTH, WIDTH, 1, bias=False)
        self.bn, self.dropout = nn.BatchNorm2d(WIDTH), nn.Dropout2d(0.1)
        self.classifier = nn.Conv2d(WIDTH, CLASSES, 1)

    def stage(self, x: Tensor, block: nn.Module, norm: nn.Module) -> Tensor:
        """A block over pixels as tokens, back as an image."""
        batch, channels, height, width = x.shape
        x = norm(block(x.flatten(2).transpose(1, 2), height, width))
        return x.reshape(batch, height, width, channels).permute(0, 3, 1, 2).contiguous()

    def forward(self, image: Tensor) -> Tensor:
        near = self.stage(self.embed1(image), self.block1, self.norm1)
        far = self.stage(self.embed2(near), self.block2, self.norm2)
        size = near.shape[2:]

        def unify(x: Tensor, layer: nn.Module) -> Tensor:
            y = layer(x.flatten(2).transpose(1, 2)).permute(0, 2, 1)
            y = y.reshape(x.shape[0], -1, x.shape[2], x.shape[3])
            return F.interpolate(y, size=size, mode="bilinear", align_corners=False)

        x = self.fuse(torch.cat([unify(far, self.linear2), unify(near, self.linear1)], dim=1))
        return self.classifier(self.dropout(F.relu(self.bn(x))))


class DoubleConv(nn.Sequential):
    """A convolution, a batch norm and a rectifier, twice."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()),
        )


class UNet(nn.Module):
    """As Ronneberger et al. (2015), two levels deep; odd sizes are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = (
            DoubleConv(3, 8),
            DoubleConv(8, 16),
            DoubleConv(16, 32),
        )
        self.pool = nn.MaxPool2d(2)
        self.grow2, self.grow1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.up2, self.up1 = DoubleConv(32, 16), DoubleConv(16, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        near = self.down1(image)
        far = self.down2(self.pool(near))
        x = self.middle(self.pool(far))
        for grow, block, skip in ((self.grow2, self.up2, far), (self.grow1, self.up1, near)):
            x = grow(x)
            rows, columns = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            pads = [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2]
            x = block(torch.cat([skip, F.pad(x, pads)], dim=1))
        return self.out(x)


class DenseLayer(nn.Module):
    """All features so far through two convolutions after norms."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 32, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(32), nn.Conv2d(32, 8, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(F.relu(self.norm2(x)))


class DenseNet(nn.Module):
    """A block of four layers and a transition (Huang et al. 2017), with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.layers = nn.ModuleList([DenseLayer(16 + 8 * index) for index in range(4)])
        self.norm, self.conv = nn.BatchNorm2d(48), nn.Conv2d(48, 24, 1, bias=False)
        self.pool, self.classifier = nn.AvgPool2d(2, 2), nn.Linear(24, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        features = [self.stem(image)]
        for layer in self.layers:
            features.append(layer(features))
        x = F.relu(self.pool(self.conv(F.relu(self.norm(torch.cat(features, 1))))))
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class ChannelAttention(nn.Module):
    """A residual block whose channels are weighted by their means (Zhang et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1)
        )
        self.attention = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.ReLU(True)),
            *(nn.Conv2d(4, 16, 1), nn.Sigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return x + y * self.attention(y)


class SuperResolution(nn.Module):
    """Upsampling by two with pixel shuffle, added to the resized image."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect")
        self.body = nn.Sequential(ChannelAttention(), ChannelAttention())
        self.tail = nn.Sequential(
            nn.Conv2d(16, 64, 3, padding=1),
            nn.PixelShuffle(2),
            nn.PReLU(16),
            nn.Conv2d(16, 3, 3, 1, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        x = self.head(image)
        usual = F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.clamp(self.tail(self.body(x) + x) + usual, -4, 4)


def vit_with_registers() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Patches of 4 x 5 after a class token and four registers."""
    return randomize(ViT()), (random_input(1, 3, 32, 40),)


def segformer() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An image of 64 x 64."""
    return randomize(SegFormer()), (random_input(1, 3, 64, 64),)


def unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An image of 38 x 46, odd at half its size."""
    return randomize(UNet()), (random_input(1, 3, 38, 46),)


def densenet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An image of 24 x 24."""
    return randomize(DenseNet()), (random_input(1, 3, 24, 24),)


def super_resolution() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """24 x 24 to 48 x 48."""
    return randomize(SuperResolution()), (random_input(1, 3, 24, 24),)
