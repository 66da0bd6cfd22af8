"""Loading of a folder written by `save_pretrained`, or of a GGUF file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepwell.ir.diagnostics import reported
from stepwell.ir.platform.process_settings import kept_stderr
from stepwell.language_models.gguf import load_gguf
from stepwell.language_models.packed import give_kernels, load_packed, packing_of
from stepwell.model_zoo.catalogue.vision import needed

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
"""The file that PEFT's `save_pretrained` writes; it names the folder of the base model."""


def is_causal_lm(folder: Path) -> bool:
    """Whether a path is a `save_pretrained` folder of a causal model, or a `.gguf`."""
    if folder.suffix == ".gguf" and folder.is_file():
        return True
    if "base_model_name_or_path" in _read(folder / ADAPTER):
        return True
    kinds = _read(folder / CONFIG).get("architectures")
    return any("ForCausalLM" in str(kind) or "LMHead" in str(kind) for kind in kinds or ())


def is_vision_language(folder: Path) -> bool:
    """Whether a path is the folder of a model that reads images among the tokens."""
    config = _read(folder / CONFIG)
    kinds = config.get("architectures") or ()
    return "vision_config" in config and any("ForConditionalGen" in str(kind) for kind in kinds)


def is_seq2seq(folder: Path) -> bool:
    """Whether a path is the folder of a model with an encoder and a decoder of tokens."""
    config = _read(folder / CONFIG)
    kinds = config.get("architectures") or ()
    return config.get("is_encoder_decoder") is True and any(
        "ForConditionalGeneration" in str(kind) or "MTModel" in str(kind) for kind in kinds
    )


def _read(file: Path) -> Mapping[str, Any]:
    """Read a JSON file; a missing file is an empty mapping."""
    if not file.is_file():
        return {}
    try:
        told: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return told if isinstance(told, Mapping) else {}


def load_causal_lm(folder: Path, notes: list[str] | None = None) -> Any:
    """Load the model of a folder; safetensors weights stay memory-mapped, nothing is downloaded.

    Args:
        folder: a folder written by `save_pretrained`, possibly with packed layers, or PEFT's (the
            adapter's base model with the adapter's products added to its layers); or a `.gguf`
            file.
        notes: a list that receives a sentence on which integers of the file are kept.

    Raises:
        StepwellError: transformers is not installed, or cannot read the folder.
    """
    if folder.suffix == ".gguf":
        return load_gguf(folder, notes)
    transformers = needed("hf", f"{folder} is a model of transformers", "transformers")
    config = _read(folder / CONFIG)
    told = config.get("quantization_config") or {}
    packing = packing_of(folder, told)
    kind = transformers.AutoModelForCausalLM
    if packing is not None or is_seq2seq(folder) or is_vision_language(folder):
        kind = getattr(transformers, config["architectures"][0], kind)
    if (folder / ADAPTER).is_file():
        needed("peft", f"{folder} holds an adapter of PEFT", "peft")
    with reported(f"transformers cannot read {folder}"), kept_stderr():  # Its bars.
        if packing is not None:
            return load_packed(folder, packing, told, kind, notes)
        model = kind.from_pretrained(folder, dtype="auto", local_files_only=True)
    return give_kernels(model, notes) if told else model
