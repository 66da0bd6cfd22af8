"""The driver: rewrites to a fixed point, refusals that last, an end in any case."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from rewrite_runs import program_of
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation

import stepwell
from stepwell.dialects import aten, control
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import (
    GreedyRewrites,
    History,
    NamedPass,
    Refusal,
    Rewrite,
    Rewriter,
    run_rewrites,
)

TEXT = str(program_of("%unread = aten.sin.default(%x: f32[2]); %y = aten.relu.default(%x)"))


class Respelled(Rewrite[Operation]):
    """One unary op as another."""

    other: ClassVar[Any]

    def match(self, op: Any, program: Program) -> Operation | Refusal | None:
        return op

    def build(self, match: Operation, rw: Rewriter) -> None:
        new = rw.insert(self.other.make(match.operands[0]))
        rw.replace(match, new.results)


def respelled(name: str, anchor: type[Operation], other: Any = None, **members: Any) -> Any:
    """A class that rewrites one unary op: as another, or as its `match` and `build` say."""
    made = {"name": name, "anchors": (anchor,), "other": other, **members}
    return dataclass(frozen=True)(type(name, (Respelled,), made))


def in_place(_: Any, match: Operation, rw: Rewriter) -> None:
    """Changes nothing, and so would be applied for ever."""
    rw.changed(match)


def relu_of(inner: Any) -> Any:
    """A relu of another op, for a relu."""

    def build(_: Any, match: Operation, rw: Rewriter) -> None:
        first = rw.insert(inner.make(match.operands[0]))
        rw.replace(match, rw.insert(aten.ReluDefault.make(first.results[0])).results)

    return build


ReluToTanh = respelled("relu-to-tanh", aten.ReluDefault, aten.TanhDefault)
TanhToRelu = respelled("tanh-to-relu", aten.TanhDefault, aten.ReluDefault)
TanhToTanh = respelled("tanh-to-tanh", aten.TanhDefault, build=in_place)
ReluInPlace = respelled("relu-in-place", aten.ReluDefault, build=in_place)
TwoRelus = respelled("two-relus", aten.ReluDefault, build=relu_of(aten.ReluDefault))
ReluUnderNegation = respelled(
    "relu-under-negation", aten.ReluDefault, build=relu_of(aten.NegDefault)
)
RefuseRelu = respelled(
    "refuse-relu", aten.ReluDefault, match=lambda _, op, program: Refusal("it is a relu")
)


@dataclass(frozen=True)
class SinkNegation(Respelled):
    """relu(neg(x)) → neg(relu(x)): wrong, and all that a walk down a chain needs."""

    name: ClassVar[str] = "sink-negation"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.NegDefault,)

    def match(self, op: Any, program: Program) -> Operation | Refusal | None:
        reader = next(iter(op.results[0].uses)).operation
        return op if isinstance(reader, aten.ReluDefault) else None

    def build(self, match: Operation, rw: Rewriter) -> None:
        reader = next(iter(match.results[0].uses)).operation
        first = rw.insert(aten.ReluDefault.make(match.operands[0]), before=reader)
        rw.replace(reader, rw.insert(aten.NegDefault.make(first.results[0]), reader).results)
        rw.erase(match)


def names(program: Program) -> list[str]:
    return [op.name for op in program.module.walk() if op.name.startswith("aten.")]


@pytest.mark.parametrize(
    ("rewrites", "named"),
    [
        ((ReluToTanh(), TanhToTanh()), {"tanh-to-tanh"}),
        ((ReluToTanh(), TanhToRelu()), {"relu-to-tanh", "tanh-to-relu"}),
        ((TwoRelus(),), {"two-relus"}),
        ((ReluInPlace(),), {"relu-in-place"}),
        ((ReluUnderNegation(),), {"relu-under-negation"}),
    ],
    ids=["it rebuilds its own op", "two undo each other", "it doubles", "in place", "it grows"],
)
def test_rewrites_that_never_end_are_an_error_that_names_them(
    rewrites: tuple[Rewrite[Any], ...], named: set[str]
) -> None:
    with pytest.raises(StepwellError, match="without an end") as error:
        run_rewrites(stepwell.parse(TEXT), rewrites)
    every = (ReluToTanh, TanhToRelu, TanhToTanh, TwoRelus, ReluInPlace, ReluUnderNegation)
    assert {one.name for one in every if one.name in error.value.problems[0].fact} == named


def test_what_sinks_through_a_long_chain_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each application is at what the one before made, and there are as many as there are ops."""
    monkeypatch.setattr("stepwell.ir.rewriting.rewrite.DEEP_APPLICATIONS", 0)
    length = 300
    chain = "; ".join(f"%v{n + 1} = aten.relu.default(%v{n})" for n in range(length))
    program = program_of(f"%v0 = aten.neg.default(%x: f32[2]); {chain}")
    assert run_rewrites(program, (SinkNegation(),)) == length
    assert names(program)[-1] == "aten.neg.default"


def test_what_nothing_reads_is_swept_whatever_the_rewrites() -> None:
    program, history = stepwell.parse(TEXT), History()
    assert run_rewrites(program, (ReluToTanh(),), history) == 1
    assert names(program) == ["aten.tanh.default"]
    assert history.swept == 1


def test_the_first_rewrite_that_matches_is_applied_and_a_refusal_passes_on() -> None:
    program = stepwell.parse(TEXT)
    run_rewrites(program, (RefuseRelu(), ReluToTanh()))
    assert names(program) == ["aten.tanh.default"]


def test_a_refusal_about_an_op_that_goes_is_not_kept_and_one_that_stays_is_kept_once() -> None:
    program, history = stepwell.parse(TEXT), History()
    run_rewrites(program, (RefuseRelu(),), history)
    run_rewrites(program, (RefuseRelu(),), history)
    assert [record.reason for record in history.refusals.values()] == ["it is a relu"]
    gone = History()
    run_rewrites(program, (RefuseRelu(), ReluToTanh()), gone)
    assert not gone.refusals


def test_a_pipeline_is_edited_by_the_names_of_its_steps_and_never_in_place() -> None:
    whole = Pipeline("two", (RefuseRelu(), ReluToTanh()))
    assert whole.without("refuse-relu").steps == (ReluToTanh(),)
    assert whole.after("refuse-relu", TanhToTanh).steps[1] == TanhToTanh()
    assert whole.before("refuse-relu", TanhToTanh).steps[0] == TanhToTanh()
    assert whole.replace("refuse-relu", TanhToTanh).steps[0] == TanhToTanh()
    assert whole.steps == (RefuseRelu(), ReluToTanh())
    with pytest.raises(StepwellError, match="pipeline 'two' has no pass 'relu'"):
        whole.without("relu")
    with pytest.raises(StepwellError, match="did you mean 'relu-to-tanh'"):
        whole.without("relu-to-tan")


GROUPS = Pipeline(
    "groups",
    (
        GreedyRewrites("first", (RefuseRelu(), ReluToTanh())),
        NamedPass("sweep", RemoveDeadCode()),
        GreedyRewrites("second", (ReluToTanh(), TanhToTanh())),
        NamedPass("sweep-again", RemoveDeadCode()),
    ),
)


def test_what_a_step_holds_is_edited_by_its_path_or_by_a_name_that_stands_once() -> None:
    first, sweep, second, again = GROUPS.steps
    alone = GreedyRewrites("first", (ReluToTanh(),))
    assert GROUPS.without("first/refuse-relu").steps == (alone, sweep, second, again)
    assert GROUPS.without("refuse-relu") == GROUPS.without("first/refuse-relu")
    assert GROUPS.without("second/tanh-to-tanh", "second/relu-to-tanh").steps == (
        first,
        sweep,
        again,
    )
    assert GROUPS.without("second", "second/relu-to-tanh", "sweep").steps == (first, again)
    more = GROUPS.after("refuse-relu", TanhToTanh).steps[0]
    assert more == GreedyRewrites("first", (RefuseRelu(), TanhToTanh(), ReluToTanh()))
    more = GROUPS.before("refuse-relu", TanhToTanh).steps[0]
    assert more == GreedyRewrites("first", (TanhToTanh(), RefuseRelu(), ReluToTanh()))
    other = GROUPS.replace("second/relu-to-tanh", RefuseRelu).steps[2]
    assert other == GreedyRewrites("second", (RefuseRelu(), TanhToTanh()))
    assert GROUPS.replace("sweep/remove-dead-code", ShareCommonSubexpressions).steps[
        1
    ] == NamedPass("sweep", ShareCommonSubexpressions())


def test_a_name_that_stands_more_than_once_is_an_error_that_gives_the_paths() -> None:
    with pytest.raises(StepwellError, match="first/relu-to-tanh, second/relu-to-tanh"):
        GROUPS.without("relu-to-tanh")
    with pytest.raises(StepwellError, match="sweep/remove-dead-code, sweep-again/remove-dead"):
        GROUPS.after("remove-dead-code", RefuseRelu)
    both = Pipeline("both", (ReluToTanh(), GreedyRewrites("more", (ReluToTanh(),))))
    with pytest.raises(StepwellError, match="/relu-to-tanh, more/relu-to-tanh"):
        both.without("relu-to-tanh")
    assert both.without("/relu-to-tanh").steps == both.steps[1:]
    assert both.without("more/relu-to-tanh").steps == both.steps[:1]


def test_a_pass_does_not_stand_among_rewrites() -> None:
    with pytest.raises(StepwellError, match="remove-dead-code cannot be part of 'first'"):
        GROUPS.after("first/refuse-relu", RemoveDeadCode)


def test_the_steps_of_a_pipeline_have_names_of_their_own() -> None:
    with pytest.raises(StepwellError, match="more than one pass named relu-to-tanh"):
        Pipeline("twice", (ReluToTanh(), RefuseRelu(), ReluToTanh()))
    with pytest.raises(StepwellError, match="more than one pass named sweep"):
        GROUPS.before("first", NamedPass("sweep", ShareCommonSubexpressions()))
    with pytest.raises(StepwellError, match="is not a pass"):
        Pipeline("a class", (ReluToTanh,))  # type: ignore[arg-type]


DIFFERENT = {stepwell.PIPELINES[name].paths: name for name in stepwell.PIPELINES}
"""A target of each order: those of a family mostly differ in a number."""


@pytest.mark.parametrize("name", DIFFERENT.values())
def test_everything_in_the_pipeline_of_a_target_can_be_addressed(name: str) -> None:
    """Every path is unique, and no step is called as a rewrite that another step holds."""
    pipeline = stepwell.PIPELINES[name]
    assert len(set(pipeline.paths)) == len(pipeline.paths)
    for path in pipeline.paths:
        _, part = pipeline.find(path)
        if not part:  # A step, or the first of what it holds: others leave alike.
            assert path not in pipeline.without(path).paths


def test_a_pass_under_another_name_does_what_it_does() -> None:
    program, history = stepwell.parse(TEXT), History()
    assert NamedPass("sweep", RemoveDeadCode()).apply(program, history) == 1
    assert names(program) == ["aten.relu.default"]


IN_A_BRANCH = """
func.func @forward(%c: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  %y = control.cond %c(%x) : (tensor<i1>, tensor<2xf32>) -> tensor<2xf32> {
  ^bb0(%a: tensor<2xf32>):
    %r = aten.relu.default(%a) : (tensor<2xf32>) -> tensor<2xf32>
    control.yield %r : tensor<2xf32>
  } else {
  ^bb0(%b: tensor<2xf32>):
    control.yield %b : tensor<2xf32>
  }
  func.return %y : tensor<2xf32>
}
"""


class CopyBranch(Rewrite[Operation]):
    """A branch written anew, once."""

    name: ClassVar[str] = "copy-branch"
    anchors = (control.CondOp,)

    def match(self, op: Any, program: Program) -> Operation | None:
        return None if "copied" in op.attributes else op

    def build(self, matched: Operation, rw: Rewriter) -> None:
        copy = matched.clone()
        copy.attributes["copied"] = UnitAttr()
        rw.replace(matched, rw.insert(copy).results)


def test_what_stands_in_the_regions_of_an_inserted_op_is_visited() -> None:
    program = stepwell.parse(IN_A_BRANCH)
    run_rewrites(program, (CopyBranch(), ReluToTanh()))
    assert "aten.tanh" in str(program) and "aten.relu" not in str(program)
