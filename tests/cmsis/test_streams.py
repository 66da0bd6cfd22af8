"""Image ops row by row: the same bits, each row computed once, in the bytes that were asked for."""

import importlib
import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from xdsl.ir import Operation

import stepwell
from stepwell.backends.cortex_m.emit import to_pte
from stepwell.dialects.cmsis.target import target
from stepwell.ir.program import Program
from stepwell.translate.memory.rows import Image, RowChain, RowOp, schedule
from stepwell.translate.rewrites.cmsis.layout.stream_rows import images, segment_of, write_stream

from .conftest import Net, conv
from .test_memory import arena

CPU = "cortex-m4"


class Residual(nn.Module):
    """Every kind of op that runs row by row, around a residual."""

    def __init__(self, kernel: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        reach = (kernel - 1) * dilation
        self.stem = nn.Conv2d(3, 4, kernel, stride, reach // 2, dilation)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.point = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = torch.sigmoid(self.depthwise(x)) * x + self.point(x)
        return nn.functional.max_pool2d(y, 2)


def lowered(quantized: Any, module: nn.Module, *shape: int) -> Program:
    x = torch.randn(shape).to(memory_format=torch.channels_last)
    exported = quantized(module.to(memory_format=torch.channels_last), (x,))
    return stepwell.lower(exported, CPU, io="int8").program


def drawn(*shape: int) -> Tensor:
    x = torch.randint(-128, 128, shape, dtype=torch.int8)
    return x.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "height"),
    [(3, 1, 1, 3), (3, 2, 1, 2), (5, 2, 1, 1), (3, 1, 2, 4)],
)
@pytest.mark.parametrize("upwards", [False, True])
def test_rows_in_any_order_and_height_give_the_same_bits(
    quantized: Any, kernel: int, stride: int, dilation: int, height: int, upwards: bool
) -> None:
    shape = (1, 3, 21, 10)
    program = lowered(quantized, Residual(kernel, stride, dilation), *shape)
    x = drawn(*shape)
    ops = [op for op in program.method().body.block.ops if images(op)]
    assert len(ops) == 7
    assert_rows_give_the_same_bits(program, ops, x, height, upwards)


def assert_rows_give_the_same_bits(
    program: Program, ops: list[Operation], x: Tensor, height: int, upwards: bool
) -> None:
    """Some ops row by row: interpreted, through the bytes, and through the text."""
    (wanted,) = program.run(x)
    segment = segment_of(ops)
    assert segment is not None
    write_stream(segment, schedule(segment.stream, height, upwards=upwards), target(CPU))
    program.verify()
    assert torch.equal(program.run(x)[0], wanted)
    assert torch.equal(stepwell.read_pte(to_pte(program)).run(x)[0], wanted)
    assert torch.equal(stepwell.parse(str(program), weights=program.weights).run(x)[0], wanted)


class Skip(nn.Module):
    """A U-Net's way up: rows come two for one, and stand beside the skip's channels."""

    def __init__(self, outputs: int = 4) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, padding=1)
        self.bottom = nn.Conv2d(4, 6, 3, padding=1)
        self.up = nn.ConvTranspose2d(6, 4, 2, 2)
        self.merge = nn.Conv2d(8, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.relu(self.down(x))
        y = torch.relu(self.bottom(nn.functional.max_pool2d(skip, 2)))
        return self.merge(torch.cat([self.up(y), skip], 1))


@pytest.mark.parametrize(
    ("height", "first", "upwards"),
    [
        (height, first, (i + j) % 2 == 0)
        for i, height in enumerate([1, 2, 3, 5])
        for j, first in enumerate([0, 2, 3])
    ],
)
def test_rows_through_a_skip_give_the_same_bits(
    quantized: Any, height: int, first: int, upwards: bool
) -> None:
    program = lowered(quantized, Skip(), 1, 3, 16, 6)
    x = drawn(1, 3, 16, 6)
    ops = [op for op in program.method().body.block.ops if images(op)]
    assert [op.name.split(".")[1] for op in ops[3:]] == [
        "quantized_transpose_conv2d_nhwc", "cat", "quantized_conv2d_nhwc",
    ]  # fmt: skip
    assert_rows_give_the_same_bits(program, ops[first:], x, height, upwards)


def test_a_transposed_layer_whose_windows_overlap_has_no_rows(quantized: Any) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(4, 4, 3, 2))
    program = lowered(quantized, module, 1, 3, 8, 6)
    ops = program.method().body.block.ops
    assert [bool(images(op)) for op in ops if "conv2d" in op.name] == [True, False]


def test_a_concatenation_of_rows_is_no_concatenation_of_channels(quantized: Any) -> None:
    below = Net(lambda s, x: torch.cat([s.layer(x), s.layer(-x)], 2), layer=conv(3, 4, 1))
    program = lowered(quantized, below, 1, 3, 8, 6)
    cats = [op for op in program.method().walk() if op.name == "aten.cat.default"]
    assert cats and not any(map(images, cats))


def test_a_unet_needs_its_busiest_layers_rows(quantized: Any) -> None:
    """73 728 bytes are the last concatenation and its operands, layer by layer."""
    module, inputs = importlib.import_module("microcontrollers").unet()
    x = inputs[0].contiguous(memory_format=torch.channels_last)
    module = module.to(memory_format=torch.channels_last)
    exported = quantized(module, (x,), calibrations=0)
    whole = stepwell.lower(exported, CPU, io="int8")
    less = stepwell.lower(exported, CPU, io="int8", arena=36 * 1024)
    data = less.to_pte()
    assert arena(whole.to_pte()) == 73_728 and arena(data) <= 36 * 1024
    x = drawn(1, 3, 48, 48)
    (wanted,) = whole.program.run(x)
    assert torch.equal(less.program.run(x)[0], wanted)
    assert torch.equal(stepwell.read_pte(data).run(x)[0], wanted)


def test_no_row_is_computed_twice() -> None:
    drawing = random.Random(0)
    for _ in range(40):
        ops: list[RowOp] = []
        shapes = {0: Image(drawing.randrange(8, 40), 1)}
        for index in range(drawing.randrange(1, 6)):
            reach, stride = drawing.choice([(1, 1), (3, 1), (3, 2), (5, 1), (5, 2)])
            op = RowOp((index,), index + 1, reach, stride, drawing.randrange(reach))
            rows = (shapes[index].rows + 2 * op.padding - reach) // stride + 1
            if rows < 2:
                break
            ops.append(op)
            shapes[index + 1] = Image(rows, 1)
        if not ops:
            continue
        stream = RowChain(tuple(ops), shapes, (0,), len(ops))
        for upwards in (False, True):
            calls = schedule(stream, drawing.randrange(1, 5), upwards=upwards)
            there: dict[int, tuple[int, int]] = {0: (0, shapes[0].rows)}
            seen: dict[int, list[int]] = {}
            for call in calls:
                op = stream.ops[call.op]
                low, high = there[op.inputs[0]]
                assert low <= call.reads[0][0] < call.reads[0][1] <= high
                if call.kept is not None:
                    held = there[op.output]
                    assert held[0] <= call.kept[0] < call.kept[1] <= held[1]
                there[op.output] = call.window
                seen.setdefault(op.output, []).extend(range(*call.rows))
            rows = range(shapes[stream.output].rows)
            assert sorted(seen[stream.output]) == list(rows)
            assert all(len(set(found)) == len(found) for found in seen.values())


def test_a_layer_takes_over_the_rows_of_its_operand(quantized: Any) -> None:
    """Two layers of 25 rows of 320 bytes: 25 rows, a tile and its halo instead of 50 rows."""
    module, inputs = importlib.import_module("tiny").ds_cnn()
    exported = quantized(module, inputs, calibrations=0)
    whole = arena(stepwell.lower(exported, CPU, io="int8").to_pte())
    wanted = stepwell.lower(exported, CPU, io="int8", arena=9600)
    program = wanted.program
    assert whole == 16000 and arena(wanted.to_pte()) <= 9600
    x = torch.randint(-128, 128, (1, 1, 49, 10), dtype=torch.int8)
    (reference,) = stepwell.lower(exported, CPU, io="int8").program.run(x)
    assert torch.equal(program.run(x)[0], reference)
    assert torch.equal(wanted.run(x)[0], reference)


def test_a_limit_that_no_plan_meets_names_the_smallest(quantized: Any) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 1))
    x = torch.randn(1, 3, 12, 12).to(memory_format=torch.channels_last)
    exported = quantized(module.to(memory_format=torch.channels_last), (x,))
    with pytest.raises(
        stepwell.StepwellError, match=r"no plan of 64 bytes.*the smallest has"
    ) as no:
        stepwell.lower(exported, CPU, io="int8", arena=64)
    least = int(str(no.value).split("the smallest has ")[1].split()[0])
    assert arena(stepwell.lower(exported, CPU, io="int8", arena=least).to_pte()) <= least


def test_less_memory_is_never_more(quantized: Any) -> None:
    for module, shape in ((Residual(3, 1), (1, 3, 16, 16)), (Residual(5, 2), (1, 3, 24, 9))):
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        exported = quantized(module.to(memory_format=torch.channels_last), (x,))
        sizes = [
            arena(stepwell.lower(exported, "cortex-m55", io="int8", **options).to_pte())
            for options in ({"optimize": "memory"}, {})
        ]
        assert all(less <= more for less, more in pairwise(sizes))


PLACES = {
    "%p = cmsis.part(%x) {axis = 2 : i64, start = 0 : i64} : "
    "(tensor<1x4x3x2xi8>) -> tensor<1x4x2x2xi8>": "axis 2 .* is not its outermost",
    "%p = cmsis.part(%x) {axis = 1 : i64, start = 3 : i64} : "
    "(tensor<1x4x3x2xi8>) -> tensor<1x2x3x2xi8>": "slices 3:5 of 4",
    "%p = cmsis.join(%x, %x) {axis = 1 : i64} : "
    "(tensor<1x4x3x2xi8>, tensor<1x4x3x2xi8>) -> tensor<1x8x3x2xi8>": "not the result of a kernel",
    "%c = cmsis.copy(%x) : (tensor<1x4x3x2xi8>) -> tensor<1x4x3x2xi8>\n"
    "%p = cmsis.join(%c, %c) {axis = 1 : i64} : "
    "(tensor<1x4x3x2xi8>, tensor<1x4x3x2xi8>) -> tensor<1x8x3x2xi8>": "be in several buffers",
    "%p = cmsis.copy(%x) : (tensor<1x4x3x2xi8>) -> tensor<1x2x6x2xi8>": "becomes",
}


@pytest.mark.parametrize("line", PLACES)
def test_places_that_cannot_be_are_refused(line: str) -> None:
    made = line.rsplit("-> ", 1)[1]
    text = (
        'builtin.module attributes {stepwell.level = "cmsis"} {\n'
        f"func.func @forward(%x: tensor<1x4x3x2xi8>) -> {made} {{\n{line}\n"
        f"func.return %p : {made}\n}}\n}}"
    )
    with pytest.raises(stepwell.VerificationError, match=PLACES[line]):
        stepwell.parse(text).verify()
