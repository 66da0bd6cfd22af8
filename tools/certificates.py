"""Certify lowerings of small models, and count the proofs of each rewrite written in Python.

    python tools/certificates.py --state ROWS.json
    python tools/certificates.py --state ROWS.json --only examples     # what rewrites state alone
    python tools/certificates.py --state MODELS.json --models          # the table of docs/proofs.md
    python tools/certificates.py --state ROWS.json --only llama.py:llama_block

A rewrite in Python (one that is not a rule) counts as proved if each of its applications in these
models is proved. Rewrites without an application appear in the last count only. A run continues
from the rows in its file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import stepwell
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites, History, Rewrite
from stepwell.loaders.models import open_model
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.certificates.certificate import PROVED, Certificate, certificate
from stepwell.validation.certificates.recorder import StatementRecorder
from stepwell.validation.contracts.draft import Dropped, draft_of
from stepwell.validation.contracts.driver import documented, subject_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "models"
FLOATS = (
    "llama.py:llama_block", "gpt2.py:gpt2_2layers", "tiny.py:ds_cnn", "recurrent.py:gru",
    "deit.py:deit_small_depth2", "resnet.py:resnet8", "microcontrollers.py:tcn",
)  # fmt: skip
CASES = (
    *((model, target) for model in FLOATS for target in ("xnnpack", "tosa-1.0+fp")),
    ("quantized.py:cnn_per_tensor", "xnnpack"), ("quantized.py:cnn_per_channel", "xnnpack"),
    ("quantized.py:cnn_per_tensor", "cortex-m55"), ("quantized.py:cnn_per_tensor", "tosa-1.0+int"),
    ("quantized.py:mlp_dynamic", "xnnpack"),
)  # fmt: skip


def _in_mxfp8() -> Any:
    """DeiT of two layers with all products in MXFP8."""
    held: Any = open_model(str(EXAMPLES / "deit.py:deit_small_depth2")).program
    exported = held() if callable(held) else held
    return stepwell.to_mxfp(exported, "fp8e4m3", convolutions=True, attention=True)


def _in_int8() -> Any:
    """MobileNetV2-0.35 for images of 64 × 64."""
    from mobilenet import mobilenet_v2_035
    from quantized import quantize

    model, _ = mobilenet_v2_035()
    return quantize(model, (torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)),))


MODELS: dict[str, tuple[Any, str]] = {
    "DeiT-Tiny": ("deit.py:deit_tiny", "xnnpack"),
    "a Llama block": ("llama.py:llama_block", "xnnpack"),
    "GPT-2 of two layers": ("gpt2.py:gpt2_2layers", "xnnpack"),
    "DeiT of two layers in MXFP8": (_in_mxfp8, "tosa-1.1+fp+mx_common+mx_fp8e4m3+mxfp"),
    "MobileNetV2-0.35 in int8": (_in_int8, "xnnpack"),
}
"""The models in the table of docs/proofs.md."""


def python_rewrites() -> dict[str, bool]:
    """Map each rewrite in Python to whether it declares that it is exact: of integers, or a data
    movement.
    """
    import stepwell.translate as package

    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    found: dict[str, bool] = {}
    waiting: list[Any] = [Rewrite]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if isinstance(cls.__dict__.get("name"), str) and not issubclass(cls, RuleRewrite):
            found[cls.name] = bool(cls.bound.exact)
    return found


def certified(model: Any, target: str) -> dict[str, Any]:
    """Count how many applications of each rewrite are proved, and all applications."""
    begun = time.process_time()
    make: Any = model if callable(model) else open_model(str(EXAMPLES / model)).program
    lowered = stepwell.lower(make() if callable(make) else make, target, certify=True)
    return counted([lowered.certificate], begun)


def of_examples(place: str) -> dict[str, Any]:
    """Count the same for the documented examples of a module's rewrites, on which all of them are
    tried.
    """
    begun = time.process_time()
    subject = subject_of(place)
    rewrites = tuple(step for step in subject.steps if isinstance(step, Rewrite))
    step = GreedyRewrites(place, rewrites) if rewrites else subject.steps[0]
    made: list[Certificate] = []
    for text in subject.examples:
        program = draft_of(text).build()
        recorder = StatementRecorder(program)
        Pipeline(place, (step,)).run(program, recorder.behind, history=History(watch=recorder))
        made.append(certificate(recorder, place))
    return counted(made, begun)


def _is_of_rules(place: str) -> bool:
    return any(isinstance(step, RuleRewrite) for step in subject_of(place).steps)


def counted(certificates: list[Certificate], begun: float) -> dict[str, Any]:
    """Count by rewrite how many applications are proved, all applications, and the reasons for the
    others.
    """
    counts: dict[str, list[int]] = {}
    reasons: dict[str, str] = {}
    for entry in (entry for each in certificates for entry in each.entries):
        row = counts.setdefault(entry.rewrite, [0, 0])
        row[0] += entry.by in PROVED
        row[1] += 1
        if entry.by not in PROVED:
            reasons.setdefault(entry.rewrite, f"{entry.by}: {entry.reason}"[:200])
    return {"rewrites": counts, "reasons": reasons, "seconds": time.process_time() - begun}


def main() -> None:
    """Parse the command line, certify, count."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", help="these models of examples/models, or `examples`")
    parser.add_argument("--models", action="store_true", help="the five of docs/proofs.md")
    parser.add_argument(
        "--state", type=Path, required=True, help="a file from which a run continues"
    )
    given = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    rows: dict[str, Any] = json.loads(given.state.read_text()) if given.state.exists() else {}
    if given.models:
        for name, (model, target) in MODELS.items():
            if name not in rows:
                rows[name] = certified(model, target)
                given.state.write_text(json.dumps(rows, indent=1))
            sums = [sum(c[i] for c in rows[name]["rewrites"].values()) for i in (0, 1)]
            print(f"{name}, {target}: {sums[0]} of {sums[1]}, {rows[name]['seconds']:.1f} s")
        return
    examples = [place for place in documented() if not _is_of_rules(place)]
    for model, target in (*CASES, *((place, "examples") for place in examples)):
        name = f"{model}, {target}"
        if name not in rows and (not given.only or model in given.only or target in given.only):
            try:
                rows[name] = (
                    of_examples(model) if target == "examples" else certified(model, target)
                )
            except (StepwellError, Dropped) as error:
                rows[name] = {"rewrites": {}, "refused": str(error).splitlines()[0]}
            given.state.write_text(json.dumps(rows, indent=1))
        if name in rows:
            sums = [sum(c[i] for c in rows[name]["rewrites"].values()) for i in (0, 1)]
            label = rows[name].get("refused") or f"{sums[0]} of {sums[1]}"
            print(f"{name:45} {label}", flush=True)
    show(rows)


def show(rows: dict[str, Any]) -> None:
    """Print how many rewrites in Python are proved in all of their applications."""
    proved, made = Counter[str](), Counter[str]()
    for row in rows.values():
        for name, (some, all_) in row["rewrites"].items():
            proved[name] += some
            made[name] += all_
    known = python_rewrites()
    for label, names in (
        ("rewrites in Python", set(known)),
        ("exact ones: integers, movements", {name for name, exact in known.items() if exact}),
    ):
        applied = {name for name in names if made[name]}
        whole = {name for name in applied if proved[name] == made[name]}
        print(f"{label}: {len(whole)} of {len(applied)} applied proved; {len(names)} in all")
        for name in sorted(applied - whole):
            why = next(r["reasons"][name] for r in rows.values() if name in r.get("reasons", ()))
            print(f"    {name}: {proved[name]} of {made[name]}: {why}")


if __name__ == "__main__":
    main()
