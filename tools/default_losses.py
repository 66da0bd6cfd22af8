"""What `numerics="torch"` leaves outside beside another checkout, and what ranges win back.

    python tools/default_losses.py [--all] [--against WORKTREE]… [PATTERN …]

Each model (of `stepwell.model_zoo.catalogue`, with random weights; decoders again with a dynamic
length) is exported once, and lowered to XNNPACK by default, by the other checkouts in order and by
this one.
Rows whose ops outside differ (all, with `--all`) are printed, with what this one makes of them with
ranges of float inputs (±8) and with `numerics="finite"`, and the p10 of 30 runs of the first
program and of this one, in turns, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
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
    for entry in [one for pattern in patterns for one in found(select, pattern)]:
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


def found(select: Any, pattern: str) -> list[Any]:
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
    Path(file).write_bytes(lowered.to_pte())
    report = lowered.report
    return {
        "delegates": report.delegates,
        "outside": dict(report.outside),
        "deviations": sorted({d.rewrite for d in report.deviations}),
        "pte": file,
    }


def lowered_by(checkout: Path, side: str, jobs: list[tuple[str, str]]) -> dict[str, Any]:
    """What a checkout makes of programs, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "SIDE": side}
    command = [sys.executable, __file__, "--jobs", json.dumps(jobs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def milliseconds(files: list[str], inputs: tuple[Any, ...]) -> list[float]:
    """The p10 of each program, run in turns."""
    from stepwell.backends.executorch.running.runner import PteSession

    sessions = [PteSession.load(Path(file).read_bytes()) for file in files]
    times: list[list[float]] = [[] for _ in files]
    for _ in range(30):
        for session, taken in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session.run(*inputs)
            taken.append((time.perf_counter() - start) * 1e3)
    return [sorted(taken)[3] for taken in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=MODELS)
    parser.add_argument("--against", type=Path, action="append", default=[])
    parser.add_argument("--all", action="store_true")
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
        kinds = [kind for kind in KINDS if kind != "torch"]
        sides[-1] |= lowered_by(ROOT, "here", [(file, kind) for file in printed for kind in kinds])
        report(printed, sides)
        print(f"\n{len(files) - len(differ)} of {len(files)} programs have the same ops outside.")


def are_same(rows: list[dict[str, Any]]) -> bool:
    """Whether all leave the same ops outside."""
    return all("error" not in row and row["outside"] == rows[0]["outside"] for row in rows)


def report(files: list[str], sides: list[dict[str, Any]]) -> None:
    """The rows of these programs."""
    import torch

    before = "".join(f" before {at} |" for at in range(len(sides) - 1))
    print(f"| model |{before} torch | ranges | finite | ms before, torch |")
    print("|---" * (len(sides) + 4) + "|")
    for file in files:
        rows = [side[f"{file} torch"] for side in sides]
        cells = [
            shown(row)
            for row in (*rows, *(sides[-1][f"{file} {kind}"] for kind in list(KINDS)[1:]))
        ]
        times = ""
        if "error" not in rows[0] and "error" not in rows[-1]:
            inputs = torch.load(Path(file).with_suffix(".inputs"))
            taken = milliseconds([rows[0]["pte"], rows[-1]["pte"]], inputs)
            times = ", ".join(f"{one:.2f}" for one in taken)
        name = Path(file).with_suffix(".name").read_text()
        print(f"| {name} | {' | '.join(cells)} | {times} |", flush=True)


def shown(row: dict[str, Any]) -> str:
    """Delegates and ops outside."""
    refused = row.get("error", "").partition("\n")[0]
    return refused or f"{row['delegates']} / {sum(row['outside'].values())}"


if __name__ == "__main__":
    main()
