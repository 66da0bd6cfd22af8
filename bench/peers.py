"""Other CPU runtimes compared with stepwell: latency, load time, memory, file size, compile time.

    pip install -e '.[peers]'
    python bench/peers.py --keep FOLDER [--models deit_tiny,…] [--threads 1] [--table docs/peers.md]

Each model is exported once. ONNX Runtime and OpenVINO run the ONNX file that `torch.onnx` writes of
it, ExecuTorch runs ours, and PyTorch the module itself, all in float32 and with the same number of
threads. The suffix `@static` means int8: PT2E's program for us, a QDQ model that ONNX Runtime's own
quantizer calibrates for the two others. `@dynamic` is the same with dynamically quantized
activations in linear layers; `@half` is float16 throughout (ONNX Runtime computes in float32
there); `@8` is eight inputs at once; `@open` is four, exported for any number.

The programs alternate in one process in blocks. The first run of a block has cold caches and is
reported separately (cold); the others are warm. On one thread the clock is the process's CPU time,
which stops while other processes run. A ratio is their time divided by ours:
above 1 we are faster. The tenth percentile is the figure to trust on a shared machine. Load time
(file to first result) and memory (highest resident size that loading and three runs add) are
measured in a process of their own that has the runtime in it (`--resources`).

`--keep FOLDER` holds the files made for each runtime, and takes them from there the next time.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _peer_tables import (
    COLUMNS,
    EAGER,
    GOAL,
    OPENVINO,
    ORT,
    OURS,
    Measured,
    goal,
    kinds_of,
    line,
    markdown,
    means,
    resource_table,
)
from _report import RESULTS, between_markers, cpu_seconds, prepare, show, write
from _zoo_models import SIZES, create
from xnnpack import MODELS, set_threads

from stepwell.model_zoo.sweep.memory import peak

FURTHER = (
    "convnextv2_atto",
    "mobilenetv4_conv_small",
    "regnety_002",
    "resnext50_32x4d",
    "densenet121",
    "ghostnet_050",
    "repvgg_a0",
    "efficientformer_l1",
    "fastvit_t8",
    "poolformer_s12",
    "vgg11",
    "mixnet_s",
    "squeezenet1_1",
    "shufflenet_v2_x0_5",
)
"""Models of timm and torchvision, at the sizes of `bench/zoo.py`."""
LANGUAGE = ("bert", "gpt2", "whisper_encoder")
"""Models of transformers with random weights: two layers of their usual width, 64 tokens."""
QUANTIZED = ("mobilenet_v2@static", "resnet18@static", "deit_tiny@static")
STATIC, DYNAMIC = "static", "dynamic"
INT8 = (STATIC, DYNAMIC)
HALF = "half"
AT_ONCE = {"8": 8, "open": 4}
"""Inputs in a call, by kind."""
MOST = 16
"""Inputs that an open program takes."""
BLOCK = 6
"""Runs of one program in a row; the first is cold."""


@dataclass
class Model:
    """A model, its inputs, and the files made of it."""

    name: str
    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    kind: str
    folder: Path
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def file(self, peer: str) -> Path:
        """The file that a runtime loads, made if it is not there."""
        endings = {OURS: "pte", ORT: "onnx", OPENVINO: "onnx"}
        stem = self.name.replace(":", "_").replace("@", "_")
        path = self.folder / f"{stem}.{endings[peer]}"
        kept = path.with_suffix(path.suffix + ".seconds")
        if peer == OURS or not path.exists() or not kept.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make = self._pte if peer == OURS else self._onnx
            taken, path = cpu_seconds(lambda: make(path))
            kept.write_text(str(taken))
        self.seconds[peer] = float(kept.read_text())
        return path

    def _exported(self) -> Any:
        if self.kind not in INT8:
            return torch.export.export(self.module, self.inputs, dynamic_shapes=self._shapes())
        from quantized import quantize

        return quantize(self.module, self.inputs, per_channel=True, dynamic=self.kind == DYNAMIC)

    def _shapes(self) -> Any:
        """The batch of the inputs that have one, if it is open."""
        if self.kind != "open":
            return None
        batch = torch.export.Dim("batch", max=MOST)
        given = len(self.inputs[0])
        return tuple({0: batch} if len(x) == given else None for x in self.inputs)

    def _pte(self, path: Path) -> Path:
        import stepwell

        path.write_bytes(stepwell.lower(self._exported(), "xnnpack", numerics="finite").to_pte())
        return path

    def _onnx(self, path: Path) -> Path:
        is_float = self.kind not in INT8
        plain = path if is_float else path.with_suffix(".float.onnx")
        shapes = self._shapes()
        made = torch.onnx.export(
            self.module, self.inputs, dynamo=True, verbose=False, dynamic_shapes=shapes
        )
        assert made is not None
        made.save(plain, external_data=False)
        if not is_float:
            _quantize(plain, path, self.inputs, self.kind)
            plain.unlink()
        return path


def _quantize(plain: Path, path: Path, inputs: tuple[torch.Tensor, ...], kind: str) -> None:
    """ONNX Runtime's int8: static, calibrated on the inputs, or of linear layers as they come."""
    from onnxruntime import quantization
    from onnxruntime.quantization import shape_inference

    prepared = plain.with_suffix(".prepared.onnx")
    shape_inference.quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    if kind == DYNAMIC:
        linear = ["MatMul", "Gemm"]
        quantization.quantize_dynamic(prepared, path, linear, per_channel=True)
        prepared.unlink()
        return

    class Reader(quantization.CalibrationDataReader):
        """Gives the inputs once."""

        def __init__(self) -> None:
            self.left = [_feed(names_of(prepared), inputs)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    quantization.quantize_static(
        str(prepared),
        str(path),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    prepared.unlink()


def names_of(path: Path) -> list[str]:
    """The names of an ONNX model's inputs."""
    import onnx

    return [value.name for value in onnx.load(path, load_external_data=False).graph.input]


def _feed(names: Sequence[str], inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    return {name: value.numpy() for name, value in zip(names, inputs, strict=True)}


Run = Callable[[], Any]
"""One inference; gives the first output as something `torch.as_tensor` takes."""


def load(peer: str, path: Path, inputs: tuple[torch.Tensor, ...], threads: int) -> Run:
    """A program in its runtime, with its inputs at hand."""
    return LOADERS[peer](path, inputs, threads)


def _load_ours(path: Path, inputs: tuple[torch.Tensor, ...], threads: int) -> Run:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    method = program.load_method("forward")
    assert method is not None

    def run(held: Any = program) -> Any:  # A method does not keep its program alive.
        return method.execute(inputs)[0]

    return run


def _load_ort(path: Path, inputs: tuple[torch.Tensor, ...], threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = _feed([value.name for value in session.get_inputs()], inputs)

    def run() -> Any:
        return session.run(None, feed)[0]

    return run


def _load_openvino(path: Path, inputs: tuple[torch.Tensor, ...], threads: int) -> Run:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f16" if inputs[0].dtype == torch.float16 else "f32",
    }
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    for index, value in enumerate(inputs):
        request.set_input_tensor(index, openvino.Tensor(value.numpy(), shared_memory=True))

    def run() -> Any:
        request.infer()
        return request.get_output_tensor(0).data

    return run


LOADERS: dict[str, Callable[[Path, tuple[torch.Tensor, ...], int], Run]] = {
    OURS: _load_ours,
    ORT: _load_ort,
    OPENVINO: _load_openvino,
}


def in_blocks(
    runs: dict[str, Run], blocks: int, clock: Callable[[], float]
) -> dict[str, tuple[list[float], list[float]]]:
    """Milliseconds of warm and of cold runs of each program."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in runs}
    order = list(runs)
    for _ in range(blocks):
        for name in order:
            run, (warm, cold) = runs[name], times[name]
            time.sleep(0.002)  # Threads of the runtime before may still spin.
            for index in range(BLOCK):
                started = clock()
                run()
                (warm if index else cold).append(1000 * (clock() - started))
        order.reverse()
    return times


def p10(times: Sequence[float]) -> float:
    """The tenth percentile."""
    return statistics.quantiles(times, n=10, method="inclusive")[0]


@torch.no_grad()
def measure(model: Model, threads: int, seconds: float, resources: bool) -> dict[str, Measured]:
    """Every runtime on one model; one that cannot run it is left out."""
    found: dict[str, Measured] = {}
    runs: dict[str, Run] = {}
    expected = model.module(*model.inputs)
    expected = expected if isinstance(expected, torch.Tensor) else next(iter(_tensors(expected)))
    for peer in (OURS, ORT, OPENVINO):
        try:
            path = model.file(peer)
            run = load(peer, path, model.inputs, threads)
            error = float((torch.as_tensor(run()) - expected).abs().max())
        except Exception as problem:
            print(f"{model.name}: {peer}: {problem!r:.200}", flush=True)
            continue
        runs[peer] = run
        found[peer] = Measured(error=error, bytes=path.stat().st_size)
        found[peer].compile_cpu_seconds = model.seconds[peer]
        if resources:
            _resources(model, peer, path, threads, found[peer])
    runs[EAGER], found[EAGER] = lambda: model.module(*model.inputs), Measured()
    gc.collect()
    started = time.perf_counter()
    clock = time.process_time if threads == 1 else time.perf_counter
    in_blocks(runs, 1, clock)
    blocks = max(3, min(60, int(seconds / (time.perf_counter() - started))))
    for peer, (warm, cold) in in_blocks(runs, blocks, clock).items():
        found[peer].warm_ms, found[peer].cold_ms = p10(warm), statistics.median(cold)
    return found


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)


def _resources(model: Model, peer: str, path: Path, threads: int, into: Measured) -> None:
    """Load time and memory, in a process of their own."""
    given = model.folder / "inputs.pt"
    torch.save(list(model.inputs), given)
    command = [sys.executable, __file__, "--child", peer, str(path), str(given), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{model.name}: {peer}: {done.stderr[-300:]}", flush=True)
        return
    said = json.loads(done.stdout.splitlines()[-1])
    into.load_seconds = said["load"]
    into.memory_mb = math.nan if said["memory"] is None else said["memory"]


def child(peer: str, path: Path, given: Path, threads: int) -> None:
    """What `_resources` asks for, as a line of JSON; the runtime is warmed by another program."""
    inputs = tuple(torch.load(given, weights_only=True))
    torch.set_num_threads(1)
    if peer == OURS:
        set_threads(threads)
    importlib.import_module(
        {OURS: "executorch.runtime", ORT: "onnxruntime", OPENVINO: "openvino"}[peer]
    )

    def load_and_run() -> float:
        started = time.perf_counter()
        run = load(peer, path, inputs, threads)
        run()
        taken = time.perf_counter() - started
        run()
        run()
        return taken

    taken, added = peak(load_and_run)
    print(json.dumps({"load": taken, "memory": None if added is None else added / (1 << 20)}))


def made(called: str, folder: Path) -> Model:
    """The model of a name such as `llama_block:128` or `resnet18@static`."""
    plain, _, kind = called.partition("@")
    name, _, tokens = plain.partition(":")
    torch.manual_seed(0)
    if name in MODELS:
        function = getattr(importlib.import_module(MODELS[name]), name)
        module, inputs = function(int(tokens)) if tokens else function()
    elif name in SIZES:
        module, inputs = create(name), (torch.randn(1, 3, SIZES[name], SIZES[name]),)
    else:
        module, inputs = of_transformers(name)
    count, one = AT_ONCE.get(kind, 1), len(inputs[0])
    inputs = tuple(torch.cat([x] * count) if len(x) == one else x for x in inputs)
    if kind == HALF:
        module = module.half()
        inputs = tuple(x.half() if x.is_floating_point() else x for x in inputs)
    return Model(called, module.eval(), inputs, kind, folder)


def of_transformers(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model of transformers that gives one tensor."""
    import transformers

    class Alone(torch.nn.Module):
        """The last hidden state alone."""

        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """The first output."""
            return self.inner(x, return_dict=False)[0]

    tokens = torch.randint(0, 1000, (1, 64))
    if name == "bert":
        config = transformers.BertConfig(num_hidden_layers=2, vocab_size=1000)
        return Alone(transformers.BertModel(config, add_pooling_layer=False)), (tokens,)
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, vocab_size=1000, use_cache=False)
        return Alone(transformers.GPT2Model(config)), (tokens,)
    config = transformers.WhisperConfig(encoder_layers=2, d_model=384, encoder_attention_heads=6)
    encoder = importlib.import_module("transformers.models.whisper.modeling_whisper").WhisperEncoder
    return Alone(encoder(config)), (torch.randn(1, 80, 3000),)


def block(called: str, threads: int) -> str:
    """The marks in the docs that enclose a model's row."""
    kind = called.partition("@")[2]
    return f"peers {threads}" if not kind else "peers half" if kind == HALF else "peers kinds"


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        peer, path, given, threads = sys.argv[2:]
        child(peer, Path(path), Path(given), int(threads))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join((*GOAL, *FURTHER, *LANGUAGE, *QUANTIZED)))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="of running, for each model")
    parser.add_argument("--keep", type=Path, required=True, help="folder for the files made")
    parser.add_argument("--resources", action="store_true", help="load time and memory too")
    parser.add_argument("--table", type=Path, help="write the table between this file's marks")
    options = parser.parse_args()
    prepare()
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    set_threads(options.threads)
    kept = RESULTS / f"peers_{options.threads}.json"
    held = json.loads(kept.read_text())["results"] if kept.exists() else {}
    results = {
        name: {peer: Measured(**numbers) for peer, numbers in found.items()}
        for name, found in held.items()
    }
    lines: list[list[Any]] = []
    for name in options.models.split(","):
        found = measure(
            made(name, options.keep), options.threads, options.seconds, options.resources
        )
        results[name] = found
        lines.append(line(name, found))
        print(*lines[-1], flush=True)
        write(kept.stem, {n: {p: asdict(m) for p, m in f.items()} for n, f in results.items()})
    show(f"Runtimes for CPUs, {options.threads} thread(s), p10", COLUMNS, lines)
    for kind in kinds_of(results):
        print(f"geometric means, the goal's eleven {kind}:", *means(results, goal(kind)))
    if options.table:
        asked: list[str] = options.models.split(",")
        for name in dict.fromkeys(map(partial(block, threads=options.threads), asked)):
            of_these = {n: f for n, f in results.items() if block(n, options.threads) == name}
            between_markers(options.table, name, markdown(of_these))
        if options.resources:
            between_markers(options.table, "peers resources", resource_table(results))


if __name__ == "__main__":
    main()
