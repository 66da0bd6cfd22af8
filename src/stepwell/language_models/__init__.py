"""Causal language models of `transformers` as programs: their state inside, as runners call them.

`stepwell lower FOLDER` takes a folder of `save_pretrained` (`config.json` and safetensors, whose
weights stay mapped), `export_causal_lm` a model in memory. The method `forward` takes tokens
`[1, n]` and the position of the first one `[1]`, and gives the logits of the last one
`[1, vocabulary]`; beside it stand the methods that ExecuTorch's LLM runner asks about a model.

Nothing is read off a configuration that a run shows: `observing` runs the model once and sees what
its layers keep and what its attention is given, `states` holds that as buffers, `attention` says
what ExecuTorch's operators can take over, `decoder` is the module that is exported, and `exporting`
compares it with the model before it is believed. `seq2seq` does the same of models with an encoder,
as two methods; `gguf` and `folders` read files, `blocks` and `tables` keep integers that they have.
"""

from stepwell.language_models.attention import Attention
from stepwell.language_models.exporting import Caches, Logits, export_causal_lm
from stepwell.language_models.folders import (
    is_causal_lm,
    is_seq2seq,
    is_vision_language,
    load_causal_lm,
)
from stepwell.language_models.metadata import metadata
from stepwell.language_models.preparing import prepare
from stepwell.language_models.seq2seq import export_seq2seq
from stepwell.language_models.vision import export_vision_language

BEFORE_EXPORT = frozenset({"dtype", "embedding", "group"})
"""What is said of a model before it is exported; the rest says how it is."""

__all__ = [
    "BEFORE_EXPORT",
    "Attention",
    "Caches",
    "Logits",
    "export_causal_lm",
    "export_seq2seq",
    "export_vision_language",
    "is_causal_lm",
    "is_seq2seq",
    "is_vision_language",
    "load_causal_lm",
    "metadata",
    "prepare",
]
