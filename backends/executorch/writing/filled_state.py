"""Find states that are read only after they were written, so that the file needs no initial value.

ExecuTorch's attention reads a cache up to its position, and those rows were written by
this call or an earlier one. The initial bytes of a cache are then unused; at a context of
2048 they would be most of a small model's file.
"""

from collections.abc import Iterable

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import StateOp, UpdateOp

_WRITES = {
    "llama.update_cache.default": "cache",
    "llama.update_cache_with_indices.default": "cache",
}
_QUANTIZED = ("k_zero_points", "k_scales", "v_zero_points", "v_scales")
_READS = {
    "llama.custom_sdpa.default": ("key", "value"),
    "llama.custom_quantized_sdpa.default": ("key", "value", *_QUANTIZED),
    "llama.sdpa_with_kv_cache.default": ("key_cache", "value_cache"),
}
"""Attention, with the arguments whose rows it reads only up to its position, if it is causal."""


def filled_states(funcs: Iterable[FuncOp]) -> frozenset[str]:
    """Return the keys of states of which no method reads a row before it was written."""
    known: dict[str, bool] = {}
    for func in funcs:
        for op in func.body.block.ops:
            if isinstance(op, StateOp):
                key = op.key.data
                known[key] = known.get(key, True) and _is_read_where_filled(op.result, key)
    return frozenset(key for key, is_filled in known.items() if is_filled)


def _is_read_where_filled(value: SSAValue, key: str) -> bool:
    """Whether only causal attention reads a state, or its values after writes."""
    for use in value.uses:
        reader = use.operation
        if isinstance(reader, UpdateOp) and reader.key.data == key:
            continue
        if not isinstance(reader, SchemaOp):
            return False
        name = _WRITES.get(reader.name)
        if name is not None and reader.operand(name) is value:
            if not _is_read_where_filled(reader.results[-1], key):
                return False
            continue
        if not _is_causal(reader) or not any(
            reader.operand(argument) is value for argument in _READS[reader.name]
        ):
            return False
        if not all(_is_read_where_filled(after, key) for after in _written_from(reader, value)):
            return False
    return True


def _written_from(reader: SchemaOp, value: SSAValue) -> list[SSAValue]:
    """Return the values of a state after an op that reads it, if the op writes to it."""
    written = reader.SCHEMA.written
    after = reader.results[len(reader.results) - len(written) :]
    pairs = zip(written, after, strict=True)
    return [result for argument, result in pairs if reader.operand(argument.name) is value]


def _is_causal(reader: SchemaOp) -> bool:
    if reader.name not in _READS:
        return False
    return reader.arg("is_causal") is True and reader.operand("attn_mask") is None
