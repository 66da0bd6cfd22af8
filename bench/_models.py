"""The models of `bench/xnnpack.py` and `bench/peers.py`, by name.

`gpt2_2layers:256` has a prompt of 256 tokens; `deit_tiny@static`, `@dynamic` and `@8da4w` are int8;
`experts:8x2x256x512:16` is a layer of 8 experts of which each of 16 tokens takes 2, 256 wide and
512 within.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from stepwell.ir.declared.numerics import Numerics
from stepwell.model_zoo.catalogue.vision import imported

EXAMPLES = {
    "deit_tiny": "deit",
    "convnext_atto": "convnext",
    "swin_tiny": "swin",
    "gpt2_2layers": "gpt2",
    "llama_block": "llama",
    "llama_4layers": "llama",
    "mixer_s32": "mixer",
    "mobilenet_v2": "mobilenet",
    "mobilenet_v3_small": "mobilenet",
    "mobilevit_xxs": "mobilevit",
    "efficientnet_b0": "efficientnet",
    "resnet18": "resnet",
    "resnet50": "resnet",
}
"""Each model and its file in examples/models."""
PROMPTS = (
    *(f"gpt2_2layers:{tokens}" for tokens in (64, 128, 256, 512)),
    *(f"llama_block:{tokens}" for tokens in (64, 128, 256, 512)),
)
QUANTIZED = (
    *("deit_tiny@static", "deit_tiny@dynamic", "mobilenet_v2@static", "resnet18@static"),
    "llama_block@8da4w",
)
UNTUNED = {
    name: file
    for file, names in {
        "t5": "t5_block t5",
        "bert": "bert",
        "decoders": "qwen3_block qwen3_block_of_any_length gemma2 gemma2_in_bfloat16 "
        "mixture_of_experts",
        "state_space": "mamba rwkv",
        "recurrent": "lstm gru lstm_both_ways lstm_64_steps",
        "whisper": "whisper_encoder whisper_decoder",
        "wav2vec2": "wav2vec2",
        "wavenet": "wavenet wavenet_of_any_length",
        "vocoders": "hifigan snake_vocoder",
        "conv_tasnet": "conv_tasnet",
        "clip": "clip clip_image",
        "diffusion": "diffusion_unet diffusion_unet_in_halves vae",
        "vision": "vit_with_registers segformer unet densenet super_resolution",
        "detection": "yolov5 detr_decoder",
        "pointnet": "pointnet pointnet_of_any_number",
        "tables_and_graphs": "tabnet ft_transformer graph_convolution graph_attention",
    }.items()
    for name in names.split()
}
"""Small models of examples/models that no rewrite was written for, and their files."""
GRAPHS: dict[str, Callable[[Any], nn.Module]] = {
    "graph_gcn": lambda g: g.GCNConv(32, 32),
    "graph_sage": lambda g: g.SAGEConv(32, 32),
    "graph_gin": lambda g: g.GINConv(nn.Linear(32, 32)),
    "graph_gat": lambda g: g.GATConv(32, 8, heads=4),
    "graph_transformer": lambda g: g.TransformerConv(32, 32),
    "graph_chebyshev": lambda g: g.ChebConv(32, 32, K=3),
    "graph_edges": lambda g: g.EdgeConv(nn.Linear(64, 32)),
}
"""Layers of PyTorch Geometric: two of each over one graph of 30 nodes and 100 edges."""
EXPERTS = tuple(
    f"experts:{layer}:{tokens}"
    for layer in ("8x2x256x512", "32x4x256x256", "64x6x256x256", "8x2x512x1024")
    for tokens in (1, 16, 128)
)
FINITE = {
    "pointnet": "its maxima over points and its log-softmax may lose a NaN",
    "pointnet_of_any_number": "its log-softmax may lose a NaN; its maxima stay outside in both",
    "graph_convolution": "degree ** -0.5 may be NaN for 0, and its log-softmax may lose a NaN",
    **dict.fromkeys(GRAPHS, "products with zeros make NaN of one infinity"),
}
"""Models that are one delegate with `numerics="finite"` only, and the reason."""
TORCHVISION = {
    64: "fcn_resnet50",
    96: """alexnet deeplabv3_mobilenet_v3_large googlenet lraspp_mobilenet_v3_large mnasnet0_5
        shufflenet_v2_x0_5 squeezenet1_1""",
}
TIMM = {
    64: "convmixer_768_32",
    96: """gcresnet33ts gernet_s mobileone_s0 repvgg_a0 convnextv2_atto cpubone_nano cs3darknet_s
        cspresnet50 darknet53 cspnext_tiny densenet121 dla46_c dpn48b efficientvit_b0 fasternet_t0
        fbnetv3_b focalnet_tiny_srf ghostnet_050 ghostnetv2_100 hardcorenas_a hgnetv2_b0
        hrnet_w18_small inception_next_atto inception_resnet_v2 inception_v3 inception_v4 lcnet_050
        lcnetv2_small lowformer_b0 mambaout_femto caformer_s18 poolformer_s12 mixnet_s
        mobilenetv4_conv_small mobilenetv4_hybrid_medium nextvit_small nf_resnet50 dm_nfnet_f0
        pvt_v2_b0 rdnet_tiny regnetx_002 regnety_002 regnetz_b16 repghostnet_050 repvit_m0_9
        res2net50_26w_4s resnest14d resnetblur50 resnetv2_50 resnetv2_18 resnext50_32x4d rexnet_100
        selecsls42b legacy_seresnet18 skresnet18 starnet_s050 tf_efficientnetv2_b0 tinynet_e
        tresnet_m vgg11_bn vgg11 ese_vovnet19b_slim legacy_xception xception41""",
    128: "lambda_resnet26t fastvit_t8 mobilevitv2_050",
    224: """beit_base_patch16_224 cait_xxs24_224 coat_lite_tiny coat_tiny convit_tiny davit_tiny
        efficientformer_l1 efficientformerv2_s0 efficientvim_m1 efficientvit_m0
        eva02_tiny_patch14_224 gcvit_xxtiny gmlp_s16_224 hiera_tiny_224 iformer_s levit_128s
        coatnet_nano_rw_224 mvitv2_tiny nest_tiny pit_ti_224 resmlp_12_224 sequencer2d_s shvit_s1
        swiftformer_xs tiny_vit_5m_224 tnt_s_patch16_224 twins_pcpvt_small twins_svt_small
        visformer_tiny vit_relpos_small_patch16_224 vitamin_small_224 volo_d1_224
        xcit_nano_12_p16_224""",
    240: "crossvit_9_240",
    256: """botnet26t_256 eca_halonext26ts csatv2 edgenext_xx_small maxvit_nano_rw_256
        swinv2_tiny_window8_256""",
}
OF_TORCHVISION = {name for names in TORCHVISION.values() for name in names.split()}
PIXELS = {
    name: size
    for table in (TORCHVISION, TIMM)
    for size, names in table.items()
    for name in names.split()
}
"""A small model of each family of torchvision and timm, and the pixels of its image's sides."""
KINDS: dict[str, tuple[str, ...]] = {
    "examples": (*EXAMPLES, *PROMPTS, *QUANTIZED),
    "zoo": tuple(PIXELS),
    "untuned": tuple(UNTUNED),
    "graphs": tuple(GRAPHS),
    "experts": EXPERTS,
}
"""Models that are measured together; their table is between comments of this name."""


@dataclass(frozen=True)
class Model:
    """A model to be measured: inputs, dynamic shapes, the form of its int8 ("" for none)."""

    module: nn.Module
    inputs: tuple[Any, ...]
    shapes: Any = None
    form: str = ""

    def exported(self) -> torch.export.ExportedProgram:
        """The exported program: quantized by PT2E or by torchao's 8da4w if there is a form."""
        from quantized import by_groups, quantize

        if not self.form:
            return torch.export.export(self.module, self.inputs, dynamic_shapes=self.shapes)
        if self.form == "8da4w":
            return by_groups(self.module, self.inputs)
        dynamic = self.form == "dynamic"
        return quantize(self.module, self.inputs, per_channel=True, dynamic=dynamic)


class OnGraph(nn.Module):
    """Two layers over the same edges."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.register_buffer("edges", torch.randint(0, 30, (2, 100)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, self.edges).relu()
        return x


class Experts(nn.Module):
    """A norm, and the sum of the experts that a softmax over all of them ranks first."""

    def __init__(self, experts: int, taken: int, width: int, inner: int) -> None:
        super().__init__()
        self.taken = taken
        self.norm = nn.RMSNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, 2 * inner, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, inner) * inner**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        scores, places = self.router(x).softmax(-1).topk(self.taken)
        scores = (scores / scores.sum(-1, keepdim=True)).reshape(-1)
        places = places.reshape(-1)
        rows = x.repeat_interleave(self.taken, 0).unsqueeze(-1)
        gate, up = (self.up[places] @ rows).squeeze(-1).chunk(2, -1)
        made = (self.down[places] @ (nn.functional.silu(gate) * up).unsqueeze(-1)).squeeze(-1)
        return (made * scores.unsqueeze(-1)).view(len(x), self.taken, -1).sum(1)


def name_of(called: str) -> str:
    """`gpt2_2layers` of `gpt2_2layers:256@8da4w`."""
    return called.partition("@")[0].partition(":")[0]


def numerics_of(called: str) -> Numerics:
    """The mode that a model is measured with."""
    return "finite" if called in FINITE else "torch"


@torch.no_grad()
def made(called: str) -> Model:
    """Make a model, with weights of a fixed seed."""
    plain, _, form = called.partition("@")
    name, _, more = plain.partition(":")
    torch.manual_seed(0)
    if name == "experts":
        sizes, _, tokens = more.partition(":")
        layer = Experts(*map(int, sizes.split("x")))
        return Model(layer.eval(), (torch.randn(int(tokens), layer.norm.normalized_shape[0]),))
    if name in GRAPHS:
        layers = imported("torch_geometric.nn")
        net = OnGraph(GRAPHS[name](layers), GRAPHS[name](layers))
        return Model(net.eval(), (torch.randn(30, 32),))
    if name in PIXELS:
        image = torch.randn(1, 3, PIXELS[name], PIXELS[name])
        return Model(randomized(of_the_zoo(name).eval(), image), (image,))
    function = getattr(importlib.import_module({**UNTUNED, **EXAMPLES}[name]), name)
    module, inputs, *shapes = function(int(more)) if more else function()
    return Model(module.eval(), tuple(inputs), *(shapes or [None]), form)


def of_the_zoo(name: str) -> nn.Module:
    """A model of timm or torchvision with random weights."""
    if name not in OF_TORCHVISION:
        return imported("timm").create_model(name, pretrained=False)
    segments = name.startswith(("deeplab", "lraspp", "fcn"))
    without = {"weights_backbone": None} if segments else {}
    more = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    return imported("torchvision").models.get_model(name, weights=None, **without, **more)


def randomized(module: nn.Module, image: Tensor) -> nn.Module:
    """The module as if it were trained: no constant parameters, batch norms of real statistics.

    Parameters that start as one number (scales of layers and norms, biases, tokens) get noise of
    0.1, so that a branch that begins as nothing counts. Means and variances are those of a batch
    of noise.
    """
    for parameter in module.parameters():
        if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    for norm in (m for m in module.modules() if isinstance(m, _BatchNorm)):
        norm.reset_running_stats()
        norm.momentum = None  # An average of all batches, of which there is one.
        norm.train()
    with contextlib.suppress(ValueError):  # One value a channel: then that norm keeps 0 and 1.
        module(torch.randn(8, *image.shape[1:]))
    return module.eval()
