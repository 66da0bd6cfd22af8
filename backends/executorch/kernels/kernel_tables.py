"""All kernels that a program may call: those of the wheel's runtime and of further libraries.

A user's kernel is added by its schema, with the module that registers it with this
machine's runtime; `stepwell.register_op` does so.
"""

import json
from pathlib import Path

from stepwell.dialects.aten.schema import Schema, parse_schema
from stepwell.ir.diagnostics import StepwellError

STOCK = Path(__file__).with_name("stock.json")
"""Kernels of the ExecuTorch 1.5 runtime and their schemas, from `tools/generate_kernels.py`."""
_TABLES: dict[str, dict[str, str]] = json.loads(STOCK.read_text(encoding="utf-8"))
RUNTIME, QUANTIZED, LLM = (_TABLES[table] for table in ("RUNTIME", "QUANTIZED", "LLM"))
_SCHEMAS: dict[str, str] = {**RUNTIME, **QUANTIZED, **LLM}
_LIBRARIES: dict[str, str] = dict.fromkeys(QUANTIZED, "executorch.kernels.quantized") | (
    dict.fromkeys(LLM, "executorch.extension.llm.custom_ops.custom_ops")
)
_CHOSEN: dict[str, str] = {}
_PARSED: dict[str, Schema] = {}
_BY_OPERATOR: dict[str, list[str]] = {}
for _name in _SCHEMAS:
    _BY_OPERATOR.setdefault(_name.partition(".")[0], []).append(_name)


def kernel_schema(kernel: str) -> Schema | None:
    """Return the schema of a kernel, or None if no kernel has that name."""
    schema = _PARSED.get(kernel)
    if schema is None and kernel in _SCHEMAS:
        schema = _PARSED[kernel] = parse_schema(_SCHEMAS[kernel])
    return schema


def kernels_of(operator: str) -> list[str]:
    """Return the kernels of an operator's name: those of `aten::add` are its overloads."""
    return _BY_OPERATOR.get(operator, [])


def chosen_kernel(op_name: str) -> str | None:
    """Return the kernel that was registered for an op of the IR, independent of the op's name."""
    return _CHOSEN.get(op_name)


def registrations() -> int:
    """Return the number of registrations, which invalidates cached look-ups."""
    return len(_CHOSEN)


def schema_of_kernel(kernel: str) -> Schema:
    """Return the schema of a kernel, which is named or written as a schema.

    Raises:
        StepwellError: no kernel has that name, or the name is known with another schema.
    """
    if "(" in kernel:
        spelled = parse_schema(kernel)
        known = kernel_schema(kernel.partition("(")[0].strip())
        if known is not None and known.arguments != spelled.arguments:
            raise StepwellError(f"the kernel is registered with another schema: {known.text}")
        return spelled
    schema = kernel_schema(kernel)
    if schema is None:
        raise StepwellError(
            f"the kernel {kernel} is unknown",
            help="pass its whole schema: 'library::name.out(Tensor x, *, Tensor(a!) out) -> …'",
        )
    return schema


def register_kernel(op_name: str, schema: Schema, library: str | None = None) -> None:
    """Register the kernel that computes an op.

    Args:
        op_name: the op's name in the IR.
        schema: the kernel's schema.
        library: the module to import on this machine so that the runtime has it.

    Raises:
        StepwellError: the op has a kernel already.
    """
    if op_name in _CHOSEN:
        raise StepwellError(f"{op_name} has the kernel {_CHOSEN[op_name]} already")
    name = schema.text.partition("(")[0].strip()
    if name not in _SCHEMAS:
        _SCHEMAS[name] = schema.text
        _BY_OPERATOR.setdefault(name.partition(".")[0], []).append(name)
    if library is not None:
        _LIBRARIES[name] = library
    _CHOSEN[op_name] = name


def kernel_libraries() -> list[str]:
    """Return the modules that register kernels with this machine's runtime, each once."""
    return sorted(set(_LIBRARIES.values()))


def library_of(kernel: str) -> str | None:
    """Return the module that registers a kernel with this machine's runtime; None if the runtime
    itself has the kernel.
    """
    return _LIBRARIES.get(kernel)
