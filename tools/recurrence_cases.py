"""Recurrent layers of dynamic length, case by case: right at seven lengths, calls, memory.

    python tools/recurrence_cases.py [NAME …]

The cases are LSTM, GRU and RNN (256 inputs, 256 units) with one and two layers, in one and both
directions, plain, with states as arguments and results, over packed sequences, and LSTMs with a
projection (PyTorch's GRU and RNN have none). A program runs at seven lengths beside eager PyTorch
in double precision. Printed: the error as a share of the largest number, and eager's in single
precision; delegates that a loop's step calls; the megabytes of the file, and those that loading it
and running 32 steps adds to the runtime's own. The status is the number of wrong cases.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import torch
from recurrences import resources, runtime
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.dialects.control import ScanOp
from stepwell.translate.importer.export_call import export

KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
FORMS = ("plain", "state", "packed", "projection")
SIZE, MOST = 256, 64
LENGTHS = (2, 3, 7, 16, 31, 63, MOST)
TOLERANCE = 1e-5


class Case(nn.Module):
    """A layer in one form."""

    def __init__(self, kind: str, layers: int, both: bool, form: str) -> None:
        super().__init__()
        self.form, more = form, {"proj_size": 64} if form == "projection" else {}
        self.rnn = KINDS[kind](SIZE, SIZE, layers, bidirectional=both, **more)
        self.states = 0 if form != "state" else 2 if kind == "LSTM" else 1

    def forward(self, x: Tensor, *rest: Tensor) -> Any:
        if self.form == "packed":
            packed = nn.utils.rnn.pack_padded_sequence(x, rest[0], enforce_sorted=False)
            y, last = self.rnn(packed)
            return nn.utils.rnn.pad_packed_sequence(y, total_length=x.shape[0])[0], last
        return self.rnn(x, (rest if self.states == 2 else rest[0]) if rest else None)

    def inputs(self, length: int) -> tuple[Tensor, ...]:
        """Return a batch of two sequences, and lengths or states."""
        count = self.rnn.num_layers * (2 if self.rnn.bidirectional else 1)
        states = (torch.randn(count, 2, SIZE) for _ in range(self.states))
        lengths = [torch.tensor([length, length // 2 + 1])] if self.form == "packed" else []
        return torch.randn(length, 2, SIZE), *lengths, *states


def cases() -> Iterator[tuple[str, Case]]:
    """Yield the cases by name."""
    for kind, layers, both, form in itertools.product(KINDS, (1, 2), (False, True), FORMS):
        if form != "projection" or kind == "LSTM":
            name = f"{kind} {layers} {'both' if both else 'one'} {form}"
            yield name, Case(kind, layers, both, form).eval()


def doubled(model: Case, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the results of a model in double precision."""
    given = [x.double() if x.is_floating_point() else x for x in inputs]
    exact = pytree.tree_leaves(model.double()(*given))
    model.float()
    return exact


def off(found: Any, exact: list[Tensor]) -> float:
    """Return the largest error as a share of the largest number."""
    return max(
        float((one.double() - wanted).abs().max() / wanted.abs().max())
        for one, wanted in zip(pytree.tree_leaves(found), exact, strict=True)
    )


def main() -> int:
    """Print the table; return the number of wrong cases."""
    names = "case|lengths|error|eager's|delegates a step|file MB|resident MB|÷ file"
    print("| " + " | ".join(names.split("|")) + " |\n|" + "---|" * 8)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    wrong = 0
    for name, model in cases():
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        example = model.inputs(20)
        size = {0: Dim.AUTO(min=2, max=MOST)}  # pyright: ignore
        sizes: Any = (size, (None,) * (len(example) - 1)) if example[1:] else (size,)
        exported = export(model, example, dynamic_shapes=sizes)
        lowered = stepwell.lower(exported, "xnnpack")
        loops = [op for op in lowered.program.module.walk() if isinstance(op, ScanOp)]
        calls = {sum(op.name == "xnnpack.delegate" for op in loop.body.block.ops) for loop in loops}
        pte = lowered.to_pte()
        running = PteSession.load(pte)
        errors: list[tuple[float, float]] = []
        for length in LENGTHS:
            inputs = model.inputs(length)
            exact = doubled(model, inputs)
            errors.append((off(running.run(*inputs), exact), off(model(*inputs), exact)))
        (added,) = resources({"pte": pte}, model.inputs(32), 1)["pte"]
        resident, file = added["steady"] - runtime(), len(pte) / 2**20
        right = sum(error <= TOLERANCE for error, _ in errors)
        wrong += right < len(LENGTHS)
        worst, eager = (max(column) for column in zip(*errors, strict=True))
        told = f"{right} of {len(LENGTHS)} | {worst:.0e} | {eager:.0e} | {sorted(calls)}"
        print(
            f"| {name} | {told} | {file:.1f} | {resident:.1f} | {resident / file:.1f} |", flush=True
        )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
