"""Sizes are read from inputs and pinned, and assertions about them proved."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import EXACT, assert_as_eager, exported
from rewrite_cases import cases
from short_ir import program_text
from torch import nn
from torch.export import Dim

import stepwell
from stepwell.cli.main import main
from stepwell.ir.diagnostics import InputMismatch, StepwellError
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.ir.sizes.size_text import dim_of
from stepwell.ir.types import tensor
from stepwell.translate.rewrites.sizes.ask_inputs_for_sizes import AskInputsForSizes
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import PinSymbolicSizes
from stepwell.translate.rewrites.sizes.remove_proven_assert import RemoveProvenAssert
from stepwell.translate.rewrites.sizes.sizes import can_compute, share_of

test_ask_inputs_for_sizes = cases(AskInputsForSizes)("""
a size asked of an input -> unchanged
    %n = aten.sym_size.int(%x: f32[s, 4], 0); %y = aten.add.Tensor(%x, %n)
a size that is no share of an input's -> unchanged
    %z = aten.slice.Tensor(%x: f32[s, 4], 0, 1, 9223372036854775807, 1)
    %n = aten.sym_size.int(%z, 0); %y = aten.add.Tensor(%x, %n)
a multiple of an inputs size is computed from it -> applied once; writes sym.mul [#aten.dyn, 2; omits aten.cat
    %z = aten.cat.default([%x: f32[s, 4], %x], 0); %n = aten.sym_size.int(%z, 0)
    %y = aten.add.Tensor(%x, %n)
""")


@pytest.mark.parametrize(
    ("wanted", "given", "share"),
    [
        ("8*s", "32*s", Fraction(1, 4)),
        ("6*s*t", "4*s*t", Fraction(3, 2)),
        (12, 8, Fraction(3, 2)),
        ("s + 1", "s", None),
        ("2*s + 2", "4*s + 2", None),
        ("s", "t", None),
        ("?", "s", None),
    ],
)
def test_the_share_of_a_size_holds_whatever_the_symbols_are(
    wanted: int | str, given: int | str, share: Fraction | None
) -> None:
    assert share_of(dim_of(str(wanted)), dim_of(str(given))) == share


@pytest.mark.parametrize(
    ("wanted", "held", "inputs", "is_computed"),
    [
        ("8*s + 1", "32*s", (), True),
        ("s*t", "s", ("t",), True),
        ("s*t", "s", (), False),
        ("s + t", "s*t", (), False),
    ],
)
def test_a_size_is_computed_from_shares_of_what_is_at_hand_and_of_inputs(
    wanted: str, held: str, inputs: tuple[str, ...], is_computed: bool
) -> None:
    asked = frozenset(map(dim_of, inputs))
    assert can_compute(dim_of(wanted), [tensor([held, 2], f32)], asked) == is_computed


@pytest.mark.parametrize(
    ("stated", "reason"),
    [("none, none, f16", "fails at run time"), ("[2, 4]", "sizes"), ("none, [3, 1]", "strides")],
)
def test_an_assertion_that_the_type_does_not_prove_stays(stated: str, reason: str):
    text = f"aten._assert_tensor_metadata.default(%x: f32[2, 3], {stated}) -> (); return %x"
    history = History()
    assert run_rewrites(Program(program_text(text)), [RemoveProvenAssert()], history) == 0
    assert [reason in record.reason for record in history.refusals.values()] == [True]


def sized(x: torch.Tensor, n: int) -> tuple[Any, ...]:
    """Sizes in views, in numbers, in constants made at run time, in a result that is a number."""
    batch = x.shape[0]
    rows = x.view(batch * 2, -1) + torch.arange(batch * 2)[:, None]
    return rows * n, batch * 3, torch.full((n, batch), 2.0)


@pytest.fixture(scope="module")
def of_two_sizes() -> Any:
    sizes: Any = ({0: Dim("batch", min=1, max=8)}, Dim.DYNAMIC)
    return exported(sized, torch.randn(4, 12), 5, dynamic=sizes)  # type: ignore[arg-type]


@pytest.fixture
def program(of_two_sizes: Any) -> stepwell.Program:
    return stepwell.from_exported_program(of_two_sizes)


def pin(program: stepwell.Program, sizes: Any) -> stepwell.Program:
    PinSymbolicSizes.of(sizes).apply(program, History())
    program.verify()
    return program


def symbols(program: stepwell.Program) -> list[str]:
    return list(program.signature().ranges)


def assert_as_model(program: stepwell.Program, x: torch.Tensor, n: int) -> None:
    found, wanted = program.run(x, n), sized(x, n)
    assert torch.equal(found[0], wanted[0]) and torch.equal(found[2], wanted[2])
    assert found[1] == wanted[1]


def test_a_pinned_program_holds_no_symbol_and_computes_what_the_model_does(
    program: stepwell.Program,
) -> None:
    batch, number = symbols(program)
    pin(program, {batch: 3, number: 7})
    assert "stepwell.shape" not in str(program) and "sym." not in str(program)
    assert_as_model(program, torch.randn(3, 12), 7)


def test_another_size_is_an_error(program: stepwell.Program) -> None:
    batch, number = symbols(program)
    pin(program, {batch: 3, number: 7})
    with pytest.raises(InputMismatch, match="dimension 0 is 4, must be 3"):
        program.run(torch.randn(4, 12), 7)
    with pytest.raises(InputMismatch, match="exported with 7 here, not 5"):
        program.run(torch.randn(3, 12), 5)


def test_symbols_that_are_not_named_stay(program: stepwell.Program) -> None:
    batch, number = symbols(program)
    pin(program, {batch: 3})
    assert symbols(program) == [number]
    for n in (2, 9):
        assert_as_model(program, torch.randn(3, 12), n)


@pytest.mark.parametrize(
    ("sizes", "fact"),
    [
        ("max", "has no upper bound"),
        (4, "2 symbolic sizes"),
        ({"s999": 4}, "no input has the symbolic size 's999'"),
        ("batch", "'batch' is no size"),
    ],
)
def test_a_size_that_is_not_clear_is_refused(
    program: stepwell.Program, sizes: Any, fact: str
) -> None:
    with pytest.raises(StepwellError, match=fact):
        pin(program, sizes)


def test_a_size_out_of_its_range_is_refused(program: stepwell.Program) -> None:
    with pytest.raises(StepwellError, match=r"size 9 is outside the range of s\d+ \(1 … 8\)"):
        pin(program, {symbols(program)[0]: 9})


def test_a_size_of_data_is_no_callers_to_choose() -> None:
    program = stepwell.from_exported_program(exported(lambda x: x[x > 0], torch.randn(8)))
    with pytest.raises(StepwellError, match="no input has the symbolic size 'u0'"):
        pin(program, {"u0": 4})


def test_an_assertion_about_data_stays() -> None:
    def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        first = n.item()
        torch._check(first < x.shape[0])
        return x + first

    sizes = ({0: Dim("batch", min=2, max=8)}, None)
    made = exported(checked, torch.randn(4, 3), torch.tensor(2), dynamic=sizes)
    program = pin(stepwell.from_exported_program(made), 5)
    x, n = torch.randn(5, 3), torch.tensor(3)
    assert_as_eager(program, checked, x, n, **EXACT)
    with pytest.raises(StepwellError, match="u0"):
        program.run(x, torch.tensor(5))


ASSERTING = """
func.func @forward(%x: tensor<?xf32, #stepwell.shape<["s0"]>>)
    -> tensor<?xf32, #stepwell.shape<["s0"]>> attributes {stepwell.ranges = ["2 <= s0 <= 9"]} {
  %n = aten.sym_size.int(%x, 0) : (tensor<?xf32, #stepwell.shape<["s0"]>>) -> !stepwell.int<"s0">
  %b = sym.ne [#aten.dyn, 5 : i64](%n) : (!stepwell.int<"s0">) -> !stepwell.bool<"Ne(s0, 5)">
  aten._assert_scalar.default(%b, "five is too odd")
    : (!stepwell.bool<"Ne(s0, 5)">) -> ()
  func.return %x : tensor<?xf32, #stepwell.shape<["s0"]>>
}
"""


def test_an_assertion_that_the_size_decides_goes_or_is_an_error() -> None:
    program = pin(stepwell.parse(ASSERTING), 4)
    assert [op.name for op in program.method().body.block.ops] == ["func.return"]
    with pytest.raises(StepwellError, match="s0 = 5: five is too odd"):
        pin(stepwell.parse(ASSERTING), 5)


def test_branches_take_pinned_shapes() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a + a.shape[0], lambda a: a * 2, (x,))

    made = exported(branches, torch.randn(4, 3), dynamic={0: Dim("batch", min=2, max=8)})
    program = pin(stepwell.from_exported_program(made), "max")
    assert "stepwell.shape" not in str(program)
    for x in (torch.ones(8, 3), -torch.ones(8, 3)):
        assert_as_eager(program, branches, x, **EXACT)


def mlp() -> Any:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 4))
    return exported(module, torch.randn(4, 12), dynamic={0: Dim("b", min=1, max=16)})


def test_the_runtime_itself_refuses_another_size() -> None:
    from executorch.runtime import Runtime

    model = mlp()
    data = stepwell.lower(model, "xnnpack", sizes=4).to_pte()
    method = Runtime.get().load_program(data).load_method("forward")
    assert method is not None
    x = torch.randn(4, 12)
    assert torch.allclose(method.execute([x])[0], model.module()(x), atol=1e-5)
    with pytest.raises(RuntimeError):
        method.execute([torch.randn(3, 12)])


def test_the_command_line_pins(tmp_path: Path) -> None:
    saved, written, text = tmp_path / "m.pt2", tmp_path / "m.pte", tmp_path / "m.mlir"
    torch.export.save(mlp(), saved)
    options = ["--sizes", "max", "-o", str(written), "--emit-ir", str(text)]
    assert main(["lower", str(saved), *options]) == 0
    assert "%input: tensor<16x12xf32>" in text.read_text()
    assert main(["run", str(written)]) == 0
