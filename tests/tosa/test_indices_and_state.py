"""Rows by index, integers, conversions, branches, loops and buffers, on the reference model."""

from typing import Any

import pytest
import torch
from eager import EXACT, Stateful, assert_as_eager, exported, lower
from torch import Tensor
from torch.export import export

import stepwell
from control_flow import cond_model, while_loop_model
from gpt2 import gpt2_2layers
from llama import llama_4layers
from stepwell.backends.tosa.reference_model import call_reference_model
from stepwell.ir.signature import get_signature

from .graphs import Function, Of, agree, lowered


def _interleaved(x: Tensor) -> Tensor:
    made = torch.empty_like(x)
    made[..., ::2], made[..., 1::2] = x[..., 1::2], x.new_empty(1).copy_(x[0, 0, 0])
    return made


def _masked(x: Tensor, v: Tensor) -> Tensor:
    made = x.clone()
    made[:, x[0, :, 0] > 0] = v
    made[x[:, :, 0] > 0] = 3
    return made


X = torch.randn(5, 6, 7)
ROWS = torch.tensor([0, -1, 3])
INTEGERS = torch.tensor([-4, -1, 0, 2, 6], dtype=torch.int32)

FUNCTIONS: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "index of rows": (lambda x, i: x[i], (X, ROWS)),
    "index of an inner axis": (lambda x, i: x[:, i], (X, ROWS)),
    "index_select": (lambda x, i: x.index_select(2, i), (X, ROWS.abs())),
    "rows of two axes": (lambda x, i, j: x[i, j], (X, ROWS, ROWS - 1)),
    "rows of two axes put": (
        lambda x, i, j, v: x.index_put((i, j), v),
        (X, ROWS, ROWS - 1, torch.ones(7)),
    ),
    "narrow indices": (
        lambda x, i: x.gather(0, i.to(torch.int32).long()),
        (X, ROWS.abs().reshape(3, 1, 1)),
    ),
    "truth by index": (lambda x, i: (x > 0)[i], (X, ROWS)),
    "every other row written": (
        lambda x, v: x.slice_scatter(v, 0, 0, 4, 2),
        (X, torch.ones(2, 6, 7)),
    ),
    "strides": (lambda x: (x * 2).as_strided((3, 4), (7, 2), 3), (X,)),
    "a number minus": (lambda x, i: (1 - x) * (3 - i)[0], (X, INTEGERS)),
    "written all over": (_interleaved, (X[..., :6].contiguous(),)),
    "index_put": (lambda x, i, v: x.index_put((i,), v), (X, ROWS, torch.ones(6, 7))),
    "constant indices": (lambda x: x[torch.tensor([[2, -2]]), torch.tensor([[1], [-1]])], (X,)),
    "argmax": (lambda x: x.argmax(1), (X,)),
    "argmax of all": (lambda x: x.argmax(), (X,)),
    "places of integers": (
        lambda i: torch.stack(
            [i.argmax(0), i.argmin(0), i.long().argmax(), i.to(torch.int8).argmin()]
        ),
        (INTEGERS.repeat(2),),
    ),
    "integers and fractions": (
        lambda i: torch.stack([(i * 0.5 + 1) / 4, i - 0.5, 1.5 - i.long(), i / 2]),
        (INTEGERS,),
    ),
    "positions of a padded text": (
        lambda w, i: w[(i.ne(1).int().cumsum(1).type_as(i.int()) * i.ne(1).int()).long() + 1],
        (torch.randn(9, 3), torch.tensor([[1, 1, 4, 1, 5, -9], [2, 1, 4, 1, 5, 1]])),
    ),
    "truth values in arithmetic": (
        lambda x, y: torch.stack(
            [x * y, x == y, x != y, x == 1, x == False, x != True, x.maximum(y), x.minimum(y)]  # noqa: E712
        ),
        (torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])),
    ),
    "a number where a mask is": (
        _masked,
        (X, torch.tensor(2.5)),
    ),
    "truth and integers scattered": (
        lambda j, i: (j > 0).scatter(0, i, True).int() + j.long().scatter(0, i, 4).int(),
        (INTEGERS, torch.tensor([3, 0, 3])),
    ),
    "eight axes permuted, of size one": (
        lambda x: (
            (2 * x).reshape(1, 5, 2, 3, 1, 7, 1, 1).permute(0, 5, 1, 4, 2, 6, 3, 7).reshape(7, 30)
        ),
        (X,),
    ),
    "seven axes permuted": (
        lambda x: (2 * x).reshape(2, 3, 2, 2, 3, 2, 2).permute(5, 3, 6, 0, 4, 2, 1).reshape(4, 72),
        (torch.randn(288),),
    ),
    "rows named by an argmax": (lambda x, w: w[x.argmax(2)], (X, torch.randn(7, 3))),
    "floats to integers": (lambda x: (3 * x).to(torch.int32), (X,)),
    "truth to floats": (lambda x: (x > 0).to(torch.float32), (X,)),
    "floats to truth": (lambda x: x.bool(), (torch.tensor([0.0, -0.0, 1.0]),)),
    "integer arithmetic": (lambda i: (i + 2) * 3 - i, (INTEGERS,)),
    "a sum of a number": (lambda x: x.sum() + x.mean() + x.sum(0), (torch.tensor(2.5),)),
    "shifts by numbers of more bits": (
        lambda i: (i << 257) ^ (i >> -254),
        (INTEGERS.to(torch.int8),),
    ),
    "comparisons": (lambda i: (i < 2) & (i != -1) | (i >= 6) ^ (i == 3), (INTEGERS,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_op_gives_torchs_values_exactly(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    agree(function, *inputs)


def test_an_index_beyond_32_bits_is_refused_by_the_artifact_and_the_interpreter_alike() -> None:
    graph = lowered(lambda x, i: x[i], X, ROWS)
    for run in (graph.run, graph.program.run):
        with pytest.raises(stepwell.StepwellError, match="does not fit in the 32 bits"):
            run(X, ROWS + 2**40)


def test_with_the_extension_indices_stay_64_bits_wide() -> None:
    graph = lowered(lambda x, i: x[i], X, ROWS, target="tosa-1.1+fp+int64")
    assert "tensor<3xi64>" in str(graph.program.module)
    assert torch.equal(graph.run(X, ROWS)[0], X[ROWS])


def test_a_method_says_which_inputs_became_narrow() -> None:
    graph = lowered(lambda x, i: x[i], X, ROWS)
    held = str(graph.program.method().attributes["tosa.input_narrowed_from"])
    assert held == '["", "int64"]'


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda x, i: x[i * 2 + 1], "its values reach"),
        (lambda x, i: (x[i], i + 1)[1], "its values reach"),
        (lambda x, i: x[i % 2] * i.sum(), "its values reach"),
        (lambda x, i: i.cumsum(0), "its values reach"),
    ],
    ids=["arithmetic on a row number", "a number that is an output too", "a sum", "running sums"],
)
def test_an_integer_that_may_need_64_bits_is_refused(function, complaint: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=complaint):
        lowered(function, X, ROWS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: (i > 0, i.float() * x[0, 0, 0], i.float().abs()),
        lambda x, i: (x * i[0], i.amax(), i.amin(0), i[1:]),
    ],
    ids=["compared, cast, multiplied", "indexed, reduced, sliced"],
)
def test_what_the_border_holds_needs_no_declaration(function) -> None:
    graph, wide = lowered(function, X, ROWS), torch.tensor([-(2**31), -1, 2**31 - 1])
    for numbers in (ROWS, wide):
        for expected, found in zip(function(X, numbers), graph.run(X, numbers), strict=True):
            assert torch.equal(found.to(expected.dtype), expected)


RANGED = (
    lambda x, i: x[i * 2 + 1],
    lambda x, i: i + 1,
    lambda x, i: (i.sum(), i.abs().cumsum(0), (i * i).amax()),
)


@pytest.mark.parametrize("function", RANGED)
def test_a_declared_range_proves_what_is_computed_from_it(function) -> None:
    source = export(Of(function), (X, ROWS))
    graph = stepwell.lower(source, "tosa-1.0+fp+int", ranges={"inputs_1": (-3, 3)})
    expected = function(X, ROWS.clamp(-3, 1))
    expected = expected if isinstance(expected, tuple) else (expected,)
    for wanted, found in zip(expected, graph.run(X, ROWS.clamp(-3, 1)), strict=True):
        assert torch.equal(found.to(wanted.dtype), wanted)
    for run in (graph.run, graph.program.run):
        with pytest.raises(
            stepwell.StepwellError, match="holds 2 to 5, outside the declared range -3 to 3"
        ):
            run(X, ROWS.clamp(2, 5) + torch.tensor([0, 0, 2]))


@pytest.mark.parametrize(
    ("name", "least", "reason"),
    [("inputs_1", 0.5, "has integers, its"), ("nothing", 0, "is not a tensor input of integers")],
)
def test_a_range_of_no_such_input_is_refused(name: str, least: float, reason: str) -> None:
    source = export(Of(RANGED[1]), (X, ROWS))
    with pytest.raises(stepwell.StepwellError, match=f"'{name}' {reason}"):
        stepwell.lower(source, "tosa-1.0+fp+int", ranges={name: (least, 1)})


def test_products_that_outgrow_32_bits_are_refused() -> None:
    with pytest.raises(stepwell.StepwellError, match="its values reach"):
        lowered(lambda x: x.argmax(1) * 2**30, torch.randn(3, 9))


def test_strides_of_a_transposed_value_are_refused() -> None:
    with pytest.raises(stepwell.StepwellError, match="not known to be row-major"):
        lowered(lambda x: x.t().as_strided((3, 4), (4, 1)), torch.randn(3, 4))


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda x, i: x[i, :, i], "are not adjacent"),
        (lambda x, i: x.double().sum(), "float64"),
    ],
)
def test_what_has_no_operator_is_refused_with_the_reason(function, complaint: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=complaint):
        lowered(function, X, ROWS)


def test_a_language_model_takes_token_numbers() -> None:
    model, inputs = gpt2_2layers()
    agree(model, *inputs, target="tosa-1.0+fp", atol=2e-5 * float(model(*inputs).abs().max()))


def test_a_cache_is_variables_that_calls_keep() -> None:
    model, _ = llama_4layers()
    steps = [(torch.tensor([[token]]), torch.tensor([at])) for at, token in enumerate((7, 3, 11))]
    graph = stepwell.lower(export(model.eval(), steps[0]), "tosa-1.1+fp+int+variable")
    data = graph.to_tosa()
    assert len([op for op in graph.program.module.walk() if op.name == "stepwell.update"]) == 8
    for tokens, positions in steps:
        with torch.no_grad():
            expected = model(tokens, positions)
        (found,), data = call_reference_model(data, [tokens, positions])
        assert (found - expected).abs().max() <= 2e-5 * expected.abs().max()


def test_a_buffer_needs_the_extension() -> None:
    model, inputs = llama_4layers()
    with pytest.raises(stepwell.StepwellError, match="kept between calls"):
        stepwell.lower(export(model.eval(), inputs), "tosa-1.1+fp")


def counted(m: Any, x: Tensor) -> Tensor:
    return m.total.add_(x) * 2


def test_variables_are_read_back_with_their_initial_values() -> None:
    x, ones = torch.randn(2, 3), torch.ones(2, 3)
    model = Stateful(counted, total=ones)
    session = stepwell.read_tosa(lower(model, x, target="tosa-1.0+fp+variable").to_tosa()).start()
    for wanted in ((ones + x) * 2, (ones + x + x) * 2):
        assert torch.equal(session.run(x, method="main")[0], wanted)


@pytest.mark.parametrize("make", [cond_model, while_loop_model], ids=lambda make: make.__name__)
def test_branches_and_loops_run_on_the_reference_model(make) -> None:
    model, inputs = make()
    exported = export(model.eval(), inputs)
    graph = stepwell.lower(exported, "tosa-1.1+fp+controlflow+int64")
    for sign in (1, -1):
        given = (inputs[0] * sign, *inputs[1:])
        expected = model(*given)
        for (found,) in (graph.run(*given), graph.program.run(*given)):
            assert (found - expected).abs().max() <= 1e-6 * expected.abs().max()
    with pytest.raises(stepwell.StepwellError, match=r"controlflow|64-bit"):
        stepwell.lower(exported, "tosa-1.1+fp")


def test_each_method_is_a_file_and_runs() -> None:
    x = torch.randn(3, 4)
    exported = {name: export(Of(f), (x,)) for name, f in
                {"double": lambda x: x + x, "square": lambda x: x * x}.items()}  # fmt: skip
    graph = stepwell.lower(exported, "tosa-1.0+fp")
    assert torch.equal(graph.run(x, method="double")[0], x + x)
    assert torch.equal(graph.run(x, method="square")[0], x * x)
    assert graph.to_tosa(method="double") != graph.to_tosa(method="square")


def test_each_of_several_inputs_of_one_name_has_its_own_range() -> None:
    inputs = torch.tensor([[1, 2]]), torch.tensor([[70_000], [-70_000]])
    source = stepwell.from_exported_program(exported(torch.mul, *inputs))
    first, second = (port.name for port in get_signature(source.method()).inputs)
    ranges = {first: (0, 2), second: (-70_000, 70_000)}
    graph = stepwell.lower(source, "tosa-1.0+fp+int", ranges=ranges)
    assert torch.equal(graph.run(*inputs)[0], (inputs[0] * inputs[1]).int())
    wider = {first: (0, 70_000), second: (-70_000, 70_000)}
    with pytest.raises(stepwell.StepwellError, match="4900000000"):
        stepwell.lower(source, "tosa-1.0+fp+int", ranges=wider)


def test_a_branch_holds_the_constants_that_it_reads() -> None:
    """A product outside a branch, and one inside: both read TOSA's constant of no shift."""

    def on_both_sides(n: Tensor, x: Tensor) -> Tensor:
        return torch.cond(n.sum() % 3 == 0, lambda p: p * 2 + 1, lambda p: p - 1, (x * x,))

    x, target = torch.randn(3, 4), "tosa-1.1+fp+controlflow+int64"
    lowered = lower(on_both_sides, torch.tensor([1]), x, target=target)
    for n in (0, 1, 3):
        for program in (lowered, lowered.program):
            assert_as_eager(program, on_both_sides, torch.tensor([n]), x, **EXACT)
