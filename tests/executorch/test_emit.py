"""Programs of ATen ops become kernel calls that compute what PyTorch computes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, var_operand_def, var_result_def

from stepwell.backends.executorch.container import (
    Container,
    Delegate,
    KernelCall,
    OptionalTensorList,
    TensorValue,
)
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.backends.executorch.writing.emit import DelegatePayload, emit
from stepwell.backends.executorch.writing.serialize import external_to_bytes, to_bytes
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import InputMismatch, UnsupportedError
from stepwell.ir.dtypes import element_type, f32, i1, i64
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.types import AnyTensor, Dim, tensor
from stepwell.ir.weights import WeightStore


class Writer:
    """Writes one method op by op."""

    def __init__(self, *inputs: Attribute, weights: WeightStore | None = None) -> None:
        self.block = Block(arg_types=inputs)
        self.weights = weights if weights is not None else WeightStore()
        self.args = self.block.args

    def add(self, op: Operation) -> Any:
        self.block.add_op(op)
        results = op.results
        return results[0] if len(results) == 1 else tuple(results)

    def op(self, name: str, *args: Any, to: AnyTensor | list[AnyTensor], **kwargs: Any) -> Any:
        types = to if isinstance(to, list) else [to]
        return self.add(op_class(name).make(*args, result_types=types, **kwargs))

    def weight(self, key: str, value: torch.Tensor) -> SSAValue:
        if key not in self.weights:
            self.weights.add(key, value)
        return self.add(WeightOp(key, of(value)))

    def state(self, key: str, value: torch.Tensor) -> SSAValue:
        if key not in self.weights:
            self.weights.add(key, value)
        return self.add(StateOp(key, of(value)))

    def returns(
        self, *values: SSAValue, name: str = "forward", signature: Signature | None = None
    ) -> FuncOp:
        self.block.add_op(ReturnOp(*values))
        types = FunctionType.from_lists([a.type for a in self.args], [v.type for v in values])
        func = FuncOp(name, types, Region(self.block))
        if signature is not None:
            set_signature(func, signature)
        return func

    def program(self, *values: SSAValue, signature: Signature | None = None) -> Program:
        func = self.returns(*values, signature=signature)
        return Program(ModuleOp([func]), self.weights)


def of(value: torch.Tensor) -> AnyTensor:
    return tensor(list(value.shape), element_type(value.dtype))


def t(*shape: Dim) -> AnyTensor:
    return tensor(shape, f32)


def run(program: Program, *inputs: torch.Tensor) -> tuple[Any, ...]:
    return run_pte(to_bytes(emit(program)), inputs)


def kernels(container: Container) -> list[str]:
    return [
        i.kernel for i in container.methods[0].instructions if isinstance(i, KernelCall)
    ]  # fmt: skip


def test_a_chain_of_ops_with_weights_computes_what_pytorch_computes() -> None:
    weight, bias, x = torch.randn(4, 3), torch.randn(4), torch.randn(2, 3)
    w = Writer(t(2, 3))
    wt = w.op("aten.t.default", w.weight("w", weight), to=t(3, 4))
    y = w.op("aten.addmm.default", w.weight("b", bias), w.args[0], wt, to=t(2, 4))
    z = w.op("aten.mul.Scalar", w.op("aten.relu.default", y, to=t(2, 4)), 2, to=t(2, 4))
    (out,) = run(w.program(z), x)
    torch.testing.assert_close(out, (x @ weight.t() + bias).relu() * 2)


def test_int_arguments_of_float_parameters_and_omitted_defaults_are_given_right() -> None:
    x = torch.randn(2, 3)
    w = Writer(t(2, 3))
    a = w.op("aten.leaky_relu.default", w.args[0], 1, to=t(2, 3))
    b = w.op("aten.hardtanh.default", a, to=t(2, 3))
    c = w.op("aten.add.Tensor", b, a, alpha=2, to=t(2, 3))
    (out,) = run(w.program(c), x)
    torch.testing.assert_close(out, x.clamp(-1, 1) + 2 * x)


def test_optional_tensor_lists_and_results_in_lists_are_passed() -> None:
    x, index = torch.randn(3, 4), torch.tensor([2, 0])
    w = Writer(t(3, 4), of(index))
    y = w.op("aten.index.Tensor", w.args[0], [None, w.args[1]], to=t(3, 2))
    a, b = w.op("aten.split.Tensor", y, 2, to=[t(2, 2), t(1, 2)])
    z = w.op("aten.cat.default", [b, a], to=t(3, 2))
    program = w.program(z)
    values = emit(program).methods[0].values
    assert any(isinstance(value, OptionalTensorList) for value in values)
    (out,) = run(program, x, index)
    picked = x[:, index]
    assert torch.equal(out, torch.cat([picked[2:], picked[:2]]))


def test_several_results_and_dtype_arguments_are_passed() -> None:
    x = torch.randn(3, 4)
    w = Writer(t(3, 4))
    values, indices = w.op("aten.max.dim", w.args[0], 1, to=[t(3), tensor([3], i64)])
    as_float = w.op("aten._to_copy.default", indices, dtype=f32, to=t(3))
    total = w.op("aten.sum.dim_IntList", w.args[0], [1], dtype=f32, to=t(3))
    y = w.op("aten.add.Tensor", w.op("aten.add.Tensor", values, as_float, to=t(3)), total, to=t(3))
    (out,) = run(w.program(y), x)
    expected = x.max(1)
    torch.testing.assert_close(out, expected.values + expected.indices + x.sum(1))


def test_a_reshape_needs_no_kernel() -> None:
    x = torch.randn(2, 6)
    w = Writer(t(2, 6))
    a = w.op("aten.view.default", w.args[0], [3, 4], to=t(3, 4))
    b = w.op("aten.unsqueeze.default", a, 0, to=t(1, 3, 4))
    c = w.op("aten.neg.default", b, to=t(1, 3, 4))
    d = w.op("aten.reshape.default", c, [12], to=t(12))
    program = w.program(d)
    assert kernels(emit(program)) == ["aten::neg.out"]
    assert torch.equal(run(program, x)[0], -x.reshape(12))


def test_a_reshape_keeps_the_bytes_it_names_alive() -> None:
    """A view read long after its source's last use must not find other bytes there."""
    x = torch.randn(16)
    w = Writer(t(16))
    source = w.op("aten.exp.default", w.args[0], to=t(16))
    view = w.op("aten.view.default", source, [4, 4], to=t(4, 4))
    y: SSAValue = w.args[0]
    for _ in range(5):
        y = w.op("aten.add.Scalar", y, 1.0, to=t(16))
    z = w.op("aten.add.Tensor", view, w.op("aten.view.default", y, [4, 4], to=t(4, 4)), to=t(4, 4))
    (out,) = run(w.program(z), x)
    torch.testing.assert_close(out, (x.exp() + (x + 5)).reshape(4, 4))


def test_ops_without_a_kernel_are_refused_all_at_once() -> None:
    w = Writer(t(2, 3))
    a = w.op("aten.silu.default", w.args[0], to=t(2, 3))
    b = w.op("aten.relu.default", a, to=t(2, 3))
    c = w.op("aten.layer_norm.default", b, [3], to=t(2, 3))
    with pytest.raises(UnsupportedError) as caught:
        emit(w.program(c))
    assert [p.fact.split(":")[0] for p in caught.value.problems] == [
        "aten.silu.default",
        "aten.layer_norm.default",
    ]


def _swap(weights: WeightStore) -> FuncOp:
    w = Writer(t(2), weights=weights)
    a, b = w.state("a", torch.tensor([1.0, 2.0])), w.state("b", torch.tensor([10.0, 20.0]))
    total = w.op("aten.add.Tensor", w.args[0], a, to=t(2))
    w.add(UpdateOp("a", b))
    w.add(UpdateOp("b", a))
    return w.returns(total, a, name="swap")


def test_states_that_swap_and_are_returned_keep_their_values_at_entry() -> None:
    weights = WeightStore()
    program = Program(ModuleOp([_swap(weights)]), weights)
    session = PteSession.load(to_bytes(emit(program)))
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    for _ in range(3):
        total, entry = session.run(torch.ones(2), method="swap")
        assert torch.equal(entry, a) and torch.equal(total, a + 1)
        a, b = b, a


def _cache(*, read_after: bool) -> Program:
    weights = WeightStore()
    w = Writer(t(1, 4), tensor([1], i64), weights=weights)
    cache = w.state("cache", torch.ones(3, 4))
    new = w.op("aten.index_put.default", cache, [w.args[1]], w.args[0], to=t(3, 4))
    seen = w.op("aten.mul.Scalar", cache if read_after else new, 2.0, to=t(3, 4))
    w.add(UpdateOp("cache", new))
    return w.program(seen, new)


@pytest.mark.parametrize("read_after", [False, True])
def test_a_cache_is_written_in_place_exactly_where_nothing_reads_the_old_value(
    read_after: bool,
) -> None:
    container = emit(_cache(read_after=read_after))
    names = kernels(container)
    assert ("aten::index_put_" in names) == (not read_after)
    assert ("aten::copy_" in names) == read_after
    session, cache = PteSession.load(to_bytes(container)), torch.ones(3, 4)
    for step in (2, 0, 1, 2):
        row = torch.randn(1, 4)
        old, cache = cache, cache.index_put((torch.tensor([step]),), row)
        seen, new = session.run(row, torch.tensor([step]))
        assert torch.equal(seen, 2 * (old if read_after else cache)) and torch.equal(new, cache)


def test_methods_share_state_and_constants() -> None:
    weights = WeightStore()
    big = torch.randn(64)

    def method(name: str, kernel: str) -> FuncOp:
        w = Writer(t(64), weights=weights)
        state = w.state("s", torch.full((64,), 0.5))
        scaled = w.op("aten.mul.Tensor", w.args[0], w.weight("big", big), to=t(64))
        new = w.op(kernel, state, scaled, to=t(64))
        w.add(UpdateOp("s", new))
        return w.returns(new, name=name)

    module = ModuleOp([method("plus", "aten.add.Tensor"), method("times", "aten.mul.Tensor")])
    container = emit(Program(module, weights))
    assert len(container.constants) == 2 and len(container.mutable_data) == 2
    session = PteSession.load(to_bytes(container))
    x, expected = torch.randn(64), torch.full((64,), 0.5)
    for name in ("plus", "times", "times", "plus"):
        expected = expected + x * big if name == "plus" else expected * (x * big)
        torch.testing.assert_close(session.run(x, method=name)[0], expected)


def test_a_mutated_input_is_seen_by_the_caller() -> None:
    w = Writer(t(3))
    y = w.op("aten.add.Scalar", w.args[0], 2.0, to=t(3))
    w.add(MutateInputOp(0, y))
    x = torch.ones(3)
    (out,) = run(w.program(y), x)
    assert torch.equal(out, torch.full((3,), 3.0)) and torch.equal(x, out)


def test_inputs_and_outputs_passed_through_come_out_unchanged() -> None:
    x, weight = torch.randn(2, 3), torch.randn(3)
    w = Writer(t(2, 3))
    v = w.op("aten.view.default", w.args[0], [6], to=t(6))
    outs = run(w.program(w.args[0], v, w.weight("w", weight), w.args[0]), x)
    assert [torch.equal(a, b) for a, b in zip(outs, (x, x.view(6), weight, x), strict=True)] == [
        True
    ] * 4


def test_declared_channels_last_inputs_and_outputs_are_converted_and_checked() -> None:
    order = (0, 2, 3, 1)
    w = Writer(t(1, 3, 4, 5))
    y = w.op("aten.cumsum.default", w.args[0], 1, to=t(1, 3, 4, 5))
    signature = Signature((Port("x", order),), (Port("y", order),))
    data = to_bytes(emit(w.program(y, signature=signature)))
    x = torch.randn(1, 3, 4, 5)
    with pytest.raises(InputMismatch):
        run_pte(data, [x])
    (out,) = run_pte(data, [x.to(memory_format=torch.channels_last)])
    torch.testing.assert_close(out, x.cumsum(1))
    assert out.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("length", [1, 7, 32])
def test_bounded_dynamic_shapes_run(length: int) -> None:
    w = Writer(t("s0", 4))
    a = w.op("aten.exp.default", w.args[0], to=t("s0", 4))
    b = w.op("aten.cat.default", [a, w.args[0]], to=t("2*s0", 4))
    c = w.op("aten.sum.dim_IntList", b, [1], to=t("2*s0"))
    signature = Signature((Port("x"),), (Port("y"),), ranges={"s0": (1, 32)})
    x = torch.randn(length, 4)
    (out,) = run(w.program(c, signature=signature), x)
    torch.testing.assert_close(out, torch.cat([x.exp(), x]).sum(1))


def test_an_unbounded_dimension_is_refused() -> None:
    w = Writer(t("s0", 4))
    a = w.op("aten.exp.default", w.args[0], to=t("s0", 4))
    signature = Signature((Port("x"),), (Port("y"),), ranges={"s0": (2, None)})
    with pytest.raises(UnsupportedError, match="no upper bound"):
        emit(w.program(a, signature=signature))


def test_frozen_inputs_and_outputs_stay_in_the_calling_convention() -> None:
    w = Writer(t(3))
    y = w.op("aten.add.Scalar", w.args[0], 2.0, to=t(3))
    signature = Signature(
        (Port("x"), Port("flag", constant=(True,)), Port("none", constant=(None,))),
        (Port("y"), Port("k", constant=(7,))),
    )
    data = to_bytes(emit(w.program(y, signature=signature)))
    out, seven = run_pte(data, [torch.ones(3), True, None])
    assert torch.equal(out, torch.full((3,), 3.0)) and seven == 7
    assert torch.equal(run_pte(data, [torch.ones(3)])[0], out)
    with pytest.raises(InputMismatch, match="made for True here, not False"):
        run_pte(data, [torch.ones(3), False, None])


def test_weights_go_into_a_separate_file_on_request() -> None:
    weight = torch.randn(100)
    w = Writer(t(100))
    y = w.op("aten.mul.Tensor", w.args[0], w.weight("w", weight), to=t(100))
    container = emit(w.program(y), external_weights=True)
    data, external = to_bytes(container), external_to_bytes(container)
    assert external is not None and weight.numpy().tobytes() not in data
    x = torch.randn(100)
    assert torch.equal(run_pte(data, [x], external=external)[0], x * weight)


@irdl_op_definition
class SomeDelegate(IRDLOperation):
    """A delegate op as a backend would define it."""

    name = "test.delegate"
    inputs = var_operand_def()
    outputs = var_result_def()


def test_delegates_stand_between_kernels_with_payloads_from_their_writer() -> None:
    w = Writer(t(2), t(2))
    a = w.op("aten.exp.default", w.args[0], to=t(2))
    b = w.add(SomeDelegate.create(operands=[a, w.args[1]], result_types=[t(2)]))
    c = w.op("aten.neg.default", b, to=t(2))
    writers: dict[type[Operation], Callable[..., DelegatePayload]] = {
        SomeDelegate: lambda op, weights: DelegatePayload("SomeBackend", b"payload")
    }
    (method,) = emit(w.program(c), writers).methods
    assert method.delegates == (Delegate("SomeBackend", b"payload"),)
    first, call, last = method.instructions
    assert first.args[-1] == call.args[0] and call.args[-1] == last.args[0]
    assert all(isinstance(method.values[i], TensorValue) for i in call.args)


def test_half_bool_and_integer_tensors_keep_their_dtypes() -> None:
    x = torch.randn(4).half()
    w = Writer(of(x))
    above = w.op("aten.gt.Scalar", w.args[0], 0, to=tensor([4], i1))
    count = w.op("aten.sum.dim_IntList", above, [0], to=tensor([], i64))
    where = w.op("aten.logical_not.default", above, to=tensor([4], i1))
    outs = run(w.program(count, where, w.weight("b", torch.tensor([True, False]))), x)
    assert torch.equal(outs[0], (x > 0).sum()) and torch.equal(outs[1], ~(x > 0))
    assert torch.equal(outs[2], torch.tensor([True, False]))


def test_cache_rows_given_without_leading_dimensions_are_written_in_place() -> None:
    weights = WeightStore()
    w = Writer(t(2, 1, 4), tensor([1], i64), weights=weights)
    cache = w.state("cache", torch.zeros(1, 2, 3, 4))
    new = w.op(
        "aten.index_put.default", cache, [None, None, w.args[1]], w.args[0], to=t(1, 2, 3, 4)
    )
    w.add(UpdateOp("cache", new))
    container = emit(w.program(new))
    assert kernels(container) == ["aten::index_put_"]
    row, position = torch.randn(2, 1, 4), torch.tensor([2])
    (out,) = PteSession.load(to_bytes(container)).run(row, position)
    expected = torch.zeros(1, 2, 3, 4)
    expected[:, :, position] = row
    assert torch.equal(out, expected)


def test_values_that_are_broadcast_into_a_cache_are_not_written_in_place() -> None:
    w = Writer(t(4), tensor([2], i64))
    cache = w.state("cache", torch.zeros(3, 4))
    new = w.op("aten.index_put.default", cache, [w.args[1]], w.args[0], to=t(3, 4))
    w.add(UpdateOp("cache", new))
    container = emit(w.program(new))
    assert "aten::index_put_" not in kernels(container)
    row, positions = torch.randn(4), torch.tensor([2, 0])
    (out,) = PteSession.load(to_bytes(container)).run(row, positions)
    assert torch.equal(out, torch.zeros(3, 4).index_put((positions,), row))


def test_a_split_of_a_dynamic_tensor_is_refused_because_its_kernel_fails() -> None:
    w = Writer(t("s0", 4))
    halves = w.op("aten.split.Tensor", w.args[0], 2, 1, to=[t("s0", 2), t("s0", 2)])
    signature = Signature((Port("x"),), (Port("a"), Port("b")), ranges={"s0": (2, 8)})
    with pytest.raises(UnsupportedError, match="does not resize its outputs"):
        emit(w.program(*halves, signature=signature))
