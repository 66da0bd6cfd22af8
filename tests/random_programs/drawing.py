"""Drawing a program from a seed: each statement is tried on the values so far before it is kept."""

import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from . import values
from .forms import FORMS, UnsuitableError, enter_all
from .layouts import LAYOUTS, SHARED
from .sizes import spread
from .source import LARGEST, Call, Method, Program, defined, is_fit

MAX_ELEMENTS = 6000
MAX_RANK = 6
GREATEST_SIZE = 32
"""Of a dynamic axis: memory is planned ahead."""
SAMPLE = {"a": 5, "b": 7}
"""The dynamic sizes of the example."""


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
    methods: tuple[int, ...] = ()
    """How many methods, each as likely, called four times or more; empty for one called once."""
    quantized: tuple[str, ...] = ("",)
    """The ways of quantizing; a program has one."""
    layouts: bool = False
    """Whether two inputs of integers lie in memory in any way: as the example, and in two calls."""


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
        self.input_names: list[str] = []
        self.varying: list[tuple[str, int, str]] = []
        self.sizes: dict[str, int] = {}
        self.serial = 0
        self.special_in, self.quantized = False, ""
        self.later = False
        """Whether an earlier method exists, whose buffers this one may share."""

    def choose(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def maybe(self, chance: float = 0.5) -> bool:
        return self.rng.random() < chance

    @property
    def seed(self) -> int:
        return self.rng.randrange(10**4)

    def pick(self, *templates: str, **names: Any) -> str:
        """One of some templates, with the drawn names in it: the others draw nothing."""
        return eval(f'f"""{self.rng.choice(templates)}"""', {**names, "d": self})

    def require(self, holds: Any) -> None:
        """Give a form up that does not fit."""
        if not holds:
            raise UnsuitableError

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

    def share(self, text: str, chance: float = 0.4) -> str:
        """A held value of this kind, more often one of an earlier method, or a new one."""
        chance = max(chance, 0.7) if self.later else chance
        for name, other in self.held:
            if _kind(other) == _kind(text) and self.maybe(chance):
                return name
        return self.hold(text)

    def state(self, *shape: int) -> str:
        """A buffer of floats: zero at first, or not."""
        text = self.choose(f"normal({self.seed}, {shape})", *[f"torch.zeros({shape})"] * 2)
        return self.share(f"nn.Buffer({text})")

    def count(self, dtype: str = "i64", first: int = 0) -> str:
        """A counter of one element."""
        return self.share(f"nn.Buffer(torch.full((1,), {first}, dtype={dtype}))")

    def weight(self, *shape: int, share: float = 0.25) -> str:
        """A parameter whose products keep their size; tied to one of the same shape by chance."""
        fan = torch.Size(shape[1:]).numel()
        scale = round(0.8 / max(fan, 1) ** 0.5, 3)
        return self.share(f"parameter(normal({self.seed}, {shape}, scale={scale}))", share)

    def symbol(self, size: int) -> str:
        """A size as text: its name if it is dynamic."""
        return next((name for name, number in self.sizes.items() if number == size), str(size))

    def further_input(self, text: str, *sizes: str) -> str:
        """An input of `k`, the call's number, and of some sizes, one each axis."""
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, text))
        self.space[name] = eval(text, {**self.space, **self.sizes, "k": 0})
        self.names.append(name)
        self.input_names.append(name)
        self.varying += [(name, axis, s) for axis, s in enumerate(sizes) if s in self.sizes]
        return name

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
            if self.quantized == "8da4w":
                shape[-1] = 32  # Its groups of weights.
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
                if len(self.profile.methods) and axis == len(shape) - 1 and len(shape) == 3:
                    axis = 1  # Channels are static.
                    if not written[axis].isdigit():
                        continue
                self.sizes[symbol] = SAMPLE[symbol]
                written[axis] = symbol
                self.varying.append((name, axis, symbol))
        spelt = "(" + ", ".join(written) + ("," if len(written) == 1 else "") + ")"
        if dtype == "boolean":
            text = f"flags({self.seed} + k, {spelt})"
        elif dtype.startswith(("i", "u")):
            low, high = self.choose((-9, 10), (-9, 10), (0, 5), (-128, 128))
            if dtype == "u8":
                low, high = 0, high + 1
            text = f"integers({self.seed} + k, {spelt}, {low}, {high}, {dtype})"
        elif self.maybe(self.profile.special):
            text = f"special({self.seed} + k, {spelt}, {dtype})"
        else:
            scale = self.choose("", "", "", "", ", scale=5.0", ", scale=0.01", ", mean=1.0")
            text = f"normal({self.seed} + k, {spelt}, {dtype}{scale})"
        if not self.varying and len(shape) >= 2 and self.maybe(0.1):
            if len(shape) == 4 and self.maybe(0.6):
                text += ".to(memory_format=torch.channels_last)"
            else:
                text += ".transpose(0, -1)"
        self.further_input(text)

    def inputs_in_memory(self) -> None:
        """Two inputs in layouts that each call has, which share memory in the last two."""
        shape, (one, two) = self.choose(*SHAPES), [self.rng.choices([*LAYOUTS], k=2) for _ in "ab"]
        shared = ("apart", self.choose(*SHARED), self.choose(*SHARED))
        layouts = [(one[at], one[at], two[at]) for at in range(2)]
        self.further_input(f"laid_out({shape}, {layouts[0]}[k], {shared}[k])")
        self.further_input(f"beside(x0, {layouts[1]}[k], {shared}[k])")

    def attempt(self, family: str = "") -> bool:
        """One statement more, unless the form does not fit or eager refuses it."""
        weights = self.profile.families
        families = list(weights) or [f for f in FORMS if f not in ON_REQUEST]
        if not family:
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
        text = re.sub(r"\bout\b(?!=)", name, text)
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
        if self.profile.methods:
            if not value.dim() or not value.numel():
                return False
            if value.is_floating_point() and not bool((value.abs() < LARGEST).all()):
                return False
            if value.shape != self.space["x0"].shape and self.maybe():
                return False  # Few other shapes, so that outputs may be fed back.
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
        self.quantized = self.choose(*profile.quantized)
        self.varying_wanted = self.maybe(profile.varying)
        if profile.layouts:
            self.inputs_in_memory()
        for _ in range(0 if profile.layouts else self.choose(1, 1, 2, 2, 3)):
            self.input()
        self.special_in = any("special" in text for _, text in self.inputs)
        many = self.choose(*(profile.methods or (1,)))
        methods = [self.method() for _ in range(many)]
        is_flat = profile.plain or profile.layouts
        made = Program(
            inputs=tuple(self.inputs),
            held=tuple(self.held),
            methods=tuple(methods),
            nesting="flat" if is_flat else self.choose("flat", "flat", "flat", "pair", "dict"),
            returned="tuple" if is_flat else self.choose("tuple", "tuple", "dict"),
            limits=self.limits(),
            varying=tuple(self.varying),
            payload=self.choose(*profile.payloads) if profile.payloads else "",
            quantized=self.quantized,
        )
        made = replace(made, calls=self.calls(made))
        return made if profile.layouts else made.tidy()

    def method(self) -> Method:
        """One method: its statements and outputs."""
        self.names, self.statements = list(self.input_names), []
        length = self.integer(*self.profile.length)
        for _ in range(40):
            if len(self.statements) >= length:
                break
            self.attempt()
        if self.later and self.maybe(0.7):
            self.attempt("shared")
        self.later = True
        made = [n for n in self.names if n.startswith("v")]
        if not made:
            raise UnsuitableError
        outputs = [made[-1], *(n for n in made[:-1] if self.maybe(0.3))]
        buffers = [name for name, text in self.held if text.startswith("nn.Buffer")]
        if self.profile.methods:
            first = self.space["x0"]
            fed = [n for n in made if self.space[n].shape == first.shape]
            outputs = [*fed[-1:], *(n for n in outputs if n not in fed[-1:])]
            if buffers and self.maybe(0.3):
                outputs.append(self.rng.choice(buffers))
            outputs += [self.rng.choice(outputs)] * self.maybe(0.1)
        if not self.profile.plain and self.maybe(0.06):
            outputs.append(self.rng.choice(self.names))
        return Method(tuple(self.statements), tuple(outputs))

    def limits(self) -> dict[str, tuple[int, int]]:
        """The range of each dynamic size."""
        if not self.profile.methods:
            return dict.fromkeys(self.sizes, (2, GREATEST_SIZE))
        lows = {name: self.choose(1, 1, 2, 2, 3) for name in self.sizes}
        return {name: (low, low + self.choose(6, 11, 17)) for name, low in lows.items()}

    def calls(self, program: Program) -> tuple[Call, ...]:
        """One call and one for each further pair of sizes, or one more where state is written.

        A profile of several calls has every method at least once and four calls at least: seven
        with dynamic sizes, which see the ends of each range.
        """
        sizes = dict(self.sizes)
        if self.profile.layouts:
            return (Call(),) * 3
        if not self.profile.methods:
            others = [{n: s + by for n, s in sizes.items()} for by in (-2, 3)] if sizes else []
            others += [sizes] if program.has_state and not others else []
            return tuple(Call(0, each) for each in (sizes, *others))
        each = {name: spread(self.rng, *program.limits[name], sizes[name]) for name in sizes}
        count = 7 if sizes else self.integer(4, 6)
        methods = len(program.methods)
        order = [*range(methods), *(self.rng.randrange(methods) for _ in range(count - methods))]
        self.rng.shuffle(order)
        # The example of every method has the sizes with which its statements were drawn.
        first = {method: order.index(method) for method in order}
        return tuple(
            Call(
                method,
                sizes if first[method] == at else {n: drawn[at] for n, drawn in each.items()},
                self.maybe(0.3),
            )
            for at, method in enumerate(order)
        )


ON_REQUEST = ("state", "alias", "sizes", "flow", "shared", "modules", "memory")
"""Families that a profile names, if it has them."""
SHAPES = ((4,), (1,), (3, 4), (3, 3), (1, 4), (2, 3, 4), (1, 2, 3, 4), (2, 3, 2, 2), (0, 3), (2, 0))
"""Of inputs in any layout."""


def _kind(text: str) -> str:
    """What a held value is, whatever its seed and its first numbers."""
    text = re.sub(r"normal\(\d+, (\([^)]*\))(?:, scale=[\d.]+)?\)", r"floats(\1)", text)
    return re.sub(r"torch.full\(\(1,\), \d+", "count", text).replace("torch.zeros(", "floats(")


def settled(program: Program, profile: Profile) -> Program | None:
    """The program with calls that eager runs, without one statement where that is what it takes."""
    if len(program.calls) == 1 or profile.layouts:
        return program
    if not profile.methods:
        alone = [(call, replace(program, calls=(call,))) for call in program.calls[1:]]
        further = [call for call, one in alone if is_fit(one, ordinary=False)]
        return replace(program, calls=(program.calls[0], *further))
    if is_fit(program, ordinary=True):
        return program
    for number, method in enumerate(program.methods):
        for at in range(len(method.statements)):
            rest = program.without({(number, at)})
            if rest is not None and is_fit(rest, ordinary=True):
                return rest
    return None


def broadcasts(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two shapes go together."""
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def draw(seed: int, profile: Profile) -> Program:
    """The program of a seed; the next try of the same dice where a draw comes to nothing."""
    enter_all()
    for attempt in range(50):
        try:
            if program := settled(Draw(seed * 1000 + attempt, profile).program(), profile):
                return program
        except UnsuitableError:
            continue
    raise AssertionError(f"nothing can be drawn from seed {seed}")
