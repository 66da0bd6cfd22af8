"""What an import keeps that no computation shows, and the true reason of a refusal."""

import pytest
import torch
from eager import exported
from torch import Tensor, nn

import stepwell
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.diagnostics import StepwellError


def test_frozen_parameters_stay_frozen_on_the_way_back() -> None:
    module = nn.Linear(3, 3).eval()
    module.weight.requires_grad_(False)
    exported = torch.export.export(module, (torch.randn(2, 3),))
    again = stepwell.from_exported_program(exported).to_exported_program()
    asks = {name: tensor.requires_grad for name, tensor in again.state_dict.items()}
    assert asks == {"weight": False, "bias": True}


@pytest.mark.parametrize("name", ["aten._fused_adam.default", "aten._fused_adam.tensor_lr"])
def test_an_operator_of_several_lists_is_refused_in_words(name: str) -> None:
    with pytest.raises(StepwellError, match="several lists of tensors"):
        op_class(name)


def test_example_inputs_come_back_where_the_source_had_them() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, *, by: torch.Tensor) -> torch.Tensor:
            return x * by

    x, by = torch.randn(2, 3), torch.ones(3)
    exported = torch.export.export(Scaled(), (x,), {"by": by})
    program = stepwell.from_exported_program(exported)
    args, kwargs = program.clone().to_exported_program().example_inputs
    assert args[0] is x and kwargs["by"] is by
    text_alone = stepwell.parse(str(program), program.weights)
    assert text_alone.to_exported_program().example_inputs is None


def _reading(weight: Tensor) -> stepwell.Program:
    module = nn.Module()
    module.register_buffer("weight", weight)
    module.forward = lambda x: torch.mm(module.weight, x)  # type: ignore[method-assign]
    return stepwell.from_exported_program(torch.export.export(module, (torch.randn(3, 3),)))


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_a_weight_that_is_not_dense_is_refused_with_what_to_do(layout: str) -> None:
    weight = torch.eye(3).to_sparse(layout=getattr(torch, layout))
    with pytest.raises(StepwellError, match=rf'(?s)"weight" has layout {layout}.*to_dense'):
        _reading(weight)


def test_a_weight_that_wraps_others_is_refused_with_what_to_do() -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(32, 32))
    quantize_(model, Int8WeightOnlyConfig())
    exported = torch.export.export(model, (torch.randn(1, 32),))
    with pytest.raises(StepwellError, match=r"(?s)wraps other tensors.*unwrap_tensor_subclass"):
        stepwell.from_exported_program(exported)


def test_a_negation_that_torch_only_noted_is_carried_out() -> None:
    weight, x = torch.randn(3, 3), torch.randn(3, 3)
    program = _reading(torch._neg_view(weight))
    torch.testing.assert_close(program.run(x)[0], torch.mm(-weight, x))
    assert not program.weights.get("weight").is_neg()


def test_a_view_of_numbers_that_lie_otherwise_comes_back_as_a_reshape() -> None:
    text = """
    func.func @forward(%x: tensor<9x3xf32>, %y: tensor<3x9xf32>) -> (tensor<27xf32>, tensor<27xf32>)
        attributes {stepwell.inputs = [{name = "x", dim_order = array<i64: 1, 0>}, {name = "y"}]} {
      %a = aten.view.default(%x, [27]) : (tensor<9x3xf32>) -> tensor<27xf32>
      %b = aten.view.default(%y, [27]) : (tensor<3x9xf32>) -> tensor<27xf32>
      func.return %a, %b : tensor<27xf32>, tensor<27xf32>
    }"""
    again = stepwell.parse(text).to_exported_program()
    y = torch.arange(27.0).view(3, 9)
    assert torch.equal(again.module()(y.T, y)[0], y.T.reshape(27))
    called = [str(n.target) for n in again.graph.nodes if n.op == "call_function"]
    assert called == ["aten.reshape.default", "aten.view.default"]


def test_a_size_that_a_call_decides_is_not_fixed_on_the_way_back() -> None:
    def resized(x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, size=(7,), mode="linear", align_corners=True)

    batch = {0: torch.export.Dim("batch", min=2, max=32)}
    program = exported(resized, torch.randn(5, 6, 9), dynamic=batch)
    again = stepwell.from_exported_program(program).to_exported_program().module()
    for count in (2, 5, 32):
        x = torch.randn(count, 6, 9)
        assert torch.equal(again(x), resized(x))
