"""A `.pte`, ours or the stock flow's, reads back as a program that computes the same."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from eager import Function, Model, Stateful, assert_as_eager, exported
from torch import nn
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.backends.executorch.container import (
    Container,
    Delegate,
    KernelCall,
    Method,
    Planned,
    ScalarType,
    State,
    TensorValue,
)
from stepwell.backends.executorch.external import external_to_bytes, read_external
from stepwell.backends.executorch.reading.lift import lift
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.reading.readers import ReadContext, Readers
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.emit import emit
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects.executorch import OpaqueDelegateOp
from stepwell.ir.core import StateOp, UpdateOp
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.syntax.text import parse_module, structurally_equal, to_text


def names(program: Program, method: str = "forward") -> list[str]:
    return [op.name for op in program.method(method).body.block.ops]


def stock(model: Model, *inputs: torch.Tensor, dynamic: Any = None) -> bytes:
    """The stock flow's .pte, with every op a portable kernel."""
    from executorch.exir import EdgeCompileConfig, to_edge

    program = exported(model, *inputs, dynamic=dynamic)
    edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return bytes(edge.to_executorch().buffer)


def net(x: torch.Tensor, conv: Any, norm: Any, head: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = nn.functional.max_pool2d(norm(conv(x)).relu(), 2)
    a, b = x.split(4, 1)
    y = head(torch.cat([b, a], 1).mean((2, 3)))
    return y.softmax(-1), y.argmax(-1)


NET = Function(net, nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5))


def again(data: bytes) -> bytes:
    """Read, lift, emit and write: the program after a round trip."""
    return to_bytes(emit(lift(read_container(data))))


def test_a_stock_program_reads_back_as_aten_ops_and_runs_the_same() -> None:
    x = torch.randn(2, 3, 8, 8)
    data = stock(NET, x)
    program = lift(read_container(data))
    assert "aten.convolution.default" in names(program)
    assert_as_eager(PteSession.load(again(data)), NET, x)


def test_what_was_read_prints_and_parses() -> None:
    program = lift(read_container(stock(NET, torch.randn(1, 3, 8, 8))))
    text = to_text(program.module)
    assert structurally_equal(parse_module(text), program.module)


def counted(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.seen.add_(x) * 2


def test_mutable_buffers_read_back_as_state() -> None:
    data = stock(Stateful(counted, seen=torch.zeros(3)), torch.ones(3))
    program = lift(read_container(data))
    block = program.method().body.block
    assert sum(isinstance(op, StateOp) for op in block.ops) == 1
    assert sum(isinstance(op, UpdateOp) for op in block.ops) == 1
    session = PteSession.load(again(data))
    for step in (1, 2, 3):
        assert torch.equal(session.run(torch.ones(3))[0], torch.full((3,), 2.0 * step))


def test_channels_last_programs_keep_their_signature() -> None:
    x = torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last)
    data = stock(lambda x: (x + 1).relu(), x)
    program = lift(read_container(data))
    assert program.signature().inputs[0].dim_order == (0, 2, 3, 1)
    (out,) = PteSession.load(again(data)).run(x)
    torch.testing.assert_close(out, (x + 1).relu())
    assert out.is_contiguous(memory_format=torch.channels_last)


def _shared_bytes() -> Container:
    """A view that shares its source's bytes, which another tensor takes over afterwards."""
    builder = ContainerBuilder()
    method = builder.method("forward")
    f = ScalarType.FLOAT
    x, a = method.tensor(f, (4,)), method.tensor(f, (4,))
    view = method.tensor(f, (2, 2), storage_of=a)
    later = method.tensor(f, (2, 2))
    method.input(x)
    method.call("aten::exp.out", [x, a, a])
    method.call("aten::neg.out", [view, later, later])
    method.outputs([later])
    return builder.finish()


def test_a_view_that_shares_bytes_becomes_a_view_op() -> None:
    program = lift(_shared_bytes())
    assert names(program)[:3] == ["aten.exp.default", "aten.view.default", "aten.neg.default"]


def test_several_methods_share_state_and_weights() -> None:
    f = ScalarType.FLOAT
    builder = ContainerBuilder()
    for name, kernel in (("plus", "aten::add.out"), ("minus", "aten::sub.out")):
        method = builder.method(name)
        x, y = method.tensor(f, (2,)), method.tensor(f, (2,))
        s = method.state("s", f, (2,), torch.ones(2).numpy().tobytes())
        method.input(x)
        method.call(kernel, [s, x, method.scalar(1), y, y])
        method.call("aten::copy_", [s, y, method.scalar(False), s])
        method.outputs([y])
    program = lift(builder.finish())
    assert list(program.weights) == ["s"]
    assert torch.equal(program.weights.get("s"), torch.ones(2))
    session = PteSession.load(to_bytes(emit(program)))
    assert torch.equal(session.run(torch.ones(2), method="plus")[0], torch.full((2,), 2.0))
    assert torch.equal(session.run(torch.ones(2), method="minus")[0], torch.ones(2))


def _partly_written(kind: ScalarType, kernel: str, size: int, offset: int) -> Container:
    """Gives what four numbers of a state were, and writes to bytes of it from `offset` on."""
    builder = ContainerBuilder()
    method = builder.method("forward")
    x, y = method.tensor(kind, (size,)), method.tensor(ScalarType.FLOAT, (4,))
    s = method.state("s", ScalarType.FLOAT, (4,), torch.ones(4).numpy().tobytes())
    part = method.tensor(kind, (size,), storage_of=s)
    method.input(x)
    method.call("aten::neg.out", [s, y, y])
    method.call(kernel, [x, part, part])
    method.outputs([y])
    container = builder.finish()
    (made,) = container.methods
    values = list(made.values)
    shared = values[part]
    assert isinstance(shared, TensorValue) and isinstance(shared.storage, State)
    there = replace(shared.storage, offset=shared.storage.offset + offset)
    values[part] = replace(shared, storage=there)
    return replace(container, methods=(replace(made, values=tuple(values)),))


@pytest.mark.parametrize(("size", "offset"), [(2, 8), (2, 0), (1, 4), (4, 0)])
def test_a_state_of_which_a_part_is_overwritten_keeps_that(size: int, offset: int) -> None:
    data = to_bytes(_partly_written(ScalarType.FLOAT, "aten::exp.out", size, offset))
    program = lift(read_container(data))
    sessions: list[Any] = [PteSession.load(data), PteSession.load(again(data)), program.start()]
    for step in (1.0, 2.0, 3.0):
        first, *others = [session.run(torch.full((size,), step))[0] for session in sessions]
        for other in others:
            torch.testing.assert_close(other, first, rtol=1e-6, atol=0)
    assert int((first == -1).sum()) == 4 - size


def test_a_state_that_ends_as_another_type_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="only a part of the final content of state s is known"
    ):
        lift(_partly_written(ScalarType.INT, "aten::abs.out", 2, 8))


def _delegated() -> bytes:
    f = ScalarType.FLOAT
    builder = ContainerBuilder()
    method = builder.method("forward")
    x, y, z, w = (method.tensor(f, (4,)) for _ in range(4))
    method.input(x)
    method.call("aten::exp.out", [x, y, y])
    method.delegate(Delegate("Alien", b"bytes", (("key", b"value"),)), [x, y, z])
    method.call("aten::neg.out", [z, w, w])
    method.outputs([w])
    return to_bytes(builder.finish())


def test_an_unknown_delegate_stays_opaque_and_named_with_its_payload() -> None:
    program = lift(read_container(_delegated()))
    (op,) = [op for op in program.method().body.block.ops if isinstance(op, OpaqueDelegateOp)]
    assert op.backend.data == "Alien" and len(op.inputs) == 2 and len(op.outputs) == 1
    assert bytes(program.weights.get(op.payload.data).numpy()) == b"bytes"
    assert structurally_equal(parse_module(to_text(program.module)), program.module)


def test_a_known_delegate_is_opened_by_its_reader() -> None:
    class Reader:
        def input_count(self, delegate: Delegate, context: ReadContext) -> int:
            return 2

        def read(
            self,
            delegate: Delegate,
            inputs: Sequence[SSAValue],
            results: Sequence[Attribute],
            context: ReadContext,
        ) -> Operation:
            assert bytes(delegate.payload) == b"bytes" and context.prefix == "forward.1"
            from stepwell.dialects.aten.registry import op_class

            return op_class("aten.add.Tensor").make(*inputs, result_types=results)

    program = lift(read_container(_delegated()), Readers({"Alien": Reader()}))
    assert names(program)[:3] == ["aten.exp.default", "aten.add.Tensor", "aten.neg.default"]


def test_a_jump_on_a_constant_is_a_branch_like_any_other() -> None:
    builder = ContainerBuilder()
    method = builder.method("forward")
    x = method.tensor(ScalarType.FLOAT, (4,))
    method.input(x)
    jump = method.jump_if_false(method.scalar(True))
    method.call("aten::relu.out", [x, x, x])
    method.land(jump)
    method.outputs([x])
    program = lift(builder.finish())
    program.verify()
    given = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    assert torch.equal(program.run(given)[0], given.relu())


def test_weights_of_a_separate_file_are_found_there() -> None:
    builder = ContainerBuilder(external_constants=True)
    method = builder.method("forward")
    f, weight = ScalarType.FLOAT, torch.randn(4)
    x, y = method.tensor(f, (4,)), method.tensor(f, (4,))
    w = method.constant(f, (4,), weight.numpy().tobytes())
    method.input(x)
    method.call("aten::mul.out", [x, w, y, y])
    method.outputs([y])
    container = builder.finish()
    external = external_to_bytes(container)
    assert external is not None
    read = read_container(to_bytes(container))
    with pytest.raises(StepwellError, match=r"separate \.ptd"):
        lift(read)
    program = lift(read, external=read_external(external))
    (key,) = program.weights
    assert torch.equal(program.weights.get(key), weight)


def test_every_truncation_of_a_ptd_is_an_error() -> None:
    builder = ContainerBuilder(external_constants=True)
    builder.method("forward").outputs([])
    builder.constant(bytes(range(64)))
    data = external_to_bytes(builder.finish())
    assert data is not None and list(read_external(data).values()) == [bytes(range(64))]
    for length in range(0, len(data) - 63, 5):
        with pytest.raises(StepwellError):
            read_external(data[:length])


def test_dynamic_shapes_read_back_with_their_arithmetic_and_run() -> None:
    def flat(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.exp(), x]).reshape(x.shape[0] * 2 * 3 // 2, 2)

    rows = {0: torch.export.Dim("n", min=2, max=16)}
    data = stock(flat, torch.randn(4, 3), dynamic=rows)
    program = lift(read_container(data))
    assert any(name.startswith("sym.") for name in names(program))
    session = PteSession.load(again(data))
    for length in (2, 8, 16):
        assert_as_eager(session, flat, torch.randn(length, 3))


def test_a_state_of_absurd_size_is_refused() -> None:
    f = ScalarType.FLOAT
    value = TensorValue(f, (2**20, 2**14), (0, 1), Planned(1, 0))
    out = TensorValue(f, (2**20, 2**14), (0, 1), Planned(1, 2**36))
    method = Method("forward", (value, out), (), (1,), (KernelCall("aten::relu.out", (0, 1, 1)),),
                    arena_sizes=(0, 2**37))  # fmt: skip
    with pytest.raises(UnsupportedError, match="at most"):
        lift(Container((method,)))
