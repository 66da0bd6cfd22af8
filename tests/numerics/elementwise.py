"""Every elementwise operator of ATen (PyTorch's tag `pointwise`) as a form, from its schema.

Tensors take special numbers, each with each; numbers among arguments take some of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from emulated import run_as
from forms import Form, Weights
from measuring import Result, by_parts, eager, exported, judge, stock
from specials import flushed
from torch.utils import _pytree as pytree

import stepwell

CHUNK = 60
"""Forms in a program."""
GIVEN: dict[str, tuple[Any, ...]] = {
    "Scalar": (0.5, -2.0),
    "number": (0.5, -2.0),
    "int": (0, 1, 2),
    "Optional[str]": ("floor", "trunc"),
}
"""What an argument gets that has no default, by its type: one form each; others get 0.5."""
NAMED: dict[str, tuple[Any, ...]] = {"n": (1, 2, 3), "p": (2,), "decimals": (-1, 2)}
"""The same, by an argument's name: small degrees."""
LONG = ("special_zeta", "igamma", "igammac")
"""Series without a known number of terms, which every target refuses."""


def _overloads() -> Iterator[Any]:
    """Functional overloads with the tag, whose tensors may be of floats."""
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        for overload_name in getattr(packet, "overloads", list)():
            overload = getattr(packet, overload_name)
            if torch.Tag.pointwise not in overload.tags or overload._schema.is_mutable:
                continue
            is_long = "polynomial" in name and overload_name != "n_scalar"
            if not is_long and name not in LONG:
                yield overload


def _call(overload: Any, fixed: dict[str, Any], w: Weights, *given: torch.Tensor) -> Any:
    """Call an operator: a Boolean operand is whether the first tensor exceeds the last."""
    tensors, arguments = iter(given), {}
    for argument in overload._schema.arguments:
        if argument.name in fixed:
            arguments[argument.name] = fixed[argument.name]
        elif argument.name in ("condition", "mask"):
            arguments[argument.name] = given[0] > (given[1] if len(given) > 1 else 0)
        elif "Tensor" in str(argument.type) and not argument.has_default_value():
            arguments[argument.name] = next(tensors)
    names = [a.name for a in overload._schema.arguments if not a.kwarg_only]
    split = next((at for at, n in enumerate(names) if n not in arguments), len(names))
    positional = [arguments.pop(name) for name in names[:split]]
    result = overload(*positional, **arguments)
    return result[0] if isinstance(result, tuple) else result


def _forms_of(overload: Any) -> Iterator[Form]:
    required = [a for a in overload._schema.arguments if not a.has_default_value()]
    tensors = [
        a for a in required if str(a.type) == "Tensor" and a.name not in ("condition", "mask")
    ]
    kind = {1: "values", 2: "value pairs", 3: "value triples"}.get(len(tensors))
    others = [a for a in required if "Tensor" not in str(a.type)]
    if kind is None:
        return
    choices: list[dict[str, Any]] = [{}]
    if others:
        many = [NAMED.get(a.name) or GIVEN.get(str(a.type), (0.5,)) for a in others]
        choices = [
            {a.name: values[at % len(values)] for a, values in zip(others, many, strict=True)}
            for at in range(max(map(len, many)))
        ]
    if "clamp" in str(overload) or "clip" in str(overload):
        choices = choices if others or len(tensors) > 1 else [{"min": -1.0}]
    for fixed in choices:
        said = ", ".join([*(a.name for a in tensors), *(f"{n}={v}" for n, v in fixed.items())])
        yield Form(f"{overload}({said})", partial(_call, overload, fixed), kind)


def elementwise_forms() -> tuple[Form, ...]:
    """Each operator's forms."""
    return tuple(form for overload in _overloads() for form in _forms_of(overload))


Where = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Excuse:
    """A class or number other than eager's that is declared.

    Attributes:
        operators: a pattern of the names of forms.
        why: the reason.
        where: which elements it is about, of the inputs.
        targets: the targets that it is about.
    """

    operators: str
    why: str
    where: Where
    targets: tuple[str, ...] = ("xnnpack", "tosa-1.0+fp", "cortex-m55")


def _beyond(limit: float) -> Where:
    return lambda *inputs: torch.stack([x.double().abs() > limit for x in inputs]).any(0)


def _any_nan(*inputs: torch.Tensor) -> torch.Tensor:
    return torch.stack([x.isnan() for x in inputs]).any(0)


def _has_denormal(*inputs: torch.Tensor) -> torch.Tensor:
    return torch.stack([flushed(x) != x for x in inputs]).any(0)


EXCUSES = (
    Excuse(
        r"aten\.(special_(bessel|spherical)|sinc)",
        "XNNPACK's sine beyond 1e5, as `sin`; PyTorch's own subtracts π/4 from a rounded number",
        _beyond(1e5),
    ),
    Excuse(r"aten\.silu_backward", "AVX-512's sigmoid beyond 4e26", _beyond(4e26), ("xnnpack",)),
    Excuse(
        r"aten\.(xlogy.Scalar_Self|special_xlog1py.self_scalar)",
        "XNNPACK's logarithm of NaN, infinity and the largest numbers, as `log`",
        lambda x: (x > 1e38) | x.isnan(),
        ("xnnpack",),
    ),
    Excuse(
        r"aten\.special_\w+_polynomial_\w+\.n_scalar",
        "PyTorch's kernel gives a number that it never wrote for NaN",
        _any_nan,
    ),
    Excuse(
        r"aten\.polygamma\.default\(self, n=1\)",
        "PyTorch's kernel divides by the rounded sine of a multiple of π next to a pole",
        lambda x: (x < 0) & (x == x.round()) & x.isfinite(),
    ),
    Excuse(
        r"aten\.(addcmul|lerp.Tensor)",
        "PyTorch's kernel may fuse a product and a sum, where the product alone overflows",
        lambda *inputs: torch.stack([x.abs() > torch.finfo(x.dtype).max / 4 for x in inputs]).any(
            0
        ),
    ),
    Excuse(
        r"aten\.(addcdiv|div.Tensor|true_divide|logit_backward)",
        "TOSA divides by a reciprocal, infinite of a denormal number",
        _has_denormal,
        ("tosa-1.0+fp",),
    ),
    Excuse(
        r"aten\.gelu\.default",
        "of an infinity the kernels of PyTorch and XNNPACK give NaN on some CPUs",
        lambda x: x.isinf(),
    ),
    Excuse(
        r"aten\.pow\.Tensor_Tensor",
        "a power is an exponential of a product, which loses the sign of -0 and rounds",
        lambda x, y: (x == 0) | (x.abs() > 1e38),
        ("tosa-1.0+fp",),
    ),
)
"""Where the default differs from eager; `docs/semantics.md` says so of nodes and rewrites.

What the stock flow gives too, on the CPU that runs, needs no entry.
"""


@dataclass(frozen=True)
class Found:
    """What a target makes of forms: how many are as eager, excused, as the stock flow, refused."""

    as_eager: list[str]
    excused: list[str]
    as_stock: list[str]
    refused: list[str]
    undeclared: list[str]


def measurable(dtype: torch.dtype, names: Sequence[str] = ("",)) -> list[Form]:
    """Return the forms that eager computes in a dtype, of operators whose names begin so."""
    kept: list[Form] = []
    for form in elementwise_forms():
        if any(form.name.startswith(f"aten.{name}") for name in names):
            try:
                eager(form, dtype)
            except (NotImplementedError, RuntimeError):
                continue
            kept.append(form)
    return kept


def compared(
    forms: Sequence[Form], dtype: torch.dtype, target: str, cpu: str | None = None
) -> Found:
    """Compare the classes of the interpreter and, for XNNPACK, of the runtime with eager's.

    Args:
        cpu: the CPU on which the runtime runs (`run_as`); None for this machine.
    """

    def run(some: Sequence[Form]) -> list[tuple[torch.Tensor, ...]]:
        lowered = stepwell.lower(exported(some, dtype), target)
        inputs = [list(form.inputs(dtype)) for form in some]
        runs = [lowered.program.run(inputs)]
        if target == "xnnpack":
            runs.append(run_as(cpu, lowered.to_pte(), pytree.tree_leaves(inputs)))
        return list(zip(*map(pytree.tree_leaves, runs), strict=True))

    found = Found([], [], [], [], [])
    worse: list[tuple[Form, tuple[torch.Tensor, ...], torch.Tensor]] = []
    for at in range(0, len(forms), CHUNK):
        some = forms[at : at + CHUNK]
        for form, results in zip(some, by_parts(some, run), strict=True):
            if isinstance(results, str):
                found.refused.append(form.name)
                continue
            inputs = form.inputs(dtype)
            excused = torch.zeros(inputs[0].shape, dtype=torch.bool)
            for excuse in EXCUSES:
                if target in excuse.targets and re.match(excuse.operators, form.name):
                    excused |= excuse.where(*inputs)
            wrong = torch.stack([_worse(result, None, form, dtype) for result in results]).any(0)
            if not bool(wrong.any()):
                found.as_eager.append(form.name)
            elif not bool((wrong & ~excused).any()):
                found.excused.append(form.name)
            else:
                worse.append((form, results, excused))
    has_stock = target != "tosa-1.0+fp"
    of_worse = [form for form, _, _ in worse]
    beside = stock(of_worse, dtype, target == "xnnpack", [cpu]) if has_stock else []
    for (form, results, excused), theirs in zip_longest(worse, beside):
        wrong = [_worse(result, theirs, form, dtype) & ~excused for result in results]
        is_stock = not any(bool(one.any()) for one in wrong)
        (found.as_stock if is_stock else found.undeclared).append(form.name)
    return found


def _worse(
    found: torch.Tensor, theirs: Result | None, form: Form, dtype: torch.dtype
) -> torch.Tensor:
    verdict = judge(found, theirs if isinstance(theirs, torch.Tensor) else None, form, dtype)
    assert verdict is not None
    return verdict.worse
