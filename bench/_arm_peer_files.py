"""Files of a model for ONNX Runtime and LiteRT, in float32 and int8; of `bench/arm_peers.py`.

    PYTHON bench/_arm_peer_files.py FOLDER FILE FUNCTION [NUMBER]

PYTHON has onnx, onnxscript, onnxruntime and litert-torch, and need not have stepwell; the model is
a function of `examples/models`. Each form is what its own tools make by default: int8 is static,
a scale for each channel of weights, calibrated on the model's inputs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "models"))
Inputs = tuple[torch.Tensor, ...]


def onnx_float(module: torch.nn.Module, inputs: Inputs, path: Path) -> None:
    """What `torch.onnx` writes."""
    made = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
    assert made is not None
    made.save(path, external_data=False)


def onnx_int8(plain: Path, inputs: Inputs, path: Path) -> None:
    """ONNX Runtime's static quantizer: pairs of quantize and dequantize, int8 on both sides."""
    quantization = importlib.import_module("onnxruntime.quantization")
    prepared = path.with_suffix(".prepared")
    quantization.shape_inference.quant_pre_process(
        str(plain), str(prepared), skip_symbolic_shape=True
    )
    names = [value.name for value in importlib.import_module("onnx").load(prepared).graph.input]
    rows: Iterator[Any] = iter(
        [{name: value.numpy() for name, value in zip(names, inputs, strict=True)}]
    )

    class Reader(quantization.CalibrationDataReader):  # type: ignore[name-defined,misc]
        """Gives the inputs once."""

        def get_next(self) -> Any:
            return next(rows, None)

    quantization.quantize_static(str(prepared), str(path), Reader(), per_channel=True)
    prepared.unlink()


def tflite_float(module: torch.nn.Module, inputs: Inputs, path: Path) -> None:
    """What litert-torch converts."""
    importlib.import_module("litert_torch").convert(module, inputs).export(str(path))


def tflite_int8(plain: Path, inputs: Inputs, path: Path) -> None:
    """Google's quantizer of LiteRT files, with its recipe of static int8."""
    quantizer = importlib.import_module("ai_edge_quantizer.quantizer").Quantizer(str(plain))
    recipe = importlib.import_module("ai_edge_quantizer.recipe")
    quantizer.load_quantization_recipe(recipe.static_wi8_ai8())
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter(str(plain))
    ((key, runner),) = (
        (name, interpreter.get_signature_runner(name)) for name in interpreter.get_signature_list()
    )
    names = sorted(runner.get_input_details())
    values = [{n: np.asarray(value) for n, value in zip(names, inputs, strict=True)}]
    result = quantizer.calibrate({key: values})
    path.write_bytes(bytes(quantizer.quantize(result).quantized_model))


def main(folder: Path, file: str, function: str, *numbers: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, inputs = getattr(importlib.import_module(file), function)(*map(int, numbers))
    module = module.eval()
    onnx, tflite = folder / "fp32.onnx", folder / "fp32.tflite"
    steps: dict[Path, Callable[[Path], None]] = {
        onnx: lambda path: onnx_float(module, inputs, path),
        folder / "static.onnx": lambda path: onnx_int8(onnx, inputs, path),
        tflite: lambda path: tflite_float(module, inputs, path),
        folder / "static.tflite": lambda path: tflite_int8(tflite, inputs, path),
    }
    for path, make in steps.items():
        if path.exists():
            continue
        try:
            make(path)
        except Exception as problem:  # Whatever a converter raises is its answer.
            said = (str(problem).splitlines() or [type(problem).__name__])[0]
            path.with_suffix(path.suffix + ".failed").write_text(said)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
