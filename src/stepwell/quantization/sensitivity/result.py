"""What `stepwell.accuracy` found: a sentence first, then the stages, then the sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    """A cure that was tried.

    Attributes:
        name: of the cure.
        recovered: part of the lost loss that it wins back on batches it was not fitted on.
        score: what it does to the score there.
        kept: whether it was accepted.
        why: where it was not, in a sentence.
    """

    name: str
    recovered: float
    score: Tally
    kept: bool
    why: str = ""


@dataclass(frozen=True)
class Accuracy(Shown):
    """Where accuracy is lost on the way to a target. `str()` is the sentence and the tables.

    Attributes:
        target: its name.
        form: how the model was quantized.
        stages: from the model to the artifact, each beside the one ahead.
        attribution: what each site of the quantized program loses.
        causes: by site, why; of the worst.
        remedies: by site, what it would cost to have it back.
        general: a cause that is no site's own, or "".
        step: the step of the lowering that loses, where one does.
        cures: what was tried.
        program: the quantized program, with the cures that were kept.
        wider: what is still lost with int16 for what more and more sites read, until enough.
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
        """What is lost, where, why, and what would win it back."""
        guilty = self._stage()
        if guilty is not None and guilty.name != "quantized":
            by = f", in the step {self.step!r}" if self.step else ""
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
            text = f"All sites of `{module}` lose {freed.mean / total.mean:.0%} of it together"
        elif worst and worst[0].freed.is_more and self.attribution.rises:
            name = worst[0].name
            text = f"`{name}` loses {self.share(worst[0]):.0%} of it"
        else:
            text = f"Quantized, {moves}, the score by {_said(score)}"
            text += ", and no site alone loses more than noise"
            return text + (f"; int16 {self._int16()}" if self.wider else "") + "."
        text += f" ({_said(total)} in all)"
        why, remedy = self.causes.get(name, ""), self.remedies.get(name, "")
        if self.wider and not self.wider[0].is_sure:
            remedy = f"int16 {self._int16()}"
        elif len(self.wider) > 1:
            remedy += f", {self._int16(len(self.wider[0].sites))}"
        return text + (f": {why}" if why else "") + (f"; {remedy}" if remedy else "") + "."

    def _int16(self, told: int = 0) -> str:
        """Where 16 bits are needed, and what they win back; so many sites are named ahead of it."""
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
        """The part of the lost loss that freeing a site wins back."""
        total = self.attribution.loss.mean
        share = one.freed.mean / total if total else 0.0
        return share if share == share else 1.0

    def _stage(self) -> Stage | None:
        """The stage that loses most, if that is more than noise."""
        sure = [s for s in self.stages[1:] if s.loss.is_sure and not s.loss.mean <= 0]
        return max(sure, key=lambda s: s.loss.mean if s.loss.mean == s.loss.mean else float("inf"),
                   default=None)  # fmt: skip

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Each site that was measured, the worst first."""
        for one in self.attribution.worst:
            yield (
                one.name, one.estimate, one.alone.mean, one.freed.mean, self.share(one),
                one.freed.flips, self.causes.get(one.name, ""),
            )  # fmt: skip

    def to_frame(self) -> DataFrame:
        """A row for each site."""
        return frame(HEADS, self.cells())

    def plot(self) -> Plot:
        """What freeing each site wins back, and what it loses alone."""
        rows = [(o.name, [o.freed.mean, o.alone.mean]) for o in self.attribution.worst]
        return plot("Loss of each site", ("won back when freed", "lost when quantized alone"),
                    [(name, [max(v, 0.0) for v in pair]) for name, pair in rows])  # fmt: skip

    def to_html(self) -> str:
        """The page."""
        return f"<!doctype html><meta charset='utf-8'><title>accuracy</title>{self.render('html')}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""

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
                       "score": told(c.score)} for c in self.cures],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [self.sentence, "", f"{'stage':12}{'loss':>10}{'score':>10}{'change':>20}  flips"]
        for s in self.stages:
            change = "" if s is self.stages[0] else _said(s.loss)
            lines.append(f"{s.name:12}{s.mean[0]:10.4f}{s.mean[1]:10.4f}{change:>20}"
                         f"{s.loss.flips:7} of {s.samples}")  # fmt: skip
        rows = self.attribution.worst[:MOST_ROWS]
        width = max([4, *(len(o.name) for o in rows)])
        lines += ["", f"{'site':{width}}{'alone':>20}{'freed':>20}{'share':>8}  why"]
        for o in rows:
            share = f"{self.share(o):8.0%}" if o.freed.is_sure else f"{'noise':>8}"
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
            lines.append(f"cure {c.name}: {c.recovered:.0%} of the loss is won back, {what}")
        return "\n".join(lines)


def _said(tally: Tally) -> str:
    return f"{tally.mean:+.4f} ± {SURE * tally.error:.4f}"
