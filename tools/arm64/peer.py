"""Run a model of another runtime in Python for Arm64, between the marks of `count.c`.

    python3.11 peer.py FILE.onnx|FILE.tflite INPUTS.npz OUTPUT.npy

A warm call is between two marks; the first output is written. `emulated_python.py` installs that
Python.
"""

import ctypes
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

GETPRIORITY, MARK = 141, 0x53570
Array = np.ndarray[Any, Any]


def mark(starts: int) -> None:
    """Make a system call that does nothing and that the plug-in recognizes."""
    ctypes.CDLL(None).syscall(GETPRIORITY, MARK, starts)


def of_onnx(path: str, inputs: Sequence[Array]) -> Callable[[], Array]:
    """Run ONNX Runtime on one thread with its default optimizations."""
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feed = dict(zip(names, inputs, strict=True))
    return lambda: session.run(None, feed)[0]


def of_tflite(path: str, inputs: Sequence[Array]) -> Callable[[], Array]:
    """Run LiteRT on one thread with XNNPACK, its default."""
    module = importlib.import_module("ai_edge_litert.interpreter")
    interpreter = module.Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    places = sorted(interpreter.get_input_details(), key=lambda detail: detail["name"])
    values = [quantized(detail, value) for detail, value in zip(places, inputs, strict=True)]
    out = interpreter.get_output_details()[0]

    def run() -> Array:
        for detail, value in zip(places, values, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return dequantized(out, interpreter.get_tensor(out["index"]))

    return run


def quantized(detail: Any, value: Array) -> Array:
    """Quantize an input as the file requires."""
    scale, zero = detail["quantization"]
    if not scale or value.dtype == detail["dtype"]:
        return value
    limits = np.iinfo(detail["dtype"])
    return np.clip(np.round(value / scale) + zero, limits.min, limits.max).astype(detail["dtype"])


def dequantized(detail: Any, value: Array) -> Array:
    """Dequantize an output."""
    scale, zero = detail["quantization"]
    return (value.astype(np.float32) - zero) * np.float32(scale) if scale else value


def main(path: str, given: str, output: str) -> None:
    """Run the file on the inputs, and write its output."""
    with np.load(given) as read:
        inputs = [read[name] for name in read.files]
    run = (of_onnx if path.endswith(".onnx") else of_tflite)(path, inputs)
    run()
    mark(1)
    result = run()
    mark(0)
    np.save(output, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
