"""Quantizers by name, for `--quantize NAME`: the built-in ones and those of plug-ins.

A quantizer takes a module and example inputs for calibration, and returns the module with quantize
and dequantize operators. The function `quantize` does the same with any number of inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.ir.calls.arguments import takes
from stepwell.ir.compat.torch.lazy_imports import OnDemand, torch
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.paged_tensors import LARGE, below_each_other, give_back
from stepwell.plugins.plugins import registry
from stepwell.plugins.registry import Quantizer, unknown

quantize_pt2e = OnDemand("torchao.quantization.pt2e.quantize_pt2e")
xnnpack_quantizer = OnDemand("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
arm_quantizer = OnDemand("executorch.backends.arm.quantizer.arm_quantizer")
specification = OnDemand("executorch.backends.arm.tosa.specification")
quantization = OnDemand("torchao.quantization")
granularities = OnDemand("torchao.quantization.granularity")
quant_primitives = OnDemand("torchao.quantization.quant_primitives")
torchao_utils = OnDemand("torchao.utils")


def by_pt2e(make: Callable[[], Any]) -> Quantizer:
    """Wrap a PT2E quantizer as a function: annotate, calibrate on the example inputs, convert."""

    def quantize(module: Any, inputs: Sequence[Any], *more: Sequence[Any]) -> Any:
        from stepwell.translate.importer.export_call import export

        graph = export(module.eval(), tuple(inputs)).module(check_guards=False)
        with torch_alone():
            prepared = quantize_pt2e.prepare_pt2e(graph, make())
        for seen in (inputs, *more):
            prepared(*seen)
        with torch_alone():
            return quantize_pt2e.convert_pt2e(prepared)

    return quantize


def _cortex_m() -> Any:
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    return CortexMQuantizer()


def _xnnpack(**how: int) -> Any:
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(
        xnnpack_quantizer.get_symmetric_quantization_config(**how)
    )
    return without_training(quantizer)


def without_training(quantizer: Any) -> Any:
    """Remove the patterns for quantization-aware training from an `XNNPACKQuantizer`.

    These patterns are exported again for every model, and never match a model in evaluation mode.
    """
    of_all = type(quantizer).SUPPORTED_PATTERNS
    quantizer.SUPPORTED_PATTERNS = [pattern for pattern in of_all if not pattern.is_qat]
    return quantizer


def _tosa(bits: int) -> Any:
    wide = bits == 16
    name = "TOSA-1.0+INT" + "+int16" * wide
    configs = (
        arm_quantizer.get_symmetric_quantization_config,
        arm_quantizer.get_symmetric_a16w8_quantization_config,
    )
    return arm_quantizer.TOSAQuantizer(
        specification.TosaSpecification.create_from_string(name)
    ).set_global(configs[wide]())


def by_torchao(
    bits: int, group: int | None, *, inputs: bool = True, dtype: Any = None
) -> Quantizer:
    """Return a quantizer of linear layers: low-bit weights, and inputs as int8 per token.

    Group scales are rounded to bfloat16, as XNNPACK's kernels store them
    (`xnn_define_blockwise_quantized_tensor_value`), and the integers are chosen for these scales.

    Args:
        bits: the bits of a weight.
        group: the number of weights that share a scale; None: a row. Layers whose row length is not
            a multiple are not quantized.
        inputs: whether inputs are int8; they stay floats otherwise.
        dtype: the dtype that weights are converted to first; by default unchanged.
    """

    def quantize(module: Any, example: Sequence[Any], *more: Sequence[Any]) -> Any:
        integer = getattr(torch, f"int{bits}")
        shared = granularities.PerAxis(0) if group is None else granularities.PerGroup(group)
        config = (
            quantization.Int8DynamicActivationIntxWeightConfig(
                weight_dtype=integer, weight_granularity=shared
            )
            if inputs
            else quantization.IntxWeightOnlyConfig(weight_dtype=integer, granularity=shared)
        )

        def of_rows(numbers: Any) -> Any:
            part = torch.nn.Linear(*reversed(numbers.shape), bias=False, device="meta")
            part.weight = torch.nn.Parameter(numbers, requires_grad=False)
            quantization.quantize_(part, config)
            if group is not None:
                _round_scales(part.weight, numbers, bits)
            return part.weight

        with torch.no_grad():
            for layer in module.modules():
                is_linear = isinstance(layer, torch.nn.Linear)
                if is_linear and (group is None or layer.in_features % group == 0):
                    # The allocator reuses the memory of a few rows, but not that of a matrix.
                    rows = max(1, ROWS_OF // layer.in_features)
                    parts = [of_rows(x.to(dtype or x.dtype)) for x in layer.weight.split(rows)]
                    layer.weight = torch.nn.Parameter(_of_parts(parts), requires_grad=False)
                    del parts
                    if layer.weight.numel() >= LARGE:
                        give_back()
        return unwrapped(module)

    return quantize


def is_mixture(text: str) -> bool:
    """Whether a text names a payload of MX, or a quantizer and points that differ
    (`quantization.recovery.mixtures`).
    """
    return "," in text or text in PAYLOADS


ROWS_OF = 1 << 20
"""Weights that are quantized at a time."""


def _of_parts(parts: Sequence[Any]) -> Any:
    """Concatenate the rows of several torchao tensors into one."""
    first = parts[0]
    tensors = (
        below_each_other([getattr(part, name) for part in parts])
        for name in first.tensor_data_names
    )
    return type(first)(*tensors, *(getattr(first, name) for name in first.tensor_attribute_names))


def _round_scales(weight: Any, numbers: Any, bits: int) -> None:
    """Round the scales of quantized weights to bfloat16, and recompute the nearest integers."""
    top = 1 << bits - 1
    scale = weight.scale.to(torch.bfloat16).to(weight.scale.dtype)
    weight.qdata = quant_primitives.quantize_affine(
        numbers, weight.block_size, scale, weight.zero_point, torch.int8, -top, top - 1
    )
    weight.scale = scale


@contextmanager
def in_floats(model: Any) -> Generator[None]:
    """Let a model's low-bit layers take float inputs within the context, for comparisons.

    An 8-bit input halfway between two integers is rounded to either, depending on the order of a
    sum. In a model of many layers this changes the result as much as a mistake does.
    """
    nn = torch.nn

    def linear(weight: Any, bias: Any, x: Any) -> Any:
        rows = max(1, ROWS_OF // weight.shape[1])
        begins = range(0, len(weight), rows)
        parts = [nn.functional.linear(x, weight[at : at + rows].dequantize()) for at in begins]
        made = torch.cat(parts, -1)
        return made if bias is None else made + bias

    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
        and type(layer).forward is nn.Linear.forward
        and is_quantized(layer)
    ]
    try:
        for layer in layers:
            vars(layer)["forward"] = partial(linear, layer.weight, layer.bias)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def is_quantized(layer: Any) -> bool:
    """Whether a layer's weight already is a quantized torchao tensor."""
    return isinstance(layer.weight, torchao_utils.TorchAOBaseTensor)


def unwrapped(module: Any) -> Any:
    """Replace quantized weights in a module by plain tensors and a parametrization over them."""
    return torchao_utils.unwrap_tensor_subclass(module)


QUANTIZERS: dict[str, Quantizer] = {
    "int8-cortex-m": by_pt2e(_cortex_m),
    "int8-xnnpack": by_pt2e(lambda: _xnnpack(is_per_channel=True)),
    "int8-xnnpack-dynamic": by_pt2e(lambda: _xnnpack(is_per_channel=True, is_dynamic=True)),
    # Sums of pairs of products with such weights fit into 16 bits, as kernels without VNNI need.
    "int8-openvino": by_pt2e(
        lambda: _xnnpack(is_per_channel=True, weight_qmin=-64, weight_qmax=64)
    ),
    "8da4w": by_torchao(4, 32),
    "8da8w": by_torchao(8, None),
    "4w": by_torchao(4, None, inputs=False),
    "int8-tosa": by_pt2e(lambda: _tosa(8)),
    "int16-tosa": by_pt2e(lambda: _tosa(16)),
}
"""The built-in quantizers by name."""
BY_TARGET = {
    "xnnpack+openvino": "int8-openvino",
    "openvino": "int8-openvino",
    "xnnpack": "int8-xnnpack",
    "cortex-m": "int8-cortex-m",
    "c-": "int8-cortex-m",
    "ethos-u": "int8-cortex-m",
    "tosa": "int8-tosa",
}
"""By the beginning of a target's name and a hyphen, the quantizer that `int8` means."""


def quantizer_for(name: str, target: str) -> str:
    """Return the quantizer of a name, where `int8` means the target's own quantizer.

    Raises:
        StepwellError: no quantizer has this name.
    """
    own = next(
        (value for start, value in BY_TARGET.items() if f"{target}-".startswith(start)), name
    )
    chosen = own if name == "int8" else name
    find_quantizer(chosen)
    return chosen


def find_quantizer(name: str) -> Quantizer:
    """Return the quantizer of a name.

    Raises:
        StepwellError: no quantizer has this name; the message lists the known names.
    """
    known = {**QUANTIZERS, **registry().quantizers}
    if name not in known:
        raise unknown("quantizer", name, known)
    return known[name]


def known_quantizers() -> list[str]:
    """Return the names of all quantizers, sorted."""
    return sorted({**QUANTIZERS, **registry().quantizers})


def quantize(model: Any, name: str, data: Iterable[object]) -> Any:
    """Insert quantize and dequantize operators into a model, calibrated on data; export it next.

    Args:
        model: a module; it is put into evaluation mode and otherwise not changed.
        name: `int8-xnnpack`, `int8-xnnpack-dynamic`, `int8-openvino`, `int8-cortex-m`, `int8-tosa`,
            `int16-tosa`, `8da4w`, `8da8w`, `4w`, or a plug-in's.
        data: calibration inputs, each a tensor or the tuple of the model's arguments. A quantizer
            that works on an exported program exports the model with the first one.

    Raises:
        StepwellError: no quantizer has this name, there is no data, a plug-in's quantizer takes
            fewer inputs, or the model is not a module.
    """
    quantizer = find_quantizer(name)
    if not hasattr(model, "eval"):
        raise StepwellError(
            f"only a module can be quantized, not an object of type {type(model).__name__}",
            help="quantize first, then export the result",
        )
    batches = [tuple(b) if isinstance(b, tuple | list) else (b,) for b in _looked_over(data)]
    if not takes(quantizer, 1 + len(batches)):
        raise StepwellError(
            f"the quantizer {name!r} calibrates on one input, not on {len(batches)}",
            help="pass one input with all rows, or declare it as quantize(module, inputs, *more)",
        )
    # torchao's quantizers change modules in place.
    return quantizer(copy.deepcopy(model).eval(), *batches)


def _looked_over(data: Any) -> list[Any]:
    """Return the inputs as a list, or raise an error if there are none."""
    if hasattr(data, "shape") or not isinstance(data, Iterable):
        raise StepwellError(
            f"the data has type {type(data).__name__}, must be a sequence of inputs",
            help="pass a list of tensors, or of tuples of tensors",
        )
    held = list(data)
    if not held:
        raise StepwellError("there is no data to calibrate on", help="pass at least one input")
    return held
