"""The result of `stepwell.accuracy`: a sentence, tables of stages and of quantization points."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepwell.ir.diagnostics import short
from stepwell.ir.platform.bar_charts import Plot, plot
from stepwell.ir.platform.dataframes import frame
from stepwell.ir.renderers import Shown
from stepwell.quantization.sensitivity.attribution import Attribution, Share, whole
from stepwell.quantization.sensitivity.metrics import SURE, Tally
from stepwell.quantization.sensitivity.remedies import Widened
from stepwell.quantization.sensitivity.stages import Stage

if TYPE_CHECKING:
    from pandas import DataFrame

    from stepwell.program import Program

MOST_ROWS = 20
HEADS = ("site", "estimate", "alone", "freed", "share", "flips", "why")


@dataclass(frozen=True)
class Cured:
    """A recovery method that was tried.

    Attributes:
        name: the name of the recovery method.
        recovered: the part of the lost loss that the method recovers on batches to which it was not
            fitted.
        score: the change of the score on these batches.
        kept: whether the method was accepted.
        why: the reason for not accepting the method, as a sentence.
        mixture: for `mixing`, the quantizer with the points that were widened, as `--quantize`
            takes it.
    """

    name: str
    recovered: float
    score: Tally
    kept: bool
    why: str = ""
    mixture: str = ""


@dataclass(frozen=True)
class Accuracy(Shown):
    """Where lowering to a target loses accuracy. `str()` returns the sentence and the tables.

    Attributes:
        target: the target's name.
        form: how the model was quantized.
        stages: from the model to the artifact, each compared with the previous one.
        attribution: the loss of each quantization point of the quantized program.
        causes: the causes of the loss of the worst quantization points, by name.
        remedies: the costs of recovering the loss, by quantization point.
        general: a cause that is not specific to one quantization point, or "".
        step: the lowering pass that loses accuracy, or None.
        cures: the recovery methods that were tried.
        program: the quantized program, with the accepted recovery methods applied.
        wider: the remaining loss with int16 operands at more and more quantization points, until
            it is small enough.
    """

    target: str
    form: str
    stages: tuple[Stage, ...]
    attribution: Attribution
    causes: Mapping[str, str] = field(default_factory=dict[str, str])
    remedies: Mapping[str, str] = field(default_factory=dict[str, str])
    general: str = ""
    step: str | None = None
    cures: tuple[Cured, ...] = ()
    program: Program | None = field(default=None, repr=False)
    wider: tuple[Widened, ...] = ()

    @property
    def sentence(self) -> str:
        """State what is lost and where, the cause, and the recovery."""
        guilty = self._stage()
        if guilty is not None and guilty.name != "quantized":
            by = f", in the pass {self.step!r}" if self.step else ""
            return (
                f"The stage `{guilty.name}` loses it{by}: the loss rises by {_said(guilty.loss)}, "
                f"and {guilty.loss.flips} of {guilty.samples} answers change."
            )
        total, score = self.attribution.loss, self.attribution.score
        flipped = f"{total.flips} of {total.count} answers change"
        moves = f"the loss moves by {_said(total)}"
        if not self.attribution.is_lost:
            return f"Nothing is lost beyond noise: {moves}, the score by {_said(score)}, {flipped}."
        if self.general:
            return f"Quantized, it loses {_said(total)}: {self.general}."
        worst = self.attribution.worst
        if self.attribution.rises and (module := self.attribution.module) is not None:
            name, freed = whole(module), self.attribution.modules[module]
            part = f"{freed.mean / total.mean:.0%}"
            text = f"All quantization points of `{module}` lose {part} of it together"
        elif worst and worst[0].freed.is_more and self.attribution.rises:
            name = worst[0].name
            text = f"`{name}` loses {self.share(worst[0]):.0%} of it"
        else:
            text = f"Quantized, {moves}, the score by {_said(score)}"
            text += ", and no quantization point alone loses more than noise"
            return text + (f"; int16 {self._int16()}" if self.wider else "") + "."
        text += f" ({_said(total)} in all)"
        why, remedy = self.causes.get(name, ""), self.remedies.get(name, "")
        if self.wider and not self.wider[0].is_sure:
            remedy = f"int16 {self._int16()}"
        elif len(self.wider) > 1:
            remedy += f", {self._int16(len(self.wider[0].sites))}"
        return text + (f": {why}" if why else "") + (f"; {remedy}" if remedy else "") + "."

    def _int16(self, told: int = 0) -> str:
        """State where 16 bits are needed and what they recover; `told` points were named
        already.
        """
        last = self.wider[-1]
        if not last.is_sure:
            less = "leaves" if last.enough else "wins back"
            why = "" if last.enough else ": weights lose it"
            return f"{last.where()} {less} no more than noise{why}"
        where = last.where(told)
        where = f"there and {where}" if told and not last.everywhere else where
        of = " of the score" if last.what == "score" else ""
        rest = "" if last.enough else ", and no more: weights lose the rest"
        return f"{where} {'' if told else 'wins back '}{last.won:.0%}{of}{rest}"

    def share(self, one: Share) -> float:
        """Return the part of the lost loss that freeing a quantization point recovers."""
        total = self.attribution.loss.mean
        share = one.freed.mean / total if total else 0.0
        return share if share == share else 1.0

    def _stage(self) -> Stage | None:
        """Return the stage that loses most, if its loss is significant."""
        sure = [s for s in self.stages[1:] if s.loss.is_sure and not s.loss.mean <= 0]
        return max(sure, key=lambda s: s.loss.mean if s.loss.mean == s.loss.mean else float("inf"),
                   default=None)  # fmt: skip

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each measured quantization point, the worst first."""
        for one in self.attribution.worst:
            yield (
                one.name, one.estimate, one.alone.mean, one.freed.mean, self.share(one),
                one.freed.flips, self.causes.get(one.name, ""),
            )  # fmt: skip

    def to_frame(self) -> DataFrame:
        """Return a table with a row for each quantization point."""
        return frame(HEADS, self.cells())

    def plot(self) -> Plot:
        """Plot the loss that freeing each quantization point recovers, and that it loses alone."""
        rows = [
            (o.name, [(t.mean, SURE * t.error) for t in (o.freed, o.alone)])
            for o in self.attribution.worst
        ]
        names = ("won back when freed", "lost when quantized alone")
        return plot("Loss of each quantization point", names, rows)

    def to_html(self) -> str:
        """Return the report as an HTML page."""
        return self.render("page")

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""

        def told(tally: Tally) -> dict[str, Any]:
            return {
                "mean": tally.mean, "error": tally.error, "flips": tally.flips,
                "sure": tally.is_sure,
            }  # fmt: skip

        return {
            "sentence": self.sentence, "target": self.target, "form": self.form, "step": self.step,
            "stages": [{"name": s.name, "loss": s.mean[0], "score": s.mean[1],
                        "samples": s.samples, "change": told(s.loss)} for s in self.stages],
            "lost": told(self.attribution.loss), "score": told(self.attribution.score),
            "sites": [{"name": o.name, "estimate": o.estimate, "alone": told(o.alone),
                       "freed": told(o.freed), "share": self.share(o),
                       "why": self.causes.get(o.name, ""),
                       "remedy": self.remedies.get(o.name, "")} for o in self.attribution.worst],
            "pairs": {name: told(t) for name, t in self.attribution.pairs.items()},
            "modules": {name: told(t) for name, t in self.attribution.modules.items()},
            "int16": [{"sites": list(w.sites), "left": told(w.loss), "score": told(w.score),
                       "of": w.what, "won": w.won, "sure": w.is_sure, "enough": w.enough}
                      for w in self.wider],
            "cures": [{"name": c.name, "recovered": c.recovered, "kept": c.kept, "why": c.why,
                       "mixture": c.mixture, "score": told(c.score)} for c in self.cures],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [self.sentence, "", f"{'stage':12}{'loss':>10}{'score':>10}{'change':>20}  flips"]
        for s, before in zip(self.stages, (self.stages[0], *self.stages), strict=False):
            if s.samples != before.samples:
                lines.append(f"the next on the first {s.samples} of {before.samples} samples:")
            change = "" if s is self.stages[0] else _said(s.loss)
            lines.append(f"{s.name:12}{short(s.mean[0]):>10}{short(s.mean[1]):>10}{change:>20}"
                         f"{s.loss.flips:7} of {s.samples}")  # fmt: skip
        rows = self.attribution.worst[:MOST_ROWS]
        width = max([5, *(len(o.name) for o in rows)])
        lines += ["", f"{'point':{width}}{'alone':>20}{'freed':>20}{'share':>8}  why"]
        for o in rows:
            is_told = o.freed.is_sure and self.attribution.is_lost
            share = f"{self.share(o):8.0%}" if is_told else f"{'noise':>8}"
            why = self.causes.get(o.name, "")
            lines.append(
                f"{o.name:{width}}{_said(o.alone):>20}{_said(o.freed):>20}{share}  {why}".rstrip()
            )
        if (more := len(self.attribution.shares) - len(rows)) > 0:
            lines.append(f"… and {more} more")
        for name, tally in self.attribution.pairs.items():
            lines.append(f"{name}: {_said(tally)} freed together")
        for name, tally in self.attribution.modules.items():
            lines.append(f"{whole(name)}: {_said(tally)} freed together")
        for w in self.wider:
            left = f"{_said(w.loss)} is left, of the score {_said(w.score)}"
            lines.append(f"int16 {w.where()}: {left}")
        for c in self.cures:
            what = "kept" if c.kept else f"not kept: {c.why}"
            won = f"{c.recovered:.0%} of the loss is won back"
            lines.append(f"recovery method {c.name}: {won}, {what}")
            if c.mixture:
                lines.append(f"  its mixture: --quantize {shlex.quote(c.mixture)}")
        return "\n".join(lines)


def _said(tally: Tally) -> str:
    return f"{short(tally.mean, '+')} ± {short(SURE * tally.error)}"
