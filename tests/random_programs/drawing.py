"""Drawing a program from a seed: each statement is tried on the values so far before it is kept."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from . import values
from .source import Program, defined

MAX_ELEMENTS = 6000
MAX_RANK = 6


class UnsuitableError(Exception):
    """No value so far fits what a form wants."""


Form = Callable[["Draw"], str]
FORMS: dict[str, list[Form]] = {}
"""By family; a family is drawn first, so that large ones do not crowd out small ones."""


def form(family: str) -> Callable[[Form], Form]:
    """Enter a form, which writes an expression, or lines that give `out` a value."""

    def enter(written: Form) -> Form:
        FORMS.setdefault(family, []).append(written)
        return written

    return enter


@dataclass(frozen=True)
class Profile:
    """What a target's programs are drawn from."""

    dtypes: str = "f32 f32 f32 f32 f32 f32 f16 bf16 f64 i64 i64 i32 i8 i16 u8 boolean"
    families: dict[str, float] = field(default_factory=dict[str, float])
    """Weights; empty for all alike."""
    ranks: tuple[int, ...] = (0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5)
    special: float = 0.06
    varying: float = 0.12
    length: tuple[int, int] = (1, 7)
    plain: bool = False
    """Only float32 in, float32 out, no empty tensor: what a quantizer is given."""
    payloads: tuple[str, ...] = ()
    """The formats of MX to choose from."""


class Draw:
    """One program in the making."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.rng = random.Random(seed)
        self.profile = profile
        self.held: list[tuple[str, str]] = []
        self.statements: list[str] = []
        self.inputs: list[tuple[str, str]] = []
        self.module = torch.nn.Module()
        self.space: dict[str, Any] = {name: getattr(values, name) for name in values.__all__}
        self.space["self"] = self.module
        self.names: list[str] = []
        self.varying: list[tuple[str, int, str]] = []
        self.sizes: dict[str, int] = {}
        self.serial = 0

    # What the dice say.
    def choose(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def maybe(self, chance: float = 0.5) -> bool:
        return self.rng.random() < chance

    @property
    def seed(self) -> int:
        return self.rng.randrange(10**4)

    # Values.
    def value(self, name: str) -> Any:
        return eval(name, dict(self.space))

    def tensor(self, wanted: Callable[[Tensor], Any] | None = None) -> str:
        """The name of a value, later ones rather than earlier ones."""
        fitting = [n for n in self.names if wanted is None or wanted(self.space[n])]
        if not fitting:
            raise UnsuitableError
        weights = [1 + 2 * (index + 1) / len(fitting) for index in range(len(fitting))]
        return self.rng.choices(fitting, weights)[0]

    def floating(self, low: int = 0, high: int = MAX_RANK) -> str:
        return self.tensor(lambda t: t.is_floating_point() and low <= t.dim() <= high)

    def ranked(self, low: int = 0, high: int = MAX_RANK) -> str:
        return self.tensor(lambda t: low <= t.dim() <= high)

    def whole(self, low: int = 0) -> str:
        """A tensor of integers."""
        return self.tensor(
            lambda t: not t.is_floating_point() and t.dtype != torch.bool and t.dim() >= low
        )

    def axis(self, name: str, wanted: Callable[[int], Any] | None = None) -> int:
        """An axis, from either end."""
        shape = self.space[name].shape
        axes = [a for a, s in enumerate(shape) if wanted is None or wanted(s)]
        if not axes:
            raise UnsuitableError
        axis = self.rng.choice(axes)
        return axis - len(shape) if self.maybe(0.4) else axis

    def axes(self, name: str) -> tuple[int, ...]:
        """Some axes, at least one where there are any, in any order."""
        rank = self.space[name].dim()
        if not rank:
            return ()
        picked = self.rng.sample(range(rank), self.integer(1, rank))
        return tuple(a - rank if self.maybe(0.3) else a for a in picked)

    def size(self, name: str, axis: int) -> str:
        """A size as text: a number, or asked of the tensor."""
        if self.varying or self.maybe(0.1):
            return f"{name}.size({axis})"
        return str(self.space[name].shape[axis])

    def hold(self, text: str, kind: str = "c") -> str:
        """A parameter, buffer or layer of the module."""
        name = f"{kind}{len(self.held)}"
        made = eval(text, dict(self.space))
        self.held.append((f"self.{name}", text))
        if hasattr(self.module, name):  # Of a statement that came to nothing.
            delattr(self.module, name)
        setattr(self.module, name, made)
        return f"self.{name}"

    def constant(self, shape: Sequence[int], dtype: str = "f32", **how: float) -> str:
        """Numbers of the module: a parameter, or a buffer where they are no floats."""
        shape = tuple(shape)
        if dtype == "boolean":
            text = f"flags({self.seed}, {shape})"
        elif dtype.startswith(("i", "u")):
            low = 0 if dtype == "u8" else -5
            text = f"integers({self.seed}, {shape}, {low}, 9, {dtype})"
        else:
            more = "".join(f", {key}={value}" for key, value in how.items())
            text = f"normal({self.seed}, {shape}, {dtype}{more})"
        held = "nn.Buffer" if not dtype.endswith(("f16", "f32", "f64")) else "parameter"
        return self.hold(f"{held}({text})")

    def named_dtype(self, name: str) -> str:
        """How a tensor's dtype is called in the text."""
        dtype = self.value(name).dtype
        names = "f16 bf16 f32 f64 i8 i16 i32 i64 u8 boolean".split()
        return next((n for n in names if getattr(values, n) is dtype), "f32")

    def dtype(self) -> str:
        return self.rng.choice(self.profile.dtypes.split())

    def scalar(self, name: str) -> str:
        """A Python scalar to go with a tensor."""
        if self.value(name).is_floating_point():
            return str(self.choose(0.5, 2.0, -1.5, 3, 0.1, 1e-3, -2, 100.0, 0, 1, True))
        return str(self.choose(1, 2, -1, 3, 7, -4, 0, 100, 0.5, True))

    def partner(self, name: str) -> str:
        """What broadcasts with a tensor: another value, a new constant, or a scalar."""
        shape = self.space[name].shape
        kind = self.rng.random()
        if kind < 0.25:
            return self.scalar(name)
        if kind < 0.7:
            fitting = [n for n in self.names if broadcasts(self.space[n].shape, shape)]
            if fitting:
                return self.rng.choice(fitting)
        kept = [1 if self.maybe(0.3) else s for s in shape][self.integer(0, len(shape)) :]
        dtype = self.named_dtype(name) if self.maybe(0.7) else self.dtype()
        if self.varying:
            kept = [1] * len(kept)
        return self.constant(kept, dtype)

    # Building.
    def input(self) -> None:
        name = f"x{len(self.inputs)}"
        dtype = "f32" if self.profile.plain else self.dtype()
        if self.inputs and self.maybe(0.45):
            like = self.rng.choice(self.names)
            shape = list(self.space[like].shape)
            if self.maybe(0.7):
                dtype = self.named_dtype(like)
        else:
            rank = self.rng.choice(self.profile.ranks)
            pool = (1, 2, 3, 4, 5, 6, 8, 9) if rank < 4 else (1, 2, 3, 4, 6, 7)
            shape = [self.rng.choice(pool) for _ in range(rank)]
            if not self.profile.plain and shape and self.maybe(0.03):
                shape[self.rng.randrange(len(shape))] = 0
        written = [str(s) for s in shape]
        if self.sizes:
            for axis, size in enumerate(shape):
                for symbol, number in self.sizes.items():
                    if size == number and self.maybe(0.8) and written[axis].isdigit():
                        written[axis] = symbol
                        self.varying.append((name, axis, symbol))
        if self.varying_wanted and not self.inputs and shape:
            for symbol in ("a", "b")[: self.integer(1, min(2, len(shape)))]:
                axis = self.rng.choice([a for a, w in enumerate(written) if w.isdigit()])
                self.sizes[symbol] = {"a": 5, "b": 7}[symbol]
                written[axis] = symbol
                self.varying.append((name, axis, symbol))
        spelt = "(" + ", ".join(written) + ("," if len(written) == 1 else "") + ")"
        if dtype == "boolean":
            text = f"flags({self.seed}, {spelt})"
        elif dtype.startswith(("i", "u")):
            low, high = self.choose((-9, 10), (-9, 10), (0, 5), (-128, 128))
            if dtype == "u8":
                low, high = 0, high + 1
            text = f"integers({self.seed}, {spelt}, {low}, {high}, {dtype})"
        elif self.maybe(self.profile.special):
            text = f"special({self.seed}, {spelt}, {dtype})"
        else:
            scale = self.choose("", "", "", "", ", scale=5.0", ", scale=0.01", ", mean=1.0")
            text = f"normal({self.seed}, {spelt}, {dtype}{scale})"
        if not self.varying and len(shape) >= 2 and self.maybe(0.1):
            if len(shape) == 4 and self.maybe(0.6):
                text += ".to(memory_format=torch.channels_last)"
            else:
                text += ".transpose(0, -1)"
        self.inputs.append((name, text))
        self.space[name] = eval(text, {**self.space, **self.sizes})
        self.names.append(name)

    def attempt(self) -> bool:
        """One statement more, unless the form does not fit or eager refuses it."""
        weights = self.profile.families
        families = list(weights or FORMS)
        family = self.rng.choices(families, [weights.get(f, 1.0) for f in families])[0]
        written = self.rng.choice(FORMS[family])
        held, serial = len(self.held), self.serial
        try:
            text = written(self)
        except UnsuitableError:
            del self.held[held:]
            return False
        if not re.search(r"^out = ", text, re.MULTILINE):
            text = f"out = {text}"
        name = f"v{self.serial}"
        text = re.sub(r"\bout\b", name, text)
        self.serial += 1
        before = {n: self.space[n] for n in self.names}
        copies = {n: v.clone() for n, v in before.items()}
        trial = dict(self.space)
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                exec(text, trial)
            made = {n: trial[n] for n in sorted(defined(text), key=lambda n: int(n[1:]))}
            fits = all(self.fits(v) for v in made.values())
        except Exception:
            fits, made = False, {}
        if not fits:
            del self.held[held:]
            self.serial = serial
            for n, v in before.items():
                if v.numel() and not torch.equal(v, copies[n]):
                    v.copy_(copies[n])
            return False
        self.statements.append(text)
        self.space.update(made)
        self.names.extend(n for n, v in made.items() if isinstance(v, Tensor))
        return True

    def fits(self, value: Any) -> bool:
        if not isinstance(value, Tensor) or value.is_complex():
            return False
        if value.numel() > MAX_ELEMENTS or value.dim() > MAX_RANK:
            return False
        if not value.numel():
            return not self.profile.plain and self.maybe(0.3)
        if self.profile.plain and value.dtype != torch.float32:
            return False
        if value.is_floating_point() and not self.special_in:
            lost = float((~torch.isfinite(value)).double().mean())
            return lost < 0.3
        return True

    def program(self) -> Program:
        """The whole."""
        profile = self.profile
        self.special_in = False
        self.varying_wanted = self.maybe(profile.varying)
        for _ in range(self.choose(1, 1, 2, 2, 3)):
            self.input()
        self.special_in = any("special" in text for _, text in self.inputs)
        length = self.integer(*profile.length)
        for _ in range(40):
            if len(self.statements) >= length:
                break
            self.attempt()
        made = [n for n in self.names if n.startswith("v")]
        if not made:
            raise UnsuitableError
        outputs = [made[-1]]
        outputs += [n for n in made[:-1] if self.maybe(0.3)]
        if not profile.plain and self.maybe(0.06):
            outputs.append(self.rng.choice(self.names))
        sizes = dict(self.sizes)
        others = ({n: s - 2 for n, s in sizes.items()}, {n: s + 3 for n, s in sizes.items()})
        return Program(
            inputs=tuple(self.inputs),
            held=tuple(self.held),
            statements=tuple(self.statements),
            outputs=tuple(outputs),
            nesting="flat"
            if profile.plain
            else self.choose("flat", "flat", "flat", "pair", "dict"),
            returned="tuple" if profile.plain else self.choose("tuple", "tuple", "dict"),
            sizes=sizes,
            others=others if sizes else (),
            varying=tuple(self.varying),
            payload=self.choose(*profile.payloads) if profile.payloads else "",
        ).tidy()


def broadcasts(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two shapes go together."""
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def draw(seed: int, profile: Profile) -> Program:
    """The program of a seed; the next try of the same dice where a draw comes to nothing."""
    from . import forms

    forms.enter_all()
    for attempt in range(20):
        try:
            return Draw(seed * 1000 + attempt, profile).program()
        except UnsuitableError:
            continue
    raise AssertionError(f"nothing can be drawn from seed {seed}")
