"""The models of `bench/zoo.py`: a small one of each family, by its name there, and its pixels."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

MISSING = next((m for m in ("timm", "torchvision") if importlib.util.find_spec(m) is None), None)
"""A package that is not installed, if one is not."""

TORCHVISION = {
    "alexnet": 96,
    "deeplabv3_mobilenet_v3_large": 96,
    "googlenet": 96,
    "lraspp_mobilenet_v3_large": 96,
    "mnasnet0_5": 96,
    "shufflenet_v2_x0_5": 96,
    "squeezenet1_1": 96,
    "fcn_resnet50": 64,
}
TIMM = {
    "beit_base_patch16_224": 224,
    "botnet26t_256": 256,
    "eca_halonext26ts": 256,
    "lambda_resnet26t": 128,
    "gcresnet33ts": 96,
    "gernet_s": 96,
    "mobileone_s0": 96,
    "repvgg_a0": 96,
    "cait_xxs24_224": 224,
    "coat_lite_tiny": 224,
    "coat_tiny": 224,
    "convit_tiny": 224,
    "convmixer_768_32": 64,
    "convnextv2_atto": 96,
    "cpubone_nano": 96,
    "crossvit_9_240": 240,
    "csatv2": 256,
    "cs3darknet_s": 96,
    "cspresnet50": 96,
    "darknet53": 96,
    "cspnext_tiny": 96,
    "davit_tiny": 224,
    "densenet121": 96,
    "dla46_c": 96,
    "dpn48b": 96,
    "edgenext_xx_small": 256,
    "efficientformer_l1": 224,
    "efficientformerv2_s0": 224,
    "efficientvim_m1": 224,
    "efficientvit_b0": 96,
    "efficientvit_m0": 224,
    "eva02_tiny_patch14_224": 224,
    "fasternet_t0": 96,
    "fastvit_t8": 128,
    "fbnetv3_b": 96,
    "focalnet_tiny_srf": 96,
    "gcvit_xxtiny": 224,
    "ghostnet_050": 96,
    "ghostnetv2_100": 96,
    "gmlp_s16_224": 224,
    "hardcorenas_a": 96,
    "hgnetv2_b0": 96,
    "hiera_tiny_224": 224,
    "hrnet_w18_small": 96,
    "iformer_s": 224,
    "inception_next_atto": 96,
    "inception_resnet_v2": 96,
    "inception_v3": 96,
    "inception_v4": 96,
    "lcnet_050": 96,
    "lcnetv2_small": 96,
    "levit_128s": 224,
    "lowformer_b0": 96,
    "mambaout_femto": 96,
    "maxvit_nano_rw_256": 256,
    "coatnet_nano_rw_224": 224,
    "caformer_s18": 96,
    "poolformer_s12": 96,
    "mixnet_s": 96,
    "mobilenetv4_conv_small": 96,
    "mobilenetv4_hybrid_medium": 96,
    "mobilevitv2_050": 128,
    "mvitv2_tiny": 224,
    "nest_tiny": 224,
    "nextvit_small": 96,
    "nf_resnet50": 96,
    "dm_nfnet_f0": 96,
    "pit_ti_224": 224,
    "pvt_v2_b0": 96,
    "rdnet_tiny": 96,
    "regnetx_002": 96,
    "regnety_002": 96,
    "regnetz_b16": 96,
    "repghostnet_050": 96,
    "repvit_m0_9": 96,
    "res2net50_26w_4s": 96,
    "resmlp_12_224": 224,
    "resnest14d": 96,
    "resnetblur50": 96,
    "resnetv2_50": 96,
    "resnetv2_18": 96,
    "resnext50_32x4d": 96,
    "rexnet_100": 96,
    "selecsls42b": 96,
    "legacy_seresnet18": 96,
    "sequencer2d_s": 224,
    "shvit_s1": 224,
    "skresnet18": 96,
    "starnet_s050": 96,
    "swiftformer_xs": 224,
    "swinv2_tiny_window8_256": 256,
    "tf_efficientnetv2_b0": 96,
    "tiny_vit_5m_224": 224,
    "tinynet_e": 96,
    "tnt_s_patch16_224": 224,
    "tresnet_m": 96,
    "twins_pcpvt_small": 224,
    "twins_svt_small": 224,
    "vgg11_bn": 96,
    "vgg11": 96,
    "visformer_tiny": 224,
    "vit_relpos_small_patch16_224": 224,
    "vitamin_small_224": 224,
    "volo_d1_224": 224,
    "ese_vovnet19b_slim": 96,
    "legacy_xception": 96,
    "xception41": 96,
    "xcit_nano_12_p16_224": 224,
}
SIZES = {**TORCHVISION, **TIMM}
"""Pixels along either side of a model's image."""


def load(package: str) -> Any:
    """Import a package that imports torchvision.

    PyTorch's CPU build cannot load the operators of the torchvision on the package index, of which
    torchvision needs only the schemas to import.
    """
    try:
        return importlib.import_module(package)
    except RuntimeError:
        for name in ("nms", "qnms"):
            schema = "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor"
            OPERATORS.define(name + schema)
        return importlib.import_module(package)


OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


def create(name: str) -> nn.Module:
    """A model with random weights."""
    if name in TIMM:
        return load("timm").create_model(name, pretrained=False)
    models = load("torchvision").models
    without = {"weights_backbone": None} if name in SEGMENTATION else {}
    extra = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    return models.get_model(name, weights=None, **without, **extra)


SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
