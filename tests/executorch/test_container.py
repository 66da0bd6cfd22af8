"""Hand-made plans run on the real runtime and read back as they were written."""

from pathlib import Path

import pytest
import torch

from stepwell.backends.executorch.check import check
from stepwell.backends.executorch.container import (
    Container,
    Method,
    Planned,
    ScalarType,
    TensorValue,
)
from stepwell.backends.executorch.external import external_to_bytes
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.runner import PteSession, run_pte
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.ir.diagnostics import ArtifactError, InputMismatch, StepwellError, VerificationError

F = ScalarType.FLOAT


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def _affine(**options: bool) -> tuple[Container, torch.Tensor]:
    """x * w + w."""
    weight = torch.randn(2, 3)
    builder = ContainerBuilder(**options)
    method = builder.method("forward")
    x, y, z = (method.tensor(F, (2, 3)) for _ in range(3))
    w = method.constant(F, (2, 3), _bytes(weight))
    again = method.constant(F, (2, 3), _bytes(weight))
    method.input(x)
    method.call("aten::mul.out", [x, w, y, y])
    method.call("aten::add.out", [y, again, method.scalar(1), z, z])
    method.outputs([z])
    return builder.finish(), weight


def test_a_plan_made_by_hand_computes_what_pytorch_computes() -> None:
    container, weight = _affine()
    x = torch.randn(2, 3)
    (y,) = run_pte(to_bytes(container), [x])
    assert torch.equal(y, x * weight + weight)


def test_equal_constants_are_stored_once() -> None:
    container, _ = _affine()
    assert len(container.constants) == 2


def test_what_is_written_reads_back_as_the_same_container() -> None:
    container, _ = _affine()
    again = read_container(to_bytes(container))
    assert again.methods == container.methods
    assert [bytes(c) for c in again.constants] == [bytes(c) for c in container.constants]


def test_every_kind_of_value_reads_back_equal() -> None:
    builder = ContainerBuilder()
    method = builder.method("all_kinds")
    tensor = method.tensor(ScalarType.HALF, (1, 2, 3, 4), dim_order=(0, 2, 3, 1))
    method.input(tensor)
    for value in (True, False, 7, -(2**63), 1.5, float("inf"), float("-inf"), "zażółć", None):
        method.scalar(value)
    method.ints([1, 2, 1])
    method.bools([True, False])
    method.floats([0.5, float("inf")])
    method.tensors([tensor, tensor])
    method.tensors([None, tensor], optional=True)
    method.call("aten::relu.out", [tensor, tensor, tensor])
    method.outputs([tensor], input_spec="spec in", output_spec="spec out")
    container = builder.finish()
    assert read_container(to_bytes(container)).methods == container.methods


def test_weights_can_live_in_a_separate_ptd_file(tmp_path: Path) -> None:
    container, weight = _affine(external_constants=True)
    external = external_to_bytes(container)
    assert external is not None
    x = torch.randn(2, 3)
    (y,) = run_pte(to_bytes(container), [x], external=external)
    assert torch.equal(y, x * weight + weight)
    with pytest.raises(ArtifactError, match="refuses the program"):
        run_pte(to_bytes(container), [x])


def _counter() -> bytes:
    """Method `add` accumulates its input into a state that starts at ones; `read` shows it."""
    builder = ContainerBuilder()
    initial = _bytes(torch.ones(4))
    add = builder.method("add")
    x, y = add.tensor(F, (4,)), add.tensor(F, (4,))
    state = add.state("total", F, (4,), initial)
    add.input(x)
    add.call("aten::add.out", [state, x, add.scalar(1), y, y])
    add.call("aten::copy_", [state, y, add.scalar(False), state])
    add.outputs([y])
    read = builder.method("read")
    big, out = read.tensor(F, (1000,)), read.tensor(F, (4,))
    read.input(big)
    state = read.state("total", F, (4,), initial)
    read.call("aten::mul.Scalar_out", [state, read.scalar(1.0), out, out])
    read.outputs([out])
    return to_bytes(builder.finish())


def test_state_keeps_its_initial_value_between_calls_and_is_shared_by_methods() -> None:
    session = PteSession.load(_counter())
    assert torch.equal(session.run(torch.zeros(1000), method="read")[0], torch.ones(4))
    x = torch.arange(4.0)
    assert torch.equal(session.run(x, method="add")[0], 1 + x)
    # `read` fills an arena larger than that of `add`; the state must survive it.
    assert torch.equal(session.run(torch.full((1000,), 9.0), method="read")[0], 1 + x)
    assert torch.equal(session.run(x, method="add")[0], 1 + 2 * x)
    assert torch.equal(session.run(torch.zeros(1000), method="read")[0], 1 + 2 * x)


def test_two_sessions_of_one_program_do_not_share_state() -> None:
    data = _counter()
    first, second = PteSession.load(data), PteSession.load(data)
    first.run(torch.ones(4), method="add")
    assert torch.equal(second.run(torch.zeros(1000), method="read")[0], torch.ones(4))


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ([], "0 inputs given, 1 needed"),
        ([torch.zeros(2, 3, dtype=torch.int64)], "dtype is int64"),
        ([torch.zeros(3, 2)], "dimension 0 is 3, must be 2"),
        ([torch.zeros(6)], "rank is 1"),
        ([torch.zeros(3, 2).t()], r"(?s)the declared dim order.*help: pass x.contiguous"),
        ([1.0], "a tensor is needed, not float"),
    ],
)
def test_inputs_that_differ_from_the_signature_are_refused(given: list[object], fact: str) -> None:
    container, _ = _affine()
    with pytest.raises(InputMismatch, match=fact):
        run_pte(to_bytes(container), given)


def test_an_unsound_plan_is_refused_before_bytes_are_written() -> None:
    builder = ContainerBuilder()
    method = builder.method("forward")
    x = method.tensor(F, (4,))
    method.input(x)
    method.call("aten::relu.out", [x, x, 99])
    method.outputs([x])
    with pytest.raises(VerificationError, match="names value 99 of 1"):
        to_bytes(builder.finish())


def test_faults_are_found_in_time_linear_in_the_file() -> None:
    many = 20_000
    sizes = (2**31 - 1,) * many
    giant = TensorValue(ScalarType.FLOAT, sizes, tuple(range(many)), Planned(1, 0))
    short = TensorValue(ScalarType.FLOAT, (2, 3), (0,), Planned(1, 0))
    methods = tuple(Method(f"m{index}", (), (), (), ()) for index in range(many))
    first = Method("m0", (*[giant] * 10, short), (), (), (), arena_sizes=(0, 64))
    with pytest.raises(VerificationError) as found:
        check(Container((*methods, first)))
    assert "method 'm0' is declared more than once" in str(found.value)
    assert f"value 0 and 9 others: {many} dimensions; the runtime has at most 16" in str(
        found.value
    )
    assert "value 10: a dim order of 1 dimensions, where the tensor has 2" in str(found.value)


def test_a_missing_kernel_is_an_error_and_not_a_crash() -> None:
    builder = ContainerBuilder()
    method = builder.method("forward")
    x = method.tensor(F, (4,))
    method.input(x)
    method.call("aten::no_such_kernel.out", [x, x, x])
    method.outputs([x])
    with pytest.raises(ArtifactError, match=r"kernel 'aten::no_such_kernel.out' not found"):
        run_pte(to_bytes(builder.finish()), [torch.zeros(4)])


def test_a_call_that_fails_has_the_reason_that_the_runtime_logs() -> None:
    builder = ContainerBuilder()
    method = builder.method("forward")
    x, y = method.tensor(F, (4, 3)), method.tensor(F, (4, 3))
    method.input(x)
    method.call("aten::mm.out", [x, x, y, y])
    method.outputs([y])
    with pytest.raises(ArtifactError, match=r"0x12: .* = 3 does not match b\.size"):
        run_pte(to_bytes(builder.finish()), [torch.zeros(4, 3)])


def test_state_of_one_name_must_have_one_size() -> None:
    builder = ContainerBuilder()
    builder.method("a").state("s", F, (4,), bytes(16))
    with pytest.raises(StepwellError, match="8 bytes here, 16 before"):
        builder.method("b").state("s", F, (2,), bytes(8))
