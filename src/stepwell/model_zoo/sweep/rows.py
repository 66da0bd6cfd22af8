"""What a sweep says of one job."""

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
"""What each outcome means."""
UNFIT = ("not exported", "not made")
"""Outcomes that say nothing of stepwell."""
BEYOND = re.compile(
    r"has no element type |needs? the (profile|extension)|TOSA has no cast from or to |"
    r"TOSA's casts of |"
    r"^(in|out)put .*TOSA has no empty tensors|draws no random numbers|is as large as its data say|"
    r"takes as many steps as its data say|dimension u\d+ has no upper bound|"
    r"layout torch\.sparse\w+ has no type|"
    r"has no operator for it, and PyTorch|"
    r"runtime has no kernel for it, (and PyTorch|nor .*(has no kernel and|decomposes into itself))"
)
"""Sentences of a refusal that state what the target itself lacks: no type, no operator, no kernel.

An operator counts where PyTorch computes it by no others that the target has.
"""
FAULTS = ("wrong", "fault", "crashed")
"""Outcomes that must not be."""


@dataclass(frozen=True)
class Row:
    """One model on one target.

    Attributes:
        key: the job's name, by content.
        model, source, family, kind: `timm/resnet18`, `timm`, `resnet`, `image classification`.
        target, options, variant: as the job says.
        outcome: one of `OUTCOMES`.
        stage: what was being done when it ended early.
        reasons: (sentence, how many ops) of a refusal; elsewhere why each op outside is there.
        outside: op name → count, of what the runtime's own kernels run.
        floats_outside: of these, how many read activations and are no look-up (xnnpack).
        ops: operators of the imported program.
        delegates: parts that a backend runs as a whole, those that memory cuts off not counted.
        size, arena: bytes of the artifact; bytes planned for its activations.
        export_seconds, lower_seconds, emit_seconds: CPU time.
        peak_bytes: what lowering and emission added to resident memory at the most.
        error, bound: largest difference from eager as a share of its largest number, and what was
            allowed.
        engine: what ran the artifact.
        latency_ms: p10 of its run time on one thread.
        tuned: what was measured of choices that costs call close, and what they save together.
        stock: the same figures of ExecuTorch's own flow, or `{"fails": …}`.
        note: whatever else is to be said; a fault's last lines.
        versions: of stepwell's source and of the libraries.
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
        """Whether it was refused for something that the target has no form of at all."""
        return self.outcome == "refused" and any(BEYOND.search(said) for said, _ in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @staticmethod
    def from_json(given: dict[str, Any]) -> Row:
        """What `to_json` gave; fields that other versions had are left out."""
        known = {one.name for one in fields(Row)}
        return Row(**{name: value for name, value in given.items() if name in known})
