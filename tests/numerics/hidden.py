"""Programs with a number in a place that their result must not see, and what they make of it.

Every form picks, pads, scatters, masks or shuffles what a producer gave. Eager says which elements
do not see the place: those that are the same whatever stands there. They have to be eager's after
lowering too. `tools/hidden_numbers.py` prints the whole table.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stepwell

Form = Callable[[Tensor], Tensor]
WIDTH, CHANNELS, STATIC = 6, 4, 8
HIDDEN = (torch.nan, torch.inf, -torch.inf, 3e38, -3e38, 0.0, -0.0)
"""Classes of numbers; ±3e38 overflows in any layer."""

PLACES = torch.tensor([3, 1, 4, 1, 0, 5, 2, 4, 3, 0, 5, 2, 1, 4])
IRREGULAR = torch.tensor([5, 2, 7, 1, 6, 3, 5, 1, 7, 4, 2, 6, 3, 0, 4, 7, 1])
MASK = torch.tensor([True, False, True, True, False, True])
CAUSAL = torch.ones(STATIC, STATIC, dtype=torch.bool).tril()


def _like(h: Tensor) -> Tensor:
    return torch.arange(h.numel(), dtype=h.dtype).reshape(h.shape)


def _scatter(reduce: str, include_self: bool) -> Form:
    index = IRREGULAR[:STATIC, None].expand(STATIC, WIDTH)
    return lambda h: torch.full((STATIC, WIDTH), 0.5).scatter_reduce(
        0, index, h, reduce, include_self=include_self
    )


def _into(reduce: str, include_self: bool) -> Form:
    index = torch.tensor([3, 5, 3])[:, None].expand(3, WIDTH)
    return lambda h: h.scatter_reduce(
        0, index, torch.ones(3, WIDTH) * 0.5, reduce, include_self=include_self
    )


def _attention(h: Tensor) -> Tensor:
    scores = (h @ h.mT).masked_fill(~CAUSAL, -torch.inf)
    return scores.softmax(-1) @ torch.linspace(-1, 1, STATIC * 3).reshape(STATIC, 3)


def _capped(h: Tensor) -> Tensor:
    scores = torch.tanh(h @ h.mT).masked_fill(~CAUSAL, -torch.inf)
    return scores.softmax(-1) @ torch.linspace(-1, 1, STATIC * 3).reshape(STATIC, 3)


def _routed(h: Tensor) -> Tensor:
    weights, places = h.softmax(-1).topk(2, dim=-1)
    table = torch.linspace(-1, 1, STATIC * WIDTH).reshape(STATIC, WIDTH)
    return weights * table.gather(1, places)


def _gathered(h: Tensor) -> Tensor:
    _, places = torch.linspace(-1, 1, STATIC * WIDTH).sin().reshape(STATIC, WIDTH).topk(2, dim=-1)
    return h.gather(1, places)


ROWS: dict[str, Form] = {
    "last row": lambda h: h[-1:] * 1,
    "last row of three axes": lambda h: h[None][:, -1:] * 1,
    "last two rows": lambda h: h[-2:] * 1,
    "last row selected": lambda h: h[-1] * 1,
    "from row two on": lambda h: h[2:] * 1,
    "without the last row": lambda h: h[:-1] * 1,
    "reflect": lambda h: F.pad(h.T[None], (2, 2), "reflect"),
    "reflect behind": lambda h: F.pad(h.T[None], (0, 2), "reflect"),
    "replicate": lambda h: F.pad(h.T[None], (1, 2), "replicate"),
    "circular": lambda h: F.pad(h.T[None], (1, 1), "circular"),
    "constant": lambda h: F.pad(h, (1, 1, 1, 1)) * 1,
    "flip": lambda h: h.flip(0) * 1,
    "roll": lambda h: h.roll(1, 0) * 1,
    "tril": lambda h: h.tril(),
    "where mask": lambda h: torch.where(MASK, h, 0.25),
    "masked_fill": lambda h: h.masked_fill(MASK, 0.25),
    "where by step": lambda h: torch.where(h[1:2] > 0.1, h[1:2].tanh(), h[1:2].sin()),
    "product with a mask, filled": lambda h: torch.where(MASK, 0.0, h) + 1,
    "cumsum back": lambda h: h.cumsum(-1).flip(-1) * 1,
    "cumsum": lambda h: h[2:4].cumsum(0),
    "logcumsumexp": lambda h: h[1:5].logcumsumexp(0),
    "repeat_interleave": lambda h: h.repeat_interleave(2, 1) * 1,
    "channels of rows": lambda h: h[:, [4, 1, 3, 0, 2, 5, 1, 3, 4, 0, 2, 5, 1, 3]] * 1,
    "diagonal": lambda h: h[:4, :4].diagonal() * 1,
    "unfold": lambda h: h.unfold(1, 3, 1) * 1,
    "nan_to_num": lambda h: h.nan_to_num(0.5, 1.0, -1.0),
    "softmax of rows": lambda h: h.softmax(-1),
    "top of rows": lambda h: h.topk(2, -1).values,
    "max of rows": lambda h: h.amax(-1),
    "max of last": lambda h: h[-2:].amax(0),
    "lerp": lambda h: torch.lerp(h[1], h[2], 0.25),
}
"""Of `[n, 6]`, at any n."""
STATIC_ROWS: dict[str, Form] = {
    "index_select": lambda h: h.index_select(0, IRREGULAR),
    "index": lambda h: h[IRREGULAR] * 1,
    "gather": lambda h: h.gather(0, IRREGULAR[:, None].expand(-1, WIDTH)),
    "index_add of": lambda h: torch.full((STATIC, WIDTH), 0.5).index_add(0, IRREGULAR[:STATIC], h),
    "index_add to": lambda h: h.index_add(0, torch.tensor([3, 5, 3]), torch.ones(3, WIDTH)),
    "index_copy of": lambda h: torch.ones(9, WIDTH).index_copy(0, torch.tensor([7, 2]), h[:2] * 1),
    "index_copy to": lambda h: h.index_copy(0, torch.tensor([7, 2]), torch.ones(2, WIDTH)),
    "scatter": lambda h: torch.ones(9, WIDTH).scatter(0, torch.tensor([[3] * WIDTH]), h[:1] * 2),
    "scatter_add": lambda h: torch.ones(9, WIDTH).scatter_add(
        0, IRREGULAR[:STATIC, None].expand(-1, WIDTH), h
    ),
    **{
        f"scatter_reduce {name} {r} {s}": make(r, s)
        for name, make in (("of", _scatter), ("to", _into))
        for r in ("sum", "amax", "amin")
        for s in (True, False)
    },
    "slice_scatter": lambda h: h.slice_scatter(torch.ones(2, WIDTH), 0, 3, 5),
    "select_scatter": lambda h: torch.ones(4, WIDTH).select_scatter(h[0] * 1, 0, 2),
    "masked attention": _attention,
    "capped attention": _capped,
    "routed": _routed,
    "gathered at known places": _gathered,
    "one_hot": lambda h: F.one_hot(PLACES, STATIC).float() @ h,
}
"""Of `[8, 6]`."""
IMAGES: dict[str, Form] = {
    "pixel_shuffle": lambda h: F.pixel_shuffle(h, 2),
    "pixel_unshuffle": lambda h: F.pixel_unshuffle(h[..., :2, :2], 2),
    "channel_shuffle": lambda h: F.channel_shuffle(h, 2) * 1,
    "reflect image": lambda h: F.pad(h, (1, 1, 1, 1), "reflect"),
    "replicate image": lambda h: F.pad(h, (1, 1, 1, 1), "replicate"),
    "reflection of rows": lambda h: F.pad(h, (0, 0, 0, 2), "reflect"),
    "zero border": lambda h: F.pad(h, (1, 1, 1, 1)) * 1,
    "nearest": lambda h: F.interpolate(h, scale_factor=2, mode="nearest"),
    "last rows of image": lambda h: h[:, :, -1:] * 1,
    "average": lambda h: F.avg_pool2d(h, 2),
    "greatest": lambda h: F.max_pool2d(h, 2),
    "scale of channels": lambda h: h * torch.tensor([1.0, 2.0, 0.5, 3.0]).reshape(-1, 1, 1) + 1,
}
"""Of `[1, 4, n, 6]`."""
STATIC_IMAGES: dict[str, Form] = {
    "unfold of image": lambda h: F.unfold(h, 2),
    "fold of image": lambda h: F.fold(F.unfold(h, 2), (STATIC, WIDTH), 2),
    "adaptive average": lambda h: F.adaptive_avg_pool2d(h, (4, 3)),
    "adaptive maximum": lambda h: F.adaptive_max_pool2d(h, (4, 3)),
    "bilinear": lambda h: F.interpolate(h, scale_factor=2, mode="bilinear"),
}
"""Of `[1, 4, 8, 6]`."""


class Embedded(nn.Module):
    """Rows of a table, one of which holds the number."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(table)

    def forward(self, ids: Tensor) -> Tensor:
        """The rows."""
        return self.embedding(ids)


class Held(nn.Module):
    """A buffer that holds the number."""

    def __init__(self, held: Tensor) -> None:
        super().__init__()
        self.held = nn.Buffer(held)

    def forward(self, x: Tensor) -> Tensor:
        """The buffer, to which nothing is added."""
        return self.held + x


PRODUCERS = ("input", "linear", "convolution", "norm", "sigmoid", "embedding", "constant")


def producer(name: str, is_image: bool, held: Tensor) -> nn.Module:
    """What makes the tensor whose numbers a form moves; `held` is its own data, if it has any."""
    torch.manual_seed(0)
    match name, is_image:
        case "input", _:
            return nn.Identity()
        case "sigmoid", _:
            return nn.Sigmoid()
        case "linear", _:
            return nn.Linear(WIDTH, WIDTH)
        case "convolution", True:
            return nn.Conv2d(CHANNELS, CHANNELS, 1)
        case "convolution", False:
            return nn.Sequential(_Turned(), nn.Conv1d(WIDTH, WIDTH, 1), _Turned())
        case "norm", True:
            return _OfPixels(nn.LayerNorm(CHANNELS))
        case "norm", False:
            return nn.LayerNorm(WIDTH)
        case "embedding", False:
            return Embedded(held)
        case "constant", _:
            return Held(held)
        case _:
            raise KeyError(name)


class _Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mT


class _OfPixels(nn.Module):
    def __init__(self, made: nn.Module) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        return self.made(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Program(nn.Module):
    """Forms, each behind a producer of its own."""

    def __init__(self, forms: dict[str, Form], producers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.forms, self.producers = forms, nn.ModuleList(producers)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The result of each form."""
        pairs = zip(self.forms.values(), self.producers, strict=True)
        return tuple(form(made(x)) for form, made in pairs)


@dataclass(frozen=True)
class Case:
    """Forms of one kind behind one producer, at a static or a dynamic size."""

    forms: dict[str, Form] = field(repr=False)
    producer: str
    is_image: bool
    is_dynamic: bool
    hidden: float = torch.nan
    """What the table of an embedding, or a constant, holds."""

    @property
    def has_data(self) -> bool:
        """Whether the number is in the program's own data, and not in its input."""
        return self.producer in ("embedding", "constant")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the input that forms are exported with."""
        return (1, CHANNELS, STATIC, WIDTH) if self.is_image else (STATIC, WIDTH)

    def model(self, hidden: float | None) -> nn.Module:
        """With a number in its data, or an ordinary one."""
        held = self.tensor(hidden)
        return Program(
            self.forms, [producer(self.producer, self.is_image, held) for _ in self.forms]
        ).eval()

    def tensor(self, hidden: float | None, size: int = STATIC) -> Tensor:
        """Ordinary numbers, and one that is given in the first row."""
        shape = (1, CHANNELS, size, WIDTH) if self.is_image else (size, WIDTH)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(size))
        if hidden is not None:
            x[..., 0, 1] = hidden
        return x

    def input(self, hidden: float | None, size: int = STATIC) -> Tensor:
        """What the program is given."""
        if self.producer == "embedding":
            return torch.arange(size) % STATIC
        if self.producer == "constant":
            return torch.zeros(self.shape)
        return self.tensor(hidden, size)

    def exported(self) -> Any:
        """The exported program."""
        model = self.model(self.hidden if self.has_data else None)
        at = 2 if self.is_image else 0
        size = torch.export.Dim("n", min=6, max=12)
        dynamic = {"x": {at: size}} if self.is_dynamic else None
        return torch.export.export(model, (self.input(None),), dynamic_shapes=dynamic)


@dataclass(frozen=True)
class Wrong:
    """An element that does not see the place, and is not eager's."""

    form: str
    hidden: float
    expected: float
    found: float


def cases(dynamic: bool, producers: Iterable[str] = PRODUCERS) -> Iterator[Case]:
    """All forms behind each producer."""
    for name in producers:
        for is_image in (False, True):
            if (is_image and name in ("linear", "embedding")) or (dynamic and name == "constant"):
                continue
            forms = {**(IMAGES if is_image else ROWS)}
            if not dynamic:
                forms |= STATIC_IMAGES if is_image else STATIC_ROWS
            held = HIDDEN if name in ("embedding", "constant") else (torch.nan,)
            yield from (Case(forms, name, is_image, dynamic, hidden) for hidden in held)


def wrong(case: Case, lowered: stepwell.Lowered) -> list[Wrong]:
    """The elements that do not see the place and are not eager's, one of each form and number."""
    found: list[Wrong] = []
    for hidden in (case.hidden,) if case.has_data else HIDDEN:
        size = 10 if case.is_dynamic else STATIC
        given = case.input(hidden, size)
        with torch.no_grad():
            eager = case.model(hidden)(given)
            others = [case.model(o)(case.input(o, size)) for o in (None, 0.5)]
        for name, want, got, *clean in zip(
            case.forms, eager, lowered.run(given), *others, strict=True
        ):
            blind = want.isfinite()
            for other in clean:
                blind &= want == other
            close = torch.isclose(got, want, rtol=1e-4, atol=1e-5)
            bad = blind & ~close
            if bool(bad.any()):
                found.append(Wrong(name, hidden, float(want[bad][0]), float(got[bad][0])))
    return found


def is_listed(lowered: stepwell.Lowered) -> bool:
    """Whether the report names a lost NaN or infinity: more than denormals and orders of sums."""
    lost = [d.loses for d in lowered.report.deviations]
    return any("NaN" in loses or "infinit" in loses for loses in lost)
