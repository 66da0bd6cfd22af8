"""Causal language models of `transformers` as programs with internal state, as LLM runners need.

`stepwell lower FOLDER` takes a folder of `save_pretrained` (`config.json` and safetensors, whose
weights stay memory-mapped); `export_causal_lm` takes a model in memory. The method `forward` takes
tokens `[1, n]` and the position of the first one `[1]`, and returns the logits of the last one
`[1, vocabulary]`. The program also has the constant methods that ExecuTorch's LLM runner queries.

The state and the attention are observed in a run, not derived from the configuration: `observing`
runs the model once, records the arguments of its attention, and makes buffers of the state of its
layers. `attention` checks whether ExecuTorch's operators can replace the model's attention,
`decoder` contains the exported module, and `exporting` compares it with the model. `seq2seq` does
the same for models with an encoder, as two methods. `gguf` and `folders` read files; `blocks` and
`tables` keep the integers of these files.
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
"""Options of the preparation of a model; all others are options of its export."""

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
