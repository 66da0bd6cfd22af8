"""Other CPU runtimes compared with stepwell: latency, load time, memory, file size, compile time.

    pip install -e '.[peers]'
    python bench/peers.py --keep FOLDER [--models deit_tiny,…] [--threads 1] [--table docs/peers.md]

Each model is exported once. ONNX Runtime and OpenVINO run the ONNX file that `torch.onnx` writes of
it, ExecuTorch runs ours, and PyTorch the module itself, all in float32 and with the same number of
threads. The suffix `@static` means int8: PT2E's program for us, a QDQ model that ONNX Runtime's own
quantizer calibrates for the two others. `@dynamic` is the same with dynamically quantized
activations in linear layers; `@half` is float16 throughout (ONNX Runtime computes in float32
there); `@8` is eight inputs at once; `@open` is four, exported for any number.

The programs alternate in one process in blocks, whose first run has cold caches and is not counted.
On one thread the clock is the process's CPU time, which stops while other processes run. A ratio is
their time divided by ours: above 1 we are faster. The tenth percentile is the figure to trust on a
shared machine. Load time (file to first result) and memory (highest resident size that loading and
three runs add) are measured in a process of their own that has the runtime in it (`--resources`).

`--keep FOLDER` holds the files made for each runtime, and takes them from there the next time.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from _models import made as made_by_name
from _models import name_of
from _report import (
    between_markers,
    cpu_seconds,
    markdown,
    p10,
    prepare,
    read,
    set_threads,
    show,
    write,
)
from torch import Tensor
from torch.utils import _pytree as pytree

from stepwell.model_zoo.sweep.memory import peak

OURS, ORT, OPENVINO, EAGER = "stepwell", "ONNX Runtime", "OpenVINO", "PyTorch"
PEERS = (OURS, ORT, OPENVINO, EAGER)
ELEVEN = tuple(
    """deit_tiny llama_block:128 swin_tiny mobilenet_v2 mobilenet_v3_small mobilevit_xxs mixer_s32
    efficientnet_b0 resnet18 resnet50 convnext_atto""".split()
)
"""The models of `examples/models` whose mean ratio README has."""
DEFAULT = (
    *ELEVEN,
    *"""convnextv2_atto mobilenetv4_conv_small regnety_002 resnext50_32x4d densenet121 ghostnet_050
    repvgg_a0 efficientformer_l1 fastvit_t8 poolformer_s12 vgg11 mixnet_s squeezenet1_1
    shufflenet_v2_x0_5 bert gpt2 whisper_encoder
    mobilenet_v2@static resnet18@static deit_tiny@static""".split(),
)
LANGUAGE = ("bert", "gpt2", "whisper_encoder")
"""Models of transformers with random weights: two layers of their usual width, 64 tokens."""
INT8 = ("static", "dynamic")
AT_ONCE = {"8": 8, "open": 4}
"""Inputs in a call, by form; an open program takes up to `MOST`."""
MOST = 16
BLOCK = 6
"""Runs of one program in a row; the first is cold."""
Inputs = tuple[Tensor, ...]
Run = Callable[[], Any]
"""One inference; returns the first output as something that `torch.as_tensor` takes."""


@dataclass
class Measured:
    """One runtime on one model: milliseconds, seconds, bytes."""

    warm_ms: float = math.nan
    error: float = math.nan
    bytes: int = 0
    compile_cpu_seconds: float = math.nan
    load_seconds: float = math.nan
    memory_mb: float = math.nan


Row = dict[str, Measured]


@dataclass
class Model:
    """A model, its inputs, and the files made of it."""

    name: str
    module: torch.nn.Module
    inputs: Inputs
    form: str
    folder: Path
    options: dict[str, str] = field(default_factory=dict[str, str])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def file(self, peer: str) -> Path:
        """The file that a runtime loads, made if it is not there."""
        stem = self.name.replace(":", "_").replace("@", "_")
        stem += "".join(f"_{value}" for value in self.options.values() if peer == OURS)
        path = self.folder / f"{stem}.{'pte' if peer == OURS else 'onnx'}"
        kept = path.with_suffix(path.suffix + ".seconds")
        if peer == OURS or not path.exists() or not kept.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            taken, _ = cpu_seconds(lambda: (self._pte if peer == OURS else self._onnx)(path))
            kept.write_text(str(taken))
        self.seconds[peer] = float(kept.read_text())
        return path

    def _shapes(self) -> Any:
        """The batch of the inputs that have one, if it is open."""
        if self.form != "open":
            return None
        batch = torch.export.Dim("batch", max=MOST)
        count = len(self.inputs[0])
        return tuple({0: batch} if len(x) == count else None for x in self.inputs)

    def _pte(self, path: Path) -> Path:
        import stepwell
        from quantized import quantize

        options: dict[str, Any] = {"numerics": "finite", **self.options}
        target, quantizer = options.pop("target", "xnnpack"), options.pop("quantizer", "")
        if quantizer:
            module = stepwell.quantize(self.module, quantizer, [self.inputs])
            program = torch.export.export(module, self.inputs)
        elif self.form in INT8:
            dynamic = self.form == "dynamic"
            program = quantize(self.module, self.inputs, per_channel=True, dynamic=dynamic)
        else:
            program = torch.export.export(self.module, self.inputs, dynamic_shapes=self._shapes())
        path.write_bytes(stepwell.lower(program, target, **options).to_pte())
        return path

    def _onnx(self, path: Path) -> Path:
        plain = path.with_suffix(".float.onnx") if self.form in INT8 else path
        made = torch.onnx.export(
            self.module, self.inputs, dynamo=True, verbose=False, dynamic_shapes=self._shapes()
        )
        assert made is not None
        made.save(plain, external_data=False)
        if self.form in INT8:
            _quantize(plain, path, self.inputs, self.form)
            plain.unlink()
        return path


def _quantize(plain: Path, path: Path, inputs: Inputs, form: str) -> None:
    """ONNX Runtime's int8: static, calibrated on the inputs, or dynamic in linear layers."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization import shape_inference

    prepared = plain.with_suffix(".prepared.onnx")
    shape_inference.quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    names = [x.name for x in onnx.load(prepared, load_external_data=False).graph.input]

    class Reader(quantization.CalibrationDataReader):
        """Returns the inputs once."""

        left = [_feed(names, inputs)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    if form == "dynamic":
        quantization.quantize_dynamic(prepared, path, ["MatMul", "Gemm"], per_channel=True)
    else:
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


def _feed(names: Sequence[str], inputs: Inputs) -> dict[str, Any]:
    return {name: value.numpy() for name, value in zip(names, inputs, strict=True)}


def _load_ours(path: Path, inputs: Inputs, threads: int) -> Run:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    method = program.load_method("forward")
    assert method is not None
    return lambda held=program: method.execute(inputs)[0]  # A method does not keep its program.


def _load_ort(path: Path, inputs: Inputs, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = _feed([value.name for value in session.get_inputs()], inputs)
    return lambda: session.run(None, feed)[0]


def _load_openvino(path: Path, inputs: Inputs, threads: int) -> Run:
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


LOADERS: dict[str, Callable[[Path, Inputs, int], Run]] = {
    OURS: _load_ours,
    ORT: _load_ort,
    OPENVINO: _load_openvino,
}
MODULES = {OURS: "executorch.runtime", ORT: "onnxruntime", OPENVINO: "openvino"}


def in_blocks(
    runs: dict[str, Run], blocks: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Milliseconds of warm runs of each program."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for _ in range(blocks):
        for name in order:
            time.sleep(0.002)  # Threads of the previous runtime may still spin.
            runs[name]()
            for _ in range(BLOCK - 1):
                started = clock()
                runs[name]()
                times[name].append(1000 * (clock() - started))
        order.reverse()
    return times


@torch.no_grad()
def measure(model: Model, threads: int, seconds: float, resources: bool) -> Row:
    """Every runtime on one model; one that cannot run it is left out."""
    found: Row = {}
    runs: dict[str, Run] = {}
    expected = pytree.tree_leaves(model.module(*model.inputs))[0]
    for peer, load in LOADERS.items():
        try:
            path = model.file(peer)
            run = load(path, model.inputs, threads)
            error = float((torch.as_tensor(run()) - expected).abs().max())
        except Exception as problem:
            print(f"{model.name}: {peer}: {problem!r:.200}", flush=True)
            continue
        runs[peer] = run
        found[peer] = Measured(
            error=error, bytes=path.stat().st_size, compile_cpu_seconds=model.seconds[peer]
        )
        if resources:
            _resources(model, peer, path, threads, found[peer])
    runs[EAGER], found[EAGER] = lambda: model.module(*model.inputs), Measured()
    gc.collect()
    started = time.perf_counter()
    clock = time.process_time if threads == 1 else time.perf_counter
    in_blocks(runs, 1, clock)
    blocks = max(3, min(60, int(seconds / (time.perf_counter() - started))))
    for peer, times in in_blocks(runs, blocks, clock).items():
        found[peer].warm_ms = p10(times)
    return found


def _resources(model: Model, peer: str, path: Path, threads: int, into: Measured) -> None:
    """Load time and memory, in a process of their own."""
    given = model.folder / "inputs.pt"
    torch.save(list(model.inputs), given)
    command = [sys.executable, __file__, "--child", peer, str(path), str(given), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{model.name}: {peer}: {done.stderr[-300:]}", flush=True)
        return
    into.load_seconds, into.memory_mb = json.loads(done.stdout.splitlines()[-1])


def child(peer: str, path: Path, given: Path, threads: int) -> None:
    """Print load seconds and megabytes, measured after the runtime was imported."""
    inputs = tuple(torch.load(given, weights_only=True))
    torch.set_num_threads(1)
    if peer == OURS:
        set_threads(threads)
    importlib.import_module(MODULES[peer])

    def load_and_run() -> float:
        started = time.perf_counter()
        run = LOADERS[peer](path, inputs, threads)
        run()
        taken = time.perf_counter() - started
        run()
        run()
        return taken

    taken, added = peak(load_and_run)
    print(json.dumps([taken, math.nan if added is None else added / (1 << 20)]))


def made(called: str, folder: Path, options: dict[str, str]) -> Model:
    """The model of a name such as `llama_block:128` or `resnet18@static`."""
    form = called.partition("@")[2]
    if name_of(called) in LANGUAGE:
        module, inputs = of_transformers(name_of(called))
    else:
        model = made_by_name(called)
        module, inputs = model.module, model.inputs
    count, one = AT_ONCE.get(form, 1), len(inputs[0])
    inputs = tuple(torch.cat([x] * count) if len(x) == one else x for x in inputs)
    if form == "half":
        module = module.half()
        inputs = tuple(x.half() if x.is_floating_point() else x for x in inputs)
    return Model(called, module.eval(), inputs, form, folder, options)


class LastHiddenState(torch.nn.Module):
    """A model of transformers that returns one tensor."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, return_dict=False)[0]


def of_transformers(name: str) -> tuple[torch.nn.Module, Inputs]:
    """A model of `LANGUAGE` with random weights, and inputs."""
    import transformers

    torch.manual_seed(0)
    tokens = torch.randint(0, 1000, (1, 64))
    if name == "bert":
        config = transformers.BertConfig(num_hidden_layers=2, vocab_size=1000)
        model = transformers.BertModel(config, add_pooling_layer=False)
        return LastHiddenState(model), (tokens,)
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, vocab_size=1000, use_cache=False)
        return LastHiddenState(transformers.GPT2Model(config)), (tokens,)
    config = transformers.WhisperConfig(encoder_layers=2, d_model=384, encoder_attention_heads=6)
    whisper = importlib.import_module("transformers.models.whisper.modeling_whisper")
    return LastHiddenState(whisper.WhisperEncoder(config)), (torch.randn(1, 80, 3000),)


COLUMNS = ("model", *(f"{peer} ms" for peer in PEERS), *(f"÷ {p}" for p in PEERS[1:]), "error")


def ratios(found: Row) -> dict[str, float]:
    """Their warm time divided by ours."""
    return {
        peer: found[peer].warm_ms / found[OURS].warm_ms
        for peer in PEERS[1:]
        if OURS in found and peer in found
    }


def line(name: str, found: Row) -> list[str]:
    """A row of the table of times."""
    cells = [f"{found[peer].warm_ms:.2f}" if peer in found else "–" for peer in PEERS]
    theirs = ratios(found)
    cells += [f"{theirs[peer]:.2f}" if peer in theirs else "–" for peer in PEERS[1:]]
    return [name, *cells, f"{found[OURS].error:.0e}" if OURS in found else "–"]


def means(title: str, results: dict[str, Row], names: Iterable[str]) -> list[str]:
    """A row of the geometric means of the ratios over some models."""
    held = [ratios(results[name]) for name in names if name in results]
    means = (statistics.geometric_mean([r[p] for r in held if p in r] or [1]) for p in PEERS[1:])
    return [f"geometric mean, {title}", *[""] * len(PEERS), *(f"{x:.3f}" for x in means), ""]


def table(results: dict[str, Row]) -> list[str]:
    """A page's table of times: a row a model, then the means."""
    rows = [line(name, found) for name, found in results.items()]
    for suffix in dict.fromkeys("".join(name.partition("@")[1:]) for name in results):
        names = [name + suffix for name in ELEVEN]
        rows.append(means(f"the goal's eleven {suffix}".strip(), results, names))
    return markdown(COLUMNS, [*rows, means("all", results, results)])


def resource_table(results: dict[str, Row]) -> list[str]:
    """A page's table of load time, memory, size and compile time."""
    peers = PEERS[:3]
    heads = [f"{peer} {what}" for what in ("s", "MB") for peer in peers]
    heads += ["file MB, ours / ONNX", "compile CPU s, ours / ONNX"]
    rows: list[list[str]] = []
    for name, found in results.items():
        if OURS not in found or ORT not in found or math.isnan(found[OURS].memory_mb):
            continue
        held = [found.get(peer, Measured()) for peer in peers]
        cells = [f"{one.load_seconds:.2f}" for one in held]
        cells += [f"{one.memory_mb:.0f}" for one in held]
        cells.append(" / ".join(f"{one.bytes / 1e6:.1f}" for one in held[:2]))
        cells.append(" / ".join(f"{one.compile_cpu_seconds:.1f}" for one in held[:2]))
        rows.append([name, *cells])
    return markdown(("model", *heads), rows)


def block(called: str, threads: int, name: str) -> str:
    """The comments of the page that enclose a model's row."""
    form = called.partition("@")[2]
    return f"peers {name or (form if form == 'half' else 'kinds' if form else threads)}"


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        peer, path, given, threads = sys.argv[2:]
        child(peer, Path(path), Path(given), int(threads))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(DEFAULT))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="of running, for each model")
    parser.add_argument("--keep", type=Path, help="folder for the files made")
    parser.add_argument("--resources", action="store_true", help="load time and memory too")
    parser.add_argument("--table", type=Path, help="write the table between this file's marks")
    parser.add_argument("--options", default="", help="numerics=torch,cpu=…,target=…,quantizer=…")
    parser.add_argument("--name", default="", help="of the results and the table's marks")
    options = parser.parse_args()
    if options.keep is None:
        print("not run: --keep names no folder for the files")
        return
    prepare()
    torch.set_num_threads(options.threads)
    logging.disable(logging.CRITICAL)
    set_threads(options.threads)
    file = f"peers_{options.name or options.threads}"
    lowering = dict(pair.split("=") for pair in options.options.split(",") if pair)
    results: dict[str, Row] = {
        name: {peer: Measured(**numbers) for peer, numbers in found.items()}
        for name, found in dict(read(file) or {}).items()
    }
    names: list[str] = options.models.split(",")
    for name in names:
        model = made(name, options.keep, lowering)
        results[name] = measure(model, options.threads, options.seconds, options.resources)
        print(*line(name, results[name]), flush=True)
        write(file, {n: {p: asdict(m) for p, m in f.items()} for n, f in results.items()})
    show(f"{options.threads} thread(s), p10", COLUMNS, [line(n, results[n]) for n in names])
    if options.table:
        marks = {n: block(n, options.threads, options.name) for n in results}
        for comments in dict.fromkeys(marks[name] for name in names):
            of = {n: f for n, f in results.items() if marks[n] == comments}
            between_markers(options.table, comments, table(of))
        if options.resources:
            between_markers(options.table, "peers resources", resource_table(results))


if __name__ == "__main__":
    main()
