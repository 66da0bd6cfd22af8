"""Models of diffusers: denoisers, autoencoders and control networks, with few channels each."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.catalogue.weights import scaled
from stepwell.model_zoo.catalogue.wrapping import TensorFunction

WIDTHS = {"block_out_channels": (16, 32), "norm_num_groups": 8}
DOWN, UP = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
CROSS_DOWN, CROSS_UP = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
TRANSFORMER = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1}
CONDITION = {**WIDTHS, "down_block_types": CROSS_DOWN, "cross_attention_dim": 16,
             "attention_head_dim": 8, "layers_per_block": 1}  # fmt: skip


def image(channels: int = 4, side: int = 16) -> Callable[[], torch.Tensor]:
    """Return a function that draws an input that resembles an image."""
    return lambda: torch.randn(1, channels, side, side)


def video(channels: int = 4, frames: int = 2, side: int = 16) -> Callable[[], torch.Tensor]:
    """Return a function that draws an input that resembles a video."""
    return lambda: torch.randn(1, channels, frames, side, side)


def tokens(length: int = 6, width: int = 16) -> Callable[[], torch.Tensor]:
    """Return a function that draws an input that resembles an encoded text."""
    return lambda: torch.randn(1, length, width)


def vector(width: int) -> Callable[[], torch.Tensor]:
    """Return a function that draws a random vector of this width."""
    return lambda: torch.randn(1, width)


def step() -> torch.Tensor:
    """Return the number of a denoising step, an input of denoisers."""
    return torch.tensor([3])


HOLDS = {"timestep": (0, 999), "class_labels": (0, 9), "input_ids": (0, 31)}
"""Ranges of integer inputs, by name."""
Inputs = dict[str, Callable[[], Any]]
MODELS: dict[str, tuple[str, dict[str, Any], Inputs]] = {
    "unet_2d": (
        "UNet2DModel",
        {**WIDTHS, "down_block_types": DOWN, "up_block_types": UP, "layers_per_block": 1,
         "attention_head_dim": 8},
        {"sample": image(3, 32), "timestep": step},
    ),
    "unet_2d_resnet": (
        "UNet2DModel",
        {**WIDTHS, "down_block_types": ("ResnetDownsampleBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "ResnetUpsampleBlock2D"), "layers_per_block": 1,
         "attention_head_dim": 8, "downsample_type": "resnet", "upsample_type": "resnet"},
        {"sample": image(3, 32), "timestep": step},
    ),
    "unet_condition": (
        "UNet2DConditionModel",
        {**CONDITION, "up_block_types": CROSS_UP},
        {"sample": image(), "timestep": step, "encoder_hidden_states": tokens()},
    ),
    "unet_condition_linear": (
        "UNet2DConditionModel",
        {**CONDITION, "up_block_types": CROSS_UP, "use_linear_projection": True,
         "transformer_layers_per_block": 2},
        {"sample": image(), "timestep": step, "encoder_hidden_states": tokens()},
    ),
    "unet_3d": (
        "UNet3DConditionModel",
        {**WIDTHS, "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
         "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"), "cross_attention_dim": 16,
         "attention_head_dim": 8, "layers_per_block": 1},
        {"sample": video(), "timestep": step, "encoder_hidden_states": tokens()},
    ),
    "unet_1d": (
        "UNet1DModel",
        {"block_out_channels": (32, 64), "in_channels": 14, "out_channels": 14,
         "extra_in_channels": 0, "time_embedding_type": "positional", "freq_shift": 1.0,
         "flip_sin_to_cos": False, "use_timestep_embedding": True, "layers_per_block": 1,
         "down_block_types": ("DownResnetBlock1D", "DownResnetBlock1D"),
         "mid_block_type": "MidResTemporalBlock1D", "up_block_types": ("UpResnetBlock1D",),
         "out_block_type": "OutConv1DBlock", "act_fn": "swish"},
        {"sample": lambda: torch.randn(1, 14, 16), "timestep": step},
    ),
    "controlnet": (
        "ControlNetModel",
        {**CONDITION, "conditioning_embedding_out_channels": (16, 32)},
        {"sample": image(), "timestep": step, "encoder_hidden_states": tokens(),
         "controlnet_cond": image(3, 32)},
    ),
    "autoencoder_kl": (
        "AutoencoderKL",
        {**WIDTHS, "down_block_types": ("DownEncoderBlock2D",) * 2, "latent_channels": 4,
         "up_block_types": ("UpDecoderBlock2D",) * 2},
        {"sample": image(3, 32)},
    ),
    "autoencoder_tiny": (
        "AutoencoderTiny",
        {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16),
         "num_encoder_blocks": (1, 2), "num_decoder_blocks": (2, 1)},
        {"sample": image(3, 32)},
    ),
    "autoencoder_asymmetric": (
        "AsymmetricAutoencoderKL",
        {"down_block_types": ("DownEncoderBlock2D",) * 2, "down_block_out_channels": (16, 32),
         "up_block_types": ("UpDecoderBlock2D",) * 2, "up_block_out_channels": (16, 32),
         "norm_num_groups": 8},
        {"sample": image(3, 32)},
    ),
    "autoencoder_dc": (
        "AutoencoderDC",
        {"attention_head_dim": 8, "latent_channels": 4,
         "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
         "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
         "encoder_block_out_channels": (8, 16), "decoder_block_out_channels": (8, 16),
         "encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1),
         "encoder_qkv_multiscales": ((), (5,)), "decoder_qkv_multiscales": ((), (5,)),
         "downsample_block_type": "Conv", "upsample_block_type": "interpolate"},
        {"sample": image(3, 32)},
    ),
    "vq_model": (
        "VQModel",
        {**WIDTHS, "down_block_types": ("DownEncoderBlock2D",) * 2, "latent_channels": 3,
         "up_block_types": ("UpDecoderBlock2D",) * 2, "num_vq_embeddings": 32},
        {"sample": image(3, 32)},
    ),
    "transformer_2d": (
        "Transformer2DModel",
        {**TRANSFORMER, "in_channels": 16, "norm_num_groups": 8, "cross_attention_dim": 16},
        {"hidden_states": image(16), "encoder_hidden_states": tokens()},
    ),
    "dit": (
        "DiTTransformer2DModel",
        {**TRANSFORMER, "in_channels": 4, "out_channels": 8, "sample_size": 16,
         "num_embeds_ada_norm": 10, "norm_num_groups": 8},
        {"hidden_states": image(), "timestep": step, "class_labels": lambda: torch.tensor([2])},
    ),
    "pixart": (
        "PixArtTransformer2DModel",
        {**TRANSFORMER, "in_channels": 4, "out_channels": 8, "sample_size": 16,
         "cross_attention_dim": 16, "caption_channels": 16, "num_embeds_ada_norm": 10,
         "use_additional_conditions": False},
        {"hidden_states": image(), "encoder_hidden_states": tokens(), "timestep": step},
    ),
    "sd3": (
        "SD3Transformer2DModel",
        {**TRANSFORMER, "sample_size": 16, "patch_size": 2, "in_channels": 4, "out_channels": 4,
         "joint_attention_dim": 16, "caption_projection_dim": 16, "pooled_projection_dim": 16,
         "num_layers": 2},
        {"hidden_states": image(), "encoder_hidden_states": tokens(),
         "pooled_projections": vector(16), "timestep": step},
    ),
    "flux": (
        "FluxTransformer2DModel",
        {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1,
         "num_single_layers": 1, "in_channels": 4, "joint_attention_dim": 16,
         "pooled_projection_dim": 16, "axes_dims_rope": (4, 4, 8)},
        {"hidden_states": tokens(16, 4), "encoder_hidden_states": tokens(),
         "pooled_projections": vector(16), "timestep": lambda: torch.tensor([0.5]),
         "img_ids": lambda: torch.randn(16, 3), "txt_ids": lambda: torch.zeros(6, 3)},
    ),
    "sana": (
        "SanaTransformer2DModel",
        {**TRANSFORMER, "in_channels": 4, "out_channels": 4, "num_cross_attention_heads": 2,
         "cross_attention_head_dim": 8, "cross_attention_dim": 16, "caption_channels": 16,
         "sample_size": 16, "patch_size": 1},
        {"hidden_states": image(), "encoder_hidden_states": tokens(), "timestep": step},
    ),
    "prior": (
        "PriorTransformer",
        {**TRANSFORMER, "embedding_dim": 16, "num_embeddings": 6, "additional_embeddings": 4},
        {"hidden_states": vector(16), "timestep": step, "proj_embedding": vector(16),
         "encoder_hidden_states": tokens()},
    ),
    "wan": (
        "WanTransformer3DModel",
        {**TRANSFORMER, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4,
         "text_dim": 16, "freq_dim": 32, "ffn_dim": 32, "rope_max_seq_len": 32},
        {"hidden_states": video(), "timestep": step, "encoder_hidden_states": tokens()},
    ),
    "ltx_video": (
        "LTXVideoTransformer3DModel",
        {**TRANSFORMER, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 16,
         "caption_channels": 16},
        {"hidden_states": tokens(16, 4), "encoder_hidden_states": tokens(), "timestep": step,
         "encoder_attention_mask": lambda: torch.ones(1, 6),
         "num_frames": lambda: 1, "height": lambda: 4, "width": lambda: 4},
    ),
    "stable_audio": (
        "StableAudioDiTModel",
        {"sample_size": 4, "in_channels": 4, "num_layers": 1, "attention_head_dim": 8,
         "num_attention_heads": 2, "num_key_value_attention_heads": 2, "out_channels": 4,
         "cross_attention_dim": 16, "time_proj_dim": 16, "global_states_input_dim": 16,
         "cross_attention_input_dim": 16},
        {"hidden_states": lambda: torch.randn(1, 4, 16), "timestep": lambda: torch.tensor([0.3]),
         "encoder_hidden_states": tokens(), "global_hidden_states": lambda: torch.randn(1, 1, 16)},
    ),
    "oobleck": (
        "AutoencoderOobleck",
        {"encoder_hidden_size": 12, "decoder_channels": 12, "decoder_input_channels": 6,
         "audio_channels": 2, "downsampling_ratios": [2, 4], "channel_multiples": [1, 2]},
        {"sample": lambda: torch.randn(1, 2, 64)},
    ),
    "adapter": (
        "T2IAdapter",
        {"in_channels": 3, "channels": [16, 32], "num_res_blocks": 1, "downscale_factor": 2},
        {"x": image(3, 32)},
    ),
    "uvit": (
        "UVit2DModel",
        {"hidden_size": 32, "cond_embed_dim": 16, "micro_cond_encode_dim": 8,
         "micro_cond_embed_dim": 40, "encoder_hidden_size": 16, "vocab_size": 32,
         "codebook_size": 24, "in_channels": 32, "block_out_channels": 32,
         "num_res_blocks": 1, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 32, "block_num_heads": 2, "sample_size": 8},
        {"input_ids": lambda: torch.randint(0, 24, (1, 8, 8)), "encoder_hidden_states": tokens(),
         "pooled_text_emb": vector(16), "micro_conds": lambda: torch.rand(1, 5)},
    ),
}  # fmt: skip
"""Class, configuration and inputs of each model."""


def entries() -> Iterator[Entry]:
    """Yield a catalogue entry for each model in this module's table."""
    for name, (kind, _, _) in MODELS.items():
        yield Entry(
            f"diffusers/{name}",
            kind,
            "diffusion",
            lambda name=name: make(name),
            size=3.0,
            distributions=("diffusers",),
            module="stepwell.model_zoo.catalogue.diffusers",
        )


@torch.no_grad()
def make(name: str) -> Made:
    """Create a model of this module's table, with random weights and inputs."""
    kind, config, drawn = MODELS[name]
    torch.manual_seed(0)
    model = getattr(imported("diffusers"), kind)(**config).eval()
    made = {key: draw() for key, draw in drawn.items()}
    fixed = {key: value for key, value in made.items() if not isinstance(value, torch.Tensor)}
    inputs = {key: value for key, value in made.items() if isinstance(value, torch.Tensor)}
    module = TensorFunction(model, tuple(inputs), fixed)
    ranges = tuple(
        None if value.is_floating_point() else HOLDS.get(key) for key, value in inputs.items()
    )
    given = tuple(inputs.values())
    return Made(scaled(module, given), given, ranges=ranges)
