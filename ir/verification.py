"""`verify`: check structure, dominance, types, level membership, weights and signature, and report
every problem.

xDSL's verifier checks constraints and per-op rules but not dominance, and its errors contain the
whole module. Here each problem is one block that names op, value and source line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from xdsl.dialects.builtin import ModuleOp, NoneAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl.dominance import DominanceInfo
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException

from stepwell.ir.compat.torch.lazy_imports import pytree
from stepwell.ir.compat.xdsl.xdsl_private import operands_of, ops_in
from stepwell.ir.core import StateOp, UpdateOp, WeightOp
from stepwell.ir.declared.inference import infer
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    VerificationError,
    describe_op,
    describe_value,
    op_name,
    quoted,
)
from stepwell.ir.identity_cache import once_each
from stepwell.ir.levels import UPSTREAM, find_level, known_levels, level_of, stopped_after
from stepwell.ir.signature import get_signature, ranges_around
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.sizes.size_text import why_no_size
from stepwell.ir.traversal import walk
from stepwell.ir.types import IntType, ShapeAttr, are_same_within, check_encoding
from stepwell.ir.verification_cache import Key, is_sound, remember_sound, verdict_key
from stepwell.ir.weights import WeightStore


def verify(module: ModuleOp, weights: WeightStore | None = None) -> None:
    """Raise `VerificationError` with every problem; without `weights`, keys are not looked up."""
    problems = list(find_problems(module, weights))
    if problems:
        raise VerificationError(problems)


def find_problems(
    module: ModuleOp, weights: WeightStore | None = None, *, membership: bool = True
) -> Iterator[Problem]:
    """Yield every violation of a rule in the module.

    Args:
        module: the module to verify.
        weights: the store that its keys name; without it, keys are not looked up.
        membership: whether each op must belong to the module's level. A module between two passes
            contains ops of two levels, and so does one that states that its lowering stopped there.
    """
    is_between = stopped_after(module) is not None
    membership = membership and not is_between
    level = find_level(level_of(module))
    if level is None:
        known = ", ".join(known_levels())
        fact = f"level {quoted(level_of(module))} is not known"
        yield Problem(fact, None, f"levels are {known}")
        return
    names: set[str] = set()
    for top in module.ops:
        if not isinstance(top, FuncOp):
            if level.name == UPSTREAM:
                continue
            yield Problem(f"{op_name(top)} is outside any method", describe_op(top))
        elif top.sym_name.data in names:
            yield Problem(f"method @{top.sym_name.data} is defined twice", describe_op(top))
        else:
            names.add(top.sym_name.data)
            if membership or len(top.body.blocks) == 1:  # Others are MLIR's own functions.
                yield from _signature_problems(top)
    structural = False
    unsettled: list[tuple[Operation, Key | None]] = []
    for op in walk(module):
        key = verdict_key(op)
        if not is_sound(key):
            unsettled.append((op, key))
            for problem in _op_problems(op, weights):
                structural = True
                yield problem
        if membership and (reason := level.check(op)):
            yield Problem(
                f"{op_name(op)} does not belong to level {level.name!r}: {reason}",
                describe_op(op),
                "lower the op, or state the level to which it belongs",
            )
        if membership and any(len(region.blocks) > 1 for region in op.regions):
            fact = "a region has several blocks; only regions of one block are supported"
            yield Problem(fact, describe_op(op))
        yield from _reader_problems(op)
    for region in module.regions:
        yield from _dominance_problems(region, set())
    if structural:
        return
    for op, key in unsettled:
        problem = _type_problem(op, weights)
        if problem is not None:
            yield problem
        elif key is not None and not is_between:
            remember_sound(op, key)


def _spelled_sizes(type_: Attribute) -> Iterator[str]:
    """Yield the expressions of sizes in a tensor's shape or in a dynamic integer's type."""
    if isinstance(type_, IntType):
        yield type_.data
    elif isinstance(type_, TensorType) and isinstance(type_.encoding, ShapeAttr):
        yield from (str(d) for d in type_.encoding.data if isinstance(d, Size) and d != UNKNOWN)


@once_each
def _is_plain(type_: Attribute) -> bool:
    """Whether a type is a tensor type of static sizes without an encoding."""
    return (
        isinstance(type_, TensorType)
        and isinstance(type_.encoding, NoneAttr)
        and check_encoding(type_) is None
    )


def _op_problems(op: Operation, weights: WeightStore | None) -> Iterator[Problem]:
    try:
        if not (type(op) is WeightOp and op.is_as_made):
            op.verify(verify_nested_ops=False)
    except (VerifyException, ValueError) as error:
        yield Problem(f"{op_name(op)}: {first_line(error)}", describe_op(op))
        return
    arguments = (arg for region in op.regions for block in region.blocks for arg in block.args)
    for value in (*op.results, *arguments):
        if _is_plain(value.type):
            continue
        if isinstance(value.type, TensorType) and (reason := check_encoding(value.type)):
            yield Problem(f"{op_name(op)}: {reason}", describe_op(op))
        for size in _spelled_sizes(value.type):
            if reason := why_no_size(size):
                help = "a size consists of symbols, integers, + - * // %, Min, Max and Mod"
                yield Problem(f"{op_name(op)}: {reason}", describe_op(op), help)
    if weights is not None and isinstance(op, WeightOp | StateOp | UpdateOp):
        key = op.key.data
        if key not in weights:
            yield Problem(
                f"{op.name}: weight {quoted(key)} is not in the store",
                describe_op(op),
                "parse or load the program together with the weights it was printed from",
            )
            return
        stated = op.value.type if isinstance(op, UpdateOp) else op.result.type
        held = weights.type_of(key)
        if stated != held:
            yield Problem(
                f"{op.name}: the op states {stated}, but weight {quoted(key)} has type {held}",
                describe_op(op),
            )


def _reader_problems(op: Operation) -> Iterator[Problem]:
    """Report users of the op that are in no block, because these would keep values alive."""
    for result in op.results:
        for use in result.uses:
            if use.operation.parent is None:
                yield Problem(
                    f"{describe_value(result)} is used by {op_name(use.operation)}, which is in no "
                    "block",
                    describe_op(op),
                    "a rewrite that creates an op must insert or erase it",
                )


def _type_problem(op: Operation, weights: WeightStore | None) -> Problem | None:
    try:
        inferred = infer(op, weights)
    except StepwellError as error:
        fact, help_ = error.problems[0].fact, error.problems[0].help
        return Problem(f"{op_name(op)}: {fact}", describe_op(op), help_)
    stated = [result.type for result in op.results]
    if inferred is None or list(inferred) == stated:
        return None
    ranges = ranges_around(op)
    if len(stated) == len(inferred) and all(
        are_same_within(one, other, ranges) for one, other in zip(stated, inferred, strict=True)
    ):
        return None
    return Problem(
        f"{op_name(op)}: results are {_types(stated)}, "
        f"its operands and attributes imply {_types(inferred)}",
        describe_op(op),
    )


def _is_ordered_later(operand: SSAValue, op: Operation) -> bool:
    """Whether an operand is or reads a class of equal values in the block of an op: an e-graph has
    no order until `eqsat-extract` chooses among its ops.
    """
    owner = operand.owner
    if not isinstance(owner, Operation) or owner.parent is not op.parent:
        return False
    return "equivalence.class" in (op.name, owner.name)


def _types(types: object) -> str:
    return "(" + ", ".join(str(t) for t in types) + ")"  # pyright: ignore


def _dominance_problems(region: Region, outer: set[int]) -> Iterator[Problem]:
    """Report uses before definitions. Within a block, order is dominance."""
    blocks = region.blocks
    dominance = DominanceInfo(region) if len(blocks) > 1 else None
    for block in blocks:
        before = [b for b in blocks if dominance and dominance.strictly_dominates(b, block)]
        held = (value for b in before for values in (b.args, *_results(b)) for value in values)
        yield from _block_dominance(block, outer | set(map(id, held)))


def _results(block: Block) -> list[Sequence[SSAValue]]:
    return [op.results for op in ops_in(block)]


def _block_dominance(block: Block, defined: set[int]) -> Iterator[Problem]:
    defined.update(map(id, block.args))
    for op in ops_in(block):
        for operand in operands_of(op):
            if id(operand) not in defined and not _is_ordered_later(operand, op):
                yield Problem(
                    f"{op_name(op)}: operand {describe_value(operand)} is used before it is "
                    "defined, or is not visible here",
                    describe_op(op),
                )
        for region in op.regions:
            isolated = op.has_trait(IsolatedFromAbove)
            yield from _dominance_problems(region, set() if isolated else defined)
        defined.update(map(id, op.results))


def _signature_problems(func: FuncOp) -> Iterator[Problem]:
    where = f"method @{func.sym_name.data}"
    try:
        signature = get_signature(func)
    except (KeyError, ValueError, AttributeError, TypeError, IndexError) as error:
        yield Problem(f"the signature does not parse: {error!r}", where)
        return
    for name, spec in (("in_spec", signature.in_spec), ("out_spec", signature.out_spec)):
        if spec is not None and (reason := _spec_problem(spec)):
            yield Problem(f"{name} is not a pytree specification: {reason}", where)
            return
    given, taken = len(signature.runtime_inputs), len(func.function_type.inputs.data)
    if given != taken:
        yield Problem(f"the signature names {given} dynamic inputs, the function {taken}", where)
        return
    last = func.body.block.last_op if len(func.body.blocks) == 1 else None
    if not isinstance(last, ReturnOp):
        fact = "the method does not end in func.return"
        if len(func.body.blocks) != 1:
            fact = f"the method has {len(func.body.blocks)} blocks, must have one"
        yield Problem(fact, where)
        return
    named = len(signature.runtime_outputs)
    if named != len(last.operands):
        yield Problem(
            f"the signature names {named} outputs, the method returns {len(last.operands)}", where
        )
    for port, type_ in zip(signature.runtime_inputs, func.function_type.inputs.data, strict=True):
        if port.dim_order is not None and isinstance(type_, TensorType):
            rank = len(type_.get_shape())
            if sorted(port.dim_order) != list(range(rank)):
                yield Problem(
                    f"input {port.name}: dim order {port.dim_order} is not a permutation of "
                    f"{rank} dimensions",
                    where,
                )


def _spec_problem(spec: str) -> str | None:
    """Return why a text is not a pytree specification in torch's grammar, or None."""
    try:
        _loads(spec)
    except (
        ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError,
        NotImplementedError, RecursionError,
    ) as error:  # fmt: skip
        return str(error) or type(error).__name__
    return None


@lru_cache
def _loads(spec: str) -> None:
    """Parse a specification; cached, so that a valid one is parsed once."""
    pytree.treespec_loads(spec)


def first_line(error: BaseException) -> str:
    """Return the first line of an xDSL error's message, which ends in the whole module; with
    those that follow a colon.
    """
    text = str(error.args[0]) if error.args else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    end = next((at for at, line in enumerate(lines, 1) if not line.endswith(":")), len(lines))
    return " ".join(lines[:end]) or type(error).__name__
