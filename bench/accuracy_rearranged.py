"""The gain of permuting, rotating and splitting channels, where weights can absorb it.

    python bench/accuracy_rearranged.py [--only vit] [--table docs/accuracy.md]

Trained nets get other weights that compute the same in floats (which is checked), and are then
rounded plainly; a cell is the divergence from the float model on held-out data, as a part of the
divergence without. Columns:

- permuted: hidden channels between two linear layers, sorted by what they reach, so that blocks and
  groups hold similar ones; the other figure sorts by that over what their columns of weights reach;
- rotated: the sum that all blocks read and write, by two orthogonal matrices that keep its mean
  where a layer norm takes it; gains and biases of norms go into what reads them;
- values: each head's values by a Hadamard matrix, taken out by the projection;
- split: the channels that reach furthest, one of 32 (of 8 where groups ask for 32 more), in two
  halves: the net grows.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from _accuracy_nets import NETS, Block, GatedBlock, MixerBlock
from _report import asked_for_rows, between_markers
from accuracy import trained
from torch import Tensor, nn

from stepwell.quantization.sensitivity.grids import rounded

NAMES = ("vit", "mixer", "language", "gated")
FORMS = ("fp4e2m1", "8da4w-32", "8da4w-row")


def in_groups(w: Tensor, group: int) -> Tensor:
    """Weights in groups of integers of four bits."""
    x = w.unflatten(1, (-1, group))
    scale = (x.abs().amax(-1, True) / 7.5).clamp_min(1e-9)
    return ((x / scale).round().clamp(-8, 7) * scale).flatten(1)


def by_token(x: Tensor) -> Tensor:
    """Activations of eight bits, a range a token."""
    low, high = x.amin(-1, True).clamp_max(0), x.amax(-1, True).clamp_min(0)
    scale = ((high - low) / 255).clamp_min(1e-9)
    zero = (-low / scale).round()
    return (((x / scale).round() + zero).clamp(0, 255) - zero) * scale


def quantized(model: nn.Module, form: str) -> nn.Module:
    """Its linear layers' weights and inputs rounded."""
    made = copy.deepcopy(model)
    for layer in made.modules():
        if isinstance(layer, nn.Linear):
            w = layer.weight.data
            group = w.shape[1] if form.endswith("row") else 32
            if form.startswith("fp"):
                layer.weight.data = rounded(w, form, -1)
                snap: Callable[[Tensor], Tensor] = partial(rounded, payload=form, axis=-1)
            elif w.shape[1] % group == 0:
                layer.weight.data, snap = in_groups(w, group), by_token
            else:
                continue
            layer.register_forward_pre_hook(lambda _, given, to=snap: (to(given[0]),))
    return made


def divergence(model: nn.Module, other: nn.Module, data: list[Any]) -> float:
    """Of the float model's classes from another's."""
    both = [[F.log_softmax(m(*x).flatten(0, -2), -1) for x, _ in data] for m in (model, other)]
    one, two = map(torch.cat, both)
    return float((one.exp() * (one - two)).sum(-1).mean())


def chains(model: nn.Module) -> Iterator[tuple[list[Any], Any]]:
    """Linear layers whose rows stand for the columns of another."""
    for block in model.modules():
        if isinstance(block, Block | MixerBlock):
            yield [block.fc1], block.fc2
        if isinstance(block, MixerBlock):
            yield [block.token1], block.token2
        if isinstance(block, GatedBlock):
            yield [block.gate, block.up], block.down


def reach(model: nn.Module, layer: nn.Module, data: list[Any]) -> Tensor:
    """Of each input of a layer."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(
        lambda _, given: seen.append(given[0].abs().flatten(0, -2).amax(0))
    )
    for x, _ in data:
        model(*x)
    hook.remove()
    return torch.stack(seen).amax(0)


def deal(ahead: list[Any], layer: Any, order: Tensor, by: Tensor | float = 1.0) -> None:
    """Let channels between layers be these ones."""
    for one in ahead:
        one.weight.data = one.weight.data[order]
        if one.bias is not None:
            one.bias.data = one.bias.data[order]
    layer.weight.data = layer.weight.data[:, order] * by


def permuted(model: nn.Module, data: list[Any], over_columns: bool) -> nn.Module:
    made = copy.deepcopy(model)
    for ahead, layer in chains(made):
        far = reach(made, layer, data)
        key = far / layer.weight.abs().amax(0) if over_columns else far
        deal(ahead, layer, key.argsort())
    return made


def split(model: nn.Module, data: list[Any], form: str) -> nn.Module:
    made = copy.deepcopy(model)
    for ahead, layer in chains(made):
        width = layer.weight.shape[1]
        count = max(32, width // 8) if form == "8da4w-32" else max(width // 32, 1)
        if count >= width:
            continue
        top = reach(made, layer, data).argsort(descending=True)[:count]
        order = torch.cat((torch.arange(width), top))
        by = torch.ones(len(order))
        by[top] = by[width:] = 0.5
        deal(ahead, layer, order, by)
    return made


def hadamard(size: int) -> Tensor:
    made = torch.ones(1, 1)
    while len(made) < size:
        made = torch.cat((torch.cat((made, made), 1), torch.cat((made, -made), 1)))
    return made / size**0.5


def keeps_mean(size: int, seed: int) -> Tensor:
    """An orthogonal matrix by which a mean and a variance stay."""
    start = torch.eye(size)
    start[:, 0] = 1
    base = torch.linalg.qr(start)[0]
    inner = torch.eye(size)
    random = torch.Generator().manual_seed(seed)
    inner[1:, 1:] = torch.linalg.qr(torch.randn(size - 1, size - 1, generator=random))[0]
    return base @ inner @ base.T


def rotated(model: nn.Module, seed: int) -> nn.Module | None:
    made: Any = copy.deepcopy(model)
    blocks = [b for b in made.modules() if isinstance(b, Block | GatedBlock)]
    if not blocks:
        return None
    width = len(made.norm.weight)
    random = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, (width,), generator=random) * 2.0 - 1
    is_gated = isinstance(blocks[0], GatedBlock)
    turn = signs[:, None] * hadamard(width) if is_gated else keeps_mean(width, seed)
    reads, writes = [(made.norm, [made.head])], []
    for b in blocks:
        if isinstance(b, GatedBlock):
            reads += [(b.norm1, [b.attn.q, b.attn.k, b.attn.v]), (b.norm2, [b.gate, b.up])]
            writes += [b.attn.proj, b.down]
        else:
            reads += [(b.norm1, [b.attn.qkv]), (b.norm2, [b.fc1])]
            writes += [b.attn.proj, b.fc2]
    for norm, layers in reads:
        for layer in layers:
            if getattr(norm, "bias", None) is not None:
                layer.bias += layer.weight @ norm.bias
            layer.weight.data = (layer.weight * norm.weight) @ turn
        norm.weight.fill_(1)
        if getattr(norm, "bias", None) is not None:
            norm.bias.zero_()
    for layer in writes:
        layer.weight.data = turn.T @ layer.weight
        if layer.bias is not None:
            layer.bias.data = layer.bias @ turn
    if hasattr(made, "patch"):
        made.patch.weight.data = (turn.T @ made.patch.weight.flatten(1)).reshape_as(
            made.patch.weight
        )
        made.patch.bias.data = made.patch.bias @ turn
    for name in ("token", "place"):
        if (held := getattr(made, name, None)) is not None:
            tensor = held.weight if isinstance(held, nn.Embedding) else held
            tensor.data = tensor @ turn
    return made


def values_rotated(model: nn.Module) -> nn.Module | None:
    made = copy.deepcopy(model)
    found = False
    for block in made.modules():
        if isinstance(block, Block | GatedBlock):
            found, proj, attn = True, block.attn.proj.weight, block.attn
            if isinstance(attn, nn.Module) and hasattr(attn, "qkv"):
                width = proj.shape[1]
                rows, bias = attn.qkv.weight[2 * width :], attn.qkv.bias[2 * width :]
                size = width // attn.heads
            else:
                rows, bias, size = attn.v.weight, None, attn.size  # pyright: ignore
            turn = hadamard(size)
            rows.copy_((turn.T @ rows.unflatten(0, (-1, size))).flatten(0, 1))
            if bias is not None:
                bias.copy_((bias.unflatten(0, (-1, size)) @ turn).flatten())
            proj.copy_((proj.unflatten(1, (-1, size)) @ turn).flatten(1))
    return made if found else None


@torch.no_grad()
def main() -> int:
    """A row for each net and form."""
    asked = asked_for_rows(__doc__)
    lines = [
        "| net, form | divergence | permuted | rotated | values | split |",
        "|---|---|---|---|---|---|",
    ]
    for name in NAMES:
        model = trained(name, Path("accuracy_nets"))
        fit, test = NETS[name].batches("train", 2), NETS[name].batches("test", 3)
        for form in FORMS:
            if asked.only not in f"{name} {form}":
                continue
            ways = [[permuted(model, fit, False), permuted(model, fit, True)],
                    [rotated(model, 0), rotated(model, 1)],
                    [values_rotated(model)], [split(model, fit, form)]]  # fmt: skip
            plain = divergence(model, quantized(model, form), test)
            cells: list[str] = []
            for way in ways:
                parts: list[str] = []
                for made in way:
                    if made is None:
                        continue
                    assert divergence(model, made, test) < 1e-5
                    part = divergence(model, quantized(made, form), test) / plain
                    parts.append(f"{part:.2f}")
                cells.append(", ".join(parts) or "–")
            lines.append(f"| {name} {form} | {plain:.4f} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if asked.table:
        between_markers(asked.table, "accuracy rearranged", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
