"""Plant a fault in an artifact, and ask `stepwell.validate` which operator is wrong.

    python tools/artifact_faults.py [TITLE …] [--keep FOLDER]

The artifact is a `.pte` of ExecuTorch's flow, made from a copy of the program that is wrong in one
place, or from the right one and changed in its bytes. An answer is right if it names the changed
node, or one that the flow fuses with it. The status is the number of faults that are not named.
"""

from __future__ import annotations

import argparse
import copy
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node

sys.path.insert(0, str(Path(__file__).parent))
from _artifacts import each_in_a_child, exported, kept, prepare, stock

from stepwell.backends.executorch.container import Container, KernelCall, Method
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.flatbuffer import Record
from stepwell.backends.flatbuffer_writer import write_root
from stepwell.backends.xnnpack.read import _root
from stepwell.backends.xnnpack.schema import schema, with_header
from stepwell.model_zoo.catalogue.models import find
from stepwell.validation.artifacts import validate

Change = Callable[[ExportedProgram, Node], None]
Hook = tuple[str, Callable[[Any], Any]]
"""A part of a module, and a function of its result."""
Edit = Callable[[bytes], bytes]
PRODUCTS = "conv1d conv2d conv_transpose1d conv_transpose2d linear lstm max".split()
AFTER = "batch_norm clamp getitem hardtanh quantize_per_tensor relu".split()
"""Operators, by their nodes' names, that a flow fuses with a product before them."""


class Smoothing(nn.Module):
    """A moving average of the inputs, and a layer."""

    def __init__(self, begin: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("average", torch.full((1, 8), begin))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        self.average.mul_(0.9).add_(x * 0.1)
        return self.layer(self.average)


class Streaming(nn.Module):
    """A convolution over the frames of a call and the last two of the call before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frames", torch.zeros(1, 4, 2))
        self.layer = nn.Conv1d(4, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.frames, x], 2)
        self.frames.copy_(x[:, :, -2:])
        return self.layer(x).relu()


OWN: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "smoothing": (Smoothing, torch.linspace(-1, 1, 8)[None]),
    "smoothing of ones": (lambda: Smoothing(1.0), torch.linspace(-1, 1, 8)[None]),
    "streaming": (Streaming, torch.linspace(-1, 1, 16).view(1, 4, 4)),
}


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        title: what is wrong.
        flow: the flow that writes the artifact.
        model: a name of the catalogue, or of `OWN`.
        node: the node that computes something else, in the source.
        change: how a copy of the program is changed.
        hook: what a part of the module returns instead.
        edit: how the bytes are changed.
        also: other nodes that are right answers.
        more: inputs of more calls, as the user's data.
    """

    title: str
    flow: str
    model: str
    node: str
    change: Change | None = None
    hook: Hook | None = None
    edit: Edit | None = None
    also: str = ""
    more: tuple[tuple[Tensor, ...], ...] = ()

    def accepted(self, source: ExportedProgram) -> set[str]:
        """Return the names of nodes that are right answers: the changed one, and fused ones."""
        names, pending = {*self.also.split()}, [named(source, self.node)]
        while pending:
            node = pending.pop()
            names.add(node.name)
            near = [user for user in node.users if kind(user) in AFTER and len(node.users) == 1]
            if kind(node).startswith("dequantize"):
                near = [user for user in node.users if kind(user) in PRODUCTS]
            if kind(node) in AFTER:
                near += [each for each in node.all_input_nodes if kind(each) in PRODUCTS + AFTER]
            pending += [one for one in near if one.name not in names]
        return names


def kind(node: Node) -> str:
    """Return a node's name without its number."""
    return node.name.rstrip("_0123456789")


def named(program: ExportedProgram, name: str) -> Node:
    """Return the node of a name."""
    return next(node for node in program.graph.nodes if node.name == name)


def argument(at: int, *values: Any) -> Change:
    """Give a node other arguments from a place on."""

    def change(_: ExportedProgram, node: Node) -> None:
        target: Any = node.target
        defaults = [each.default_value for each in target._schema.arguments]
        held = [*node.args, *defaults[len(node.args) : at + len(values)]]
        held[at : at + len(values)] = values
        node.args = tuple(held)

    return change


def keyword(**arguments: Any) -> Change:
    """Give a node other keyword arguments."""
    return lambda _, node: setattr(node, "kwargs", {**node.kwargs, **arguments})


def weight(at: int | tuple[int, int], function: Callable[[Tensor], Tensor]) -> Change:
    """Give a node another weight."""

    def change(program: ExportedProgram, node: Node) -> None:
        first, *rest = (at,) if isinstance(at, int) else at
        held: Any = node.args[first]
        for index in rest:
            held = held[index]
        signature = program.graph_signature
        places = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        place = places[held.name]
        old = program.state_dict[place]
        new = function(old.detach().clone())
        program.state_dict[place] = nn.Parameter(new) if isinstance(old, nn.Parameter) else new

    return change


def swapped(_: ExportedProgram, node: Node) -> None:
    """Exchange the operands of a node, or the first two of its list."""
    first: Any = node.args[0]
    if isinstance(first, list | tuple):
        node.args = ([first[1], first[0], *first[2:]], *node.args[1:])
    else:
        node.args = (node.args[1], first, *node.args[2:])


def missing(at: int = 0) -> Change:
    """Give users of a node one of its operands instead."""
    return lambda _, node: node.replace_all_uses_with(node.args[at]) and None  # type: ignore


def hooked(name: str, hook: Hook) -> ExportedProgram:
    """Export a model of the catalogue of which a part returns something else."""
    made = find(name).make()
    assert made.module is not None
    part, function = hook
    made.module.get_submodule(part).register_forward_hook(lambda _, __, result: function(result))
    return torch.export.export(made.module, made.inputs, dynamic_shapes=made.dynamic)


def payload(at: int, change: Callable[[Record, Record], None]) -> Edit:
    """Change a node of the first XNNPACK payload: its record, and its operator's fields."""

    def edit(data: bytes) -> bytes:
        container = read_container(bytearray(data))
        method = container.methods[0]
        root = _root(method.delegates[0].payload)[0]
        change(root["xnodes"][at], root["xnodes"][at]["xnode_union"][1])
        graph = with_header(write_root(schema(), root))
        delegate = replace(method.delegates[0], payload=graph)
        return written(container, replace(method, delegates=(delegate, *method.delegates[1:])))

    return edit


def written(container: Container, method: Method) -> bytes:
    """Write a file with another first method."""
    return to_bytes(replace(container, methods=(method, *container.methods[1:])))


def at_one_offset(data: bytes) -> bytes:
    """Move the first operand of the first `bmm` to where the second operand of the second is."""
    container = read_container(bytearray(data))
    method = container.methods[0]
    steps = [step for step in method.instructions if isinstance(step, KernelCall)]
    kernels = [step.kernel for step in steps]
    permuted = [step.args[-1] for step in steps if step.kernel == "aten::permute_copy.out"]
    expanded = steps[kernels.index("aten::expand_copy.out")].args[-1]
    product = steps[kernels.index("aten::bmm.out")].args[0]
    values = list(method.values)
    third: Any = values[permuted[6]]  # Queries, keys, values: each a weight's, and its heads.
    for at in (expanded, product):
        one: Any = values[at]
        values[at] = replace(one, storage=third.storage)
    return written(container, replace(method, values=tuple(values)))


def scalars(kernel: str, new: dict[int, int]) -> Edit:
    """Give the first call of a kernel other integers, by their places."""

    def edit(data: bytes) -> bytes:
        container = read_container(bytearray(data))
        method = container.methods[0]
        step = next(s for s in method.instructions if getattr(s, "kernel", "") == kernel)
        assert isinstance(step, KernelCall)
        args = list(step.args)
        for order, at in enumerate(new):
            args[at] = len(method.values) + order
        values = (*method.values, *new.values())
        called = replace(step, args=tuple(args))
        steps = tuple(called if each is step else each for each in method.instructions)
        return written(container, replace(method, values=values, instructions=steps))

    return edit


def exchanged(one: int, other: int, rows: int = 1) -> Callable[[Tensor], Tensor]:
    """Exchange two groups of rows of a weight."""

    def function(x: Tensor) -> Tensor:
        new = x.clone()
        for row in range(rows):
            a, b = one * rows + row, other * rows + row
            new[a], new[b] = x[b], x[a]
        return new

    return function


def scaled(row: int, factor: float) -> Callable[[Tensor], Tensor]:
    """Multiply a row of a weight."""
    return lambda x: torch.cat([x[:row], x[row : row + 1] * factor, x[row + 1 :]])


def retargeted(name: str, *arguments: Any) -> Change:
    """Call another ATen operator on the first operand."""

    def change(_: ExportedProgram, node: Node) -> None:
        node.target = operator.attrgetter(name)(torch.ops.aten)
        node.args = (node.args[0], *arguments)

    return change


def written_at_zero(program: ExportedProgram, node: Node) -> None:
    """Write rows of a cache to place 0, whatever the positions."""
    places: Any = node.args[1]
    with program.graph.inserting_before(node):
        zeros = program.graph.call_function(torch.ops.aten.zeros_like.default, (places[-1],))
        zeros.meta["val"] = places[-1].meta["val"]
    node.args = (node.args[0], [*places[:-1], zeros], *node.args[2:])


def saturating(program: ExportedProgram, node: Node) -> None:
    """Halve the scale of an activation, of which large numbers are then clipped."""
    for each in (node, *node.users):
        argument(1, each.args[1] / 2)(program, each)


def padded_above(_: Record, fields: Record) -> None:
    """Move a row of a node's padding from below to above."""
    fields["padding_top"] += 1
    fields["padding_bottom"] -= 1


CNN, ENCODER, MOBILENET = (
    "examples/quantized.cnn_per_channel",
    "examples/transformer.transformer_encoder_2layers",
    "examples/mobilenet.mobilenet_v2_035",
)
FAULTS = (
    Fault("dilation", "xnnpack", MOBILENET, "conv2d_7", argument(4, [2, 2], [2, 2])),
    Fault("clamp's bound", "xnnpack", MOBILENET, "hardtanh_4", argument(2, 3.0)),
    Fault("epsilon of a batch norm", "xnnpack", MOBILENET, "batch_norm_6", argument(7, 0.01)),
    Fault("slope", "xnnpack", "examples/vocoders.hifigan", "leaky_relu_3", argument(1, 0.01)),
    Fault("epsilon of a layer norm", "xnnpack", ENCODER, "layer_norm_1", argument(4, 0.01)),
    Fault(
        "groups of a norm", "xnnpack", "examples/diffusion.diffusion_unet", "group_norm_1",
        argument(1, 4),
    ),
    Fault(
        "window of a pool", "xnnpack", "examples/detection.yolov5", "max_pool2d_1",
        argument(1, [3, 3], [1, 1], [1, 1]),
    ),
    Fault(
        "align_corners", "xnnpack", "examples/vision.super_resolution", "upsample_bilinear2d",
        argument(2, True),
    ),
    Fault(
        "alpha of elu", "portable", "examples/tables_and_graphs.graph_attention", "elu",
        argument(1, 0.8),
    ),
    Fault("transposed weight", "xnnpack", ENCODER, "linear_4", weight(1, lambda w: w.T.clone())),
    Fault("exchanged channels", "xnnpack", MOBILENET, "conv2d_8", weight(1, exchanged(0, 1))),
    Fault(
        "mirrored kernel", "xnnpack", "examples/microcontrollers.tcn", "conv2d_3",
        weight(1, lambda w: w.flip(-1)),
    ),
    Fault("no bias", "xnnpack", "examples/deit.deit_small_depth2", "linear_3", argument(2, None)),
    Fault(
        "exchanged gates", "xnnpack", "examples/recurrent.lstm", "lstm",
        weight((2, 0), exchanged(0, 1, rows=24)),
    ),
    Fault(
        "table moved by one row", "portable", "examples/bert.bert", "embedding_2",
        weight(0, lambda w: w.roll(1, 0)),
    ),
    Fault(
        "scale of an activation", "xnnpack", CNN, "quantize_per_tensor_3", saturating,
        also="dequantize_per_tensor_4",
    ),
    Fault(
        "zero point in CMSIS-NN", "cortex-m", "quantized/resnet.resnet8@int8-cortex-m",
        "dequantize_per_tensor_4", argument(2, -120),
    ),
    Fault("scale of a channel", "xnnpack", CNN, "dequantize_per_channel_2",
          weight(1, scaled(3, 1.5))),
    Fault(
        "scale of a row, dynamic quantization", "dynamic", "examples/quantized.mlp_dynamic",
        "dequantize_per_channel", weight(1, scaled(5, 1.5)), also="relu",
    ),
    Fault(
        "scale in CMSIS-NN", "cortex-m", "quantized/tiny.ds_cnn@int8-cortex-m",
        "dequantize_per_tensor_4", argument(1, 0.03),
    ),
    Fault(
        "exchanged channels in CMSIS-NN", "cortex-m", "quantized/resnet.resnet8@int8-cortex-m",
        "dequantize_per_channel_4", weight(0, exchanged(0, 1, rows=8)),
    ),
    Fault(
        "swapped sub", "xnnpack", "examples/tables_and_graphs.tabnet", "rsub",
        retargeted("sub.Scalar", 1.3),
    ),
    Fault("swapped div", "portable", "examples/conv_tasnet.conv_tasnet", "div_1", swapped),
    Fault("swapped matmul", "xnnpack", ENCODER, "matmul_2", swapped),
    Fault("swapped cat", "portable", "examples/detection.yolov5", "cat", swapped),
    Fault("no negation", "xnnpack", "examples/llama.llama_block", "neg_1", missing()),
    Fault(
        "pad on the other side", "xnnpack", "examples/wavenet.wavenet_of_any_length", "pad_2",
        argument(1, [0, 2]),
    ),
    Fault(
        "pad's mode", "portable", "examples/vision.super_resolution", "pad",
        argument(2, "replicate"),
    ),
    Fault("pad's corner", "xnnpack", "examples/vision.unet", "pad", argument(1, [1, 0, 1, 0])),
    Fault(
        "least size only", "xnnpack", "examples/dynamic.dynamic_length", "layer_norm",
        hook=("norm", lambda y: y * (1 + 0.1 * (2 // y.shape[1]))), also="linear",
    ),
    Fault(
        "odd sizes only", "portable", "examples/dynamic.dynamic_batch", "conv2d_1",
        hook=("conv2", lambda y: y + 0.1 * (y.shape[0] % 2)),
    ),
    Fault(
        "greatest size only", "xnnpack", "examples/pointnet.pointnet_of_any_number", "conv1d_5",
        hook=("conv2", lambda y: y * (1 + 0.1 * (y.shape[2] // 512))),
    ),
    Fault("decay of a state", "portable", "smoothing", "mul_", argument(1, 0.8)),
    Fault("begin of a state", "portable", "smoothing of ones", "mul_", also="average"),
    Fault(
        "frames of a state", "xnnpack", "streaming", "slice_1", argument(2, -3, -1), also="copy_",
    ),
    Fault(
        "place in a cache", "portable", "examples/llama.llama_4layers", "index_put__1",
        written_at_zero, more=((torch.tensor([[9]]), torch.tensor([1])),),
    ),
    Fault(
        "two live tensors at one offset", "portable", ENCODER, "matmul_1", edit=at_one_offset,
        also="view_2 transpose_2",
    ),
    Fault(
        "slice moved by one, in the file", "portable", "examples/tables_and_graphs.tabnet",
        "glu", edit=scalars("aten::slice_copy.Tensor_out", {2: 1, 3: 17}),
    ),
    Fault(
        "pad in a payload", "xnnpack", "examples/resnet.resnet8", "conv2d_2",
        edit=payload(3, padded_above),
    ),
    Fault(
        "no relu in a payload", "xnnpack", "examples/resnet.resnet8", "relu_2", also="add",
        edit=payload(4, lambda node, _: node.update(output_min_max=None)),
    ),
    Fault(
        "operand in a payload", "xnnpack", "examples/resnet.resnet8", "add", also="relu_2",
        edit=payload(4, lambda _, fields: fields.update(input2_id=6)),
    ),
    Fault(
        "gelu without tanh", "portable", "examples/gpt2.gpt2_2layers", "gelu",
        keyword(approximate="none"),
    ),
    Fault(
        "gelu by tanh", "portable", "examples/deit.deit_small_depth2", "gelu_1",
        keyword(approximate="tanh"),
    ),
    Fault(
        "slice moved by one", "xnnpack", "examples/tables_and_graphs.tabnet", "slice_3",
        argument(2, 7, 15),
    ),
    Fault("no residual", "xnnpack", "examples/vision.segformer", "add_1", missing(1)),
    Fault(
        "no causal mask", "xnnpack", "examples/gpt2.gpt2_2layers", "scaled_dot_product_attention",
        argument(5, False),
    ),
    Fault("axis of a softmax", "xnnpack", ENCODER, "softmax_1", argument(1, -2)),
    Fault("axis of a mean", "portable", "examples/t5.t5_block", "mean", argument(1, [-2])),
    Fault(
        "channels-last read as contiguous", "xnnpack", "examples/vision.segformer", "permute_4",
        retargeted("view.default", [1, 16, 16, 16]), also="contiguous",
    ),
    Fault(
        "mask of all", "xnnpack", "examples/tables_and_graphs.graph_attention", "gt",
        retargeted("ge.Scalar", 0), also="where",
    ),
    Fault("weak mask", "xnnpack", "examples/bert.bert", "mul", argument(1, -1.0)),
    Fault("constant", "portable", ENCODER, "div_1", argument(1, 8.0)),
)  # fmt: skip


def right(fault: Fault) -> tuple[ExportedProgram, list[Any]]:
    """Return the right program and its inputs."""
    if fault.model not in OWN:
        return exported(fault.model)
    torch.manual_seed(0)
    make, x = OWN[fault.model]
    return torch.export.export(make().eval(), (x,)), [x]


def planted(fault: Fault, source: ExportedProgram) -> bytes:
    """Return the wrong artifact of a right program."""
    wrong = hooked(fault.model, fault.hook) if fault.hook else copy.deepcopy(source)
    if fault.change:
        fault.change(wrong, named(wrong, fault.node))
        wrong.graph_module.recompile()
    data = stock(wrong, fault.flow)
    return fault.edit(data) if fault.edit else data


def row(fault: Fault, folder: Path | None) -> tuple[bool, bool, str]:
    """Return whether a fault is reported, whether a right node is named, and the sentence."""
    source, inputs = right(fault)
    data = kept(folder, f"fault {fault.title}", lambda: planted(fault, source))
    found = validate(data, source, [tuple(inputs), *fault.more])
    is_named = found.wrong is not None and found.wrong.node in fault.accepted(source)
    return not found.ok, is_named, found.sentence


def main() -> int:
    """Print a row for each fault, and return how many are not named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("titles", nargs="*", help="faults by their titles; all if none")
    parser.add_argument("--keep", type=Path, help="a folder of artifacts that are made once")
    asked = parser.parse_args()
    faults = [fault for fault in FAULTS if not asked.titles or fault.title in asked.titles]
    prepare()
    total, detected = 0, 0
    print("| fault | flow | verdict | operator | seconds |\n" + "|---" * 5 + "|")
    for fault, result, ended, seconds in each_in_a_child(partial(row, folder=asked.keep), faults):
        is_detected, is_named, said = result or (False, False, ended)
        total, detected = total + is_named, detected + is_detected
        verdict = "named" if is_named else f"NOT {fault.node}" if is_detected else "NOT DETECTED"
        print(f"| {fault.title} | {fault.flow} | {said} | {verdict} | {seconds:.0f} |", flush=True)
    print(f"{total} of {len(faults)} named, {detected} detected")
    return len(faults) - total


if __name__ == "__main__":
    sys.exit(main())
