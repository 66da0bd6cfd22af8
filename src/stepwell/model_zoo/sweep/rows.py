"""A row: the result of a sweep for one model on one target."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Outcome = Literal[
    "right",
    "wrong",
    "not compared",
    "refused",
    "not exported",
    "not made",
    "fault",
    "crashed",
    "out of time",
    "out of memory",
    "lost",
]
OUTCOMES: dict[str, str] = {
    "right": "lowered, ran, and within the bound of eager",
    "wrong": "lowered, ran, and outside the bound of eager",
    "not compared": "lowered; the note says why it was not run or what it cannot be compared with",
    "refused": "stepwell says what the target has no counterpart of",
    "not exported": "`torch.export` or the quantizer does not take the model",
    "not made": "the factory of the model fails",
    "fault": "an exception of ours that is not a StepwellError",
    "crashed": "a signal ended the process",
    "out of time": "the job was ended at its limit",
    "out of memory": "the job reached its limit",
    "lost": "the workers that ran the job died",
}
"""The meaning of each outcome."""
UNFIT = ("not exported", "not made")
"""Outcomes that are no evidence about stepwell."""
BEYOND = re.compile(
    r"has no element type |needs? the (profile|extension)|TOSA has no cast from or to |"
    r"TOSA's casts of |"
    r"^(in|out)put .*TOSA has no empty tensors|draws no random numbers|is as large as its data say|"
    r"takes as many steps as its data say|dimension u\d+ has no upper bound|"
    r"layout torch\.sparse\w+ has no type|"
    r"has no operator for it, and PyTorch|"
    r"runtime has no kernel for it, (and PyTorch|nor .*(has no kernel and|decomposes into itself))"
)
"""Sentences of a refusal that state a limit of the target itself: no type, operator or kernel.

An operator counts if PyTorch has no decomposition into others that the target has.
"""
FAULTS = ("wrong", "fault", "crashed")
"""Outcomes that are faults."""


@dataclass(frozen=True)
class Row:
    """The result of one model on one target.

    Attributes:
        key: the job's name, by content.
        model, source, family, kind: `timm/resnet18`, `timm`, `resnet`, `image classification`.
        target, options, variant: the target, options and variant of the job.
        outcome: one of `OUTCOMES`.
        stage: the stage in which the job ended early.
        reasons: (sentence, number of ops) of a refusal; else why each op is outside delegates.
        outside: the counts of ops that the runtime's own kernels run, by op name.
        floats_outside: how many of these read activations and are not look-ups (xnnpack).
        ops: the number of operators of the imported program.
        delegates: the number of delegates, without those that are split off for memory.
        size, arena: the bytes of the artifact; the bytes planned for its activations.
        export_seconds, lower_seconds, emit_seconds: CPU time.
        peak_bytes: the peak resident memory that lowering and emission added.
        error, bound: the largest difference from eager relative to its largest number, and the
            bound.
        engine: the engine that ran the artifact.
        latency_ms: the 10th percentile of the artifact's run time on one thread.
        tuned: the measurements of close alternatives of the cost model, and their combined gain.
        stock: the same figures of ExecuTorch's own flow, or `{"fails": …}`.
        note: other remarks; the last lines of an error.
        versions: the versions of stepwell's source and of the libraries.
    """

    key: str
    model: str
    target: str
    source: str = ""
    family: str = ""
    kind: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    variant: str = "as it is"
    outcome: Outcome = "lost"
    stage: str = ""
    reasons: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    outside: dict[str, int] = field(default_factory=dict[str, int])
    floats_outside: int | None = None
    ops: int = 0
    delegates: int | None = None
    size: int | None = None
    arena: int | None = None
    export_seconds: float | None = None
    lower_seconds: float | None = None
    emit_seconds: float | None = None
    peak_bytes: int | None = None
    error: float | None = None
    bound: float | None = None
    engine: str = ""
    latency_ms: float | None = None
    tuned: dict[str, Any] | None = None
    stock: dict[str, Any] | None = None
    note: str = ""
    versions: str = ""

    @property
    def is_beyond(self) -> bool:
        """Whether the model was refused for a feature that the target cannot express at all."""
        return self.outcome == "refused" and any(BEYOND.search(said) for said, _ in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return asdict(self)

    @staticmethod
    def from_json(given: dict[str, Any]) -> Row:
        """Parse the result of `to_json`; fields of other versions are ignored."""
        known = {one.name for one in fields(Row)}
        return Row(**{name: value for name, value in given.items() if name in known})
