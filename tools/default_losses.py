"""What `numerics="torch"` leaves outside beside another checkout, and what ranges win back.

    python tools/default_losses.py [--all | --node NAME] [--against WORKTREE]… [PATTERN …]

Each model (of `stepwell.model_zoo.catalogue`, with random weights; decoders again with a dynamic
length) is exported once, and lowered to XNNPACK by default, by the other checkouts in order and by
this one.
Rows whose ops outside differ are printed (`--all`: all; `--node`: those that have such a node):
what this one makes of them with ranges of float inputs (±8) and with `numerics="finite"`, and for
the first program and this one the bytes of the `.pte`, the nodes of that name (or of any), and the
p10 of 30 or more runs in turns, on one thread, in ms of CPU time (other processes disturb it less).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KINDS: dict[str, dict[str, Any]] = {"torch": {}, "ranges": {}, "finite": {"numerics": "finite"}}
WIDEST = 8.0
"""The end of the range of float inputs: beyond four deviations of a normal distribution."""
MODELS = (
    "examples",
    *(
        f"transformers/{name}"
        for name in (
            "llama/LlamaForCausalLM", "gpt2/GPT2LMHeadModel", "gpt_neo/GPTNeoForCausalLM",
            "qwen2_moe/Qwen2MoeForCausalLM", "mixtral/MixtralForCausalLM", "bloom/BloomForCausalLM",
            "olmoe/OlmoeForCausalLM", "gemma2/Gemma2ForCausalLM", "opt/OPTForCausalLM",
            "phimoe/PhimoeForCausalLM", "granitemoe/GraniteMoeForCausalLM",
            "ernie4_5_moe/Ernie4_5_MoeForCausalLM", "jetmoe/JetMoeForCausalLM",
            "deepseek_v3/DeepseekV3ForCausalLM", "mpt/MptForCausalLM", "falcon/FalconForCausalLM",
            "gptj/GPTJForCausalLM", "codegen/CodeGenForCausalLM", "gpt_neox/GPTNeoXForCausalLM",
            "bert/BertForMaskedLM", "mpnet/MPNetForMaskedLM", "electra/ElectraForMaskedLM",
            "distilbert/DistilBertForMaskedLM", "xlnet/XLNetLMHeadModel",
            "deberta-v2/DebertaV2ForMaskedLM", "deberta/DebertaForMaskedLM",
            "t5/T5ForConditionalGeneration", "vit/ViTForImageClassification",
            "swin/SwinForImageClassification", "swin2sr/Swin2SRForImageSuperResolution",
            "vitdet/VitDetBackbone", "roformer/RoFormerForMaskedLM", "mamba/MambaForCausalLM",
        )
    ),
    *(
        f"timm/{name}"
        for name in (
            "vit_tiny_patch16_224", "efficientnet_b0", "regnety_002", "regnetx_002", "densenet121",
            "convnext_atto", "mobilenetv3_small_050", "resnet10t", "swin_tiny_patch4_window7_224",
            "maxvit_rmlp_pico_rw_256", "ghostnet_050", "levit_128s", "mixer_s32_224",
        )
    ),
)  # fmt: skip


def exported(patterns: tuple[str, ...], into: Path) -> list[str]:
    """Save the models that these patterns name; their files."""
    import torch

    import stepwell
    from stepwell.model_zoo.catalogue.models import select

    saved: list[str] = []
    for entry in [one for pattern in patterns for one in entries(select, pattern)]:
        try:
            made = entry.make()
            if made.module is None:
                continue
            ids = [x.dtype == torch.int64 and x.dim() == 2 for x in made.inputs]
            for dynamic in (False, True) if all(ids) else (False,):
                shapes = tuple({1: torch.export.Dim.AUTO(min=2, max=64)} for _ in made.inputs)
                program = torch.export.export(
                    made.module, made.inputs, dynamic_shapes=(shapes,) if dynamic else None
                )
                path = into / f"{len(saved)}.mlir"
                stepwell.from_exported_program(program).save(path)
                torch.save(made.inputs, path.with_suffix(".inputs"))
                path.with_suffix(".name").write_text(entry.name + ", dynamic" * dynamic)
                saved.append(str(path))
        except Exception as error:
            print(f"{entry.name}: {str(error).strip()[:200]}", file=sys.stderr)
    return saved


def entries(select: Any, pattern: str) -> list[Any]:
    """Entries of a pattern; none where there is no such model in what is installed."""
    try:
        return select([pattern])
    except Exception as error:
        print(f"{pattern}: {error}", file=sys.stderr)
        return []


def lower(path: str, kind: str) -> dict[str, Any]:
    """Lower a saved program with this process's stepwell; write the artifact next to it."""
    import torch

    import stepwell

    program = stepwell.load(path)
    options = dict(KINDS[kind])
    if kind == "ranges":
        inputs = torch.load(Path(path).with_suffix(".inputs"))
        held = {at: (-WIDEST, WIDEST) for at, x in enumerate(inputs) if x.is_floating_point()}
        options["ranges"] = held
    lowered = stepwell.lower(program, "xnnpack", **options)
    file = f"{path}.{kind}.{os.environ['SIDE']}.pte"
    size = Path(file).write_bytes(lowered.to_pte())
    report = lowered.report
    return {
        "delegates": report.delegates,
        "outside": dict(report.outside),
        "deviations": sorted({d.rewrite for d in report.deviations}),
        "nodes": Counter(op.name for op in lowered.program.module.walk()),
        "bytes": size,
        "pte": file,
    }


def lowered_by(checkout: Path, side: str, jobs: list[tuple[str, str]]) -> dict[str, Any]:
    """What a checkout makes of programs, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "SIDE": side}
    command = [sys.executable, __file__, "--jobs", json.dumps(jobs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def milliseconds(files: list[str], inputs: tuple[Any, ...]) -> list[float]:
    """The p10 of each program, run in turns for two seconds of CPU time."""
    from stepwell.backends.executorch.running.runner import PteSession

    sessions = [PteSession.load(Path(file).read_bytes()) for file in files]
    times: list[list[float]] = [[] for _ in files]
    end = time.process_time() + 2
    while len(times[0]) < 30 or time.process_time() < end:
        for session, taken in zip(sessions, times, strict=True):
            start = time.process_time()
            session.run(*inputs)
            taken.append((time.process_time() - start) * 1e3)
    return [sorted(taken)[len(taken) // 10] for taken in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=MODELS)
    parser.add_argument("--against", type=Path, action="append", default=[])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--node", default="")
    parser.add_argument("--jobs", type=json.loads)
    arguments = parser.parse_args()
    if arguments.jobs is not None:
        rows: dict[str, Any] = {}
        for path, kind in arguments.jobs:
            try:
                rows[f"{path} {kind}"] = lower(path, kind)
            except Exception as error:
                rows[f"{path} {kind}"] = {"error": str(error).strip()[:200]}
        print(json.dumps(rows))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = exported(tuple(arguments.patterns), Path(folder))
        jobs = [(file, "torch") for file in files]
        sides = [
            lowered_by(checkout, f"{at}", jobs) for at, checkout in enumerate(arguments.against)
        ]
        sides.append(lowered_by(ROOT, "here", jobs))
        differ = [file for file in files if not are_same([s[f"{file} torch"] for s in sides])]
        printed = files if arguments.all else differ
        if arguments.node:
            rows = [(file, side[f"{file} torch"]) for file in files for side in sides]
            found = (file for file, row in rows if arguments.node in row.get("nodes", ()))
            printed = list(dict.fromkeys(found))
        kinds = [kind for kind in KINDS if kind != "torch"]
        sides[-1] |= lowered_by(ROOT, "here", [(file, kind) for file in printed for kind in kinds])
        report(printed, sides, arguments.node)
        print(f"\n{len(files) - len(differ)} of {len(files)} programs have the same ops outside.")


def are_same(rows: list[dict[str, Any]]) -> bool:
    """Whether all leave the same ops outside."""
    return all("error" not in row and row["outside"] == rows[0]["outside"] for row in rows)


def report(files: list[str], sides: list[dict[str, Any]], node: str) -> None:
    """The rows of these programs."""
    import torch

    before = "".join(f" before {at} |" for at in range(len(sides) - 1))
    print(f"| model |{before} torch | ranges | finite | bytes | {node or 'nodes'} | ms | ratio |")
    print("|---" * (len(sides) + 7) + "|")
    for file in files:
        rows = [side[f"{file} torch"] for side in sides]
        cells = [
            shown(row)
            for row in (*rows, *(sides[-1][f"{file} {kind}"] for kind in list(KINDS)[1:]))
        ]
        if "error" not in rows[0] and "error" not in rows[-1]:
            ends = rows[0], rows[-1]
            inputs = torch.load(Path(file).with_suffix(".inputs"))
            first, last = milliseconds([row["pte"] for row in ends], inputs)
            cells.append(", ".join(f"{row['bytes']:,}" for row in ends))
            cells.append(", ".join(str(sum(of(row, node))) for row in ends))
            cells += [f"{first:.3g}, {last:.3g}", f"{last / first:.3f}"]
        name = Path(file).with_suffix(".name").read_text()
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def of(row: dict[str, Any], node: str) -> list[int]:
    """How many nodes there are of each name that this one is, or of all."""
    return [count for name, count in row["nodes"].items() if node in ("", name)]


def shown(row: dict[str, Any]) -> str:
    """Delegates and ops outside."""
    refused = row.get("error", "").partition("\n")[0]
    return refused or f"{row['delegates']} / {sum(row['outside'].values())}"


if __name__ == "__main__":
    main()
