"""Programs of ATen ops become kernel calls that compute what PyTorch computes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewrite_runs import inputs_of, program_of
from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, var_operand_def, var_result_def

from stepwell.backends.executorch.container import (
    Container,
    Delegate,
    KernelCall,
    OptionalTensorList,
    TensorValue,
)
from stepwell.backends.executorch.external import external_to_bytes
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.backends.executorch.writing.emit import DelegatePayload, emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.ir.diagnostics import InputMismatch, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, set_signature


def program(text: str, signature: Signature | None = None) -> Program:
    """A program of a text (`short_ir`) with random weights."""
    made = program_of(text)
    if signature is not None:
        set_signature(made.method(), signature)
    return made


def run(given: Program, *inputs: torch.Tensor) -> tuple[Any, ...]:
    return run_pte(to_bytes(emit(given)), inputs)


def kernels(container: Container) -> list[str]:
    calls = container.methods[0].instructions
    return [call.kernel for call in calls if isinstance(call, KernelCall)]


CASES: dict[str, tuple[str, Callable[..., Any]]] = {
    "a chain of ops with weights": (
        """
        %t = aten.t.default(%w: weight f32[4, 3])
        %a = aten.addmm.default(%b: weight f32[4], %x: f32[2, 3], %t)
        %r = aten.relu.default(%a); %y = aten.mul.Scalar(%r, 2)""",
        lambda x, w, b: (x @ w.t() + b).relu() * 2,
    ),
    "int arguments of float parameters, and omitted defaults": (
        """
        %a = aten.leaky_relu.default(%x: f32[2, 3], 1); %b = aten.hardtanh.default(%a)
        %y = aten.add.Tensor(%b, %a, alpha=2)""",
        lambda x: x.clamp(-1, 1) + 2 * x,
    ),
    "optional tensor lists, and results in lists": (
        """
        %p = aten.index.Tensor(%x: f32[3, 4], [none, %i: i64[2]])
        %a, %b = aten.split.Tensor(%p, 2); %y = aten.cat.default([%b, %a])""",
        lambda x, i: torch.cat([x[:, i][2:], x[:, i][:2]]),
    ),
    "several results, and dtype arguments": (
        """
        %v, %i = aten.max.dim(%x: f32[3, 4], 1); %f = aten._to_copy.default(%i, dtype=f32)
        %s = aten.sum.dim_IntList(%x, [1], dtype=f32)
        %a = aten.add.Tensor(%v, %f); %y = aten.add.Tensor(%a, %s)""",
        lambda x: x.max(1).values + x.max(1).indices + x.sum(1),
    ),
    "a view read long after its source's last use": (
        """
        %e = aten.exp.default(%x: f32[16]); %v = aten.view.default(%e, [4, 4])
        %a = aten.add.Scalar(%x, 1.0); %b = aten.add.Scalar(%a, 1.0); %c = aten.add.Scalar(%b, 1.0)
        %d = aten.add.Scalar(%c, 1.0); %f = aten.add.Scalar(%d, 1.0)
        %w = aten.view.default(%f, [4, 4]); %y = aten.add.Tensor(%v, %w)""",
        lambda x: (x.exp() + (x + 5)).reshape(4, 4),
    ),
    "inputs and weights that are outputs": (
        """
        %w: weight f32[3]; %v = aten.view.default(%x: f32[2, 3], [6])
        return %x, %v, %w, %x""",
        lambda x, w: (x, x.view(6), w, x),
    ),
    "halves, booleans and integers": (
        """
        %b: weight i1[2]; %a = aten.gt.Scalar(%x: f16[4], 0)
        %c = aten.sum.dim_IntList(%a, [0]); %n = aten.logical_not.default(%a)
        return %c, %n, %b""",
        lambda x, b: ((x > 0).sum(), ~(x > 0), b),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_pytorch_computes(name: str) -> None:
    text, function = CASES[name]
    made = program(text)
    inputs, weights = inputs_of(made), {key: made.weights.get(key) for key in made.weights}
    wanted = function(*inputs, **weights)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for found, expected in zip(run(made, *inputs), wanted, strict=True):
        torch.testing.assert_close(found, expected)


def test_optional_tensors_are_a_list_of_their_own() -> None:
    (method,) = emit(program(CASES["optional tensor lists, and results in lists"][0])).methods
    assert any(isinstance(value, OptionalTensorList) for value in method.values)


def test_a_reshape_needs_no_kernel() -> None:
    made = program("""
        %a = aten.view.default(%x: f32[2, 6], [3, 4]); %b = aten.unsqueeze.default(%a, 0)
        %c = aten.neg.default(%b); %y = aten.reshape.default(%c, [12])""")
    assert kernels(emit(made)) == ["aten::neg.out"]
    x = torch.randn(2, 6)
    assert torch.equal(run(made, x)[0], -x.reshape(12))


def test_ops_without_a_kernel_are_refused_all_at_once() -> None:
    with pytest.raises(UnsupportedError) as caught:
        emit(
            program("""
            %a = aten.silu.default(%x: f32[2, 3]); %b = aten.relu.default(%a)
            %c = aten.layer_norm.default(%b, [3])""")
        )
    named = [problem.fact.split(":")[0] for problem in caught.value.problems]
    assert named == ["aten.silu.default", "aten.layer_norm.default"]


def test_states_that_swap_and_are_returned_keep_their_values_at_entry() -> None:
    made = program("""
        %a: state f32[2]; %b: state f32[2]; %t = aten.add.Tensor(%x: f32[2], %a)
        stepwell.update <"a">, %b : f32[2]; stepwell.update <"b">, %a : f32[2]
        return %t, %a""")
    session = PteSession.load(to_bytes(emit(made)))
    a, b = made.weights.get("a"), made.weights.get("b")
    for _ in range(3):
        total, entry = session.run(torch.ones(2))
        assert torch.equal(entry, a) and torch.equal(total, a + 1)
        a, b = b, a


# The shapes of a cache, of what is written and of its places; what is read, and if it is copied.
CACHES = {
    "read where it was written": ("3, 4", "1, 4", "[%at: i64[1]]", "new", False),
    "read as it was": ("3, 4", "1, 4", "[%at: i64[1]]", "s", True),
    "written by a row that is broadcast": ("3, 4", "4", "[%at: i64[2]]", "new", True),
    "written by rows without leading dimensions": (
        "1, 2, 3, 4", "2, 1, 4", "[none, none, %at: i64[1]]", "new", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_is_written_in_place_exactly_where_that_is_the_same(name: str) -> None:
    shape, row_shape, at, read, is_copied = CACHES[name]
    made = program(f"""
        %x: f32[{row_shape}]; %s: state f32[{shape}]
        %new = aten.index_put.default(%s, {at}, %x); %y = aten.mul.Scalar(%{read}, 2.0)
        stepwell.update <"s">, %new : f32[{shape}]; return %y, %new""")
    container = emit(made)
    assert ("aten::index_put_" in kernels(container)) == (not is_copied)
    assert ("aten::copy_" in kernels(container)) == is_copied
    session, old = PteSession.load(to_bytes(container)), made.weights.get("s")
    for step in (2, 0, 1, 2):
        row, places = inputs_of(made)
        places = torch.tensor([step, (step + 1) % 3])[: len(places)]
        new = old.clone()
        new[..., places, :] = row
        doubled, given = session.run(row, places)
        assert torch.equal(doubled, 2 * (new if read == "new" else old))
        assert torch.equal(given, new)
        old = new


def test_methods_share_state_and_constants() -> None:
    type_ = "tensor<64xf32>"
    made = program("\n".join(f"""
        func.func @{name}(%x: {type_}) -> {type_} {{
          %s = stepwell.state <"s"> : {type_}
          %w = stepwell.weight <"w"> "parameter" : {type_}
          %a = aten.mul.Tensor(%x, %w) : ({type_}, {type_}) -> {type_}
          %y = aten.{name}.Tensor(%s, %a) : ({type_}, {type_}) -> {type_}
          stepwell.update <"s">, %y : {type_}
          func.return %y : {type_}
        }}""" for name in ("add", "mul")))  # fmt: skip
    container = emit(made)
    assert len(container.constants) == 2 and len(container.mutable_data) == 2
    session = PteSession.load(to_bytes(container))
    x, w, expected = torch.randn(64), made.weights.get("w"), made.weights.get("s")
    for name in ("add", "mul", "mul", "add"):
        expected = getattr(torch, name)(expected, x * w)
        torch.testing.assert_close(session.run(x, method=name)[0], expected)


def test_a_mutated_input_is_seen_by_the_caller() -> None:
    made = program("""
        %y = aten.add.Scalar(%x: f32[3], 2.0); stepwell.mutate_input 0, %y : f32[3]; return %y""")
    x = torch.ones(3)
    (out,) = run(made, x)
    assert torch.equal(out, torch.full((3,), 3.0)) and torch.equal(x, out)


def test_declared_channels_last_inputs_and_outputs_are_converted_and_checked() -> None:
    order = (0, 2, 3, 1)
    signature = Signature((Port("x", order),), (Port("y", order),))
    data = to_bytes(emit(program("%y = aten.cumsum.default(%x: f32[1, 3, 4, 5], 1)", signature)))
    x = torch.randn(1, 3, 4, 5)
    with pytest.raises(InputMismatch):
        run_pte(data, [x])
    (out,) = run_pte(data, [x.to(memory_format=torch.channels_last)])
    torch.testing.assert_close(out, x.cumsum(1))
    assert out.is_contiguous(memory_format=torch.channels_last)


def ranged(least: int, most: int | None, *outputs: str) -> Signature:
    ports = tuple(Port(name) for name in outputs or "y")
    return Signature((Port("x"),), ports, ranges={"s0": (least, most)})


def test_bounded_dynamic_shapes_run() -> None:
    made = program(
        """
        %a = aten.exp.default(%x: f32[s0, 4]); %b = aten.cat.default([%a, %x])
        %y = aten.sum.dim_IntList(%b, [1])""",
        ranged(1, 32),
    )
    session = PteSession.load(to_bytes(emit(made)))
    for length in (1, 7, 32):
        x = torch.randn(length, 4)
        torch.testing.assert_close(session.run(x)[0], torch.cat([x.exp(), x]).sum(1))


@pytest.mark.parametrize(
    ("text", "signature", "said"),
    [
        ("%y = aten.exp.default(%x: f32[s0, 4])", ranged(2, None), "no upper bound"),
        (
            "%a, %b = aten.split.Tensor(%x: f32[s0, 4], 2, 1)",
            ranged(2, 8, "a", "b"),
            "does not resize its outputs",
        ),
    ],
    ids=["unbounded", "split"],
)
def test_a_dynamic_tensor_that_the_runtime_cannot_hold_is_refused(
    text: str, signature: Signature, said: str
) -> None:
    with pytest.raises(UnsupportedError, match=said):
        emit(program(text, signature))


def test_frozen_inputs_and_outputs_stay_in_the_calling_convention() -> None:
    signature = Signature(
        (Port("x"), Port("flag", constant=(True,)), Port("none", constant=(None,))),
        (Port("y"), Port("k", constant=(7,))),
    )
    data = to_bytes(emit(program("%y = aten.add.Scalar(%x: f32[3], 2.0)", signature)))
    out, seven = run_pte(data, [torch.ones(3), True, None])
    assert torch.equal(out, torch.full((3,), 3.0)) and seven == 7
    assert torch.equal(run_pte(data, [torch.ones(3)])[0], out)
    with pytest.raises(InputMismatch, match="made for True here, not False"):
        run_pte(data, [torch.ones(3), False, None])


def test_weights_go_into_a_separate_file_on_request() -> None:
    made = program("%y = aten.mul.Tensor(%x: f32[100], %w: weight f32[100])")
    weight, x = made.weights.get("w"), torch.randn(100)
    container = emit(made, external_weights=True)
    data, external = to_bytes(container), external_to_bytes(container)
    assert external is not None and weight.numpy().tobytes() not in data
    assert torch.equal(run_pte(data, [x], external=external)[0], x * weight)


@irdl_op_definition
class SomeDelegate(IRDLOperation):
    """A delegate op as a backend would define it."""

    name = "test.delegate"
    inputs = var_operand_def()
    outputs = var_result_def()


def test_delegates_stand_between_kernels_with_payloads_from_their_writer() -> None:
    made = program("""
        %a = aten.exp.default(%x: f32[2]); %b = aten.add.Tensor(%a, %z: f32[2])
        %y = aten.neg.default(%b)""")
    (add,) = (op for op in made.method().body.block.ops if op.name == "aten.add.Tensor")
    delegate = SomeDelegate.create(operands=list(add.operands), result_types=[add.results[0].type])
    made.method().body.block.insert_op_before(delegate, add)
    add.results[0].replace_all_uses_with(delegate.results[0])
    add.detach()
    writers: dict[type[Operation], Callable[..., DelegatePayload]] = {
        SomeDelegate: lambda op, weights: DelegatePayload("SomeBackend", b"payload")
    }
    (method,) = emit(made, writers).methods
    assert method.delegates == (Delegate("SomeBackend", b"payload"),)
    first, call, last = method.instructions
    assert first.args[-1] == call.args[0] and call.args[-1] == last.args[0]
    assert all(isinstance(method.values[i], TensorValue) for i in call.args)
