"""Accuracy losses of trained nets, their recovery, and the cost of finding them.

    python bench/accuracy.py [--only WORD,…] [--rows FILE] [--weights FOLDER] [--table FILE]

The nets are those of `_accuracy_nets.py`, trained here if the folder has none. Each row is stored
in the file when it is complete (a second call continues after them):

- `rank`: the cheap rank of layers compared with each of them measured alone, on the same net:
  Spearman's correlation of the divergence from the float model, and the share of CPU seconds;
- `int8`: points of accuracy that quantization loses, and the number of classes of the first batch
  that the artifact changes on its engine. If the loss is more than 0.1: `saved`, the loss that
  remains after recovery methods, and `why`, the sentence and the loss that remains with int16
  where it says (in a second call, because these rows are chosen by the file's contents);
- `lost`: the loss by torchao's int4, tables of 4 and 8 bits and int8 caches on language models;
- `cure`: the part that mixing, rounding and distilling win back, fitted on training data, each
  accepted on one part of the held-out data and reported on another.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _accuracy_nets import BATCH, NETS, SEQUENCE, Cache, Net
from _harder_nets import HARDER
from _report import between_markers, cpu_name
from torch import Tensor

import stepwell
from stepwell.quantization.quantizers import by_torchao, unwrapped
from stepwell.quantization.recovery.mixed_precision import bits_a_weight, bits_read
from stepwell.quantization.sensitivity.attribution import estimates
from stepwell.quantization.sensitivity.measure import imported
from stepwell.quantization.sensitivity.metrics import Batch, Judged, Tally, judged
from stepwell.quantization.sensitivity.quantization_points import Quantized, paired
from stepwell.quantization.sensitivity.remedies import with_int16
from stepwell.quantization.sensitivity.replay import Playback
from stepwell.quantization.sensitivity.stages import in_floats

ALL = {**NETS, **HARDER}
MX = "tosa-1.1+fp+mx_common+mx_fp4e2m1+mx_fp8e4m3"


def is_table(layer: Any, name: str) -> bool:
    return isinstance(layer, torch.nn.Embedding)


def with_table(model: Any, *inputs: Any, bits: int) -> Any:
    """A model with its table of tokens in groups of 32 at 4 bits, or in rows at 8."""
    from torchao.quantization import IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    shared = PerGroup(32) if bits == 4 else PerAxis(0)
    config = IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=shared)
    quantize_(model, config, is_table)
    return unwrapped(model)


def with_caches(model: Any, *inputs: Any) -> Any:
    """A model whose keys and values pass caches of int8."""
    for module in model.modules():
        if hasattr(module, "cache"):
            module.cache = Cache()
    return model


LANGUAGES = ("language", "gated")
LANGUAGE_FORMS = {
    "8da4w": by_torchao(4, 32),
    "8da4w-64": by_torchao(4, 64),
    "8da4w-row": by_torchao(4, None),
    "4w-32": by_torchao(4, 32, inputs=False),
    "4w": by_torchao(4, None, inputs=False),
    "table4": partial(with_table, bits=4),
    "table8": partial(with_table, bits=8),
    "cache8": with_caches,
}
"""int4 by torchao in groups and rows, with int8 inputs and without; tables; caches."""
LOSES_NOTHING = ("table8", "cache8")
"""Forms of language models that have nothing to win back."""
NEEDS = {
    "vit fp4e2m1": 0.8,
    "mixer fp4e2m1": 0.6,
    "cnn fp4e2m1": 0.8,
    "language fp4e2m1": 0.6,
    "vit 8da4w": 0.5,
    **{f"{name} {form}": 0.5 for name in LANGUAGES for form in LANGUAGE_FORMS
       if form not in LOSES_NOTHING},
}  # fmt: skip
"""Net and form, with the part of the loss that must come back."""
CURES = {**NEEDS, **{f"{name} fp4e2m1": 0.0 for name in NETS if f"{name} fp4e2m1" not in NEEDS}}
"""The same with all other nets, which may lose nothing by cures."""
INT8 = {"xnnpack": "int8-xnnpack", "cortex-m55": "int8-cortex-m", "tosa-1.0+int": "int8-tosa"}
"""Targets, with the quantizer of each."""
INT8_CURES = ("rounding", "distilling")
"""What is tried where int8 takes more than `MOST_POINTS` of the score."""
BALANCED_FROM = 1.0
"""Points from which channels are balanced ahead of that."""
MOST_POINTS = 0.1
"""What int8 may lose of the score; where it loses more, a sentence says which layer."""
WHY, SITES = 1000, 4
"""Sites times batches that the sentence rests on, and sites that are measured alone."""
RANKS = [f"{name} {form}" for form in ("fp4e2m1", "int8-xnnpack")
         for name in ("vit", "mixer", "mobilenet", "language")]  # fmt: skip
TEST, ACCEPT, FIT, BRUTE = 6, 3, 16, 8
"""Batches; the cheap rank takes one of the last."""
SAMPLES, TEXTS = 24_576, 12
"""Images and sounds that int8 is measured on, noise drawn anew for each; batches of text."""
FEWER = dict.fromkeys(("fine", "vit", "mixer", "convnext"), 6_144)
"""Of slow nets, and of those that are not hard."""


def trained(name: str, folder: Path) -> torch.nn.Module:
    """A net with its weights: from the folder, or trained and put there."""
    net, file = ALL[name], folder / f"{name}.pt"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(net.train().state_dict(), file)
    torch.manual_seed(0)
    model = net.make()
    model.load_state_dict(torch.load(file))
    return model.eval()


def pair_of(model: torch.nn.Module, net: Net, form: str) -> Quantized:
    """A net and its quantized form, calibrated on training data."""
    fit = net.batches("train", 2)
    source = imported(model, fit[0][0])
    if form.startswith("fp"):
        return paired(stepwell.to_mxfp(source, form, convolutions=True, attention=True), source)
    if form in LANGUAGE_FORMS:
        made = LANGUAGE_FORMS[form](copy.deepcopy(model), *fit[:1])
    else:
        made = stepwell.quantize(model, form, [x for x, _ in fit])
    return paired(imported(made, fit[0][0]), source)


def seconds(since: float) -> float:
    return round(time.process_time() - since, 2)


def spearman(one: list[float], other: list[float]) -> float:
    ranks = [torch.tensor(v).argsort().argsort().double() for v in (one, other)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def rank(name: str, form: str, folder: Path) -> dict[str, Any]:
    net = NETS[name]
    pair = pair_of(trained(name, folder), net, form)
    data = net.batches("test", BRUTE)
    started = time.process_time()
    cheap = estimates(pair, data[:1])
    cheap_seconds = seconds(started)
    started = time.process_time()
    brute: dict[str, Tally] = {site.name: Tally() for site in pair.sites}
    for inputs, labels in data:
        floats = Playback(pair, inputs, free=True)
        for site in pair.sites:
            found = judged(floats.flipped(site), labels, floats.outputs)
            brute[site.name].add(found.divergence)
    whole = seconds(started)
    means = [brute[site.name].mean for site in pair.sites]
    found = spearman([cheap[site] for site in pair.sites], means)
    sites = {"sites": len(pair.sites), "cheap_s": cheap_seconds, "brute_s": whole}
    return {"spearman": round(found, 3), "cost": round(cheap_seconds / whole, 3), **sites}


def answers(pair: Quantized, batches: list[Batch], free: bool = False) -> list[Judged]:
    """What a program gives for batches, judged."""
    with torch.no_grad():
        runs = [Playback(pair, inputs, free=free).outputs for inputs, _ in batches]
    return [judged(run, labels, run) for run, (_, labels) in zip(runs, batches, strict=True)]


def lost(name: str, form: str, folder: Path) -> dict[str, Any]:
    """Return the loss of a form, paired by rows of text."""
    net = NETS[name]
    pair, data = pair_of(trained(name, folder), net, form), net.batches("test", TEST)
    floats, low = answers(pair, data, True), answers(pair, data)
    told: dict[str, Any] = {"float": means(floats), "plain": means(low)}
    for what in ("loss", "score"):
        moved = by_row(low, what, net.rows) - by_row(floats, what, net.rows)
        told |= {what: float(moved.mean()), f"{what}_error": float(moved.std() / len(moved) ** 0.5)}
    return told


def int8(name: str, target: str, folder: Path) -> dict[str, Any]:
    """Measure the loss by quantization, and compare the artifact with the program."""
    net, model, pair, data = measured(name, target, folder)
    floats, low = of_module(model, data), answers(pair, data)
    loss = by_row(floats, "loss", net.rows) - by_row(low, "loss", net.rows)
    told: dict[str, Any] = {"score": round(means(floats)[1], 5), "samples": len(loss),
                            "lost_loss": round(-float(loss.mean()), 5)}  # fmt: skip
    return {**told, **points_lost(floats, low, net), **artifact_of(pair, target, data[0][0])}


def saved(name: str, target: str, folder: Path) -> dict[str, Any]:
    """What is lost with the cures that win, fitted on training data."""
    net, model, pair, data = measured(name, target, folder)
    started = time.process_time()
    accept: list[Any] = net.batches("accept", TEXTS)
    lost = points_lost(of_module(model, accept), answers(pair, accept), net)["lost_points"]
    found = stepwell.accuracy(
        model, target, accept, quantized=pair.program, levels=0, most=1,
        cures=("balancing", *INT8_CURES) if lost > BALANCED_FROM else INT8_CURES,
        fit=net.batches("train", FIT),
    )  # fmt: skip
    spent = seconds(started)
    assert found.program is not None
    better = paired(found.program, pair.original)
    kept = {"cures": [cure.name for cure in found.cures if cure.kept], "seconds": spent}
    left = points_lost(of_module(model, data), answers(better, data), net)
    alike = {"ops_alike": ops_of(found.program) == ops_of(pair.program)}
    return {**kept, **left, **alike, **artifact_of(better, target, data[0][0])}


def why(name: str, target: str, folder: Path) -> dict[str, Any]:
    """The sentence, and what is still lost with int16 where it says."""
    net, model, pair, data = measured(name, target, folder)
    batches = data[: max(TEXTS, WHY // len(pair.sites))]
    started = time.process_time()
    found = stepwell.accuracy(model, target, batches, quantized=pair.program, levels=0, most=SITES)
    told: dict[str, Any] = {"sentence": found.sentence, "seconds": seconds(started),
                            "samples": len(batches) * net.rows}  # fmt: skip
    if found.wider:
        last = found.wider[-1]
        wide = with_int16(pair, [site for site in pair.sites if site.name in last.sites])
        floats = of_module(model, data)
        told |= {"sites": len(last.sites), "of": len(pair.sites)}
        told |= points_lost(floats, answers(wide, data), net)
    return told


def measured(
    name: str, target: str, folder: Path
) -> tuple[Net, torch.nn.Module, Quantized, list[Batch]]:
    """A net, its model, that quantized, and all that is held out to report on."""
    net, model = ALL[name], trained(name, folder)
    return net, model, pair_of(model, net, INT8[target]), [*net.batches("test", held_out(net))]


def artifact_of(pair: Quantized, target: str, inputs: Any) -> dict[str, Any]:
    """Classes of a batch that the artifact gives otherwise than the program; or that it refuses."""
    try:
        lowered = stepwell.lower(pair.program, target)
    except stepwell.StepwellError as error:
        return {"refused": str(error).splitlines()[0]}
    given = in_floats(lowered.program, lowered.run)(*inputs)[0].argmax(-1)
    wanted = Playback(pair, inputs, free=False).outputs[0].argmax(-1)
    return {"artifact_flips": int((given != wanted).sum()), "of": given.numel()}


def held_out(net: Net) -> int:
    """Batches that int8 is measured on: of texts as many as there are bytes held out."""
    fewer = next((count for name, count in FEWER.items() if net is ALL[name]), SAMPLES)
    return TEXTS if net.rows < BATCH else fewer // BATCH


def of_module(model: torch.nn.Module, data: list[Any]) -> list[Judged]:
    """What the module gives: what its quantizer puts in between has no float form."""
    with torch.no_grad():
        return [judged(y, labels, y) for (x, labels) in data for y in [(model(*x),)]]


def points_lost(floats: list[Judged], low: list[Judged], net: Net) -> dict[str, float]:
    """Return the difference of the score in points, paired by rows of the data."""
    moved = 100 * (by_row(floats, "score", net.rows) - by_row(low, "score", net.rows))
    error = float(moved.std()) / len(moved) ** 0.5
    return {"lost_points": round(float(moved.mean()), 3), "standard_error": round(error, 3)}


def cure(name: str, form: str, folder: Path) -> dict[str, Any]:
    net = NETS[name]
    started = time.process_time()
    model, test = trained(name, folder), net.batches("test", TEST)
    names = ["rounding", "distilling"]
    names = ["mixing", *names] if form.startswith("fp") else names
    pair = pair_of(model, net, form)
    found = stepwell.accuracy(
        model, MX if form.startswith("fp") else "xnnpack", net.batches("accept", ACCEPT),
        quantized=pair.program, cures=names, fit=net.batches("train", FIT), levels=0,
    )  # fmt: skip
    assert found.program is not None
    better = paired(found.program, pair.original)
    floats, low, now = answers(pair, test, True), answers(pair, test), answers(better, test)
    steps = {c.name: [round(c.recovered, 3), c.kept] for c in found.cures}
    kept = {"float": means(floats), "plain": means(low), "cured": means(now), "accepted": steps}
    told: dict[str, Any] = {"needs": CURES[f"{name} {form}"], **kept}
    for what in ("loss", "score"):
        part, error = won_back(*(by_row(one, what, net.rows) for one in (floats, low, now)))
        told |= {f"recovered_{what}": round(part, 3), f"{what}_error": round(error, 3)}
    if form.startswith("fp"):
        told["bits"] = [round(b, 3) for b in (bits_a_weight(better), bits_read(better))]
    else:
        told["ops_alike"] = ops_of(found.program) == ops_of(pair.program)
    return {**told, "sentence": found.sentence, "seconds": seconds(started)}


def means(answers: list[Judged]) -> tuple[float, float]:
    """Loss and score."""
    loss, score = (torch.cat([getattr(one, of) for one in answers]) for of in ("loss", "score"))
    return float(loss.mean()), float(score.mean())


def by_row(answers: list[Judged], what: str, rows: int) -> Tensor:
    """A number for each row of the batches: tokens of one text are no samples of their own."""
    return torch.cat([getattr(one, what).unflatten(0, (rows, -1)).mean(1) for one in answers])


def won_back(floats: Tensor, low: Tensor, now: Tensor) -> tuple[float, float]:
    """Return the recovered part of the loss, and its standard error, paired by rows."""
    lost, won = (low - floats).double(), (low - now).double()
    part = float(won.mean() / lost.mean()) if lost.mean() else float("nan")
    return part, float((won - part * lost).std() / lost.mean().abs() / len(lost) ** 0.5)


def ops_of(program: stepwell.Program) -> Counter[str]:
    """Its ops with their types: the same ones run at the same speed, in files of one size."""
    return Counter(f"{op.name} {op.operand_types} {op.result_types}"
                   for op in program.module.walk())  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="rows whose name has one of these words, by commas"
    )
    parser.add_argument("--rows", type=Path, help="a file that keeps rows as JSON lines")
    parser.add_argument("--weights", type=Path, default=Path("accuracy_nets"), help="a folder")
    parser.add_argument("--table", type=Path, help="a document whose table of forms is written")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    if given.rows is not None and given.rows.exists():
        rows = {r["row"]: r for r in map(json.loads, given.rows.read_text().splitlines())}
    tasks: list[tuple[str, Any]] = [(f"cure {one}", cure) for one in CURES]
    tasks += [(f"lost {name} {form}", lost) for name in LANGUAGES for form in LANGUAGE_FORMS]
    tasks += [(f"rank {one}", rank) for one in RANKS]
    tasks += [(f"int8 {name} {target}", int8) for target in INT8 for name in ALL]
    loses = [
        (f"{name} {target}")
        for target in INT8
        for name in ALL
        if rows.get(f"int8 {name} {target}", {}).get("lost_points", 0) > MOST_POINTS
    ]
    tasks += [(f"{make.__name__} {one}", make) for make in (saved, why) for one in loses]
    for row, make in tasks:
        if not any(word in row for word in given.only.split(",")):
            continue
        if row not in rows:
            _, name, form = row.split()
            rows[row] = {"row": row, "cpu": cpu_name(), **make(name, form, given.weights)}
            if given.rows is not None:
                with given.rows.open("a") as file:
                    print(json.dumps(rows[row]), file=file)
        print(json.dumps(rows[row]), flush=True)
    if given.table:
        between_markers(given.table, "accuracy languages", language_table(rows))
        between_markers(given.table, "accuracy int8", int8_table(rows))


def language_table(rows: dict[str, Any]) -> list[str]:
    """Format language models' losses and recovered parts, ± two standard errors."""
    lines = [
        "| net, form | perplexity: float, plain, cured | loss it loses | points | won back: loss "
        "| points |",
        "|---|---|---|---|---|---|",
    ]
    for name in LANGUAGES:
        for form in LANGUAGE_FORMS:
            low, won = (rows.get(f"{kind} {name} {form}") for kind in ("lost", "cure"))
            if low is None:
                continue
            stages = [low["float"], low["plain"], *([won["cured"]] if won else [])]
            cells = [f"{name} {form}", ", ".join(f"{math.exp(loss):.3f}" for loss, _ in stages)]
            cells.append(f"{low['loss']:+.4f} ± {2 * low['loss_error']:.4f}")
            cells.append(f"{100 * low['score']:+.2f} ± {200 * low['score_error']:.2f}")
            for what in ("loss", "score"):
                part = "–" if won is None else (
                    f"{won[f'recovered_{what}']:.0%} ± {2 * won[f'{what}_error']:.0%}"
                )  # fmt: skip
                cells.append(part)
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def int8_table(rows: dict[str, Any]) -> list[str]:
    """Points that int8 loses, ± two standard errors; what cures leave; sentences."""

    def points(one: dict[str, Any]) -> str:
        return f"{one['lost_points']:+.2f} ± {2 * one['standard_error']:.2f}"

    lines = [
        f"| net | what is hard | samples | float | {' | '.join(INT8)} |",
        f"|---|---|---|---|{'---|' * len(INT8)}",
    ]
    said: list[str] = []
    least: dict[str, list[tuple[float, str]]] = {target: [] for target in INT8}
    counts = Counter[str]()
    flips: dict[str, tuple[float, str]] = {}
    for name, net in {**HARDER, **NETS}.items():
        cells: list[str] = []
        floats, samples = "", set[int]()
        for target in INT8:
            row, better, told = (
                rows.get(f"{kind} {name} {target}") for kind in ("int8", "saved", "why")
            )
            if row is None:
                cells.append("–")
                continue
            counts["cells"] += 1
            floats = f"{100 * row['score']:.1f}"
            samples.add(row["samples"] * (1 if net.rows == BATCH else SEQUENCE))
            cells.append(points(row))
            if "refused" in row:
                said.append(f"- `{name}`, {target}, is not lowered: {row['refused']}.")
            if row["lost_points"] > MOST_POINTS and better is not None:
                cells[-1] += f"; {', '.join(better['cures']) or 'no cure'}: {points(better)}"
            left = row if better is None or not better["cures"] else better
            if "of" in left:
                part = (
                    left["artifact_flips"] / left["of"],
                    f"{left['artifact_flips']} of {left['of']}",
                )
                flips[target] = max(flips.get(target, part), part)
            least[target].append((left["lost_points"], f"`{name}` {points(left)}"))
            counts["plain"] += row["lost_points"] <= MOST_POINTS
            counts["cured"] += row["lost_points"] > MOST_POINTS >= left["lost_points"]
            if told is not None:
                where = f"; {told['samples']} samples"
                if "sites" in told:
                    where = (
                        f"; int16 for {told['sites']} of {told['of']} sites leaves {points(told)}"
                    )
                said.append(f"- `{name}`, {target}: {told['sentence'][:-1]}{where}.")
        if samples:
            many = ", ".join(f"{count:_}".replace("_", " ") for count in sorted(samples))
            lines.append(f"| {name} | {net.hard} | {many} | {floats} | {' | '.join(cells)} |")
    worst = "; ".join(f"{target} {max(each)[1]}" for target, each in least.items() if each)
    summary = (
        f"Of {counts['cells']} cells {counts['plain']} lose at most {MOST_POINTS} point plainly, "
        f"{counts['cured']} more with cures; the worst behind them: {worst}. Of classes of a batch "
        "artifacts on their engines give otherwise than the quantized program at most "
        f"{', '.join(f'{text} ({target})' for target, (_, text) in flips.items())}."
    )
    return [*lines, "", summary, *([""] if said else []), *said]


if __name__ == "__main__":
    main()
