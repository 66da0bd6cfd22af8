"""Certify lowerings of models, and count the proved applications: the table of docs/proofs.md.

    python tools/certificates.py --state ROWS.json
    python tools/certificates.py --state ROWS.json --only llama.py:llama_block xnnpack

A run continues from the rows in its file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import stepwell
from stepwell.loaders.models import open_model
from stepwell.validation.certificates.certificate import PROVED

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "models"


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


def certified(model: Any, target: str) -> dict[str, Any]:
    """Count how many applications of each rewrite are proved, and all applications, and give the
    reasons for the others.
    """
    begun = time.process_time()
    make: Any = model if callable(model) else open_model(str(EXAMPLES / model)).program
    lowered = stepwell.lower(make() if callable(make) else make, target, certify=True)
    counts: dict[str, list[int]] = {}
    reasons: dict[str, str] = {}
    for entry in lowered.certificate.entries:
        row = counts.setdefault(entry.rewrite, [0, 0])
        row[0] += entry.by in PROVED
        row[1] += 1
        if entry.by not in PROVED:
            reasons.setdefault(entry.rewrite, f"{entry.by}: {entry.reason}"[:200])
    return {"rewrites": counts, "reasons": reasons, "seconds": time.process_time() - begun}


def main() -> None:
    """Parse the command line, certify, count."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs=2, metavar=("MODEL", "TARGET"), help="a model of examples")
    parser.add_argument("--state", type=Path, required=True, help="rows that a run continues from")
    given = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    rows: dict[str, Any] = json.loads(given.state.read_text()) if given.state.exists() else {}
    chosen = {given.only[0]: tuple(given.only)} if given.only else MODELS
    for name, (model, target) in chosen.items():
        key = f"{name}, {target}"
        if key not in rows:
            rows[key] = certified(model, target)
            given.state.write_text(json.dumps(rows, indent=1))
        proved, made = (sum(c[i] for c in rows[key]["rewrites"].values()) for i in (0, 1))
        print(f"{key}: {proved} of {made}, {rows[key]['seconds']:.1f} s", flush=True)
        for rewrite, reason in rows[key]["reasons"].items():
            print(f"    {rewrite}: {reason}")


if __name__ == "__main__":
    main()
