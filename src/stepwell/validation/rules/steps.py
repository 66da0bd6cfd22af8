"""Detect whether rounding on one side of a rule can cross a discontinuity; a proof over the reals
then shows nothing.

A continuous op scales a rounding error by its modulus of continuity, which error bounds include. A
comparison, `floor`, a cast to integers or the index of an extremum may change by a whole step.
"""

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant.types import quantization
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.scalar_semantics import PRIMITIVES, Term, meaning
from stepwell.ir.dtypes import is_float
from stepwell.ir.types import element
from stepwell.ir.weights import WeightStore

_STEPS = frozenset(
    """floor ceil round trunc is_nan sign not_ invert quotient modulo less less_equal equal and_ or_
    xor where""".split()
)
_CONTINUOUS = frozenset(("element", "unknown", *PRIMITIVES)) - _STEPS
_PIECEWISE = frozenset(
    """elu celu selu leaky_relu _prelu_kernel prelu softplus softshrink huber_loss smooth_l1_loss
    logaddexp clamp""".split()
)
"""Ops whose pieces meet: their meanings choose between them by comparing."""
_EXACT = frozenset(
    """neg abs relu relu6 hardtanh clamp clamp_min clamp_max maximum minimum amax amin negate
    absolute clone""".split()
)
"""Ops that round nothing."""
_PICKS = ("movement", "padding", "lookup", "choice")


def step_between(pair: Sequence[SSAValue], weights: WeightStore) -> str | None:
    """Return the discontinuous op that a rounding of one side may cross; None if there is none."""
    keys: dict[SSAValue, Any] = {}
    reached = [_reached(value, keys) for value in pair]
    shared = set.intersection(*({keys[value] for value in values} for values in reached))
    rounded = dict.fromkeys((v for values in reached for v in values if keys[v] in shared), False)
    for values in reached:
        for value in values:
            op = value.owner
            if value in rounded or not isinstance(op, Operation):
                rounded.setdefault(value, False)
                continue
            if any(rounded[operand] for operand in op.operands):
                if not _is_continuous(op, value):
                    return f"{op.name} may make a step of what is rounded differently"
                rounded[value] = True
            elif isinstance(op, WeightOp):
                rounded[value] = weights.recipe_of(op.key.data) is not None
            else:
                is_exact = is_of(op, *_PICKS, "comparison", "factory") or _short(op) in _EXACT
                rounded[value] = _is_float(value) and not is_exact
    return None if _is_float(pair[0]) else f"the result is of type {pair[0].type}"


def _reached(value: SSAValue, keys: dict[SSAValue, Any]) -> dict[SSAValue, None]:
    """Return a value and all values from which it is computed, operands first. Give equal ops on
    equal operands the same key.
    """
    found: dict[SSAValue, None] = {}

    def visit(each: SSAValue) -> None:
        op, keys[each] = each.owner, each
        if isinstance(op, Operation) and not op.regions:
            for operand in op.operands:
                if operand not in found:
                    visit(operand)
            fields = [f"{n}={held}" for n, held in sorted((op.properties | op.attributes).items())]
            number = [*op.results].index(each)  # pyright: ignore[reportArgumentType]
            operands = tuple(keys[operand] for operand in op.operands)
            keys[each] = (op.name, *fields, str(each.type), operands, number)
        found[each] = None

    visit(value)
    return found


def _short(op: Operation) -> str:
    return op.name.split(".")[1]


def _is_float(value: SSAValue) -> bool:
    is_plain = isinstance(value.type, TensorType) and quantization(value.type) is None
    return is_plain and is_float(element(value.type))


def _is_continuous(op: Operation, value: SSAValue) -> bool:
    """Whether a result is a continuous function of its float operands."""
    if not _is_float(value) or op.regions:
        return False
    if is_of(op, *_PICKS, "product", "normalization") or _short(op) in _PIECEWISE:
        return True
    said = meaning(op)
    found = None if said is None else said.element
    return op.name.startswith("stepwell_mx.") or (found is not None and _has_no_step(found))


def _has_no_step(term: Any) -> bool:
    if not isinstance(term, Term):
        return True
    is_smooth = term.function in _CONTINUOUS and (term.to is None or is_float(term.to))
    return is_smooth and all(map(_has_no_step, term.operands))
