"""Decide by the solver whether the elements of two values are equal: bit for bit, or as real
numbers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from xdsl.ir import SSAValue

from stepwell.ir.dtypes import f64, i64, is_float
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.ir.types import dims
from stepwell.ir.weights import WeightStore
from stepwell.validation.rules.expressions import held_as
from stepwell.validation.rules.numbers import Number, Path, Tokens, Unproven
from stepwell.validation.rules.reals import Reals
from stepwell.validation.rules.scalars import Bits, Domain
from stepwell.validation.rules.solver import z3
from stepwell.validation.rules.tensors import Tensors

GLANCE, QUICK, SLOW = 100_000, 1_500_000, 2_000_000
"""Limits in solver steps, which do not depend on the machine's speed: bitwise equality where it is
not claimed, where it is, and equality over the reals.
"""
_MOST_NAMED = 3
_MOST_MILLISECONDS = 60_000


class Proof(IntEnum):
    """The proved equality of two values; a greater member is a stronger claim."""

    NONE = 0
    REALS = 1
    ZEROS = 2
    """Bit for bit, except for the sign of zeros."""
    BITS = 3


@dataclass(frozen=True)
class Decision:
    """The solver's answer whether one pair of values is equal.

    Attributes:
        has_symbols: whether the sizes were symbolic.
        reason: why no stronger proof was found.
        counterexample: values of elements and numbers in the solver's counterexample; None if the
            question contains an uninterpreted function.
    """

    proof: Proof
    has_symbols: bool
    reason: str = ""
    counterexample: Mapping[str, int | float | bool] | None = None


@dataclass(frozen=True)
class Question:
    """The question to the solver whether two values of one program are equal.

    Attributes:
        one, other: the two values.
        path: the conditions on numbers that hold on this path.
        bound: the rule's error bound. If it is exact, equality must be bitwise. Otherwise real
            numbers are tried, too, and half of the relative bound is reserved for roundings.
    """

    one: SSAValue
    other: SSAValue
    weights: WeightStore
    tokens: Tokens
    path: Path
    bound: Bound


def decide(asked: Question, most: Proof = Proof.BITS, of_finite: bool = False) -> Decision:
    """Compare two values of the same arguments.

    Args:
        most: the strongest useful equality, because another instance allows no stronger one.
        of_finite: whether the rule applies to finite numbers only, so that real numbers are tried
            even if the bound is exact.

    Raises:
        Unproven: the semantics of an op are unknown.
    """
    if asked.one is asked.other:
        return Decision(Proof.BITS, True)
    is_exact = asked.bound.exact and not of_finite
    is_exact |= not is_float(held_as(asked.one.type))
    if most is not Proof.REALS or is_exact:
        decision = _in(Bits(), QUICK if asked.bound.exact else GLANCE, asked)
        if decision.proof is not Proof.NONE or is_exact:
            return decision
    return _in(Reals(), SLOW, asked)


def _in(domain: Domain, patience: int, asked: Question) -> Decision:
    one, other = asked.one, asked.other
    _preset(domain, asked.path)

    def tensors(maps_alone: bool) -> Tensors:
        limits = (asked.bound.relative, asked.bound.absolute)
        return Tensors(domain, asked.tokens, asked.weights, *limits, maps_alone=maps_alone)

    general = tensors(maps_alone=True)
    index = general.index_of(one)
    if any(d != e for d, e in zip(dims(one.type), dims(other.type), strict=False)):
        return Decision(Proof.NONE, general.has_symbols, "the shapes differ")
    try:
        return _at([index], asked, general, patience)
    except Unproven:
        if not all(isinstance(size, int) for size in dims(one.type)):
            raise
    return _at(_indices(one), asked, tensors(maps_alone=False), patience)


def _preset(domain: Domain, path: Path) -> None:
    """Replace numbers of a rule that a condition determines by constants; a number that equals 0.0
    may also be −0.0.
    """
    for node, answer in path.conditions:
        if answer and node.function == "equal":
            for one, other in (node.operands, node.operands[::-1]):
                if other.function != "constant" or one.function != "variable":
                    continue
                if one not in domain.numbers:
                    held = int(other.operands[0]) if one.is_int else float(other.operands[0])
                    term = domain.constant(held, i64 if one.is_int else f64)
                    if domain.is_exact and not one.is_int and not held:
                        is_below = z3.Bool(f"${one.operands[0]}.is_below")
                        term = z3.If(is_below, domain.constant(-0.0, f64), term)
                    domain.numbers[one] = term


def _at(
    indices: list[tuple[Any, ...]], asked: Question, tensors: Tensors, patience: int
) -> Decision:
    """Compare two values element by element at some indices; return the weakest equality (bitwise
    or real) that is proved for an element.
    """
    domain = tensors.domain
    proofs: list[Proof] = []
    reason, counterexample = "", None
    for at in indices:
        left, right = tensors.at(asked.one, at), tensors.at(asked.other, at)
        if left.of != right.of:
            return Decision(Proof.NONE, tensors.has_symbols, f"{left.of} is no {right.of}")
        conditions = [domain.condition(node, answer) for node, answer in asked.path.conditions]
        proof, reason, counterexample = _equal(
            left.term, right.term, conditions, tensors, is_float(left.of), patience
        )
        proofs.append(proof)
        if proof is Proof.NONE:
            break
    least = min(proofs, default=Proof.BITS)
    return Decision(least, tensors.has_symbols, reason, counterexample)


def _indices(value: SSAValue) -> list[tuple[Any, ...]]:
    """Return every index of a tensor of static sizes, or None."""
    found: list[tuple[Any, ...]] = [()]
    for size in dims(value.type):
        found = [(*at, z3.IntVal(i)) for at in found for i in range(int(size))]  # pyright: ignore[reportArgumentType]
    return found


def _equal(
    left: Any, right: Any, conditions: list[Any], tensors: Tensors, are_floats: bool, patience: int
) -> tuple[Proof, str, Mapping[str, int | float | bool] | None]:
    domain = tensors.domain
    best = Proof.BITS if domain.is_exact else Proof.REALS
    left, right = z3.simplify(left), z3.simplify(right)
    if left.eq(right):
        return best, "", None
    facts = [*conditions, *domain.facts, *tensors.ranges]
    if isinstance(domain, Reals):
        facts += domain.laws()
        facts += tensors.finite
    left, right, facts, is_placed = _with_equal_places(left, right, facts, tensors)
    if left.eq(right):
        return best, "", None
    facts = _reached(facts, left, right)
    question = [*facts, left != right]
    answer = _check(question, patience)
    if answer == z3.unsat:
        return best, "", None
    if not domain.is_exact and are_floats and (tensors.relative or tensors.absolute):
        apart, size = (z3.If(t < 0, -t, t) for t in (left - right, left))
        allowed = domain.constant(tensors.relative / 2, f64) * size
        allowed = allowed + domain.constant(tensors.absolute, f64)
        question = [*facts, apart > 2 * allowed]
        if _check([*facts, apart > allowed], patience) == z3.unsat:
            return best, "within half of its bound", None
        answer = _check(question, patience)
    if domain.is_exact and are_floats:
        nans = z3.And(z3.fpIsNaN(left), z3.fpIsNaN(right))
        if _check([*facts, z3.Not(z3.Or(nans, z3.fpEQ(left, right)))], patience) == z3.unsat:
            return Proof.ZEROS, "the sign of a zero", None
    kind = "bit for bit" if domain.is_exact else "over the reals"
    free = _uninterpreted(question, tensors) if answer == z3.sat else []
    is_sure = answer == z3.sat and is_placed and not free
    said = "the solver has a counterexample" if answer == z3.sat else "the solver gives up"
    if answer == z3.sat and not is_sure:
        of = f" that takes {' and '.join(free[:_MOST_NAMED])} for any function" if free else ""
        said += of or " with elements at indices that it takes for different ones"
    numbers = _model_of(question, patience) if is_sure else None
    return Proof.NONE, f"{kind}: {said}", numbers


def _uninterpreted(assertions: list[Any], tensors: Tensors) -> list[str]:
    """Return the functions of a term that the solver may choose: those other than elements of
    inputs, numbers of the rule, and indices.
    """
    inputs, found = set(tensors.names.values()), dict[str, None]()
    for term in _subterms(assertions):
        if z3.is_app_of(term, z3.Z3_OP_DIV) and not z3.is_rational_value(term.arg(1)):
            found["a quotient by zero"] = None
        if not z3.is_app(term) or term.decl().kind() != z3.Z3_OP_UNINTERPRETED:
            continue
        name = term.decl().name()
        is_known = name.startswith("$") or name.split("!")[0].split(".")[0] in inputs
        if name.endswith(".whole") or not (is_known or z3.is_int(term)):
            found[name.split("!")[0].partition(":")[0].partition("(")[0].partition("#")[0]] = None
    return sorted(found)


def _subterms(terms: list[Any], seen: set[int] | None = None) -> Iterator[Any]:
    waiting, seen = list(terms), set[int]() if seen is None else seen
    while waiting:
        each = waiting.pop()
        if each.get_id() not in seen:
            seen.add(each.get_id())
            yield each
            waiting += each.children()


def _model_of(assertions: list[Any], patience: int) -> dict[str, int | float | bool]:
    """Return the numbers of the solver's counterexample, by name."""
    solver = _solver(assertions, patience)
    found: dict[str, int | float | bool] = {}
    if solver.check() != z3.sat:
        return found
    model = solver.model()
    for declaration in model.decls():
        value: Any = model[declaration]
        if z3.is_bv_value(value):
            found[declaration.name()] = value.as_signed_long()
        elif z3.is_bool(value):
            found[declaration.name()] = z3.is_true(value)
        elif z3.is_fp_value(value) and (value.isNaN() or value.isInf()):
            name = "nan" if value.isNaN() else "-inf" if value.isNegative() else "inf"
            found[declaration.name()] = float(name)
        elif z3.is_fp_value(value) or z3.is_rational_value(value):
            real = z3.simplify(z3.fpToReal(value)) if z3.is_fp_value(value) else value
            found[declaration.name()] = float(real.as_fraction())
    return found


def go_together(conditions: list[tuple[Number, bool]]) -> bool:
    """Whether some conditions on numbers can hold together; True if the solver does not know."""
    domain = Bits()
    try:
        terms = [domain.condition(node, answer) for node, answer in conditions]
    except Unproven:
        return True
    return _check([*domain.facts, *terms], GLANCE) != z3.unsat


def _reached(facts: list[Any], left: Any, right: Any) -> list[Any]:
    """Return the known facts that concern a comparison: those about indices only if one occurs in
    it.
    """
    without = set[int]()
    if any(_has_places(term, without) for term in (left, right)):
        return facts
    return [fact for fact in facts if not _has_places(fact, without)]


def _has_places(term: Any, without: set[int]) -> bool:
    """Whether an index occurs in a term; if not, add its subterms to those `without` one."""
    seen = without.copy()
    for each in _subterms([term], seen):
        is_place = z3.is_int(each) and z3.is_const(each) and not z3.is_int_value(each)
        if is_place and not each.decl().name().startswith("$"):
            return True
    without |= seen
    return False


_ANSWERS: dict[tuple[str, ...], Any] = {}
"""The solver's answers by the text of the question, which is the same for many shapes."""


def _check(assertions: list[Any], patience: int) -> Any:
    key = (str(patience), *sorted({assertion.sexpr() for assertion in assertions}))
    if key not in _ANSWERS:
        _ANSWERS[key] = _solver(assertions, patience).check()
    return _ANSWERS[key]


def _solver(assertions: list[Any], patience: int) -> Any:
    solver = z3.Solver()
    solver.set("rlimit", patience)
    solver.set("timeout", _MOST_MILLISECONDS)
    solver.add(*assertions)
    return solver


def _with_equal_places(
    left: Any, right: Any, facts: list[Any], tensors: Tensors
) -> tuple[Any, Any, list[Any], bool]:
    """Replace elements of inputs by constants; elements at provably equal indices share one
    constant.

    Also return whether different constants are certainly elements at different indices.
    """
    found = _applications([left, right, *facts], tensors.weight_names | set(tensors.names.values()))
    constants: list[tuple[Any, Any]] = []
    substitutions: list[tuple[Any, Any]] = []
    for each in found:
        same = next((c for a, c in constants if _at_one_place(a, each, tensors)), None)
        if same is None:
            same = z3.Const(f"{each.decl().name()}.{len(constants)}", each.sort())
            constants.append((each, same))
        substitutions.append((each, same))
    if not substitutions:
        return left, right, facts, True
    counted = Counter(each.decl().name() for each, _ in constants)
    is_placed = all(
        counted[e.decl().name()] == 1 or all(map(z3.is_int_value, e.children()))
        for e, _ in constants
    )
    changed = [z3.simplify(z3.substitute(t, *substitutions)) for t in (left, right)]
    facts = [z3.substitute(f, *substitutions) for f in facts]
    return changed[0], changed[1], facts, is_placed


def _at_one_place(one: Any, other: Any, tensors: Tensors) -> bool:
    if one.decl() != other.decl():
        return False
    pairs = [(one.arg(n), other.arg(n)) for n in range(one.num_args())]
    return all(a.eq(b) or tensors.equal(a, b) for a, b in pairs)


def _applications(terms: list[Any], names: set[str]) -> list[Any]:
    """Return the elements of inputs that occur in some terms, the innermost first."""
    found: dict[int, Any] = {}
    seen: set[int] = set()

    def look(term: Any) -> None:
        if term.get_id() in seen:
            return
        seen.add(term.get_id())
        for child in term.children():
            look(child)
        if z3.is_app(term) and term.num_args() and term.decl().name().split("!")[0] in names:
            found.setdefault(term.get_id(), term)

    for term in terms:
        look(term)
    return list(found.values())
