"""Packages of models without a registry: a line a model, an expression and its inputs."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch

from stepwell.zoo.catalogue import Entry, Made
from stepwell.zoo.vision import imported
from stepwell.zoo.weights import scaled
from stepwell.zoo.wrapping import Tensors

MODELS = """
vit_pytorch.vit.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.simple_vit.SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.simple_vit_with_register_tokens.SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.simple_vit_with_qk_norm.SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.simple_vit_with_value_residual.SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.simple_vit_with_hyper_connections.SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64, num_residual_streams=2) 1x3x32x32
vit_pytorch.simple_vit_1d.SimpleViT(seq_len=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32
vit_pytorch.vit_1d.ViT(seq_len=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32
vit_pytorch.simple_flash_attn_vit.SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.simple_vit_with_fft.SimpleViT(image_size=32, patch_size=8, freq_patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.vit_with_patch_dropout.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.vit_for_small_dataset.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.parallel_vit.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64, num_parallel_branches=2) 1x3x32x32
vit_pytorch.learnable_memory_vit.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.deepvit.DeepViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.cait.CaiT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.cross_vit.CrossViT(image_size=32, num_classes=5, depth=1, sm_dim=16, sm_patch_size=8, sm_enc_depth=1, sm_enc_heads=2, sm_enc_mlp_dim=32, lg_dim=32, lg_patch_size=16, lg_enc_depth=1, lg_enc_heads=2, lg_enc_mlp_dim=64, cross_attn_depth=1, cross_attn_heads=2) 1x3x32x32
vit_pytorch.pit.PiT(image_size=32, patch_size=8, dim=32, num_classes=5, depth=(1,1), heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.levit.LeViT(image_size=64, num_classes=5, stages=2, dim=(16,32), depth=1, heads=(2,2), mlp_mult=2) 1x3x64x64
vit_pytorch.cvt.CvT(num_classes=5, s1_emb_dim=16, s1_heads=1, s1_depth=1, s2_emb_dim=16, s2_heads=1, s2_depth=1, s3_emb_dim=32, s3_heads=2, s3_depth=1) 1x3x64x64
vit_pytorch.twins_svt.TwinsSVT(num_classes=5, s1_emb_dim=16, s1_depth=1, s1_local_patch_size=4, s1_global_k=4, s2_emb_dim=16, s2_depth=1, s2_local_patch_size=2, s2_global_k=2, s3_emb_dim=16, s3_depth=1, s3_local_patch_size=1, s3_global_k=2, s4_emb_dim=16, s4_depth=1, s4_local_patch_size=1, s4_global_k=1) 1x3x64x64
vit_pytorch.regionvit.RegionViT(dim=(8,16,16,32), depth=(1,1,1,1), window_size=2, num_classes=5, tokenize_local_3_conv=False, use_peg=False) 1x3x64x64
vit_pytorch.scalable_vit.ScalableViT(num_classes=5, dim=16, heads=(1,1,2,2), depth=(1,1,1,1), ssa_dim_key=(8,8,8,8), reduction_factor=(4,2,2,1), window_size=(4,2,None,None)) 1x3x64x64
vit_pytorch.max_vit.MaxViT(num_classes=5, dim_conv_stem=16, dim=16, dim_head=8, depth=(1,1), window_size=4, mbconv_expansion_rate=2, mbconv_shrinkage_rate=0.25, dropout=0.0) 1x3x64x64
vit_pytorch.nest.NesT(image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1,1), num_classes=5) 1x3x32x32
vit_pytorch.xcit.XCiT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=64, local_patch_kernel_size=3) 1x3x32x32
vit_pytorch.cct.CCT(img_size=(32,32), embedding_dim=32, n_conv_layers=2, kernel_size=3, stride=2, padding=1, pooling_kernel_size=3, pooling_stride=2, pooling_padding=1, num_layers=2, num_heads=2, mlp_ratio=2., num_classes=5, positional_embedding='learnable') 1x3x32x32
vit_pytorch.t2t.T2TViT(dim=32, image_size=32, depth=1, heads=2, mlp_dim=64, num_classes=5, t2t_layers=((7,4),(3,2))) 1x3x32x32
vit_pytorch.rvt.RvT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.ats_vit.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=64, max_tokens_per_depth=(8,)) 1x3x32x32
vit_pytorch.look_vit.LookViT(dim=32, image_size=32, num_classes=5, depth=1, patch_size=8, heads=2, mlp_factor=2, dim_head=16, highres_patch_size=4, highres_mlp_factor=2, cross_attn_heads=2, cross_attn_dim_head=16, patch_conv_kernel_size=7) 1x3x32x32
vit_pytorch.jumbo_vit.JumboViT(num_classes=5, image_size=32, patch_size=8, dim=32, depth=1, heads=2, mlp_dim=64, num_jumbo_cls=1, jumbo_cls_k=2, jumbo_ff_mult=2) 1x3x32x32
vit_pytorch.normalized_vit.nViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64) 1x3x32x32
vit_pytorch.simple_vit_3d.SimpleViT(image_size=16, image_patch_size=8, frames=4, frame_patch_size=2, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=64) 1x3x4x16x16
vit_pytorch.efficient.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, transformer=torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 1)) 1x3x32x32
vit_pytorch.mp3.ViT(num_classes=5, image_size=32, patch_size=8, dim=32, depth=1, heads=2, mlp_dim=64) 1x3x32x32
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=2)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=2, alibi_pos_bias=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=2, rel_pos_bias=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=2, attn_flash=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=2, ff_glu=True, ff_swish=True, use_rmsnorm=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=4, attn_kv_heads=2)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Decoder(dim=32, depth=2, heads=2, attn_qk_norm=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2, sandwich_norm=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2, attn_gate_values=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2, macaron=True)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, num_memory_tokens=4, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2)) 1x16i50
x_transformers.TransformerWrapper(num_tokens=50, max_seq_len=64, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2, attn_num_mem_kv=4)) 1x16i50
x_transformers.ContinuousTransformerWrapper(dim_in=8, dim_out=8, max_seq_len=64, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2)) 1x16x8
x_transformers.ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=x_transformers.Encoder(dim=32, depth=2, heads=2)) 1x3x32x32
local_attention.LocalTransformer(num_tokens=50, dim=32, depth=2, max_seq_len=64, causal=True, local_attn_window_size=8, heads=2, dim_head=16) 1x16i50
performer_pytorch.Performer(dim=32, depth=1, heads=2, causal=False, dim_head=16, nb_features=16) 1x16x32
performer_pytorch.SelfAttention(dim=32, heads=2, dim_head=16, causal=False, nb_features=16) 1x16x32
linformer.Linformer(dim=32, seq_len=16, depth=1, heads=2, k=8) 1x16x32
linear_attention_transformer.LinearAttentionTransformer(dim=32, heads=2, depth=1, max_seq_len=64, n_local_attn_heads=0) 1x16x32
nystrom_attention.Nystromformer(dim=32, dim_head=16, heads=2, depth=1, num_landmarks=4) 1x16x32
sinkhorn_transformer.SinkhornTransformer(dim=32, heads=2, depth=1, bucket_size=4) 1x16x32
conformer.Conformer(dim=32, depth=2, dim_head=16, heads=2, ff_mult=2, conv_expansion_factor=2, conv_kernel_size=7) 1x16x32
conformer.ConformerConvModule(dim=32, causal=True, expansion_factor=2, kernel_size=7) 1x16x32
g_mlp_pytorch.gMLP(num_tokens=50, dim=32, depth=2, seq_len=16) 1x16i50
g_mlp_pytorch.gMLPVision(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2) 1x3x32x32
mlp_mixer_pytorch.MLPMixer(image_size=32, channels=3, patch_size=8, dim=32, depth=2, num_classes=5) 1x3x32x32
perceiver_pytorch.Perceiver(input_channels=3, input_axis=2, num_freq_bands=2, max_freq=4., depth=1, num_latents=8, latent_dim=16, cross_heads=1, latent_heads=2, cross_dim_head=8, latent_dim_head=8, num_classes=5) 1x16x16x3
perceiver_pytorch.PerceiverIO(dim=8, queries_dim=8, depth=1, num_latents=8, latent_dim=16, cross_heads=1, latent_heads=2, cross_dim_head=8, latent_dim_head=8) 1x16x8
pytorch_tcn.TCN(num_inputs=8, num_channels=[16,16], kernel_size=3) 1x8x32
pytorch_tcn.TCN(num_inputs=8, num_channels=[16,16], kernel_size=3, causal=False, use_norm='layer_norm') 1x8x32
minGRU_pytorch.minGRU(16) 1x12x16
minGRU_pytorch.minLSTM.minLSTM(16) 1x12x16
efficientnet_pytorch.EfficientNet.from_name('efficientnet-b0', num_classes=5) 1x3x64x64
tab_transformer_pytorch.FTTransformer(categories=(5,6,7), num_continuous=4, dim=16, depth=1, heads=2) 1x3i5 1x4
mambapy.mamba.Mamba(mambapy.mamba.MambaConfig(d_model=16, n_layers=1, d_state=4)) 1x8x16
mambapy.mamba.Mamba(mambapy.mamba.MambaConfig(d_model=16, n_layers=1, d_state=4, pscan=False)) 1x8x16
denoising_diffusion_pytorch.Unet(dim=8, dim_mults=(1,2), channels=3, attn_dim_head=8, attn_heads=2, flash_attn=False) 1x3x16x16 1i10
denoising_diffusion_pytorch.Unet1D(dim=8, dim_mults=(1,2), channels=3, attn_dim_head=8, attn_heads=2) 1x3x32 1i10
rtdl_revisiting_models.MLP(d_in=6, d_out=2, n_blocks=2, d_block=16, dropout=0.) 1x6
rtdl_revisiting_models.ResNet(d_in=6, d_out=2, n_blocks=2, d_block=16, d_hidden=None, d_hidden_multiplier=2., dropout1=0., dropout2=0.) 1x6
rtdl_revisiting_models.FTTransformer(n_cont_features=6, cat_cardinalities=[], d_out=2, n_blocks=2, d_block=16, attention_n_heads=2, attention_dropout=0., ffn_d_hidden_multiplier=1.3, ffn_dropout=0., residual_dropout=0.) 1x6 None
openunmix.model.OpenUnmix(nb_bins=32, nb_channels=1, hidden_size=16, nb_layers=2) 1x1x32x12
openunmix.model.OpenUnmix(nb_bins=32, nb_channels=1, hidden_size=16, nb_layers=1, unidirectional=True) 1x1x32x12
demucs.demucs.Demucs(sources=['a','b'], channels=8, depth=2, lstm_layers=0, resample=False, normalize=False, dconv_mode=0) 1x2x256
demucs.hdemucs.HDemucs(sources=['a'], channels=8, depth=2, nfft=64, hybrid=False, cac=True) 1x2x256
encodec.modules.SEANetEncoder(channels=1, dimension=16, n_filters=4, ratios=[4,2], lstm=0) 1x1x64
encodec.modules.SEANetDecoder(channels=1, dimension=16, n_filters=4, ratios=[4,2], lstm=0) 1x16x8
vocos.models.VocosBackbone(input_channels=16, dim=16, intermediate_dim=32, num_layers=2) 1x16x12
vocos.models.VocosResNetBackbone(input_channels=16, dim=16, num_blocks=2) 1x16x12
snac.layers.Encoder(d_model=8, strides=[2,4], attn_window_size=None) 1x1x64
snac.layers.Decoder(input_channel=16, channels=16, rates=[4,2], attn_window_size=None, noise=False) 1x16x8
vector_quantize_pytorch.FSQ([8,5,5]) 1x8x3
vector_quantize_pytorch.LFQ(codebook_size=16, dim=16) 1x16x4x4
torchaudio.models.ConvTasNet(num_sources=2, enc_kernel_size=8, enc_num_feats=16, msk_kernel_size=3, msk_num_feats=8, msk_num_hidden_feats=16, msk_num_layers=2, msk_num_stacks=1) 1x1x128
torchaudio.models.DeepSpeech(n_feature=16, n_hidden=16, n_class=8) 1x1x12x16
torchaudio.models.Wav2Letter(num_classes=8, input_type='mfcc', num_features=16) 1x16x128
torchaudio.models.WaveRNN(upsample_scales=[2,2,2], n_classes=8, hop_length=8, n_res_block=1, n_rnn=16, n_fc=16, kernel_size=3, n_freq=8, n_hidden=8, n_output=8) 1x1x16 1x1x8x4
monai.networks.nets.UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4,8,16), strides=(2,2), num_res_units=1) 1x1x32x32
monai.networks.nets.BasicUNet(spatial_dims=2, features=(4,4,8,8,16,4)) 1x1x32x32
monai.networks.nets.BasicUNetPlusPlus(spatial_dims=2, features=(4,4,8,8,16,4)) 1x1x32x32
monai.networks.nets.AttentionUnet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4,8,16), strides=(2,2)) 1x1x32x32
monai.networks.nets.SegResNet(spatial_dims=2, init_filters=8, blocks_down=(1,1), blocks_up=(1,)) 1x1x32x32
monai.networks.nets.SegResNetDS(spatial_dims=2, init_filters=8, blocks_down=(1,1)) 1x1x32x32
monai.networks.nets.DynUNet(2, 1, 2, [3,3,3], [1,2,2], [2,2], filters=[4,8,16]) 1x1x32x32
monai.networks.nets.UNETR(in_channels=1, out_channels=2, img_size=(32,32), feature_size=4, hidden_size=24, mlp_dim=32, num_heads=2, spatial_dims=2) 1x1x32x32
monai.networks.nets.ViT(in_channels=1, img_size=(32,32), patch_size=(8,8), hidden_size=24, mlp_dim=32, num_layers=1, num_heads=2, spatial_dims=2, classification=True) 1x1x32x32
monai.networks.nets.SwinUNETR(in_channels=1, out_channels=2, feature_size=12, spatial_dims=2, depths=(1,1,1,1), num_heads=(1,1,1,1), window_size=2) 1x1x64x64
monai.networks.nets.VNet(spatial_dims=2, in_channels=1, out_channels=2) 1x1x32x32
monai.networks.nets.HighResNet(spatial_dims=2, in_channels=1, out_channels=2) 1x1x16x16
monai.networks.nets.DenseNet(spatial_dims=2, in_channels=1, out_channels=2, init_features=8, growth_rate=4, block_config=(1,1)) 1x1x32x32
monai.networks.nets.ResNet('basic', [1,1,1,1], [4,8,8,8], spatial_dims=2, n_input_channels=1, num_classes=2) 1x1x32x32
monai.networks.nets.RegUNet(2, 1, 4, 2) 1x1x32x32
monai.networks.nets.AutoEncoder(spatial_dims=2, in_channels=1, out_channels=1, channels=(4,8), strides=(2,2)) 1x1x32x32
monai.networks.nets.Generator((8,), (4,4,4), [8,4], [2,2]) 1x8
monai.networks.nets.Discriminator((1,32,32), [4,8], [2,2]) 1x1x32x32
monai.networks.nets.FullyConnectedNet(8, 2, [16,16]) 1x8
monai.networks.nets.EfficientNetBN('efficientnet-b0', pretrained=False, spatial_dims=2, in_channels=3, num_classes=2) 1x3x64x64
monai.networks.nets.FlexibleUNet(in_channels=3, out_channels=2, backbone='efficientnet-b0') 1x3x64x64
monai.networks.nets.AutoencoderKL(spatial_dims=2, in_channels=1, out_channels=1, channels=(8,8), latent_channels=2, num_res_blocks=1, norm_num_groups=4, attention_levels=(False,False), with_encoder_nonlocal_attn=False, with_decoder_nonlocal_attn=False) 1x1x32x32
monai.networks.nets.DiffusionModelUNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(8,8), num_res_blocks=1, attention_levels=(False,True), norm_num_groups=4, num_head_channels=4) 1x1x16x16 1i10
monai.networks.nets.PatchDiscriminator(spatial_dims=2, channels=4, in_channels=1, num_layers_d=2) 1x1x32x32
monai.networks.nets.TorchVisionFCModel('resnet18', num_classes=2, pretrained=False) 1x3x224x224
kornia.filters.GaussianBlur2d((3,3), (1.,1.)) 1x3x16x16
kornia.filters.Canny() 1x3x16x16
kornia.filters.Sobel() 1x3x16x16
kornia.filters.Laplacian(3) 1x3x16x16
kornia.filters.UnsharpMask((3,3), (1.,1.)) 1x3x16x16
kornia.filters.BilateralBlur((3,3), 0.1, (1.,1.)) 1x3x16x16
kornia.feature.CornerHarris(0.04) 1x1x16x16
kornia.color.RgbToHsv() 1x3x16x16
kornia.color.RgbToLab() 1x3x16x16
spandrel.architectures.SPAN.SPAN(num_in_ch=3, num_out_ch=3, feature_channels=8, upscale=2) 1x3x16x16
spandrel.architectures.SwinIR.SwinIR(img_size=16, embed_dim=12, depths=[2], num_heads=[2], window_size=4, upscale=2, upsampler='pixelshuffledirect') 1x3x16x16
spandrel.architectures.SAFMN.SAFMN(dim=8, n_blocks=2, upscaling_factor=2) 1x3x16x16
spandrel.architectures.NAFNet.NAFNet(width=8, middle_blk_num=1, enc_blk_nums=[1,1], dec_blk_nums=[1,1]) 1x3x16x16
spandrel.architectures.PLKSR.PLKSR(dim=8, n_blocks=1, kernel_size=5, upscaling_factor=2) 1x3x16x16
spandrel.architectures.RealCUGAN.UpCunet2x(in_channels=3, out_channels=3) 1x3x32x32
spandrel.architectures.FFTformer.FFTformer(dim=8, num_blocks=[1,1,1], num_refinement_blocks=1) 1x3x32x32
spandrel.architectures.Uformer.Uformer(img_size=64, embed_dim=8, depths=[1,1,1,1,1,1,1,1,1], win_size=4) 1x3x64x64
spandrel.architectures.HVICIDNet.HVICIDNet(channels=[8,8,16,16], heads=[1,2,2,2]) 1x3x32x32
spandrel.architectures.GRL.GRL(img_size=16, upscale=2, embed_dim=16, depths=[1], num_heads_window=[1], num_heads_stripe=[1], window_size=4, stripe_size=[4,4]) 1x3x16x16
speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN(16, channels=[16,16,16,16,48], lin_neurons=8, attention_channels=8, se_channels=8) 1x24x16
speechbrain.lobes.models.Xvector.Xvector(in_channels=16, tdnn_blocks=2, tdnn_channels=[16,16], tdnn_kernel_sizes=[3,1], tdnn_dilations=[1,1], lin_neurons=8) 1x24x16
speechbrain.lobes.models.ContextNet.ContextNet(input_shape=(1,24,16), out_channels=8, conv_channels=None) 1x24x16
speechbrain.lobes.models.CRDNN.CRDNN(input_shape=(1,24,16), cnn_blocks=1, cnn_channels=(4,), rnn_layers=1, rnn_neurons=8, dnn_blocks=1, dnn_neurons=8) 1x24x16
speechbrain.lobes.models.convolution.ConvolutionFrontEnd(input_shape=(1,24,16), num_blocks=1, num_layers_per_block=1, out_channels=[4], kernel_sizes=[3], strides=[2], residuals=[False]) 1x24x16
speechbrain.lobes.models.transformer.Conformer.ConformerEncoder(1, 16, 32, 2, kernel_size=7, attention_type='regularMHA') 1x12x16
speechbrain.nnet.RNN.LiGRU(hidden_size=8, input_shape=(1,8,16)) 1x8x16
speechbrain.nnet.RNN.QuasiRNN(hidden_size=8, input_shape=(1,8,16)) 1x8x16
torch_dct.LinearDCT(16, 'dct') 1x4x16
axial_positional_embedding.AxialPositionalEmbedding(dim=16, axial_shape=(4,4)) 1x16x16
colt5_attention.ConditionalRoutedFeedForward(16, num_heavy_tokens=4) 1x16x16
mixture_of_experts.MoE(dim=16, num_experts=4, hidden_dim=32) 1x16x16
"""  # noqa: E501
"""Each line: what makes the model, and an input each: floats `1x3x8`, integers below ten `1x8i10`
(`1i4-9`: from 4 on), `None`. What an expression names is imported for it."""


def entries() -> Iterator[Entry]:
    """The lines whose package is installed; two of one class are told apart by a number."""
    seen: dict[str, int] = {}
    for line in MODELS.strip().splitlines():
        *expression, inputs = re.split(r" (?=None$|None |\d+[xi])", line, maxsplit=1)
        package, _, rest = expression[0].partition(".")
        stem = f"packages/{package}.{rest.partition('(')[0].rpartition('.')[2]}"
        seen[stem] = seen.get(stem, 0) + 1
        if find_spec(package) is None:
            continue
        yield Entry(
            stem if seen[stem] == 1 else f"{stem}.{seen[stem]}",
            package,
            "of a package",
            lambda expression=expression[0], inputs=inputs: make(expression, inputs),
            size=9.0,
            distributions=(),
            module=package,
        )


@torch.no_grad()
def make(expression: str, inputs: str) -> Made:
    """The model of a line."""
    torch.manual_seed(0)
    names = {"torch": torch}
    for node in ast.walk(ast.parse(expression, mode="eval")):
        if isinstance(node, ast.Attribute) and (path := ast.unparse(node)).isidentifier() is False:
            package = path.partition(".")[0]
            names[package] = imported(package)
            _import_as_far_as_it_goes(path)
    module = eval(expression, names)
    args = tuple(_tensor(text) for text in inputs.split())
    module = scaled(module.eval(), args)
    result = module(*args)
    if not isinstance(result, (torch.Tensor, tuple, list, dict)):
        module = Tensors(module)
    return Made(module, args)


def _import_as_far_as_it_goes(path: str) -> None:
    parts = path.split(".")
    for count in range(2, len(parts) + 1):
        try:
            importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            return


def _tensor(text: str) -> Any:
    """Floats, or integers below a number."""
    if text == "None":
        return None
    sizes, integral, most = text.partition("i")
    shape = [int(size) for size in sizes.split("x")]
    if not integral:
        return torch.randn(shape)
    least, dash, above = most.partition("-")
    return torch.randint(int(least) if dash else 0, int(above or least), shape)
