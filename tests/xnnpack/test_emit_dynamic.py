"""Delegates of dynamic shapes on the runtime: one program, several sizes."""

from typing import Any

import pytest
import torch
from dialect_building import Writer, per_channel
from eager import Function, assert_as_eager_within, assert_whole, lower
from torch import nn
from torch.export import Dim as Open
from torch.nn import functional
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

import stepwell.dialects.xnnpack as xnn
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.xnnpack.pte import to_pte
from stepwell.dialects.xnnpack.elementwise import Gelu, Softmax
from stepwell.ir.diagnostics import InputMismatch
from stepwell.ir.dtypes import f32
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.types import Dim, tensor

MOST = 12
WEIGHT = torch.randn(6, 8)
FILTER = torch.randn(4, 3, 3, 6)
STORED = torch.randint(-128, 128, (6, 8), dtype=torch.int8)
ROW: tuple[Dim, ...] = ("s0", 8)
IMAGE: tuple[Dim, ...] = ("s0", 9, 9, 6)

NODES: tuple[tuple[str, tuple[tuple[Dim, ...], ...], Any], ...] = (
    ("gelu", (ROW,), lambda w, x: Gelu.make(x)),
    ("softmax", (ROW,), lambda w, x: Softmax.make(x)),
    ("softmax over the dynamic axis", ((8, "s0"),), lambda w, x: Softmax.make(x)),
    ("add", (ROW, (8,)), lambda w, x, y: xnn.Add.make(x, y)),
    ("add of columns", (ROW, ("s0", 1)), lambda w, x, y: xnn.Add.make(x, y)),
    ("linear", (ROW,), lambda w, x: xnn.FullyConnected.make(x, w.weight(WEIGHT))),
    (
        "int8 linear",
        (ROW,),
        lambda w, x: xnn.FullyConnected.make(
            w.dynamic(x), w.weight(STORED, per_channel(8, [0.01] * 6)), element=f32
        ),
    ),
    (
        "scores",
        ((2, "s0", 8), (2, "s0", 8)),
        lambda w, x, y: xnn.BatchMatrixMultiply.make(x, y, transpose_b=True),
    ),
    (
        "product over the dynamic axis",
        ((2, 8, "s0"), (2, "s0", 8)),
        lambda w, x, y: xnn.BatchMatrixMultiply.make(x, y),
    ),
    ("transpose", (("s0", 2, 4),), lambda w, x: xnn.StaticTranspose.make(x, perm=[2, 0, 1])),
    (
        "reshape",
        (("s0", 2, 4),),
        lambda w, x: xnn.StaticReshape.make(x, new_shape=[0, 8], result=tensor(ROW, f32)),
    ),
    ("slice", (ROW,), lambda w, x: xnn.StaticSlice.make(x, offsets=[0, 2], sizes=[0, 3])),
    (
        "pad",
        (ROW,),
        lambda w, x: xnn.StaticConstantPad.make(
            x, pre_paddings=[0, 1], post_paddings=[0, 2], padding_value=0.5
        ),
    ),
    ("concatenate", (ROW, ROW), lambda w, x, y: xnn.Concatenate2.make(x, y, axis=1)),
    ("convolution", (IMAGE,), lambda w, x: xnn.Convolution2d.make(x, w.weight(FILTER))),
    ("pooling", (IMAGE,), lambda w, x: xnn.MaxPooling2d.make(x, kernel=[2, 2])),
    ("mean", (IMAGE,), lambda w, x: xnn.GlobalAveragePooling2d.make(x)),
    ("resize", (IMAGE,), lambda w, x: xnn.StaticResizeBilinear2d.make(x, new_size=[4, 5])),
)


def program(shapes: tuple[tuple[Dim, ...], ...], make: Any) -> Program:
    types = [tensor(shape, f32) for shape in shapes]
    writer = Writer([])
    writer.block = Block(arg_types=types)
    made: SSAValue = writer(make(writer, *writer.block.args))
    method = FuncOp("forward", (types, [made.type]), Region(Block(arg_types=types)))
    block = method.body.block
    delegate = writer.finish([made])
    inner = xnn.DelegateOp.create(
        operands=list(block.args), result_types=[made.type], regions=[delegate.detach_region(0)]
    )
    block.add_ops([inner, ReturnOp(*inner.results)])
    ports = tuple(Port(f"x{index}") for index in range(len(types)))
    set_signature(method, Signature(ports, (Port("y"),), ranges={"s0": (1, MOST)}))
    module = ModuleOp([method])
    set_level(module, "xnnpack")
    result = Program(module, writer.weights)
    result.verify()
    return result


@pytest.mark.parametrize(("shapes", "make"), [n[1:] for n in NODES], ids=[n[0] for n in NODES])
def test_one_program_runs_at_every_size(shapes: Any, make: Any) -> None:
    lowered = program(shapes, make)
    session = PteSession.load(to_pte(lowered))
    for size in (MOST, 1, 5, 11):
        sizes = [[size if dim == "s0" else dim for dim in shape] for shape in shapes]
        inputs = [torch.randn(shape) for shape in sizes]
        (got,) = session.run(*inputs)
        (want,) = lowered.run(*inputs)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_a_size_past_its_bound_is_refused() -> None:
    session = PteSession.load(to_pte(program(*NODES[0][1:])))
    with pytest.raises(InputMismatch, match="may be at most 12"):
        session.run(torch.randn(MOST + 1, 8))


@pytest.mark.parametrize("cells", [nn.LSTM, nn.GRU])
def test_a_recurrence_of_any_batch_is_one_delegate(cells: type[nn.RNNBase]) -> None:
    model, dynamic = cells(6, 5, batch_first=True), {0: Open("batch", min=1, max=4)}
    lowered = lower(model, torch.randn(2, 3, 6), dynamic=dynamic)
    assert_whole(lowered)
    assert_as_eager_within(lowered, model, (2, 3, 6), dynamic, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_frames_of_a_recurrence_of_bfloat16_are_cast_at_once() -> None:
    cells = nn.GRU(4, 6, 2, batch_first=True)
    net = Function(lambda x, cells: cells(x)[0][:, -1], cells).bfloat16()
    given = torch.randn(1, 5, 4).bfloat16()
    lowered = lower(net, given)
    assert lowered.report.delegates == 1
    assert not lowered.report.outside
    assert (lowered.run(given)[0] - net(given)).abs().max() < 2**-6


def segmenter(image: torch.Tensor, *layers: nn.Module) -> torch.Tensor:
    """An image to rows, attention of two heads to a reduced image, back, and resized."""
    split, reduce, norm, q, kv, mix = layers
    patches = split(image)
    rows = patches.flatten(2).transpose(1, 2)
    heads = q(norm(rows)).unflatten(-1, (2, 4)).transpose(1, 2)
    reduced = reduce(patches).flatten(2).transpose(1, 2)
    keys, values = kv(reduced).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
    seen = functional.scaled_dot_product_attention(heads, keys, values)
    rows = rows + seen.transpose(1, 2).flatten(2)
    mixed = mix(rows.transpose(1, 2).unflatten(2, patches.shape[2:]))
    return functional.interpolate(mixed, image.shape[2:], mode="bilinear")


def test_an_image_of_any_size_stays_in_one_delegate() -> None:
    layers = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 2, 2), nn.LayerNorm(8), nn.Linear(8, 8)
    mixing = nn.Linear(8, 16), nn.Conv2d(8, 8, 3, padding=1, groups=8)
    model, shape = Function(segmenter, *layers, *mixing), (1, 3, 24, 40)
    dynamic = {axis: 8 * Open(f"size{axis}", min=2, max=8) for axis in (2, 3)}
    lowered = lower(model, torch.randn(shape), dynamic=dynamic, numerics="finite")
    assert lowered.report.delegates == 1
    integers = {"aten.sym_size.int", "sym.floordiv", "sym.mul", "aten.arange.default"}
    assert set(lowered.report.outside) <= {*integers, "aten.slice.Tensor"}
    assert_as_eager_within(lowered, model, shape, dynamic, rtol=1e-4, atol=1e-4)
