"""The tables of `bench/peers.py`: what was measured of each runtime, as rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

OURS, ORT, OPENVINO, EAGER = "stepwell", "ONNX Runtime", "OpenVINO", "PyTorch"
PEERS = (OURS, ORT, OPENVINO, EAGER)
GOAL = (
    "deit_tiny",
    "llama_block:128",
    "swin_tiny",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilevit_xxs",
    "mixer_s32",
    "efficientnet_b0",
    "resnet18",
    "resnet50",
    "convnext_atto",
)
"""The models of `examples/models` that the goals are stated for."""


@dataclass
class Measured:
    """One runtime on one model: milliseconds, seconds, bytes."""

    warm_ms: float = math.nan
    cold_ms: float = math.nan
    error: float = math.nan
    bytes: int = 0
    compile_cpu_seconds: float = math.nan
    load_seconds: float = math.nan
    memory_mb: float = math.nan


def ratios(found: dict[str, Measured]) -> dict[str, float]:
    """Their warm time divided by ours."""
    return {
        peer: found[peer].warm_ms / found[OURS].warm_ms
        for peer in PEERS[1:]
        if OURS in found and peer in found
    }


def line(name: str, found: dict[str, Measured]) -> list[Any]:
    """A row of the table of times."""
    cells = [f"{found[peer].warm_ms:.2f}" if peer in found else "–" for peer in PEERS]
    theirs = ratios(found)
    return [
        name,
        *cells,
        *(f"{theirs[peer]:.2f}" if peer in theirs else "–" for peer in PEERS[1:]),
        f"{found[OURS].error:.0e}" if OURS in found else "–",
    ]


def means(results: dict[str, dict[str, Measured]], names: Iterable[str]) -> list[Any]:
    """The geometric means of the ratios over some models."""
    cells: list[str] = []
    for peer in PEERS[1:]:
        held = [ratios(results[name]).get(peer) for name in names if name in results]
        there = [ratio for ratio in held if ratio]
        cells.append(f"{statistics.geometric_mean(there):.3f}" if there else "–")
    return cells


def kinds_of(results: Iterable[str]) -> list[str]:
    """Suffixes of names: "" for float32, `@static` and others."""
    return list(dict.fromkeys("".join(name.partition("@")[1:]) for name in results))


def goal(kind: str) -> list[str]:
    """The goal's models of a kind."""
    return [name + kind for name in GOAL]


COLUMNS = ("model", *(f"{peer} ms" for peer in PEERS), *(f"÷ {p}" for p in PEERS[1:]), "error")


def markdown(results: dict[str, dict[str, Measured]]) -> list[str]:
    """Format the tables for the docs."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(line(name, held)) + " |" for name, held in results.items()]
    of_kinds = [(f"of the goal's eleven {kind}".strip(), goal(kind)) for kind in kinds_of(results)]
    for title, names in (*of_kinds, ("all", list(results))):
        blank = ["" for _ in PEERS]
        row = [f"geometric mean, {title}", *blank, *means(results, names), ""]
        lines.append("| " + " | ".join(row) + " |")
    return lines


def resource_table(results: dict[str, dict[str, Measured]]) -> list[str]:
    """Format load time, memory, size and compile time for the docs."""
    peers = PEERS[:3]
    heads = [f"{peer} {what}" for what in ("s", "MB") for peer in peers]
    heads += ["file MB, ours / ONNX", "compile CPU s, ours / ONNX"]
    lines = ["| model | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 1)]
    for name, found in results.items():
        if OURS not in found or ORT not in found or math.isnan(found[OURS].memory_mb):
            continue
        held = [found.get(peer, Measured()) for peer in peers]
        ours, theirs = found[OURS], found[ORT]
        cells = [f"{one.load_seconds:.2f}" for one in held] + [
            f"{one.memory_mb:.0f}" for one in held
        ]
        cells.append(f"{ours.bytes / 1e6:.1f} / {theirs.bytes / 1e6:.1f}")
        cells.append(f"{ours.compile_cpu_seconds:.1f} / {theirs.compile_cpu_seconds:.1f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines
