"""Prompts of hybrid language models in chunks, beside a token a call: time, and eager's tokens.

    python tools/hybrid_prefill.py [--quantize 8da4w] [--small] [--json F] [--table F] [name ...]

Each model has random weights and four layers of every kind that its architecture has. It is lowered
as `stepwell lower FOLDER` does, and with `--one-token`; one process lowers, another one runs both
files in turn on one thread. A prompt takes the CPU seconds of the process from its first call to
the logits of its last token, which other processes change least: the least of two rounds. Then 16
tokens are generated behind each prompt, and compared with eager PyTorch's greedy ones: a token
counts as the same where eager's logit of it is within the amount by which eager's logits change
when its embeddings change by a millionth.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]

from _report import between_markers, cpu_name, prepare  # noqa: E402

import stepwell  # noqa: E402
from stepwell.backends.executorch.running.runner import PteSession  # noqa: E402
from stepwell.language_models import export_causal_lm  # noqa: E402
from stepwell.language_models import prepare as prepared  # noqa: E402
from stepwell.language_models.observing import cache_argument  # noqa: E402
from stepwell.model_zoo.catalogue.vision import imported  # noqa: E402
from stepwell.translate.executorch_private import reset_threadpool  # noqa: E402

PROMPTS, SAID, ROUNDS, CONTEXT = (128, 512), 16, 2, 1024
WIDE: dict[str, Any] = {
    "vocab_size": 16384, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "tie_word_embeddings": True,
}  # fmt: skip
SMALL = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 768}
DELTA = {
    "layer_types": [*["linear_attention"] * 3, "full_attention"],
    "head_dim": 128,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 8,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lfm2": ("Lfm2", {"layer_types": ["conv", "conv", "full_attention", "conv"]}),
    "qwen3_5": ("Qwen3_5Text", DELTA),
    "olmo_hybrid": ("OlmoHybrid", DELTA),
    "bamba": (
        "Bamba",
        {"mamba_n_heads": 32, "mamba_d_head": 64, "mamba_n_groups": 1, "attn_layer_indices": [3]},
    ),
    "falcon_h1": ("FalconH1", {"mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_ssm": 1024}),
    "mamba": ("Mamba", {"state_size": 16}),
}


def model_of(name: str, small: bool, quantize: str | None) -> Any:
    """Return a model with random weights."""
    transformers = imported("transformers")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    kind, more = MODELS[name]
    sizes = {**WIDE, **more, **(SMALL if small else {})}
    if small and name == "bamba":
        sizes["mamba_n_heads"] = 8
    config = getattr(transformers, f"{kind}Config")(**sizes)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    return prepared(made, quantize=quantize)


@torch.no_grad()
def greedy(model: Any, prompt: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what eager says behind a prompt, the logits, and how far they move by a millionth."""
    cache: Any = imported("transformers").DynamicCache(config=model.config)
    how, tokens, last = {cache_argument(model): cache, "use_cache": True}, prompt, prompt
    for _ in range(SAID):
        last = model(input_ids=last, **how).logits[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, last], 1)

    def logits() -> torch.Tensor:
        return model(input_ids=tokens, use_cache=False).logits[0, prompt.shape[1] - 1 : -1]

    want, noise = logits(), torch.Generator().manual_seed(2)

    def off(_: Any, __: Any, made: torch.Tensor) -> torch.Tensor:
        return made * (1 + 1e-6 * (2 * torch.rand(made.shape, generator=noise) - 1))

    hook = model.get_input_embeddings().register_forward_hook(off)
    moves = (logits() - want).abs().max()
    hook.remove()
    return {"tokens": tokens, "logits": want, "moves": moves}


def build(folder: Path, name: str, small: bool, quantize: str | None) -> dict[str, Any]:
    """Write both files and what eager says, and return the counts of the lowering."""
    model = model_of(name, small, quantize)
    found: dict[str, Any] = {}
    for file, any_length in (("chunks", None), ("one", False)):
        methods = export_causal_lm(model, context=CONTEXT, any_length=any_length)
        lowered = stepwell.lower(methods, "xnnpack")
        lowered.save(folder / f"{file}.pte")
        outside = sum(lowered.report.outside.values())
        found[f"{file} delegates"] = f"{lowered.report.delegates} / {outside}"
    seeded = torch.Generator().manual_seed(1)
    words = model.config.get_text_config().vocab_size
    said = [greedy(model, torch.randint(4, words, (1, n), generator=seeded)) for n in PROMPTS]
    torch.save(said, folder / "said.pt")
    return found


def run(folder: Path) -> dict[str, Any]:
    """Return times and the number of same tokens of both files."""
    reset_threadpool(1)
    of = {
        name: PteSession.load((folder / f"{name}.pte").read_bytes()) for name in ("one", "chunks")
    }
    most = {"one": 1, "chunks": of["chunks"].run(method="get_max_seq_len")[0]}
    found: dict[str, Any] = {"chunk": most["chunks"]}

    def say(name: str, tokens: torch.Tensor, at: int) -> torch.Tensor:
        return of[name].run(tokens.contiguous(), torch.tensor([at]))[0][0]

    def prompted(name: str, tokens: torch.Tensor) -> tuple[float, torch.Tensor]:
        begin, last = time.process_time(), tokens
        for at in range(0, tokens.shape[1], most[name]):
            last = say(name, tokens[:, at : at + most[name]], at)
        return time.process_time() - begin, last

    for count, eager in zip(PROMPTS, torch.load(folder / "said.pt"), strict=True):
        tokens, want, moves = eager["tokens"], eager["logits"], float(eager["moves"])
        for name in of:
            least, same, last = float("inf"), 0, want
            for _ in range(ROUNDS):
                seconds, last = prompted(name, tokens[:, :count])
                least = min(least, seconds)
            steps: list[float] = []
            for step in range(SAID):
                same += bool(want[step, last.argmax()] >= want[step].max() - moves)
                begin = time.process_time()
                last = say(name, tokens[:, count + step : count + step + 1], count + step)
                steps.append(time.process_time() - begin)
            found |= {f"{name} {count}": least, f"{name} same {count}": same}
            found[f"{name} token"] = min(min(steps), found.get(f"{name} token", float("inf")))
    return found


def row(name: str, small: bool, quantize: str | None) -> dict[str, Any]:
    """Measure a model in processes of its own."""
    more = [*(["--small"] if small else []), *(["--quantize", quantize] if quantize else [])]
    found: dict[str, Any] = {"name": name, "variant": quantize or "fp32"}
    with tempfile.TemporaryDirectory() as folder:
        for stage in ("--build", "--run"):
            command = [sys.executable, __file__, name, *more, stage, folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found |= json.loads(done.stdout.splitlines()[-1])
    return found


def line(found: dict[str, Any]) -> str:
    """Return a row of the table."""
    one, chunks = found["one token"] * 1e3, found["chunks token"] * 1e3
    cells = [
        found["name"],
        found["variant"],
        str(found["chunk"] if found["chunk"] < CONTEXT else "any"),
        f"{found['one delegates']} → {found['chunks delegates']}",
        f"{one:.2f} → {chunks:.2f} ms",
    ]
    for count in PROMPTS:
        before, now = found[f"one {count}"], found[f"chunks {count}"]
        cells.append(f"{before * 1e3:.0f} → {now * 1e3:.0f} ms: {before / now:.1f}")
    same = [f"{found[f'{name} same {count}']}" for count in PROMPTS for name in ("one", "chunks")]
    return f"| {' | '.join([*cells, ', '.join(same) + f' of {SAID}'])} |"


HEAD = [
    "| architecture | variant | tokens a call | delegates / outside | a token | 128 tokens | "
    "512 tokens | same tokens |",
    "|---|---|---|---|---|---|---|---|",
]


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], metavar="name")
    parser.add_argument("--quantize", nargs="?")
    parser.add_argument("--small", action="store_true", help="256 channels")
    parser.add_argument("--json", type=Path, help="write the numbers here, in seconds")
    parser.add_argument("--table", type=Path, help="write the table between its marks here")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    prepare()
    if given.build:
        print(json.dumps(build(given.build, given.names[0], given.small, given.quantize)))
        return
    if given.run:
        print(json.dumps(run(given.run)))
        return
    print(cpu_name(), *HEAD, sep="\n", flush=True)
    rows: list[dict[str, Any]] = []
    for name in given.names or MODELS:
        rows.append(row(name, given.small, given.quantize))
        print(line(rows[-1]), flush=True)
        if given.json:
            told = {"cpu": cpu_name(), "small": given.small, "rows": rows}
            given.json.write_text(json.dumps(told, indent=1))
    if given.table:
        kind = "-".join(
            ["hybrid-prefill", *(["small"] if given.small else []), given.quantize or "fp32"]
        )
        lines = [cpu_name() + ", one thread.", "", *HEAD, *map(line, rows)]
        between_markers(given.table, kind, lines)


if __name__ == "__main__":
    main()
