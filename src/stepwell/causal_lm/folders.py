"""A folder as `save_pretrained` writes it, or a file of GGUF."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepwell.causal_lm.gguf import load_gguf
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.outside.switches import kept_stderr
from stepwell.zoo.vision import imported

CONFIG = "config.json"


def is_causal_lm(folder: Path) -> bool:
    """Whether it is a folder as `save_pretrained` writes it of a causal model, or a `.gguf`."""
    if folder.suffix == ".gguf" and folder.is_file():
        return True
    file = folder / CONFIG
    if not file.is_file():
        return False
    try:
        held: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return False
    kinds: Any = held.get("architectures") if isinstance(held, Mapping) else None
    return any("ForCausalLM" in str(kind) or "LMHead" in str(kind) for kind in kinds or ())


def load_causal_lm(folder: Path, notes: list[str] | None = None) -> Any:
    """The model of a folder; weights in safetensors stay mapped, and nothing is downloaded.

    Args:
        folder: as `save_pretrained` writes it, or a `.gguf` file (see `load_gguf`).
        notes: takes a sentence on what became of a file's integers.

    Raises:
        StepwellError: transformers is not installed, or cannot read it.
    """
    if folder.suffix == ".gguf":
        return load_gguf(folder, notes)
    try:
        transformers = imported("transformers")
    except ImportError as error:
        raise StepwellError(
            f"{folder} holds a model of transformers, which is not installed",
            help="the extra 'hf' brings it: pip install 'stepwell[hf]'",
        ) from error
    kind = transformers.AutoModelForCausalLM
    try:
        with kept_stderr():  # Its bars.
            return kind.from_pretrained(folder, dtype="auto", local_files_only=True)
    except Exception as error:  # Whatever transformers fails with is about the folder.
        line = (str(error).strip().splitlines() or [""])[0]
        raise StepwellError(f"transformers cannot read {folder}: {line}") from error
