"""Mutate programs by their own equalities: proved rules, forwards and backwards; all must agree.

    python tools/mutations.py --count 2000 --state RESULTS.jsonl              # three targets
    python tools/mutations.py --count 100 --targets xnnpack stock --state RESULTS.jsonl
    python tools/mutations.py --seed 17 --targets xnnpack                     # one, with its text
    python tools/mutations.py --count 0 --state RESULTS.jsonl                 # what there is

A seed draws a small program, and up to six steps: a rule that is proved, a direction, a place. The
variant is run by the interpreter and on each target, and compared with eager. `stock` is
ExecuTorch's own flow with its XNNPACK partitioner. A run goes on from what its file holds; what
differs is run again with fewer steps, and printed with its text.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from xdsl.ir import Operation

import stepwell
from stepwell.ir.cleanup import RemoveDeadCode
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriter import Rewriter
from stepwell.ir.rewriting import History
from stepwell.proving.known import known
from stepwell.proving.verdicts import hash_of, rules
from stepwell.translate.rules.compiling import Matched, compile_rule
from stepwell.translate.rules.notation import Rule
from stepwell.translate.rules.rewrite import RuleRewrite

TARGETS = ("program", "xnnpack", "tosa-1.0+fp")
UNIT = 3e-5
"""Of the largest number of a result: what a step, and a lowering, may move it by."""
MOST_STEPS = 6
_FAILS = (StepwellError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError,
          AssertionError, NotImplementedError)  # fmt: skip


# -- programs ------------------------------------------------------------------------------------


class _Of(nn.Module):
    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def _attention(x: Tensor, project: nn.Module, out: nn.Module) -> Tensor:
    q, k, v = project(x).reshape(1, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
    weights = torch.softmax(q @ k.transpose(-2, -1) * 0.5, -1)
    return out((weights @ v).transpose(1, 2).reshape(1, 6, 8)) + x


def _curves(x: Tensor) -> Tensor:
    low = F.hardswish(x) + F.silu(x) * F.softplus(x, 2.0)
    return torch.clamp(F.relu6(low), 0.5, 4.0) + F.gelu(x, approximate="tanh") - F.elu(x, 0.5)


def _more_curves(x: Tensor) -> Tensor:
    y = F.mish(x) + F.selu(x) + F.celu(x, 0.75) + F.logsigmoid(x) + F.hardsigmoid(x)
    return F.softshrink(y, 0.25) + F.leaky_relu(x, 0.1) + F.threshold(x, 0.0, 0.0)


def _sums(x: Tensor) -> Tensor:
    y = torch.lerp(x, x * 2.0, 0.7) + torch.addcmul(x, x, x, value=0.5)
    return torch.addcdiv(y, x, x * x + 2.0) / 4.0 - torch.rsub(x, 1.0) + (x + 0.0) * 1.0 * 3.0


def _rows(x: Tensor) -> Tensor:
    y = F.log_softmax(x, -1) + torch.logsumexp(x, -1, keepdim=True)
    return y + torch.log1p(x * x) * torch.rsqrt(x * x + 1.0) + x.pow(2).mean(-1, True)


def _moves(x: Tensor) -> Tensor:
    y = x.transpose(0, 1).reshape(2, -1).view(4, -1).t().contiguous()
    y = y.reshape(4, 3, 2).movedim(0, 2).permute(1, 0, 2).flatten()
    return F.pad(y.reshape(6, 4)[1:5], (1, 2)).unsqueeze(0).expand(2, 4, 7).clone()


def _norms(x: Tensor, layer: nn.Module, group: nn.Module) -> Tensor:
    y = layer(x) + F.rms_norm(x, (8,), eps=1e-5)
    return group(y.transpose(1, 2)).transpose(1, 2) + x


def _image(x: Tensor, conv: nn.Module, norm: nn.Module, last: nn.Module) -> Tensor:
    y = F.relu6(norm(conv(x)))
    y = F.avg_pool2d(y, 2) + F.max_pool2d(y, 2)
    return last(y.mean((2, 3)))


@cache
def program_of(number: int) -> tuple[Any, Tensor, Tensor]:
    """A small program, an input, and what eager gives."""
    torch.manual_seed(0)
    rows, plain, image = torch.randn(1, 6, 8), torch.randn(6, 4), torch.randn(1, 3, 8, 8)
    made, example = (
        (lambda: _Of(_curves), plain),
        (lambda: _Of(_more_curves), plain),
        (lambda: _Of(_sums), plain),
        (lambda: _Of(_rows), plain),
        (lambda: _Of(_moves), plain),
        (lambda: _Of(_attention, nn.Linear(8, 24), nn.Linear(8, 8)), rows),
        (lambda: _Of(_norms, nn.LayerNorm(8), nn.GroupNorm(2, 8)), rows),
        (
            lambda: _Of(_image, nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 5)),
            image,
        ),
    )[number]
    module = made().eval()
    with torch.no_grad():
        wanted = module(example)
    return stepwell.from_exported_program(torch.export.export(module, (example,))), example, wanted


PROGRAMS = 8


# -- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A proved rule in one direction."""

    name: str
    rewrite: type[RuleRewrite]
    form: Rule
    backwards: bool


def _names(lines: Any) -> set[str]:
    """The values and holes that lines speak of, but for types."""
    return {str(term) for line in lines for _, term in line.arguments for term in _terms(term)}


def _terms(term: Any) -> list[Any]:
    return [each for item in term for each in _terms(item)] if isinstance(term, list) else [term]


def _is_plain(rule: Rule) -> bool:
    """Whether what stands after is ops alone, which name all that stands before."""
    ops = all("." in line.op and not line.recipe and not line.is_again for line in rule.after)
    reads = {name for name in _names(rule.before) if name[:1] in "%$"}
    made = {f"%{name}" for line in rule.before for name in line.results}
    return ops and reads - made <= _names(rule.after) and len(rule.before) > 0


@cache
def ways() -> list[Way]:
    """Rules of torch's operators that are proved, forwards, and backwards where they can be."""
    found: list[Way] = []
    for name, rewrite in rules().items():
        verdict = known().get(hash_of(rewrite.rule))
        if verdict is None or not verdict.is_proved:
            continue
        for form in rewrite.rule.forms:
            if not all(line.op.startswith("aten.") for line in (*form.before, *form.after)):
                continue
            found.append(Way(name, rewrite, form, False))
            if _is_plain(form):
                found.append(Way(name, rewrite, form, True))
    return found


def apply(way: Way, op: Operation, program: Any) -> bool:
    """Write what a way makes of an op; whether it could be."""
    if not way.backwards:
        rewrite = way.rewrite()
        match = rewrite.match(op, program) if isinstance(op, rewrite.anchors) else None
        if not isinstance(match, Matched):
            return False
        rewrite.written(match, Rewriter(op, program))
        return True
    turned = replace(way.form, before=way.form.after, after=way.form.before, where=(), proven=())
    if op.name != turned.root.op:
        return False
    match = compile_rule(turned, way.rewrite.namespace)(op, program)
    if not isinstance(match, Matched):
        return False
    from stepwell.translate.rules.writing import Writer

    rw = Rewriter(op, program)
    values = Writer(turned, way.rewrite.namespace).write(op, match.found, rw)
    for name, old in zip(turned.root.results, op.results, strict=True):
        new = values[f"%{name}"]
        forwards = way.rewrite()
        owner = new.owner
        if old.type != new.type or not isinstance(owner, forwards.anchors):
            return False
        if not isinstance(forwards.match(owner, program), Matched):
            return False
        rw.replace_value(old, new)
    rw.erase(op)
    return True


def mutated(
    number: int, seed: int, left_out: frozenset[int] = frozenset()
) -> tuple[Any, list[str]]:
    """A variant of a program, and its steps."""
    draw = random.Random(seed)
    program = program_of(number)[0]
    steps: list[str] = []
    for at in range(draw.randint(1, MOST_STEPS)):
        picks = random.Random(draw.random())
        if at in left_out:
            continue
        made = _step(program, picks)
        if made is not None:
            program, said = made
            steps.append(f"{at}: {said}")
    return program, steps


def _step(program: Any, picks: random.Random) -> tuple[Any, str] | None:
    places = [op for op in program.method().body.block.ops if not isinstance(op, WeightOp)]
    tries = [(at, way) for at in range(len(places)) for way in _ways_at(places[at])]
    picks.shuffle(tries)
    for at, way in tries[:24]:
        copy = stepwell.parse(str(program), weights=program.weights)
        ops = [op for op in copy.method().body.block.ops if not isinstance(op, WeightOp)]
        try:
            if apply(way, ops[at], copy):
                RemoveDeadCode().apply(copy, History())
                copy.verify()
                return copy, f"{way.name}{' backwards' if way.backwards else ''} at {ops[at].name}"
        except _FAILS:
            continue
    return None


@cache
def _by_root() -> dict[str, list[Way]]:
    found: dict[str, list[Way]] = {}
    for way in ways():
        root = way.form.after[-1] if way.backwards else way.form.root
        found.setdefault(root.op, []).append(way)
    return found


def _ways_at(op: Operation) -> Sequence[Way]:
    return _by_root().get(op.name, ())


# -- judging -------------------------------------------------------------------------------------


def run_on(target: str, program: Any, example: Tensor) -> Tensor:
    """What a variant gives on a target."""
    if target == "program":
        return program.run(example)[0]
    if target == "stock":
        return _stock(program, example)
    return stepwell.lower(program, target).run(example)[0]


def _stock(program: Any, example: Tensor) -> Tensor:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    exported = program.to_exported_program()
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    loaded = Runtime.get().load_program(edge.to_executorch().buffer)
    return loaded.load_method("forward").execute([example])[0]


def apart(found: Tensor, wanted: Tensor, steps: int) -> str | None:
    """What differs by more than so many steps may move a result."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} is no {wanted.dtype}{list(wanted.shape)}"
    allowed = UNIT * (steps + 1) * float(wanted.abs().max())
    worst = float((found - wanted).abs().max())
    return None if worst <= allowed else f"off by {worst:.3g}, of {allowed:.3g} allowed"


def judged(target: str, number: int, seed: int, left_out: frozenset[int] = frozenset()) -> str:
    """`agrees`, or what became of a variant."""
    _, example, wanted = program_of(number)
    program, steps = mutated(number, seed, left_out)
    if not steps:
        return "no step"
    try:
        found = run_on(target, program, example)
    except Exception as error:
        kind = "refused" if isinstance(error, StepwellError) else "failed"
        return f"{kind}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return apart(found, wanted, len(steps)) or "agrees"


def reduced(target: str, number: int, seed: int, verdict: str) -> tuple[Any, list[str]]:
    """A variant with as few steps as show the same kind of verdict."""
    kind, left_out = verdict.split(" ")[0], frozenset[int]()
    for at in range(MOST_STEPS):
        if judged(target, number, seed, left_out | {at}).split(" ")[0] == kind:
            left_out |= {at}
    return mutated(number, seed, left_out)


def waiting(given: argparse.Namespace, held: set[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """What is still to be judged, seed by seed."""
    seeds = range(given.count) if given.seed is None else [given.seed]
    for seed in seeds:
        yield from ((t, seed) for t in given.targets if (t, seed) not in held)


def main() -> None:
    """Read the command line, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--count", type=int, default=2000, help="variants of each target")
    parser.add_argument("--seed", type=int, help="this one alone, with its text")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--state", type=Path, help="a file of results, which a run goes on from")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if given.state and given.state.exists():
        rows = [json.loads(line) for line in given.state.read_text().splitlines()]
    begun = time.monotonic()
    for target, seed in waiting(given, {(row["target"], row["seed"]) for row in rows}):
        if time.monotonic() - begun > given.seconds:
            break
        number = seed % PROGRAMS
        verdict = judged(target, number, seed)
        row = {"target": target, "seed": seed, "verdict": verdict}
        if verdict not in ("agrees", "no step") or given.seed is not None:
            program, row["steps"] = reduced(target, number, seed, verdict)
            print(f"{target} {seed}: {verdict}\n  " + "\n  ".join(row["steps"]), flush=True)
            if given.seed is not None:
                print(program)
        rows.append(row)
        if given.state:
            with given.state.open("a") as file:
                file.write(json.dumps(row) + "\n")
    for target in dict.fromkeys(row["target"] for row in rows):
        kinds = Counter(
            r["verdict"].split(":")[0].split(" ")[0] for r in rows if r["target"] == target
        )
        print(f"{target}: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}")


if __name__ == "__main__":
    sys.exit(main())
