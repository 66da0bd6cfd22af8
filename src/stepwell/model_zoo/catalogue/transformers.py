"""Models of transformers: every architecture with a shrunk configuration and its relevant heads."""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.catalogue.weights import scaled
from stepwell.model_zoo.catalogue.wrapping import TensorFunction
from stepwell.translate.importer.export_call import export

transformers = OnDemand("transformers")
modeling_auto = OnDemand("transformers.models.auto.modeling_auto")
exportable = OnDemand("transformers.integrations.executorch")


WIDTH, HEADS, LAYERS, TOKENS, VOCABULARY, PIXELS = 32, 4, 2, 12, 128, 64
DEPTHS = (
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers depth "
    "num_encoder_layers num_decoder_layers decoder_num_layers encoder_num_hidden_layers "
    "decoder_num_hidden_layers num_blocks"
)
_SIZES = (
    (WIDTH, "hidden_size d_model n_embd dim embed_dim embedding_size model_dim d_embed emb_dim "
            "word_embed_proj_dim projection_dim conv_dim decoder_hidden_size hidden_dim width "
            "encoder_hidden_size fpn_hidden_size decoder_channels neck_hidden_size "
            "num_channels_neck attention_hidden_size backbone_feature_size feature_size "
            "mask_feature_size text_embed_dim reduced_hidden_size classifier_proj_size "
            "codebook_dim"),
    (2 * WIDTH, "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner d_inner "
                "moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size mlp_dim "
                "dim_feedforward encoder_intermediate_size decoder_intermediate_size "
                "intermediate_size_mlp"),
    (LAYERS, f"{DEPTHS} decoder_depth"),
    (HEADS, "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
            "decoder_attention_heads decoder_num_attention_heads encoder_num_attention_heads"),
    (WIDTH // HEADS, "head_dim d_kv global_head_dim"),
    (16, "q_lora_rank kv_lora_rank qk_head_dim num_mel_bins num_conv_pos_embeddings"),
    (8, "qk_rope_head_dim qk_nope_head_dim v_head_dim mamba_n_heads mamba_d_head mamba_num_heads "
        "mamba_head_dim prediction_length state_size mamba_d_state sliding_window "
        "attention_window"),
    (6, "num_queries num_query_tokens"),
    (5, "num_labels"),
    (4, "num_experts num_local_experts n_routed_experts moe_num_experts time_step_rank "
        "num_conv_pos_embedding_groups num_frames"),
    (2, "num_key_value_heads num_kv_heads num_experts_per_tok moe_k moe_topk top_k_experts"),
    (1, "n_group topk_group mamba_n_groups n_groups"),
    (VOCABULARY, "vocab_size vocab_size_per_layer_input text_vocab_size"),
    (64, "max_position_embeddings n_positions max_source_positions max_target_positions"),
    (PIXELS, "image_size input_size"),
)  # fmt: skip
SMALL = {name: size for size, names in _SIZES for name in names.split()}
"""Settings of a model's size, and their shrunk values."""
COMPLETE = dict(SMALL)
"""The same, for configurations that leave open what their model needs: `MISSING`."""
MISSING = (
    "hidden_size intermediate_size moe_intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads vocab_size head_dim num_experts num_local_experts n_routed_experts "
    "num_experts_per_tok moe_topk n_group topk_group max_position_embeddings"
).split()
CHOSEN = ("out_features", "out_indices", "stage_names")
"""Settings that name layers, or stages of them."""
WIDTHS = re.compile(r"(size|dim|dims|width|channels?|rank|embd|d_model|d_ff|inner|planes|sizes)$")
"""Suffixes of settings that are widths."""
NOT_WIDTHS = re.compile(
    r"vocab|image|patch|kernel|window|crop|input_size|chunk|max|stride|codebook"
)
"""Parts of such names that are not widths."""
SHARES = (16, 8)
"""Divisors of all widths, used if shrinking each alone breaks their relations."""
SHALLOW = {name: SMALL[name] for name in f"{DEPTHS} vocab_size image_size".split()}
"""The settings among these that widths do not depend on, such as depth."""
MOST = 100_000_000
"""Parameters that a shrunk model may have."""
PROGRESSIONS = {"hidden_sizes": 16, "embed_dims": 16, "encoder_hidden_sizes": 16, "channels": 16,
                "depths": 0, "layers_per_stage": 0, "layer_depths": 0}  # fmt: skip
"""Settings that are a list with an item per stage: widths grow from this; 0: one block each."""
IDS = ("token_id", "token_index", "_id", "token_ids")
"""Suffixes of settings that are token ids."""
HOLDS = {
    **dict.fromkeys(("input_ids", "decoder_input_ids", "inputs"), (0, VOCABULARY - 1)),
    "attention_mask": (0, 1),
    "bbox": (0, 1000),
}
"""Ranges of integer inputs, by name."""
CACHED_TOKENS = 32
"""Length of a cache."""
HEADS_OF = {
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "decoder",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "encoder and decoder",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "masked language model",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "image classification",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES": "image and text",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES": "segmentation",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES": "detection",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES": "depth",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES": "audio classification",
    "MODEL_FOR_CTC_MAPPING_NAMES": "speech",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": "speech to text",
    "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING_NAMES": "time series",
    "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES": "video classification",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES": "vocoder",
    "MODEL_MAPPING_NAMES": "backbone",
}
"""Mappings of architectures to classes, and their models' purpose; the first ones are used."""
MOST_HEADS = 2
"""Number of classes per architecture."""


def entries() -> Iterator[Entry]:
    """Yield each architecture with its first heads; decoders with a cache too."""
    imported("transformers")
    taken: dict[str, int] = {}
    for mapping, kind in HEADS_OF.items():
        for type_, name in getattr(modeling_auto, mapping, {}).items():
            if type_ not in transformers.CONFIG_MAPPING or taken.get(type_, 0) >= MOST_HEADS:
                continue
            name = name[0] if isinstance(name, tuple | list) else name
            taken[type_] = taken.get(type_, 0) + 1
            yield entry(type_, name, kind, cached=False)
            if kind == "decoder":
                yield entry(type_, name, "decoder with cache", cached=True)


def entry(type_: str, name: str, kind: str, *, cached: bool) -> Entry:
    """Return the catalogue entry for one model class of a `transformers` architecture."""
    return Entry(
        f"transformers/{type_}/{name}" + "/cache" * cached,
        type_,
        kind,
        lambda: make(type_, name, cached),
        size=2.0 + 0.5 * cached,
        distributions=("transformers",),
        module="stepwell.model_zoo.catalogue.transformers",
    )


@torch.no_grad()
def make(type_: str, name: str, cached: bool) -> Made:
    """Create a model of a shrunk configuration, with the first of `candidates` that it accepts as
    inputs.

    If shrinking breaks relations between widths, all are divided by the same number. If this also
    fails, only the depth is shrunk, or nothing.
    """
    failures: list[str] = []
    for settings, share in (
        (SMALL, 1), (COMPLETE, 1), *((SHALLOW, share) for share in SHARES),
        (SHALLOW, 1), ({}, 1),
    ):  # fmt: skip
        torch.manual_seed(0)
        try:
            model, config = model_of(type_, name, settings, share)
            return with_cache(model) if cached else with_inputs(model, config)
        except Exception as error:  # The next settings, or told below.
            failures.append(f"{type(error).__name__}: {str(error).strip()[-300:]}")
    raise ValueError("; ".join(failures))


def model_of(type_: str, name: str, settings: Mapping[str, int], share: int) -> tuple[Any, Any]:
    """Create a model and its configuration, with sizes from settings and divided widths."""
    transformers = imported("transformers")
    kind = getattr(transformers, name)
    config = shrunk(kind.config_class or transformers.CONFIG_MAPPING[type_], settings, share)
    config._experts_implementation = "batched_mm"  # The implementation in torch's operators only.
    config._attn_implementation = "sdpa"
    try:
        parameters = parameters_of(kind, config)
    except ValueError:
        config._attn_implementation = "eager"
        parameters = parameters_of(kind, config)
    if parameters > MOST:
        raise ValueError(f"the model has {parameters:,} parameters, more than the limit {MOST:,}")
    return kind(config).eval().float(), config


def parameters_of(kind: Any, config: Any) -> int:
    """Return the number of parameters that a model would have."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in kind(config).parameters())


def with_inputs(model: Any, config: Any) -> Made:
    """Find the first inputs that a model accepts."""
    takes = inspect.signature(model.forward).parameters
    fixed = {"return_dict": False, **({"use_cache": False} if "use_cache" in takes else {})}
    failures: list[str] = []
    for candidate in candidates(model, config):
        module = TensorFunction(model, tuple(candidate), fixed)
        inputs = tuple(candidate.values())
        try:
            assert module(*inputs)
        except Exception as error:  # Another kind of input, then.
            failures.append(f"{list(candidate)}: {type(error).__name__}: {str(error)[:100]}")
            continue
        return Made(scaled(module, inputs), inputs, ranges=tuple(map(HOLDS.get, candidate)))
    raise ValueError("the model accepts none of the tried inputs: " + "; ".join(failures))


def with_cache(model: Any) -> Made:
    """Return a module that runs one step of a decoder whose keys and values are arguments."""
    inputs = (torch.randint(3, VOCABULARY - 3, (1, 1)), torch.tensor([4]))
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    model.generation_config.max_length = CACHED_TOKENS
    model.generation_config.cache_config = {
        "batch_size": 1,
        "max_cache_len": CACHED_TOKENS,
    }
    module = exportable.TorchExportableModuleForDecoderOnlyLM(
        model, batch_size=1, max_cache_len=CACHED_TOKENS, device=torch.device("cpu")
    )
    ranges = ((0, VOCABULARY - 1), (0, CACHED_TOKENS - 1))
    step = scaled(TensorFunction(module.model, ("input_ids", "cache_position")), inputs)
    # Only a strict export finds the module's buffers in the cache that holds them too.
    program = export(step, inputs, strict=True)
    return Made(None, inputs, program=program, ranges=ranges)


def shrunk(kind: Any, settings: Mapping[str, int], share: int = 1) -> Any:
    """Create a class's configuration with sizes from settings and widths divided by a share."""
    given = smaller(divided(kind().to_dict(), share), settings)
    parameters = inspect.signature(kind.__init__).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    kept = {name: value for name, value in given.items() if takes_any or name in parameters}
    for name in ("model_type", "transformersversion", "dtype", "torch_dtype", "architectures"):
        kept.pop(name, None)
    return kind(**kept)


def divided(config: dict[str, Any], share: int) -> dict[str, Any]:
    """Divide every width of a configuration that is a multiple of a number by it."""

    def part(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: part(str(key), one) for key, one in value.items()}
        if isinstance(value, list):
            items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
            whole = all(isinstance(one, int) for one in items)
            return [part(name, one) for one in items] if whole else items
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if name == "mrope_section":
            return max(1, value // share)
        is_width = WIDTHS.search(name) and not NOT_WIDTHS.search(name)
        return value // share if is_width and value % share == 0 else value

    return part("", config) if share > 1 else config


def smaller(
    config: dict[str, Any], settings: Mapping[str, int], *, is_multimodal: bool = False
) -> dict[str, Any]:
    """Set the sizes of a configuration from settings; lists are adapted to the layers."""
    values = {name: value for name, value in config.items() if name not in CHOSEN}
    narrow = settings is not SHALLOW
    is_staged = isinstance(config.get("depths"), list)
    if is_staged and config.get("out_features"):
        values["out_features"] = config["out_features"]
    if is_staged and "window_size" in config and narrow:
        values["window_size"] = 2
    for name, value in config.items():
        if name in CHOSEN:
            continue
        if isinstance(value, dict):
            is_model = "model_type" in value or "hidden_size" in value
            beside = "vision_config" in config
            values[name] = smaller(value, settings, is_multimodal=beside) if is_model else value
        elif value is None and settings is COMPLETE and name in MISSING:
            values[name] = settings[name]
        elif isinstance(value, bool) or value is None:
            continue
        elif name in PROGRESSIONS and isinstance(value, list | tuple) and narrow:
            start = PROGRESSIONS[name]
            values[name] = [start * (1 << min(i, 2)) if start else 1 for i in range(len(value))]
        elif name in ("num_heads", "num_attention_heads") and isinstance(value, list) and narrow:
            values[name] = [min(HEADS, 1 << i) for i in range(len(value))]
        elif name in settings and isinstance(value, int):
            values[name] = min(value, settings[name])
        elif name.endswith(IDS) and isinstance(value, int) and value >= VOCABULARY:
            values[name] = sum(map(ord, name)) % (VOCABULARY // 2) + VOCABULARY // 2 - 1
    fit_layers(config, values)
    if not is_staged:
        fit_outputs(config, values)
    heads = config.get("num_key_value_heads")
    if heads is not None and heads == config.get("num_attention_heads"):
        values["num_key_value_heads"] = values["num_attention_heads"]
    for name, rope in config.items():
        is_of_images = is_multimodal or (isinstance(rope, dict) and "mrope_section" in rope)
        if name in ("rope_parameters", "rope_scaling") and rope and is_of_images and narrow:
            values[name] = {**rope, "mrope_section": [2, 1, 1]}
    return values


def fit_layers(config: dict[str, Any], found: dict[str, Any]) -> None:
    """Shorten lists with an item per layer to one of each kind, and set the number of layers."""
    layers = config.get("num_hidden_layers")
    lists = {
        name: list(dict.fromkeys(map(str, value)))
        for name, value in config.items()
        if isinstance(value, list) and layers and len(value) == layers
    }
    if not lists:
        return
    count = max(LAYERS, *map(len, lists.values()))
    for name, kinds in lists.items():
        by_name = {str(item): item for item in config[name]}
        chosen = [kinds[index % len(kinds)] for index in range(count)]
        found[name] = [by_name[kind] for kind in sorted(chosen, key=kinds.index)]
    found["num_hidden_layers"] = count


def fit_outputs(config: dict[str, Any], found: dict[str, Any]) -> None:
    """Set the layers whose outputs a backbone returns: the last ones, as many as before."""
    chosen, layers = config.get("out_features"), found.get("num_hidden_layers")
    if not chosen or not isinstance(layers, int):
        return
    found["num_hidden_layers"] = count = max(layers, len(chosen))
    found["out_features"] = [f"stage{count - i}" for i in reversed(range(len(chosen)))]


def candidates(model: Any, config: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs that a model may accept, the likeliest first."""
    names = set(inspect.signature(model.forward).parameters)
    tokens = {"input_ids": torch.randint(3, VOCABULARY // 2 - 2, (1, TOKENS))}
    later = {"decoder_input_ids": torch.randint(3, VOCABULARY // 2 - 2, (1, TOKENS // 2))}
    image = {"pixel_values": torch.randn(1, *image_shape(config))}
    bins = find(config, "num_mel_bins", 16)
    length = 2 * find(config, "max_source_positions", 64)
    waves = (
        {"input_values": torch.randn(1, 4000)},
        {"input_values": torch.randn(1, 1, 4000)},
        {"input_values": torch.randn(1, find(config, "max_length", 64), bins)},
        {"input_features": torch.randn(1, bins, length)},
        {"input_features": torch.randn(1, length, bins)},
        {
            "input_features": torch.randn(
                1, length, find(config, "feature_projection_input_dim", 160)
            )
        },
        {"spectrogram": torch.randn(1, 20, find(config, "num_mel_bins", 80))},
        {
            "past_values": torch.randn(
                1, find(config, "context_length", 32), find(config, "num_input_channels", 1)
            )
        },
        {"pixel_values": torch.randn(1, find(config, "num_frames", 4), *image_shape(config))},
        {
            "pixel_values_videos": torch.randn(
                1, find(config, "frames_per_clip", 4), *image_shape(config)
            )
        },
        {"inputs": torch.randint(3, 60, (1, TOKENS))},
    )
    boxes = {"bbox": torch.zeros(1, TOKENS, 4, dtype=torch.long)}
    mask = {"attention_mask": torch.ones(1, TOKENS, dtype=torch.long)}
    options: list[dict[str, torch.Tensor]] = [
        {**tokens, **image}, tokens, {**tokens, **later}, image, *waves,
        *({**wave, **later} for wave in waves), {**image, **later}, {**tokens, **boxes},
        {**tokens, **boxes, **image}, {**tokens, **mask}, {**tokens, **image, **mask},
    ]  # fmt: skip
    takes_image = "pixel_values" in names
    for option in sorted(options, key=lambda o: -len({*o} & {"decoder_input_ids"} & names)):
        if {*option} <= names and (takes_image or "pixel_values" not in option):
            yield option


def image_shape(config: Any) -> tuple[int, int, int]:
    """Return the channels and pixels of a model's images."""
    size = find(config, "image_size", PIXELS)
    side = size[0] if isinstance(size, list | tuple) else size if isinstance(size, int) else PIXELS
    channels = find(config, "num_channels", 3)
    return (channels if isinstance(channels, int) else 3, side, side)


def find(config: Any, name: str, otherwise: Any) -> Any:
    """Return a setting of a configuration, or of a configuration nested in it."""
    held = config.to_dict() if hasattr(config, "to_dict") else config
    waiting = [held]
    while waiting:
        one = waiting.pop(0)
        if one.get(name) is not None:
            return one[name]
        waiting += [value for value in one.values() if isinstance(value, dict)]
    return otherwise
