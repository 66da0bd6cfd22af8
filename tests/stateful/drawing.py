"""Drawing a program with a history from a seed; it is tried in eager before it is kept."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from .source import Call, Part, Program, eager

LARGEST = 4e3
"""Numbers beyond this are none to compare sums by."""


@dataclass(frozen=True)
class Profile:
    """What a lane's programs are drawn from.

    Attributes:
        families: weights of the families of parts.
        open: how often a size is left open.
        methods: how many methods, each as likely.
        quantized: the ways of quantizing; a program has one.
    """

    families: Mapping[str, float]
    open: float = 0.0
    methods: tuple[int, ...] = (1,)
    quantized: tuple[str, ...] = ("",)


Form = Callable[["Draw"], Part]
FORMS: dict[tuple[str, str], list[Form]] = {}
"""By the kind of stream (`sequence`, `image`) and the family."""


class UnsuitableError(Exception):
    """A form does not fit the program."""


def form(kind: str, family: str) -> Callable[[Form], Form]:
    """Enter a form of part."""

    def enter(written: Form) -> Form:
        FORMS.setdefault((kind, family), []).append(written)
        return written

    return enter


@dataclass
class Draw:
    """One program in the making."""

    rng: random.Random
    profile: Profile
    kind: str = ""
    shape: tuple[str, ...] = ()
    limits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    pool: dict[str, list[tuple[str, str]]] = field(default_factory=dict[str, list[tuple[str, str]]])
    """Buffers and weights by what they are: other parts and methods share them."""
    held: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What the part at hand holds."""
    serial: int = 0
    later: bool = False
    """Whether a method stands there already, whose state this one may share."""

    def choose(self, *options: str) -> str:
        return self.rng.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def maybe(self, chance: float = 0.5) -> bool:
        return self.rng.random() < chance

    @property
    def channels(self) -> int:
        return int(self.shape[2 if self.kind == "sequence" else 1])

    def size(self, axis: int) -> str:
        """A size of the stream as text: a number, or asked of it."""
        written = self.shape[axis]
        return written if written.isdigit() and self.maybe(0.8) else f"h.shape[{axis}]"

    def fixed(self, axis: int) -> int:
        """A size that does not vary."""
        if not self.shape[axis].isdigit():
            raise UnsuitableError
        return int(self.shape[axis])

    def hold(self, text: str, share: float = 0.0, what: str = "") -> str:
        """Something that the module holds, or what holds the like already."""
        share = max(share, 0.7) if self.later and share else share
        what = what or re.sub(r"\((\d+), \(", "(0, (", text)  # A weight of another seed will do.
        name, text = next(
            (pair for pair in self.pool.get(what, []) if self.maybe(share)), ("", text)
        )
        if not name:
            name = f"self.s{self.serial}"
            self.serial += 1
            self.pool.setdefault(what, []).append((name, text))
        self.held.append((name, text))
        return name

    def state(self, *shape: int, like: str = "zeros", share: float = 0.4) -> str:
        """A buffer of floats: zero at first, or not."""
        made = {
            "zeros": f"torch.zeros({shape})",
            "ones": f"torch.ones({shape})",
            "normal": f"normal({self.integer(0, 99)}, {shape})",
        }[like]
        return self.hold(f"nn.Buffer({made})", share, f"state {shape}")

    def count(self, dtype: str = "i64", first: int = 0, share: float = 0.4) -> str:
        """A counter of one element."""
        return self.hold(
            f"nn.Buffer(torch.full((1,), {first}, dtype={dtype}))", share, f"count {dtype}"
        )

    def weight(self, *shape: int, scale: float | None = None, share: float = 0.25) -> str:
        """A parameter whose products keep their size; tied to one of the same shape by chance."""
        fan = 1
        for size in shape[1:]:
            fan *= size
        scale = scale or round(0.8 / max(fan, 1) ** 0.5, 3)
        return self.hold(
            f"parameter(normal({self.integer(0, 999)}, {shape}, scale={scale}))", share
        )

    def layer(self, text: str) -> str:
        """A layer of torch's with parameters of a seed."""
        return self.hold(f"seeded({text}, {self.integer(0, 999)})", 0.2)

    def part(self, *lines: str, taken: Sequence[tuple[str, str, Sequence[str]]] = (),
             given: Sequence[str] = ()) -> Part:  # fmt: skip
        """A part of lines; `@` in a name is its number."""
        self.serial += 1
        own = str(self.serial)

        def named(text: str) -> str:
            return text.replace("@", own)

        made = [line for text in lines for line in named(text).split("\n")]
        inputs = tuple((named(n), text, tuple(axes)) for n, text, axes in taken)
        return Part(tuple(made), tuple(self.held), inputs, tuple(map(named, given)))

    def draw_part(self) -> Part | None:
        """One part, if the form that was drawn fits."""
        families = [f for f in self.profile.families if (self.kind, f) in FORMS]
        family = self.rng.choices(families, [self.profile.families[f] for f in families])[0]
        written = self.rng.choice(FORMS[self.kind, family])
        self.held = []
        try:
            return written(self)
        except UnsuitableError:
            return None

    def shared_part(self) -> Part | None:
        """What resets, changes or shows a buffer of an earlier method."""
        buffers = [pair for what, each in self.pool.items()
                   if what.startswith(("state", "count")) for pair in each]  # fmt: skip
        if not buffers:
            return None
        name, text = self.rng.choice(buffers)
        self.held = [(name, text)]
        read = f"h = h + {name}.float().mean()"
        lines, given = self.rng.choice(
            [
                ([f"{name}.zero_()"], []),
                ([f"{name}.fill_(3)", read], []),
                ([read], [f"{name}.clone()"]),
                ([f"{name}.add_(1)", read], []),
                ([f"o@ = {name} * 2", f"{name}.zero_()"], ["o@"]),
                ([f"{name}.copy_({name}.flip(0))", read], [name]),
            ]
        )
        return self.part(*lines, given=given)

    def program(self) -> Program:
        """The whole."""
        rng = self.rng
        self.kind = rng.choice(("sequence", "sequence", "image"))
        quantized = rng.choice(self.profile.quantized)
        channels = 32 if quantized == "8da4w" else rng.choice((4, 6, 8))
        batch, length = str(rng.choice((1, 1, 2, 3))), str(rng.choice((1, 2, 3, 5, 6, 8)))
        if self.maybe(self.profile.open):
            named = rng.choice(("length", "batch", "both"))
            if named != "batch":
                length = "t"
            if named != "length":
                batch = "b"
        if self.kind == "sequence":
            self.shape = (batch, length, str(channels))
        else:
            tall = str(rng.choice((4, 5, 7, 8))) if length != "t" or self.maybe() else "t"
            wide = length if length == "t" else str(rng.choice((4, 6, 8, 9)))
            self.shape = (batch, str(channels), tall, wide)
        for name in {"b", "t"} & set(self.shape):
            low = rng.choice((1, 1, 2, 2, 3)) if self.kind == "sequence" or name == "b" else 4
            self.limits[name] = (low, low + rng.choice((6, 11, 17)))
        many = rng.choice(self.profile.methods)
        methods: list[tuple[Part, ...]] = []
        for _ in range(many):
            wanted, parts = self.integer(1, 4 if many > 1 else 5), list[Part]()
            for _ in range(30):
                if len(parts) == wanted:
                    break
                if (part := self.draw_part()) is not None:
                    parts.append(part)
            if self.later and self.maybe(0.7) and (part := self.shared_part()) is not None:
                parts.insert(self.integer(0, len(parts)), part)
            if not parts:
                raise UnsuitableError
            methods.append(tuple(parts))
            self.later = True
        streams = tuple(
            self.maybe(0.85) or not any(part.given for part in method) for method in methods
        )
        return Program(
            self.shape,
            tuple(methods),
            self.calls(many),
            dict(self.limits),
            streams,
            quantized,
        )

    def calls(self, methods: int) -> tuple[Call, ...]:
        """Every method at least once, four calls at least; seven of the open sizes."""
        sizes = {name: spread(self.rng, low, high) for name, (low, high) in self.limits.items()}
        count = 7 if self.limits else self.integer(4, 6)
        order = [*range(methods)]
        order += [self.rng.randrange(methods) for _ in range(count - methods)]
        self.rng.shuffle(order)
        return tuple(
            Call(method, {name: each[at] for name, each in sizes.items()}, self.maybe(0.3))
            for at, method in enumerate(order)
        )


PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
POWERS = (2, 4, 8, 16)


def spread(rng: random.Random, low: int, high: int) -> list[int]:
    """Seven sizes of a range: an ordinary one first, its ends, odd, prime, about a power of two."""
    within = range(low, high + 1)
    about = [p + by for p in POWERS for by in (-1, 0, 1) if p + by in within]
    telling = [
        low,
        low + 1,
        high,
        rng.choice([n for n in within if n % 2] or [low]),
        rng.choice([n for n in PRIMES if n in within] or [high]),
        rng.choice(about or [low]),
    ]
    rng.shuffle(telling)
    usual = rng.choice([n for n in within if n > max(low, 3)] or [high])
    return [usual, *telling]


def is_fit(program: Program) -> bool:
    """Whether eager runs all calls, in numbers of ordinary size."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            outputs = eager(program)(*(program.given(i) for i in range(len(program.calls))))
    except Exception:
        return False
    return all(
        not v.is_floating_point() or not v.numel() or float(v.abs().amax()) < LARGEST
        for v in outputs
        if not v.is_complex()
    )


def draw(seed: int, profile: Profile) -> Program:
    """The program of a seed; without the parts that eager does not take."""
    from . import flows, images, sequences  # noqa: F401 (which enter their forms)

    for attempt in range(50):
        try:
            program = Draw(random.Random(seed * 1000 + attempt), profile).program()
        except UnsuitableError:
            continue
        if is_fit(program):
            return program
        for number, method in enumerate(program.methods):
            for at in range(len(method)):
                rest = program.without({(number, at)})
                if rest is not None and is_fit(rest):
                    return rest
    raise AssertionError(f"nothing can be drawn from seed {seed}")


def smaller(program: Program) -> list[Program]:
    """Programs with a part, a call, an open size or a way of feeding back less."""
    found: list[Program] = []
    for number, method in enumerate(program.methods):
        found += [p for at in range(len(method)) if (p := program.without({(number, at)}))]
    for at in range(len(program.calls)):
        rest = program.calls[:at] + program.calls[at + 1 :]
        if {call.method for call in rest} == set(range(len(program.methods))):
            found.append(replace(program, calls=rest))
    if any(call.fed for call in program.calls):
        plain = tuple(replace(call, fed=False) for call in program.calls)
        found.append(replace(program, calls=plain))
    if len(program.methods) > 1:
        for gone in range(len(program.methods)):
            kept = [n for n in range(len(program.methods)) if n != gone]
            calls = tuple(
                replace(call, method=kept.index(call.method))
                for call in program.calls
                if call.method != gone
            )
            if calls:
                found.append(
                    replace(
                        program,
                        methods=tuple(program.methods[n] for n in kept),
                        streams=tuple(program.streams[n] for n in kept),
                        calls=calls,
                    )
                )
    return found
