"""Record statements (that old and new values are equal) of each rewrite application and pass of a
lowering.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.dialects.op_text import text_of
from stepwell.ir.diagnostics import node_name, op_name
from stepwell.ir.observed import observed, signatures
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Pass, Rewrite, Rewriter, Step, bound_of, step_name
from stepwell.ir.syntax.text import to_text
from stepwell.ir.weights import WeightStore
from stepwell.translate.rules import RuleRewrite
from stepwell.validation.certificates.checker.check import Definition, EqualityGraph
from stepwell.validation.certificates.statements import Cone, Recorded, TooLarge

WHOLE = 1 << 30


@dataclass
class Application:
    """One application of a rewrite, or one run of a pass over the whole program.

    Attributes:
        step, rewrite, op, node: the pass, the rewrite, and the op and model node to which it was
            applied.
        bound: its error bound.
        statements: candidate texts; the first one that can be decided is the evidence.
        claims: the pairs of values that the rewrite declares equal.
        rule: the rewrite's class, if it is a rule.
        depends_on_step: whether the application changed values in place or changed their types, so
            that the pass as a whole must be decided.
    """

    step: str
    rewrite: str
    op: str
    node: str | None
    bound: Bound
    statements: list[str] = field(default_factory=list[str])
    claims: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    rule: type[Rewrite[Any]] | None = None
    depends_on_step: bool = False


@dataclass
class StatementRecorder:
    """An observer that records statements about the values of a program during its lowering. Values
    are identified by numbers.
    """

    program: Program
    graph: EqualityGraph = field(default_factory=EqualityGraph)
    weights: WeightStore = field(default_factory=WeightStore)
    """All weights of the lowering."""
    applications: list[Application] = field(default_factory=list[Application])
    step: str = ""
    start: str = ""
    signatures: dict[str, Any] = field(default_factory=dict[str, Any])
    _numbers: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    _values: dict[int, SSAValue] = field(default_factory=dict[int, SSAValue])
    _types: dict[int, Attribute] = field(default_factory=dict[int, Attribute])
    _definitions: dict[int, Recorded] = field(default_factory=dict[int, Recorded])
    _seen: int = 0
    _outputs: list[int] = field(default_factory=list[int])
    _before: dict[int, Recorded] = field(default_factory=dict[int, Recorded])

    def __post_init__(self) -> None:
        self._outputs = self._taken()
        self.signatures = signatures(self.program)
        self.start = numbered(self.program, self.number)

    # -- numbers and definitions -------------------------------------------------------------

    def number(self, value: SSAValue) -> int:
        """Return the expression number of an SSA value."""
        if value not in self._numbers:
            self._renumber(value)
        return self._numbers[value]

    def _renumber(self, value: SSAValue) -> int:
        made = self._numbers[value] = self.graph.new()
        self._types[made], self._values[made] = value.type, value
        return made

    def type_of(self, number: int) -> Attribute:
        """Return the type of a value at the time it was recorded."""
        return self._types[number]

    def _now(self, op: Operation, operands: Sequence[SSAValue]) -> Recorded:
        """Return the definition of an op's results, with the current numbers of its operands."""
        read = tuple(map(self.number, operands))
        results = tuple(map(self.number, op.results))
        held = dict(op.properties), dict(op.attributes)
        regions = tuple(region.clone() for region in op.regions)
        return Recorded(text_of(op), read, results, op, *held, regions)

    def _define(self, made: Recorded) -> Recorded:
        for value in made.results:
            self._definitions.setdefault(value, made)
        self.graph.define(made)
        return made

    def _taken(self) -> list[int]:
        """Record all ops of the program. A value whose defining op changed gets a new number."""
        self._before = {}
        self.weights.entries.update(self.program.weights.entries)
        for func in self.program.methods.values():
            for op in func.body.block.ops:
                if op.results:
                    made = self._now(op, op.operands)
                    is_known = made.results[0] in self._definitions
                    if is_known and not self._stands(made):
                        for result in op.results:
                            self._renumber(result)
                        made = self._now(op, op.operands)
                    self._define(made)
                    self._before.update(dict.fromkeys(made.results, made))
        return [self.number(value) for _, value in observed(self.program)]

    # -- the watch ---------------------------------------------------------------------------

    def before(self, rewrite: Rewrite[Any], op: Operation, match: Any) -> None:
        """Do nothing before an application, because the original ops are already recorded."""

    def after(self, rewrite: Rewrite[Any], rewriter: Rewriter) -> None:
        """Record the statement that an application's old and new values are equal."""
        self.weights.entries.update(self.program.weights.entries)
        root = rewriter.root
        application = Application(
            self.step,
            rewrite.name,
            op_name(root),
            node_name(root.location),
            rewrite.bound,
            rule=type(rewrite) if isinstance(rewrite, RuleRewrite) else None,
        )
        fresh, pairs = self._changed(rewriter)
        application.claims = [
            pair for pair in pairs if not self.graph.are_equal(pair[:1], pair[1:])
        ]
        application.depends_on_step = bool(rewriter.superseded) or any(
            self.type_of(a) != self.type_of(b) for a, b in application.claims
        )
        stated = application.claims or pairs  # Later statements read the values of either.
        if stated and not application.depends_on_step:
            application.statements = list(self._statements(stated, fresh, rewriter))
        self.applications.append(application)
        if application.statements:
            self.graph.unite(application.claims)

    def _changed(self, rewriter: Rewriter) -> tuple[set[int], list[tuple[int, int]]]:
        """Return the new values, and the pairs that the rewrite declares equal."""
        pairs: list[tuple[int, int]] = []
        replaced = [(self.number(old), new) for old, new in rewriter.replaced]
        heirs = {new for _, new in rewriter.replaced} | set(rewriter.superseded)
        ops = [
            op
            for op in dict.fromkeys((*rewriter.modified, *rewriter.inserted))
            if op.results and op.parent is not None and isinstance(op.parent_op(), FuncOp)
        ]
        for op in ops:
            for result in op.results:
                old = self._numbers.pop(result, None)
                if old is not None and result not in heirs:
                    pairs.append((old, self.number(result)))
        fresh = {value for op in ops for value in self._define(self._now(op, op.operands)).results}
        pairs += [(old, self.number(new)) for old, new in replaced]
        return fresh, pairs

    def _statements(
        self, pairs: list[tuple[int, int]], fresh: set[int], rewriter: Rewriter
    ) -> Iterator[str]:
        known: dict[int, Recorded | None] = {}

        def made(value: int) -> Recorded | None:
            if value not in known:
                known[value] = self._made(value, rewriter)
            return known[value]

        for deep in (0, 4):
            cone = Cone(self.graph, made, fresh, deep)
            try:
                cone.look(pairs)
                if all(d.results[0] in fresh or self._stands(d) for d in cone.order):
                    yield to_text(cone.module(pairs, self.type_of))
            except (TooLarge, KeyError):
                return

    def _made(self, value: int, rewriter: Rewriter) -> Recorded | None:
        """Return the current definition of a value, or the last one if its op was erased."""
        held = self._values[value]
        op = held.owner
        if not isinstance(op, Operation):
            return None
        if self._numbers.get(held) != value:
            return self._definitions.get(value)
        operands = rewriter.gone.get(op)
        if operands is None and op.parent is not None:
            operands = op.operands
        return self._definitions.get(value) if operands is None else self._now(op, operands)

    def _stands(self, definition: Definition) -> bool:
        same = self.graph.find(definition)
        return same is not None and self.graph.are_equal(same.results, definition.results)

    # -- steps -------------------------------------------------------------------------------

    def behind(self, step: Step, program: Program, applied: int) -> None:
        """Record the program after a pass. If the pass changed outputs outside its recorded
        applications, record that change as a statement too.
        """
        before = self._before
        outputs = self._taken()
        mine = self.applications[self._seen :]
        for each in mine:
            each.step = step_name(step)
        if not self.graph.are_equal(self._outputs, outputs):
            name = step_name(step)
            application = Application(name, name, "the program", None, _bound(step))
            pairs = zip(self._outputs, outputs, strict=True)
            application.claims = [p for p in pairs if not self.graph.are_equal(p[:1], p[1:])]
            application.depends_on_step = any(each.depends_on_step for each in mine)
            now = self._before
            cone = Cone(self.graph, lambda v: now.get(v) or before.get(v), set(), -1, WHOLE)
            cone.look(application.claims)
            application.statements = [to_text(cone.module(application.claims, self.type_of))]
            self.applications.append(application)
            self.graph.unite(application.claims)
        self._seen = len(self.applications)
        self._outputs = outputs


def _bound(step: Step) -> Bound:
    return bound_of(step) if isinstance(step, Pass) else step.bound


def numbered(program: Program, number: Any) -> str:
    """Return a program's text in which values are named by their numbers."""
    copy = program.module.clone()
    for old, new in zip(program.module.walk(), copy.walk(), strict=True):
        for one, other in zip(_values(old), _values(new), strict=True):
            other.name_hint = f"v{number(one)}"
    return to_text(copy)


def _values(op: Operation) -> Iterator[SSAValue]:
    yield from op.results
    if isinstance(op, FuncOp):
        block: Block = op.body.block
        yield from block.args
