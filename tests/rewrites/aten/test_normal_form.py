"""The normal forms together, on whole models: what remains, that it is right, and what it costs."""

import re
from functools import cache
from typing import Any

import pytest
import torch

from deit import deit_small_depth2
from gpt2 import gpt2_2layers
from llama import llama_block
from mobilenet import mobilenet_v3_small
from random_weights import random_input, randomize
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM, FOLD_WEIGHTS
from stepwell.translate.importer.from_torch import from_exported_program
from swin import Swin
from transformer import transformer_encoder_2layers


def swin_2stages() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Everything that Swin-Tiny has, in a third of its blocks."""
    return randomize(Swin(24, (2, 2), (2, 4), 10)), (random_input(1, 3, 224, 224),)


MODELS = {
    maker.__name__: maker
    for maker in (
        deit_small_depth2,
        gpt2_2layers,
        llama_block,
        mobilenet_v3_small,
        swin_2stages,
        transformer_encoder_2layers,
    )
}

REMAINING = frozenset(
    """
    aten._softmax.default aten.add.Scalar aten.add.Tensor aten.bmm.default aten.cat.default
    aten.clamp.default aten.convolution.default aten.div.Scalar aten.embedding.default
    aten.expand.default aten.gelu.default aten.hardswish.default aten.layer_norm.default
    aten.linear.default aten.mean.dim aten.mul.Scalar aten.mul.Tensor aten.neg.default
    aten.permute.default aten.rsqrt.default aten.scaled_dot_product_attention.default
    aten.sigmoid.default aten.slice.Tensor aten.view.default
    """.split()
)
"""Every operator that the models below hold in normal form."""


@cache
def imported(name: str, decomposed: bool) -> tuple[Program, tuple[Any, ...]]:
    """A model and its inputs; clone what you change."""
    module, inputs = MODELS[name]()
    exported = torch.export.export(module.eval(), inputs)
    return from_exported_program(exported.run_decompositions() if decomposed else exported), inputs


@cache
def normalized(name: str, decomposed: bool) -> Program:
    program, history = imported(name, decomposed)[0].clone(), History()
    for rewrites in (CANONICAL_FORM, FOLD_WEIGHTS, CANONICAL_FORM, FOLD_WEIGHTS, CANONICAL_FORM):
        run_rewrites(program, rewrites, history)
    RemoveDeadCode().apply(program, history)
    return program


DECOMPOSED = ("deit_small_depth2", "llama_block", "mobilenet_v3_small", "swin_2stages")
"""Models that hold all operators of the others when they are taken apart, but for an embedding."""


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        pytest.param(
            name,
            whole,
            marks=[pytest.mark.slow] * ((whole and name in DECOMPOSED) or name == "swin_2stages"),
        )
        for name, whole in (
            *((name, True) for name in MODELS),
            *((name, False) for name in DECOMPOSED),
        )
    ],
)
def test_a_model_in_normal_form_computes_what_it_did(name: str, whole: bool):
    source, inputs = imported(name, not whole)
    program = normalized(name, not whole)
    program.verify()
    for one, other in zip(source.run(*inputs), program.run(*inputs), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5 * float(one.abs().max()))
    names = {op.name for op in program.module.walk() if op.name.startswith("aten.")}
    assert names <= REMAINING, names - REMAINING


@pytest.mark.parametrize("name", ["deit_small_depth2", "mobilenet_v3_small"])
def test_nothing_is_left_to_do_after_the_normal_form(name: str):
    program = normalized(name, decomposed=True).clone()
    assert run_rewrites(program, (*CANONICAL_FORM, *FOLD_WEIGHTS)) == 0


def test_normal_forms_touch_no_weight():
    program = imported("gpt2_2layers", decomposed=False)[0].clone()
    before = program.weights.counts.evaluated
    run_rewrites(program, CANONICAL_FORM)
    assert program.weights.counts.evaluated == before


def chain(length: int, *links: str) -> str:
    """`links` make `%v` of `%v`, so many times, between two negations."""
    lines = ["%v0 = aten.neg.default(%x: f32[4, 6])"]
    for i in range(length):
        body = "; ".join(links).replace("%v =", f"%v{i + 1} =").replace("%v,", f"%v{i},")
        lines.append(re.sub(r"%([a-d])\b", rf"%\g<1>{i}", body))
    return "\n".join((*lines, f"%y = aten.neg.default(%v{length})"))


def test_the_work_grows_with_the_program_and_no_faster(apply: Any):
    links = (
        "%a = aten.transpose.int(%v, 0, 1); %b = aten.relu.default(%a)",
        "%c = aten.unsqueeze.default(%b, 0); %d = aten.silu.default(%c)",
        "%v = aten.reshape.default(%d, [4, 6])",
    )
    visits = [
        apply(chain(length, *links), *CANONICAL_FORM).history.visits / length for length in (20, 80)
    ]
    assert visits[1] < 1.05 * visits[0]


def test_long_chains_of_layout_ops_collapse_in_linear_work(apply: Any):
    links = (
        "%a = aten.transpose.int(%v, 0, 1); %b = aten.clone.default(%a)",
        "%v = aten.t.default(%b)",
    )
    short, long = (apply(chain(length, *links), *CANONICAL_FORM) for length in (20, 80))
    assert long.ops() == ["aten.neg.default", "aten.neg.default"]
    assert long.history.visits < 4.2 * short.history.visits
