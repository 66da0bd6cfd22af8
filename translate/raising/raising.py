"""Raising: converts a program at a target's level to PyTorch's operators.

An op of a target is raised by its semantics. The interpreter's rule computes it with PyTorch;
traced on tensors without data, the rule gives the sequence of operators. No second table of
semantics is therefore needed. For example, `xnnpack.convolution_2d` is a `convolution` between two
permutes, which a target's own canonical form removes. If TOSA's rules state more than PyTorch's
operators can (the order of a sum), `raising/tosa.py` defines the operators.

Before:
    %y = xnnpack.square_root(%x) : (tensor<2xf32>) -> tensor<2xf32>
After:
    %y = aten.sqrt.default(%x) : (tensor<2xf32>) -> tensor<2xf32>

Delegates are opened in place; what a program has of torch's operators stays as it is. Nodes on
quantized types go up as `raising_quantized` says, casts as `quantized_decomposed`. What has no way
up is named, all of it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsTerminator

from stepwell.dialects.aten import PermuteDefault
from stepwell.dialects.aten.registry import of_overload, op_class
from stepwell.dialects.cmsis.ops import CmsisOp
from stepwell.dialects.control import CondOp, WhileLoopOp, YieldOp
from stepwell.dialects.ethosu import DelegateOp as EthosuDelegate
from stepwell.dialects.executorch import DelegateOp as ExecutorchDelegate
from stepwell.dialects.quant.ops import DequantizeCast, QuantizeCast, StorageCast
from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.dialects.symbols import (
    Ranges,
    Symbols,
    is_of_more_than_one,
    is_true_of,
    tensor_type,
)
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.generated import ReduceSumOp, RescaleOp, TransposeOp
from stepwell.dialects.tosa.structural import CondIfOp
from stepwell.dialects.tosa.structural import WhileLoopOp as TosaWhileLoopOp
from stepwell.dialects.xnnpack import Convert, Copy, DynamicInt8Type, XnnpackOp
from stepwell.dialects.xnnpack import DelegateOp as XnnpackDelegate
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_movement
from stepwell.ir.declared.interpretation import Interpreter, Rule, rule_for
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_op,
    op_name,
)
from stepwell.ir.dtypes import f32, i8, i16
from stepwell.ir.levels import AFTER, CMSIS_TARGET, TOSA_TARGET, set_level, stopped_after
from stepwell.ir.program import Program
from stepwell.ir.renderers import gives
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.ir.signature import get_signature
from stepwell.ir.types import element, with_element
from stepwell.ir.weights import WeightStore
from stepwell.translate.lowerings.pad import Pad
from stepwell.translate.quantized.untyped import dequantized, is_spelled, quantized
from stepwell.translate.raising.quantized import (
    Casts,
    at_run_time,
    bias_in_reals,
    is_quantized,
    real_type,
    spell_movements,
    twin,
    whole,
)
from stepwell.translate.raising.scales import (
    LAYERS,
    SCALED,
    Scales,
    layer_in_reals,
    scales_of,
    sum_of,
)
from stepwell.translate.raising.tosa import fake_of, in_torch
from stepwell.translate.rewrites.calls.bring_weights_inside import take_weights_outside
from stepwell.translate.rewrites.calls.recorded_calls import CannotTraceError, Recorder
from stepwell.translate.rewrites.calls.traced_calls import to_ir
from stepwell.translate.rewrites.sizes.sizes import SizeBuilder
from stepwell.translate.rewrites.views import permutes

RAISED = ("xnnpack", "tosa", "executorch", "cmsis", "ethosu")
"""Levels that can be raised."""
OPENED = (XnnpackDelegate, EthosuDelegate, ExecutorchDelegate, CondIfOp, TosaWhileLoopOp)
"""Ops that are raised by raising the ops of their regions."""
MERGED = Pipeline(
    "raised",
    (GreedyRewrites("merge-permutes", tuple(rule() for rule in permutes.RULES)), RemoveDeadCode()),
)
"""Cancels the layout changes between neighboring nodes, so that layers are next to casts."""


@gives("aten", Program)
def raised(program: Program) -> Program:
    """Return a program at the aten level that is equivalent to a program at a target's level.

    Args:
        program: the program, which is not changed; weights are shared.

    Raises:
        StepwellError: the level cannot be raised.
        UnsupportedError: lists every op without an equivalent in PyTorch's operators.
    """
    is_on_its_way = stopped_after(program.module) is not None
    if program.level == "aten" and not is_on_its_way:
        return program
    if program.level not in RAISED and not is_on_its_way:
        raise StepwellError(
            f"a program at level {program.level!r} cannot be raised to aten",
            help="levels that can be raised are " + ", ".join(RAISED),
        )
    made = program.clone()
    raiser = _Raiser(made)
    for func in made.methods.values():
        old = func.body.block
        new = Block(arg_types=[real_type(arg.type) for arg in old.args])
        raiser.ranges, raiser.inputs = get_signature(func).ranges, new.args
        for before, after in zip(old.args, new.args, strict=True):
            raiser.values[before] = after
            after.name_hint = before.name_hint
        raiser.take_scales(func, new)
        raiser.block(old, new)
        func.body.detach_block(old)
        func.body.add_block(new)
        old.erase(safe_erase=False)
    if raiser.problems:
        raise UnsupportedError(raiser.problems)
    set_level(made.module, "aten")
    for name in (AFTER, TOSA_TARGET, CMSIS_TARGET):
        made.module.attributes.pop(name, None)
    take_weights_outside(made)
    if raiser.casts:
        MERGED.run(made)
        spell_movements(made, raiser.casts)
    return made


@dataclass
class _Raiser:
    program: Program
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    shapes: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    """Values that are no tensors: TOSA's constant shapes."""
    problems: list[Problem] = field(default_factory=list[Problem])
    ranges: Ranges = field(default_factory=dict[str, tuple[int, "int | None"]])
    casts: Casts = field(default_factory=dict[SSAValue, tuple[SSAValue, Quantization]])
    """Reals → the stored integers that they were dequantized from."""
    inputs: Sequence[SSAValue] = ()
    """The method's inputs, whose sizes may be queried."""
    scales: Scales | None = None
    """Scales of TOSA's integers, if they can be read as reals."""

    def take_scales(self, func: FuncOp, new: Block) -> None:
        """Infer the scales of a method's integers; its inputs become reals."""
        self.scales = scales_of(func, self.program.weights)
        for arg in func.body.block.args if self.scales is not None else ():
            if element(arg.type) in (i8, i16):
                self._rounded_to(Appender(new, func, self.program), arg, self.values[arg])

    def block(self, old: Block, new: Block) -> Operation | None:
        """Raise the ops of a block into another block; return the terminator, not raised, of the
        region of a delegate, branch or loop, else None.
        """
        for op in old.ops:
            if op.has_trait(IsTerminator) and isinstance(op.parent_op(), OPENED):
                return op
            if self.scales is not None and isinstance(op, SCALED):
                self._scaled(op, self.scales, new)
            elif not self._is_ready(op):
                continue  # The defining op of an operand is among the problems.
            elif isinstance(op, CondIfOp | TosaWhileLoopOp):
                self._control(op, new)
            elif isinstance(op, OPENED):
                self._open(op, new)
            elif isinstance(op, StorageCast | QuantizeCast | DequantizeCast):
                self._cast(op, new)
            elif isinstance(op, XnnpackOp) and is_quantized(op):
                self._quantized(op, new)
            elif isinstance(op, XnnpackOp | TosaOp):
                if not self.problems or not any(o in self.shapes for o in op.operands):
                    self._raise(op, new)
            elif isinstance(op, CmsisOp):
                self._problem(op, "the kernel stores ratios of scales only")
            else:
                self._copy(op, new)
        return None

    def _open(self, op: Operation, new: Block) -> None:
        body = op.regions[0].block
        self.values.update(zip(body.args, (self.values[o] for o in op.operands), strict=True))
        last = self.block(body, new)
        assert last is not None
        for result, yielded in zip(op.results, last.operands, strict=True):
            if yielded in self.values:
                self.values[result] = self.values[yielded]

    def _control(self, op: CondIfOp | TosaWhileLoopOp, new: Block) -> None:
        """Raise a target's branch or loop to PyTorch's."""
        regions: list[Region] = []
        for region in op.regions:
            inner = Block(arg_types=[real_type(arg.type) for arg in region.block.args])
            self.values.update(zip(region.block.args, inner.args, strict=True))
            last = self.block(region.block, inner)
            assert last is not None
            if any(operand not in self.values for operand in last.operands):
                return  # The defining op is among the problems.
            inner.add_op(YieldOp(*(self.values[operand] for operand in last.operands)))
            regions.append(Region(inner))
        values = [self.values[operand] for operand in op.operands]
        is_branch = isinstance(op, CondIfOp)
        made = (CondOp if is_branch else WhileLoopOp).build(
            operands=[values[0], values[1:]] if is_branch else [values, []],
            regions=regions,
            result_types=[[result.type for result in op.results]],
        )
        Appender(new, op, self.program).insert(made)
        self.values.update(zip(op.results, made.results, strict=True))

    def _copy(self, op: Operation, new: Block) -> None:
        """Copy an op, with its operands replaced by their raised values."""
        copy = op.clone_without_regions(self._ported(op, new))
        for old, region in zip(op.regions, copy.regions, strict=True):
            for block in old.blocks:
                inner = Block(arg_types=[real_type(arg.type) for arg in block.args])
                self.values.update(zip(block.args, inner.args, strict=True))
                self.block(block, inner)
                region.add_block(inner)
        new.add_op(copy)
        for before, after in zip(op.results, copy.results, strict=True):
            self.values[before] = after
            after.name_hint = before.name_hint

    def _ported(self, op: Operation, new: Block) -> dict[SSAValue, SSAValue]:
        """Return raised values by the operands of an op; the results of an integer method are
        quantized.
        """
        values = dict(self.values)
        scales = self.scales if isinstance(op, ReturnOp) else None
        for operand in op.operands:
            if scales is not None and element(operand.type) in (i8, i16):
                b, held = Appender(new, op, self.program), scales.quantization(operand)
                real = self.values[operand]
                stored = self.casts.get(real)
                values[operand] = quantized(b, real, held) if stored is None else stored[0]
        return values

    def _scaled(self, op: Operation, scales: Scales, new: Block) -> None:
        """Raise an operator on integers to the operator on the reals that they represent."""
        if isinstance(op, LAYERS):
            return  # The following rescale writes it.
        b, result = Appender(new, op, self.program), op.results[0]
        if isinstance(op, RescaleOp) and op in scales.layers:
            value = layer_in_reals(b, op, self.values[scales.layers[op].operands[0]], scales)
            self._rounded_to(b, result, quantized(b, value, scales.quantization(result)))
            made = PermuteDefault.make(self.values[result], [0, 2, 3, 1])
            self.values[result] = b.insert(made).results[0]
            return
        if isinstance(op, RescaleOp):
            value = self.values[op.input]
        elif isinstance(op, ReduceSumOp):
            summed, axes = sum_of(op)
            mean = op_class("aten.mean.dim").make(self.values[summed], axes, True)
            value = b.insert(mean).results[0]
        elif isinstance(op, TransposeOp):
            order = [int(axis) for axis in cast("Any", op.perms).get_values()]
            value = b.insert(PermuteDefault.make(self.values[op.operands[0]], order)).results[0]
        else:
            real = type(op).create(
                operands=op.operands,
                result_types=[with_element(result.type, f32)],
                properties=dict(op.properties),
            )
            shapes = [self.shapes[o] if o in self.shapes else self.values[o] for o in op.operands]
            found = self._written(op, cast(TosaOp, real), shapes, b)
            real.drop_all_references()
            if found is None:
                return
            value = cast(SSAValue, found[0])
        if element(result.type) in (i8, i16) and not is_movement(op):
            self._rounded_to(b, result, quantized(b, value, scales.quantization(result)))
        else:
            self.values[result] = value

    def _rounded_to(self, b: Appender, result: SSAValue, stored: SSAValue) -> None:
        """Represent a quantized result by the reals that its integers stand for."""
        assert self.scales is not None
        held = self.scales.quantization(result)
        value = self.values[result] = dequantized(b, stored, held)
        self.casts[value] = stored, held

    def _raise(self, op: XnnpackOp | TosaOp, new: Block) -> None:
        rule, b = rule_for(type(op)), Appender(new, op, self.program)
        if not op.regions and rule and all(operand in self.shapes for operand in op.operands):
            shapes = [self.shapes[operand] for operand in op.operands]
            (value,) = rule(op, shapes, Interpreter(self.program.weights))
            if isinstance(value, torch.Tensor):
                self.values[op.results[0]] = b.constant(value.detach().clone().contiguous())
            else:
                self.shapes[op.results[0]] = value
            return
        shapes = [self.shapes[o] if o in self.shapes else self.values[o] for o in op.operands]
        found = self._written(op, op, shapes, b)
        for result, value in zip(op.results, found or (), strict=found is not None):
            if isinstance(value, SSAValue):
                self.values[result] = value
                value.name_hint = value.name_hint or result.name_hint
            else:
                self.shapes[result] = value

    def _is_ready(self, op: Operation) -> bool:
        """Whether all operands of an op are raised."""
        return all(o in self.values or o in self.shapes for o in op.operands)

    def _problem(self, op: Operation, reason: str) -> None:
        fact = f"{op_name(op)}: PyTorch has no equivalent operators: {reason}"
        self.problems.append(Problem(fact, describe_op(op), "leave the program at its level"))

    def _cast(self, op: StorageCast | QuantizeCast | DequantizeCast, new: Block) -> None:
        """Raise a cast to `quantized_decomposed`; a quantized value is represented by its reals."""
        value = self.values[op.input]
        b, given, result_type = Appender(new, op, self.program), op.input.type, op.result.type
        if isinstance(op, QuantizeCast):
            value = self._rounded(b, value, result_type)
        elif isinstance(op, StorageCast):
            held = quantization(given)
            value = (
                self._reals(b, value, result_type) if held is None else quantized(b, value, held)
            )
        if isinstance(value, str):
            self._problem(op, value)
        else:
            self.values[op.result] = value

    def _reals(self, b: Appender, stored: SSAValue, type_: Attribute) -> SSAValue | str:
        """Return the reals that plain stored integers represent."""
        type_quantization = quantization(type_)
        assert type_quantization is not None
        if not is_spelled(type_quantization, stored):
            return "there is a scale for each block of several axes"
        value = dequantized(b, stored, type_quantization)
        self.casts[value] = stored, type_quantization
        return value

    def _rounded(self, b: Appender, value: SSAValue, type_: Attribute) -> SSAValue | str:
        """Round reals to numbers that a quantized type represents."""
        type_quantization = quantization(type_)
        return (
            value
            if type_quantization is None
            else self._reals(b, quantized(b, value, type_quantization), type_)
        )

    def _quantized(self, op: XnnpackOp, new: Block) -> None:
        """Raise a node on quantized types to the equivalent node on reals (its twin), with a
        rounded result.
        """
        b, result = Appender(new, op, self.program), op.results[0]
        operands = [self.values[operand] for operand in op.operands]
        bias_in_reals(b, op, operands)
        shared, value = element(result.type), None
        if isinstance(shared, DynamicInt8Type):
            value = at_run_time(b, operands[0], shared.data)
        elif not isinstance(op, Convert | Copy) or real_type(result.type) != operands[0].type:
            value = self._of_twin(op, operands, b)
        else:
            value = operands[0]
        if isinstance(value, SSAValue) and not is_movement(op):
            value = self._of_layer(b, value, result.type)
        if isinstance(value, str):
            self._problem(op, value)
        elif value is not None:
            self.values[result] = value
            value.name_hint = value.name_hint or result.name_hint

    def _of_layer(self, b: Appender, value: SSAValue, type_: Attribute) -> SSAValue | str:
        """Round a layer's result; if the layer ends with a permutation to the node's layout, round
        before it.
        """
        last = value.owner
        if not isinstance(last, PermuteDefault) or quantization(type_) is None:
            return self._rounded(b, value, type_)
        source = last.operands[0]
        typed = with_element(source.type, cast(Any, element(type_)))
        layer = self._rounded(b, source, typed)
        if isinstance(layer, str):
            return layer
        return b.insert(PermuteDefault.make(layer, last.arg("dims"))).results[0]

    def _of_twin(self, op: XnnpackOp, operands: Sequence[SSAValue], b: Appender) -> SSAValue | None:
        real = twin(op, operands)
        found = self._written(op, real, list(operands), b)
        real.drop_all_references()
        return None if found is None else found[0]

    def _written(
        self, op: Operation, said: XnnpackOp | TosaOp, given: Sequence[Any], b: Appender
    ) -> Sequence[Any] | None:
        """Trace `said`, which computes an op, append the recorded calls, and return their results;
        report a problem and return None if that fails.
        """
        try:
            return self._traced(said, given, b)
        except (CannotTraceError, StepwellError) as error:
            text = error.problems[0].fact if isinstance(error, StepwellError) else str(error)
            self._problem(op, text)
        except (RuntimeError, TypeError, ValueError, LookupError, NotImplementedError) as error:
            self._problem(op, (str(error).splitlines() or [type(error).__name__])[0])
        return None

    def _traced(self, op: XnnpackOp | TosaOp, given: Sequence[Any], b: Appender) -> Sequence[Any]:
        """Trace the interpreter's rule of an op, write the PyTorch operators that it calls, and
        return the results.
        """
        rule = rule_for(type(op))
        if rule is None:
            raise CannotTraceError("the interpreter has no rule for it")
        symbols = Symbols(self.ranges)
        symbols.mode.allow_non_fake_inputs = True
        values = [o for o in given if isinstance(o, SSAValue)]
        fakes = [
            fake_of(symbols, o, self.program.weights) if isinstance(o, SSAValue) else o
            for o in given
        ]
        known: dict[int, SSAValue] = {
            id(fake): o for fake, o in zip(fakes, given, strict=True) if isinstance(o, SSAValue)
        }
        recorder = Recorder(None, lambda overload, is_root: None, symbols.env)
        with symbols.on_fakes(), recorder:
            results = [recorder.latest(value) for value in _computed(op, rule, fakes, recorder)]
        for guard in symbols.env.guards:
            if not is_of_more_than_one(guard.expr) and not is_true_of(guard.expr, self.ranges):
                raise CannotTraceError(f"it holds only where {guard.expr}")
        sizes = SizeBuilder(b, [*self.inputs, *values], None)
        for call in recorder.calls:
            for used in pytree.tree_leaves(call.arguments):
                if isinstance(used, torch.Tensor) and id(used) not in known:
                    if (constant := getattr(used, "constant", None)) is None:
                        raise CannotTraceError("it creates a new tensor")
                    known[id(used)] = b.constant(constant.detach().clone().contiguous())
            cls = of_overload(call.overload)
            made = b.insert(cls.from_arguments(to_ir(call, known, sizes), call.types))
            for fake, out in zip(call.results, made.results, strict=True):
                known[id(fake)] = out
                sizes.see(out)
        found: list[Any] = []
        for result, value in zip(op.results, results, strict=True):
            if not isinstance(value, torch.Tensor):
                found.append(value)
                continue
            if id(value) not in known:
                raise CannotTraceError("it returns a new tensor")
            if tensor_type(value) != result.type:
                raise CannotTraceError(f"its rule returns {tensor_type(value)}")
            found.append(known[id(value)])
        return found


def _computed(
    op: XnnpackOp | TosaOp, rule: Rule, given: Sequence[Any], recorder: Recorder
) -> Sequence[Any]:
    """Compute an op with PyTorch, on tensors without data."""
    if isinstance(op, XnnpackOp) and (layer := whole(op)) is not None:
        return (layer(op, given, recorder.call),)
    if (other := in_torch(op)) is not None:
        return (other(op, given),)
    return rule(op, given, Interpreter(WeightStore()))


class Appender(Pad):
    """Appends operations to a block, with the location of an op of the model."""

    def __init__(self, block: Block, root: Operation, program: Program) -> None:
        self.block, self.root, self.program = block, root, program

    def insert(self, op: Operation, before: Operation | None = None) -> Operation:
        """Append an operation to the raised program."""
        op.location = self.root.location
        self.block.add_op(op)
        return op

    def weight(self, key: str, kind: str = "constant") -> SSAValue:
        """Return the value of a weight in this block."""
        return self.insert(WeightOp(key, self.weights.type_of(key), kind)).results[0]
