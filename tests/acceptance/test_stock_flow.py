"""Our rewrites inside ExecuTorch's own flow: `to_edge_transform_and_lower(transform_passes=…)`."""

import logging
from typing import Any

import pytest
import torch
from eager import Function
from executorch.exir import to_edge
from torch.export import export
from torch.nn import functional as F

import stepwell
from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.reading.read import read_container
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Rewrite, Rewriter


def attending(x: torch.Tensor, qkv: torch.nn.Module) -> torch.Tensor:
    """One small attention."""
    q, k, v = qkv(x).view(1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v) * 0.5


def test_scalar_lifting_leaves_the_stock_flow_no_scalar_multiplication() -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    logging.disable(logging.WARNING)
    module, inputs = Function(attending, torch.nn.Linear(8, 24)).eval(), (torch.randn(1, 4, 8),)
    edge = to_edge_transform_and_lower(
        export(module, inputs),
        transform_passes=[stepwell.transform_pass("lift-constant-scalar")],
        partitioner=[XnnpackPartitioner()],
    )
    logging.disable(logging.NOTSET)
    data = edge.to_executorch().buffer
    (method,) = read_container(bytearray(data)).methods
    kernels = [step.kernel for step in method.instructions if isinstance(step, KernelCall)]
    assert not [name for name in kernels if "mul" in name or "full.out" in name]
    torch.testing.assert_close(
        stepwell.run_pte(data, inputs)[0], module(*inputs), rtol=1e-5, atol=1e-6
    )


def test_a_pass_with_nothing_to_do_gives_the_program_itself() -> None:
    exported = export(torch.nn.ReLU(), (torch.randn(3),))
    done = stepwell.transform_pass("lift-constant-scalar").call(exported)
    assert not done.modified
    assert done.exported_program is exported


def test_an_unknown_rewrite_or_option_is_named() -> None:
    with pytest.raises(stepwell.StepwellError, match="rewrite 'lift' is unknown"):
        stepwell.transform_pass("lift")
    with pytest.raises(stepwell.StepwellError, match="protect"):
        stepwell.transform_pass("lift-constant-scalar", protect=True)


@pytest.mark.parametrize(
    "name", ["expand-attention", "lower-linear", "lower-binary", "finish-tosa"]
)
def test_a_rewrite_whose_results_edge_programs_have_not_is_refused_by_name(name: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=rf"^{name} creates (.|\n)*remove-noop-expand"):
        stepwell.transform_pass(name)


def test_an_operator_that_the_edge_dialect_has_not_is_named_after_the_rewrite() -> None:
    """A rule's text may hold names alone: then what it made is looked at."""

    class ToSilu(Rewrite[Any]):
        name = "to-silu"
        anchors = (op_class("aten.relu.default"),)
        bound = EXACT

        def match(self, op: Any, program: Program) -> Any:
            return op

        def build(self, match: Any, rw: Rewriter) -> None:
            rw.replace(
                match, rw.insert(op_class("aten.silu.default").make(match.operands[0])).results
            )

    edge = to_edge(export(torch.nn.ReLU(), (torch.randn(3),))).exported_program()
    with pytest.raises(stepwell.StepwellError, match=r"aten\.silu\.default, which edge"):
        stepwell.transform_pass(ToSilu()).call(edge)
