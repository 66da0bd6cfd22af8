"""Lower detectors of six families, for square, rectangular and dynamic images.

    pip install --no-deps --target FOLDER ultralytics mmdet mmengine mmcv-lite addict yapf rich \
        termcolor terminaltables platformdirs
    python tools/detectors.py FOLDER [NAME …]

DETR, RT-DETR, D-FINE and YOLOS are transformers' classes, YOLO11n is that of ultralytics, and the
backbone and neck of RTMDet are mmdet's; weights are random. Modules that a package imports, but
that no model calls, are mocks. Each model runs in a process of its own.

A detector that selects the best k of its scores orders them by rounding where two are tied. Its
queries are therefore matched: each query of PyTorch in double precision with the nearest one found.
A query without a partner is recognized as a tie if its score is within `TIED` of the least selected
one; `ties` counts these and exchanged ones. Printed: delegates, operators outside, the error of
scores and boxes of matched queries as a share of the largest number, and that of eager PyTorch. The
status is the number of models that are wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from typing import Any

import torch
from _packages import make_importable, print_rows
from torch import Tensor, nn
from torch.utils import _pytree as pytree

TOLERANCE = 4
"""How many times as large as eager PyTorch's a right program's error may be."""
PARTNER, TIED = 0.01, 1e-4
"""The distance of partners, and of tied scores, as shares of the largest number."""
MOCKED = """PIL PIL.Image cv2 lap matplotlib matplotlib.collections matplotlib.patches
    matplotlib.pyplot mmcv.image mmcv.ops polars psutil pycocotools pycocotools.coco
    pycocotools.mask regex requests scipy scipy.ndimage shapely shapely.geometry torchvision
    torchvision.ops torchvision.transforms""".split()
PARTS = """mmcv mmdet mmdet.models mmdet.models.backbones mmdet.models.layers mmdet.models.necks
    mmdet.structures mmdet.utils""".split()
"""Packages whose modules are imported without `__init__`, which imports what is not installed."""


class Selected(nn.Module):
    """A detector of transformers: class scores and boxes of its queries, and encoder scores."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        found = self.model(pixel_values=image)
        selected = getattr(found, "enc_topk_logits", None)
        return (found.logits, found.pred_boxes, *([] if selected is None else [selected]))


class Dense(nn.Module):
    """The head of RTMDet: class scores and distances of each place at three scales."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()

        def stack(last: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for _ in range(2):
                layers += [nn.Conv2d(channels, channels, 3, padding=1, bias=False)]
                layers += [nn.BatchNorm2d(channels), nn.SiLU()]
            end = nn.Conv2d(channels, last, 1)
            nn.init.normal_(end.weight, std=0.01)  # As mmdet does: distances are exponentials.
            return nn.Sequential(*layers, end)

        self.scores, self.distances = stack(classes), stack(4)

    def forward(self, levels: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        scores = [self.scores(x).flatten(2).mT for x in levels]
        strides = (8 * 2**level for level in range(len(levels)))
        boxes = [
            (self.distances(x).exp() * stride).flatten(2).mT
            for x, stride in zip(levels, strides, strict=True)
        ]
        return torch.cat(scores, 1), torch.cat(boxes, 1)


def _hugging_face(name: str, **sizes: Any) -> nn.Module:
    transformers: Any = import_module("transformers")
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = getattr(transformers, f"{name}ForObjectDetection")(config)
    for key, parameter in model.named_parameters():
        if "score_head" in key and parameter.dim() > 1:  # New heads give all places one score.
            nn.init.normal_(parameter, std=0.3)
    return Selected(model)


def calibrate(model: nn.Module) -> None:
    """Give batch norms the statistics of an image, so that its places differ."""

    def measure(norm: Any, inputs: tuple[Tensor, ...]) -> None:
        axes = [axis for axis in range(inputs[0].dim()) if axis != 1]
        norm.running_mean.copy_(inputs[0].mean(axes))
        norm.running_var.copy_(inputs[0].var(axes))

    norms = [part for part in model.modules() if hasattr(part, "running_mean")]
    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    model(torch.randn(1, 3, 256, 256))
    for hook in hooks:
        hook.remove()


def detr() -> nn.Module:
    """Build DETR on a small ResNet."""
    resnet: Any = import_module("transformers").ResNetConfig
    body = resnet(
        embedding_size=16,
        hidden_sizes=[16, 32, 64, 128],
        depths=[1, 1, 1, 1],
        out_features=["stage4"],
    )
    backbone = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    depth = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "num_queries": 20}
    wide = {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return _hugging_face("Detr", backbone_config=body, **backbone, **depth, **wide, **heads)


def rt_detr() -> nn.Module:
    """Build RT-DETR with its ResNet-50."""
    return _hugging_face("RTDetr", decoder_layers=2)


def rt_detr_v2() -> nn.Module:
    """Build the second version of RT-DETR."""
    return _hugging_face("RTDetrV2", decoder_layers=2)


def d_fine() -> nn.Module:
    """Build D-FINE."""
    return _hugging_face("DFine", decoder_layers=2)


def yolos() -> nn.Module:
    """Build a small YOLOS."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return _hugging_face("Yolos", intermediate_size=128, image_size=[128, 192], **sizes)


def yolo() -> nn.Module:
    """Build YOLO11n with its anchors, as ultralytics exports it."""
    made = import_module("ultralytics.nn.tasks").DetectionModel("yolo11n.yaml", verbose=False)
    for part in made.modules():
        if hasattr(part, "export"):
            part.export, part.format, part.dynamic = True, "torchscript", True
    return made


def rtmdet() -> nn.Module:
    """Build RTMDet-tiny."""
    typing: Any = sys.modules["mmdet.utils"]
    typing.ConfigType = typing.OptConfigType = typing.OptMultiConfig = typing.MultiConfig = Any
    layers: Any = sys.modules["mmdet.models.layers"]
    layers.CSPLayer = import_module("mmdet.models.layers.csp_layer").CSPLayer
    body = import_module("mmdet.models.backbones.cspnext").CSPNeXt
    neck = import_module("mmdet.models.necks.cspnext_pafpn").CSPNeXtPAFPN
    plain: Any = {"norm_cfg": {"type": "BN"}, "act_cfg": {"type": "SiLU"}}
    wide = {"in_channels": [96, 192, 384], "out_channels": 96, "num_csp_blocks": 1}
    return nn.Sequential(
        body(deepen_factor=0.167, widen_factor=0.375, **plain),
        neck(expand_ratio=0.5, **wide, **plain),
        Dense(96, 80),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    made.__name__: made for made in (detr, rt_detr, rt_detr_v2, d_fine, yolos, yolo, rtmdet)
}
DYNAMIC = ("yolo", "rtmdet", "detr")
"""Models whose source takes images of any size that 32 divides."""


def compared(found: list[Tensor], wanted: list[Tensor]) -> tuple[float, int]:
    """Return the error of matched queries, infinite if one has no partner, and the tied ones."""
    found, wanted = [x.double() for x in found], [x.double() for x in wanted]
    if len(wanted) < 3:
        pairs = zip(found, wanted, strict=True)
        return max(float((one - two).abs().max() / two.abs().max()) for one, two in pairs), 0
    scale = [x.abs().amax((0, 1), keepdim=True) for x in wanted]
    rows = [
        torch.cat([x / s for x, s in zip(of, scale, strict=True)], -1)[0] for of in (wanted, found)
    ]
    apart = (rows[0][:, None] - rows[1][None]).abs().amax(-1)
    nearest, place = apart.min(1)
    matched = nearest <= PARTNER
    scores = wanted[2][0].amax(-1)
    is_tie = scores - scores.min() <= TIED * scores.abs().max()
    is_once = len(set(place[matched].tolist())) == int(matched.sum())
    if not (is_once and bool((matched | is_tie).all()) and float(matched.double().mean()) > 0.9):
        return float("inf"), 0
    exchanged = (place != torch.arange(len(place)))[matched]
    return float(nearest[matched].max()), int((~matched).sum() + exchanged.sum())


def row(folder: str, name: str) -> int:
    """Print the rows of a model; return how many are wrong."""
    import stepwell

    if name in ("yolo", "rtmdet"):
        make_importable(folder, PARTS, MOCKED)
    wrong = 0
    for kind in ("256 × 256", "192 × 320", *(["dynamic"] if name in DYNAMIC else [])):
        torch.manual_seed(0)
        model = MODELS[name]().eval()
        sizes = [(256, 256)] if kind == "256 × 256" else [(192, 320)]
        image = torch.randn(1, 3, *sizes[0])
        shapes: Any = None
        if kind == "dynamic":
            sizes += [(64, 64), (320, 96)]
            height, width = (torch.export.Dim(of, min=2, max=10) for of in ("height", "width"))
            shapes = ({2: 32 * height, 3: 32 * width},)
        with torch.no_grad():
            calibrate(model)
            kept, exact = deepcopy(model), deepcopy(model).double()
            exported = torch.export.export(model, (image,), dynamic_shapes=shapes, strict=False)
            lowered = stepwell.lower(exported, "xnnpack")
            file = lowered.to_pte()
            worst, eager, ties = 0.0, 0.0, 0
            for size in sizes:
                image = torch.randn(1, 3, *size)
                wanted = pytree.tree_leaves(exact(image.double()))
                error, tied = compared(list(stepwell.run_pte(file, [image])), wanted)
                own, _ = compared(pytree.tree_leaves(kept(image)), wanted)
                worst, eager, ties = max(worst, error), max(eager, own), ties + tied
        outside = lowered.report.outside.total()
        is_wrong = not (worst <= max(TOLERANCE * eager, 1e-6) and worst < float("inf"))
        verdict = "WRONG" if is_wrong else "right"
        told = f"{lowered.report.delegates} | {outside} | {worst:.0e} | {eager:.0e} | {ties}"
        print(f"| {name} | {kind} | {told} | {verdict} |", flush=True)
        wrong += is_wrong
    return wrong


def main() -> int:
    """Print the table; return the number of wrong rows."""
    folder, *names = sys.argv[1:]
    if names[:1] == ["--row"]:
        return row(folder, names[1])
    print(
        "| model | images | delegates | outside | error | eager's | ties | |\n|" + "---|" * 8,
        flush=True,
    )
    return print_rows(__file__, folder, names or MODELS)


if __name__ == "__main__":
    sys.exit(main())
