r"""A language model compared with llama.cpp, other runtimes and stock ExecuTorch.

    pip download --no-binary :all: --no-deps llama-cpp-python   # unpack; in vendor/llama.cpp:
    cmake -G Ninja -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama
    pip install --no-deps --target FOLDER onnxruntime-genai onnxruntime onnx onnx-ir protobuf \
        ml-dtypes openvino openvino-genai openvino-tokenizers openvino-telemetry
    python bench/llama_cpp.py [--package FOLDER] [--genai FOLDER] --keep FOLDER [--stock]

Four layers of Llama (dim 2048, hidden 5632, 32 heads over 8, 32 000 tokens) with random weights: a
folder in bfloat16, lowered with `--quantize 8da4w --embedding 8`, and a file of GGUF in Q4_0, its
table in Q8_0, which llama.cpp runs, its caches in halves, and which is lowered too. ONNX Runtime
GenAI gets what its own builder makes of the folder (integers of four bits in blocks of 32, products
in int8), OpenVINO what its GenAI library makes of the file of GGUF. `bf16 cache` is ours with
`--cache-dtype bf16`, and `--stock` ExecuTorch's own flow over its own Llama of the same size. Times
are CPU milliseconds of a call, with `--threads 2` those of the clock, the tenth percentile of runs
in turn. `read` adds as many bytes up
as a token reads: weights, and the cache in singles up to its position. `--table` writes between the
marks `llama_cpp`, with `--genai` between `genai`, with two threads behind `_2`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from _report import (
    RESULTS,
    between_markers,
    cpu_name,
    in_turn,
    markdown,
    prepare,
    set_threads,
    show,
    write,
)
from language_models import stock_pte

import stepwell
from executorch_llama import Size, Variant, exported
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.loaders.models import open_model
from stepwell.model_zoo.catalogue.vision import imported

DIM, HIDDEN, LAYERS, HEADS, SHARED, VOCABULARY, CONTEXT = 2048, 5632, 4, 32, 8, 32000, 4096
SIZE = DIM // HEADS
Call = Callable[[], Any]


def write_models(folder: Path) -> None:
    """The same numbers as a folder of transformers and as a file of GGUF."""
    transformers, gguf = imported("transformers"), imported("gguf")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=DIM,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=SHARED,
        max_position_embeddings=CONTEXT,
    )
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder / "llama")
    words = [f"w{index}" for index in range(VOCABULARY)]
    tokenizers = imported("tokenizers")
    table = tokenizers.models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=[])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(table), bos_token="w1", eos_token="w2"
    ).save_pretrained(folder / "llama")
    writer = gguf.GGUFWriter(folder / "llama.gguf", "llama")
    facts = {
        "context_length": CONTEXT, "embedding_length": DIM, "block_count": LAYERS,
        "feed_forward_length": HIDDEN, "head_count": HEADS, "head_count_kv": SHARED,
        "layer_norm_rms_eps": config.rms_norm_eps, "rope_dimension_count": SIZE,
        "vocab_size": VOCABULARY, "rope_freq_base": config.rope_parameters["rope_theta"],
        "key_length": SIZE, "value_length": SIZE, "file_type": gguf.LlamaFileType.MOSTLY_Q4_0,
        "tokenizer_model": "gpt2", "tokenizer_pre": "default", "token_list": words,
        "token_types": [gguf.TokenType.NORMAL] * VOCABULARY, "token_merges": ["w 1"],
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    for name, value in facts.items():
        getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, tensor in model.state_dict().items():
        numbers = tensor.float().numpy()
        if ".q_proj" in name or ".k_proj" in name:  # Halves of heads become neighbors.
            turned = numbers.reshape(-1, 2, SIZE // 2, DIM).swapaxes(1, 2)
            numbers = np.ascontiguousarray(turned.reshape(numbers.shape))
        there = names.get_name(name, try_suffixes=(".weight",))
        if tensor.dim() == 1:
            writer.add_tensor(there, numbers)
            continue
        kind = gguf.GGMLQuantizationType["Q8_0" if "embed" in name else "Q4_0"]
        writer.add_tensor(there, gguf.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def lowered(folder: Path, source: str, form: str = "", **how: Any) -> Path:
    """Our `.pte` of a model in a folder; one that is there is taken as it is."""
    file = folder / f"{source}{form}.pte"
    if not file.exists():
        model = open_model(
            str(folder / source), language={"context": CONTEXT} | how.pop("language", {}), **how
        )
        stepwell.lower(model.program, "xnnpack").save(file)
    return file


def of_stock(folder: Path) -> Path:
    """ExecuTorch's own Llama in 8da4w by its own flow, its cache written by its operators."""
    file = folder / "stock.pte"
    if not file.exists():
        shapes = Size(DIM, HIDDEN, LAYERS, HEADS, SHARED, VOCABULARY, CONTEXT)
        _, program = exported(Variant("8da4w", "custom", embedding="8,0"), shapes)
        file.write_bytes(stock_pte(program, "8da4w"))
    return file


class Peer(Protocol):
    """Another runtime in the middle of a text.

    `say` reads tokens after those it has read; `forget` keeps only the tokens before a position;
    `logits` are of the last token.
    """

    def say(self, tokens: Sequence[int]) -> None: ...
    def forget(self, begin: int) -> None: ...
    def logits(self) -> np.ndarray[Any, Any]: ...


class LlamaCpp:
    """A file of GGUF in llama.cpp, by the declarations of its Python package."""

    def __init__(self, package: Path, file: Path, threads: int) -> None:
        os.environ["LLAMA_CPP_LIB_PATH"] = str(package / "vendor/llama.cpp/build/bin")
        bare = types.ModuleType("llama_cpp")  # Without what the package imports beside it.
        bare.__path__ = [str(package / "llama_cpp")]
        sys.modules["llama_cpp"] = bare
        import llama_cpp.llama_cpp as of  # pyright: ignore

        self.of: Any = of
        quiet = of.llama_log_callback(lambda *_: None)
        self.quiet = quiet
        of.llama_log_set(quiet, ctypes.c_void_p(0))
        of.llama_backend_init()
        asked = of.llama_model_default_params()
        self.model = of.llama_model_load_from_file(str(file).encode(), asked)
        how = of.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch = CONTEXT, 512, 512
        how.n_threads = how.n_threads_batch = threads
        self.context = of.llama_init_from_model(self.model, how)
        self.memory = of.llama_get_memory(self.context)

    def say(self, tokens: Sequence[int]) -> None:
        given = (self.of.llama_token * len(tokens))(*tokens)
        batch = self.of.llama_batch_get_one(given, len(tokens))
        assert self.of.llama_decode(self.context, batch) == 0

    def forget(self, begin: int) -> None:
        assert self.of.llama_memory_seq_rm(self.memory, 0, begin, -1)

    def logits(self) -> np.ndarray[Any, Any]:
        made = self.of.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(made, (VOCABULARY,)).copy()


class OnnxRuntime:
    """What ONNX Runtime GenAI's builder makes of a folder."""

    def __init__(self, packages: Path, folder: Path, threads: int) -> None:
        made = folder / "onnxruntime"
        if not made.exists():
            blocks = ["int4_block_size=32", "int4_accuracy_level=4", "int4_is_symmetric=true"]
            how = ["-p", "int4", "-e", "cpu", "--extra_options", *blocks]
            build = ["onnxruntime_genai.models.builder", "-i", str(folder / "llama")]
            run_with(packages, "-m", *build, "-o", str(made), *how)
        told = json.loads((made / "genai_config.json").read_text())
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        told["model"]["decoder"]["session_options"].update(options)
        (made / "genai_config.json").write_text(json.dumps(told))
        import onnxruntime_genai as of  # pyright: ignore

        model: Any = of.Model(str(made))
        how = of.GeneratorParams(model)
        how.set_search_options(max_length=CONTEXT)
        self.generator: Any = of.Generator(model, how)

    def say(self, tokens: Sequence[int]) -> None:
        self.generator.append_tokens(np.array([tokens], np.int32))

    def forget(self, begin: int) -> None:
        self.generator.rewind_to(begin)

    def logits(self) -> np.ndarray[Any, Any]:
        return self.generator.get_logits()[0, -1].copy()


_SAVE = """
import sys, openvino_genai
try:
    openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
except RuntimeError:  # It compiles what it read, but not before it is saved (2026.4).
    pass
"""


class OpenVino:
    """OpenVINO GenAI's model of a GGUF file, run by OpenVINO.

    Its state is not cut: behind a position each token that is timed stands one further.
    """

    def __init__(self, packages: Path, folder: Path, threads: int) -> None:
        if not (folder / "openvino_model.xml").exists():
            run_with(packages, "-c", _SAVE, str(folder / "llama.gguf"))
        import openvino as of  # pyright: ignore

        model: Any = of.Core().read_model(folder / "openvino_model.xml")
        compiled = of.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads})
        self.request: Any = compiled.create_infer_request()
        self.count = 0

    def say(self, tokens: Sequence[int]) -> None:
        begin, self.count = self.count, self.count + len(tokens)
        self.request.infer(
            {
                "input_ids": np.array([tokens], np.int64),
                "attention_mask": np.ones((1, self.count), np.int64),
                "position_ids": np.arange(begin, self.count)[None],
                "beam_idx": np.zeros(1, np.int32),
            },
            share_inputs=True,
        )

    def forget(self, begin: int) -> None:
        if begin == 0:
            self.request.reset_state()
            self.count = 0

    def logits(self) -> np.ndarray[Any, Any]:
        return self.request.get_output_tensor().data[0, -1].copy()


def run_with(packages: Path, *arguments: str) -> None:
    """Python with packages of a folder, in a process of its own."""
    paths = os.pathsep.join((str(packages), os.environ.get("PYTHONPATH", "")))
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def bytes_of_a_token(position: int) -> int:
    """What a token reads: weights of four bits, two bytes a group, caches of singles."""
    weights = LAYERS * (2 * DIM * DIM + 2 * DIM * SHARED * SIZE + 3 * DIM * HIDDEN)
    weights += DIM * VOCABULARY
    return weights * 18 // 32 + LAYERS * 2 * position * SHARED * SIZE * 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row a length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", type=Path, help="of llama.cpp, unpacked and built")
    parser.add_argument("--genai", type=Path, help="a folder with the other runtimes' packages")
    parser.add_argument("--keep", type=Path, default=RESULTS / "llama", help="models and programs")
    parser.add_argument("--stock", action="store_true", help="ExecuTorch's own flow, too")
    parser.add_argument("--positions", type=int, nargs="+", default=[128, 1024, 2000, 4000])
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", type=Path, help="write the table between its marks here")
    given = parser.parse_args(arguments)
    if given.package is None and given.genai is None:
        print("neither --package nor --genai is given: nothing is measured")
        return
    prepare()
    threads: int = given.threads
    set_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    folder = given.keep
    if not (folder / "llama.gguf").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_models(folder)
    programs = {"ours": lowered(folder, "llama", quantize="8da4w", language={"embedding": 8})}
    narrow = {"embedding": 8, "cache_dtype": "bf16"}
    programs["bf16 cache"] = lowered(folder, "llama", "bf16", quantize="8da4w", language=narrow)
    of_gguf = lowered(folder, "llama.gguf")
    if given.stock:
        programs["stock"] = of_stock(folder)
    sessions = {name: PteSession.load(file.read_bytes()) for name, file in programs.items()}
    peers: dict[str, Peer] = {}
    if given.package is not None:
        peers["llama.cpp"] = LlamaCpp(given.package, folder / "llama.gguf", threads)
    if given.genai is not None:
        sys.path.append(str(given.genai))
        peers["ONNX Runtime GenAI"] = OnnxRuntime(given.genai, folder, threads)
        peers["OpenVINO GenAI"] = OpenVino(given.genai, folder, threads)

    seeded = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (1, CONTEXT), generator=seeded)
    words: list[int] = tokens[0].tolist()
    same = PteSession.load(of_gguf.read_bytes()).run(tokens[:, :16].contiguous(), torch.tensor([0]))
    off: dict[str, float] = {}
    for name, peer in peers.items():
        peer.say(words[:16])
        want = peer.logits()
        off[name] = float(np.abs(same[0][0].numpy() - want).max() / np.abs(want).max())
    ratio = of_gguf.stat().st_size / (folder / "llama.gguf").stat().st_size

    rows: list[dict[str, Any]] = []
    for position in given.positions:
        for peer in peers.values():
            peer.forget(0)
            for begin in range(0, position, 512):
                peer.say(words[begin : min(begin + 512, position)])
        at, one = torch.tensor([position]), tokens[:, :1].contiguous()
        memory = torch.zeros(bytes_of_a_token(position) // 4)

        def token(peer: Peer, position: int = position) -> None:
            peer.say(words[:1])
            peer.forget(position)

        calls: dict[str, Call] = {
            name: (lambda session=session, at=at, one=one: session.run(one, at))
            for name, session in sessions.items()
        }
        calls |= {
            name: (lambda peer=peer, token=token: token(peer)) for name, peer in peers.items()
        }
        calls["read"] = lambda memory=memory: memory.sum()
        rows.append({"what": f"a token at {position}", **in_turn(calls, given.runs, clock)})
        print(rows[-1], flush=True)
    for count in given.prompts:
        part, zero = tokens[:, :count].contiguous(), torch.tensor([0])

        def prompt(peer: Peer, count: int = count) -> None:
            peer.forget(0)
            peer.say(words[:count])

        calls = {
            name: (lambda session=session, part=part, zero=zero: session.run(part, zero))
            for name, session in sessions.items()
        }
        calls |= {name: (lambda peer=peer, say=prompt: say(peer)) for name, peer in peers.items()}
        rows.append({"what": f"{count} tokens", **in_turn(calls, max(10, given.runs // 3), clock)})
        print(rows[-1], flush=True)
    head = ["what", *programs, *peers, "read"]
    cells = [
        [row["what"], *(f"{row[name]:.1f}" if name in row else "" for name in head[1:])]
        for row in rows
    ]
    said = ", ".join(f"{name}'s by {error:.1%}" for name, error in off.items())
    title = (
        f"{cpu_name()}, threads: {threads}, ms. The file of the GGUF's integers is {ratio:.3f} "
        f"times the GGUF, and its logits are off {said} of the largest."
    )
    show(title, head, cells)
    table = ("llama_cpp" if given.genai is None else "genai") + (
        "" if threads == 1 else f"_{threads}"
    )
    write(table, {"rows": rows, "file": ratio, "off": off})
    if given.table:
        between_markers(given.table, table, [title, "", *markdown(head, cells)])


if __name__ == "__main__":
    main()
