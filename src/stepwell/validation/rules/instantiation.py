"""Build an instance of a rule as IR: the pattern's ops, and the rule's replacement for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from stepwell.ir.core import WeightOp
from stepwell.ir.declared.inference import infer
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewriter import Rewriter
from stepwell.ir.types import FloatType, IntType, is_static
from stepwell.ir.weights import WeightStore
from stepwell.translate.rules.compiling import Matched, Matcher, Namespace, compile_rule
from stepwell.translate.rules.examples import Example, elements_of, root_of
from stepwell.translate.rules.notation import Computed, Line, Rule, Term
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.translate.rules.writing import Found, RuleWriter
from stepwell.validation.rules.instances import Instance
from stepwell.validation.rules.numbers import (
    Number,
    Path,
    Rebound,
    Tokens,
    Unknown,
    Unproven,
    taking,
)

FAILS = (TypeError, ValueError, AttributeError, KeyError, IndexError, AssertionError,
         NotImplementedError, ZeroDivisionError, OverflowError)  # fmt: skip
"""The exceptions of functions and predicates for arguments outside their domain."""


class NotWritten(StepwellError):
    """Raised if an instance of a rule is no program: an op rejects its shapes or element types."""


@dataclass(frozen=True)
class RuleProgram:
    """A program with both sides of a rule: the pattern and the replacement.

    Attributes:
        pairs: each replaced value, with its replacement.
        misfits: the type errors of the replacement.
        fresh: the ops of the replacement.
        named: the pattern's values, by their names in the rule.
    """

    program: Program
    pairs: tuple[tuple[SSAValue, SSAValue], ...]
    misfits: tuple[str, ...]
    fresh: tuple[Operation, ...]
    named: Mapping[str, SSAValue] = field(default_factory=dict[str, SSAValue])


class _Draft(Example):
    """An example program built from an instance; the types of results are inferred."""

    def __init__(
        self, rewrite: type[RuleRewrite], rule: Rule, given: Mapping[str, Any], states: bool
    ) -> None:
        self.states = states
        self.run_time = dict[IntType, SSAValue]()
        super().__init__(rewrite, replace(rule, example={**rule.example, **given}))
        for name, value in self.holes.items():
            if isinstance(value, Unknown):
                type_ = IntType("late") if value.is_int else FloatType("late")
                self.holes[name] = self.block.insert_arg(type_, len(self.block.args))

    def known(self, held: Any) -> Any:
        """Return the value for a placeholder: an argument of the program for a symbolic size."""
        if not isinstance(held, IntType):
            return super().known(held)
        if held not in self.run_time:
            self.run_time[held] = self.block.insert_arg(held, len(self.block.args))
        return self.run_time[held]

    def line(self, line: Line) -> Line:
        """Add an op of the pattern; its result types are inferred unless the rule's text states
        them.
        """
        found = super().line(line)
        return found if self.states else replace(found, result_types=())


def drafted(
    rewrite: type[RuleRewrite], rule: Rule, given: Mapping[str, Any], *, states: bool = False
) -> Program:
    """Return the pattern's program; with `states`, results have the types in the rule's text.

    Raises:
        NotWritten: an op rejects the types.
    """
    refused: Exception | None = None
    for stated in (states, not states):
        try:
            draft = _Draft(rewrite, rule, given, stated)
            program = Program(draft.module(), WeightStore())
            for op in program.module.walk():
                op.verify(verify_nested_ops=False)
                if isinstance(op, WeightOp) and not is_static(op.result.type):
                    raise NotWritten("a weight has sizes that are numbers")
                if isinstance(op, WeightOp) and op.key.data not in program.weights:
                    program.weights.add(op.key.data, elements_of(op))
            if stated and (wrong := _misfits((), list(program.module.walk()), is_sure=states)):
                raise NotWritten(wrong[0])
            return program
        except (StepwellError, VerifyException, RuntimeError, *FAILS) as error:
            refused = error
    raise NotWritten(str(refused).splitlines()[0] if str(refused) else "no op takes this")


class _SymbolicWriter(RuleWriter):
    """A writer of replacements that computes with symbolic numbers; ops contain their tokens."""

    def __init__(self, rule: Rule, namespace: Namespace, tokens: Tokens) -> None:
        self.tokens = tokens
        super().__init__(rule, namespace)

    def value(self, term: Term, values: Found) -> Any:
        """Return the value of a term in the form that an op's attributes contain."""
        found = super().value(term, values)
        is_record = isinstance(term, Computed) and isinstance(found, Mapping)
        return found if is_record else self.tokens.lowered(found)


class Statement:
    """A form of a rule, possibly without one of its conditions, as the statement to prove."""

    def __init__(self, rewrite: type[RuleRewrite], rule: Rule) -> None:
        self.rewrite, self.rule = rewrite, rule
        self.tokens = Tokens()
        rebound = Rebound()
        self.namespace: dict[str, Any] = {
            name: taking(rebound(value), self.tokens) if isinstance(value, FunctionType) else value
            for name, value in rewrite.namespace.items()
        }
        self._matcher: Matcher = compile_rule(rule, self.namespace)
        self._writer = _SymbolicWriter(rule, self.namespace, self.tokens)
        self._plain: tuple[Matcher, RuleWriter] | None = None

    def written(self, instance: Instance, path: Path) -> RuleProgram | None:
        """Return the pattern and the replacement of an instance for one choice of answers about its
        symbolic numbers; None if a condition of the rule does not hold.

        Raises:
            NotWritten: an op rejects the types.
        """
        self.tokens.__init__()
        self.tokens.path = path
        given = {name: self._token(value) for name, value in instance.given.items()}
        program = drafted(self.rewrite, self.rule, given)
        return applied(self.rule, program, self._matcher, self._writer)

    def concrete(self, given: Mapping[str, Any]) -> RuleProgram | None:
        """Return a rule's pattern and its replacement for concrete numbers, which the rule's own
        matcher creates.
        """
        if self._plain is None:
            given_to = (self.rule, self.rewrite.namespace)
            self._plain = compile_rule(*given_to), RuleWriter(*given_to)
        return applied(self.rule, drafted(self.rewrite, self.rule, given), *self._plain)

    def before(self, given: Mapping[str, Any]) -> Program:
        """Build the program of a rule's pattern for concrete numbers."""
        return drafted(self.rewrite, self.rule, given)

    def _token(self, value: Any) -> Any:
        if not isinstance(value, Unknown) or value.is_late:
            return value
        node = Number("variable", (value.name,), value.is_int)
        made = self.tokens.int(node) if value.is_int else self.tokens.float(node)
        return self.tokens.lowered(made)


def applied(
    rule: Rule, program: Program, matcher: Matcher, writer: RuleWriter
) -> RuleProgram | None:
    """Apply a rule's form to the last op of a program; return both sides.

    Raises:
        Unproven: the replacement cannot be constructed.
    """
    root = root_of(program, rule)
    present = set(program.module.walk())
    try:
        found = matcher(root, program)
        if not isinstance(found, Matched):
            return None
        values = writer.write(root, found.found, Rewriter(root, program))
    except (StepwellError, RecursionError) as error:
        if isinstance(error, Unproven):
            raise
        raise Unproven(f"it cannot be written: {str(error).splitlines()[0]}") from error
    except (*FAILS, RuntimeError) as error:
        raise Unproven(f"its functions fail: {type(error).__name__}: {error}") from error
    defined = {name for line in rule.after for name in line.results}
    pairs = tuple(
        (old, values[f"%{name}"])
        for name, old in zip(rule.root.results, root.results, strict=True)
        if name in defined
    )
    fresh = tuple(op for op in program.module.walk() if op not in present)
    named = {name: value for name, value in found.found.items() if isinstance(value, SSAValue)}
    try:
        misfits = tuple(_misfits(pairs, fresh))
    except FAILS as error:
        raise Unproven(f"what it writes has no type: {type(error).__name__}: {error}") from error
    return RuleProgram(program, pairs, misfits, fresh, named)


def _misfits(
    pairs: Sequence[tuple[SSAValue, SSAValue]],
    fresh: Sequence[Operation],
    *,
    is_sure: bool = False,
) -> list[str]:
    """Return result types that differ from the replaced or the inferred types. With `is_sure`, an
    op whose types cannot be inferred is accepted.
    """
    found = [f"{old.type} becomes {new.type}" for old, new in pairs if old.type != new.type]
    for op in fresh:
        makers = [v.owner for v in op.operands if isinstance(v.owner, Operation)]
        if any(m.parent is op.parent and not m.is_before_in_block(op) for m in makers):
            found.append(f"{op.name} reads what is made behind it")
        try:
            inferred = infer(op)
        except (StepwellError, VerifyException) as error:
            if is_sure:
                continue
            reason = str(error).splitlines()[0]
            found.append(f"{op.name} is written of what it does not take: {reason}")
            continue
        for made, result in zip(inferred or (), op.results, strict=False):
            if str(made) != str(result.type):
                found.append(f"{op.name} gives {made} where {result.type} is said")
    return found
