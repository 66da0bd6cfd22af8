"""Ordering constraints of passes: the forms that each pass requires and establishes, and why.

Tests check the order of every pipeline against these tables, and the forms on programs.
"""

from __future__ import annotations

import re

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.forms import Form, Position
from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.pipelines.arm import MEETING
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM, FOLD_WEIGHTS
from stepwell.translate.decompositions import attention, floats, promotions
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.quant import TYPES
from stepwell.translate.rewrites.tosa.layout.order import MEETING as TOSA_MEETING
from stepwell.translate.rewrites.tosa.layout.order import TO_TOSA
from stepwell.translate.rewrites.xnnpack import MERGES
from stepwell.translate.rewrites.xnnpack.order import TO_XNNPACK

PLAIN = Form(
    "plain", "each operation is in canonical form", GreedyRewrites("plain", CANONICAL_FORM)
)
TYPED = Form("typed", "quantization is in types", GreedyRewrites("typed", TYPES))
FOLDED = Form("folded", "constants are folded into weights", GreedyRewrites("folded", FOLD_WEIGHTS))
WIDE = Form(
    "wide",
    "the float operands of an operation have one type that its node supports",
    GreedyRewrites("wide", (step(promotions.widen_mixed_floats), step(floats.widen_bfloat))),
)
EXPANDED = Form(
    "expanded",
    "attention is expanded to matrix products and the weights between them",
    GreedyRewrites("expanded", (step(attention.expand_attention),)),
)
NODES = Form(
    "nodes",
    "every operation that XNNPACK has a node for is lowered to it",
    GreedyRewrites("to-xnnpack", TO_XNNPACK),
)
OPERATORS = Form(
    "operators",
    "every operation that TOSA has an operator for is lowered to it",
    GreedyRewrites("to-tosa", TO_TOSA),
)
APART = Form(
    "apart",
    "operations without a kernel are decomposed into operations with one",
    GreedyRewrites("apart", (DecomposeForKernels(),)),
)
SHARED = Form("shared", "no common subexpression is left", ShareCommonSubexpressions())
ALIVE = Form("alive", "there is no dead code", RemoveDeadCode())
MET = Form("met", "adjacent transposes are merged or canceled", GreedyRewrites("met", MERGES))
TOSA_MET = Form(
    "met", "adjacent transposes are merged or canceled", GreedyRewrites("met", TOSA_MEETING)
)
CMSIS_MET = Form(
    "met", "adjacent layout changes are merged or canceled", GreedyRewrites("met", MEETING)
)

EVERYWHERE = """
transforms:
    Fourier transforms become products, or stay for a kernel, before complex numbers become pairs:
    what reads a part of a product needs no pair.
normalize: -> plain
    Every later pattern is written for the canonical form.
normalize-quantized: -> plain
    Quantized layers are recognized in canonical form, too.
normalize-parts: -> plain
    The decompositions produced operations that are not canonical.
type-quantization: -> typed
    Scales and zero points are arguments before this pass. After it, the quantization of a
    tensor is in its type.
share-types: typed -> shared
    A tensor that is quantized twice with the same parameters is quantized once.
fold-weights: plain -> folded
    Norms, scales and biases are folded into weights while layers are still single operations.
find-attention, recognize-attention: plain; ends plain
    Attention that was written as matrix products must be found before the products are lowered.
attention-to-products: -> expanded; ends folded plain shared typed
    No target has attention as one operation. After expansion, its products can be merged with
    the operations around them.
share-parts: -> shared
    The decompositions compute the same mean or mask in several places.
absorb: expanded plain; ends plain shared
    Scales and shifts that remain from norms and attention are folded into weights. They are
    adjacent to layers only after the expansion.
arrange: ends plain shared
    Merging left views and permutes that have no effect or that are adjacent.
unroll-loop:
    A loop with a static trip count is unrolled before any pass looks at loop bodies.
fold-constants:
    Operations that the decompositions produced may have constant operands.
gather-strides:
    Strided views of inputs become copies, so kernels need not support strides.
remove-dead-code: -> alive
    Dead operations must not be emitted.
sweep:
    The last passes count operators, so dead ones must be removed before them.
sweep-again: -> alive
    Finishing left unused constants.
"""
"""The passes of several targets: `name: needs -> leaves; ends forms`, and the reason."""

XNNPACK = """
widen-floats: -> wide
    The operands of a node have one float type. Adjacent casts must cancel before layers are
    matched.
lower-quantized: typed
    Operations between casts are lowered to integer kernels where there is one, before floats
    are rewritten around them.
lower-casts: typed
    The remaining casts become nodes. A tensor without a quantized node loses its quantized
    type.
multiply-experts: folded
    Experts are a sum over constant tables only after weights are folded.
choose-by-rank:
    The selected experts are found by comparing ranks where the model multiplies by all experts.
keep-images:
    A dynamic height and width must stay two axes while attention over them is one operation.
ask-inputs: expanded
    The sizes that attention needs as integers are known once it is expanded. They are read from
    an input before any other operation uses them.
center-residual-stream:
    A mean that can be folded into a layer's weights is found while a layer norm is one
    operation.
decompose: ends folded plain shared wide
    Norms and functions without a node become arithmetic whose constants can be folded into
    weights.
legalize: -> nodes apart; ends folded plain shared typed
    Every operation that has a node becomes that node. Whole operations are lowered before any
    is decomposed, because they need fewer nodes. The rest runs on ExecuTorch's kernels.
lift-scalars: ends plain
    A node has no scalar operand. The upstream change consists of this pass.
leave-to-kernels: nodes -> apart
    Operations that are not nodes by now run on ExecuTorch's kernels, so they must be operations
    that those kernels compute.
share-nodes: nodes -> shared
    Lowering created the same transpose or constant for several users.
narrow-to-what-is-read: nodes; ends shared
    The parts of its operands that a node reads are known once all operations are nodes.
assign-layouts-first: nodes
    A minimum cut over all nodes decides which images are channels last.
merge-layouts: nodes -> met
    The cut left adjacent transposes, which are merged.
assign-layouts-again: met; ends met
    Merging transposes changes costs, so the cut is computed again.
merge-layouts-again: nodes -> met
    The second cut left adjacent transposes, too.
patches-to-linear: met; ends met
    A convolution whose windows do not overlap is a matrix product. Whether the product is
    cheaper depends on its layout.
merge-layouts-of-patches: -> met
    The product's views are merged with adjacent data movement.
affine-by-channels: met
    An affine operation per channel is a depthwise node where layouts are channels last.
fuse-clamp: nodes
    A clamp is fused into its producer once no rewrite moves nodes any more.
split-batch: nodes met
    A batch is split after clamps are fused into their nodes. Each piece then chooses its
    kernel.
choose-kernels: nodes
    Forms that are slow on some kernels only are chosen last, by cost.
partition-xnnpack: nodes apart
    Nodes are partitioned into delegates once no pass changes them any more.
remove-noop-expands: apart
    The upstream change consists of this pass.
"""
PUBLISHED = """
take-apart: -> apart; ends plain
    The stock flow decomposes first, and thereby decomposes attention.
"""
TOSA_STEPS = """
adopt-executorch-mx:
    ExecuTorch's form of block-scaled layers is replaced by the canonical form.
choose-mx-form:
    A block-scaled layer gets the element types that the target's extensions allow while it is
    one operation.
lower-custom-to-tosa:
    An operator of a user's library must be lowered as a whole before the decompositions run.
strip-boundary: typed
    The inputs and outputs of an integer program are the quantized integers.
lower-int8: typed; ends shared
    Quantized layers become integer operators and RESCALE before floats are lowered.
lower-casts: typed
    The remaining casts become arithmetic.
fewer-integers:
    Adjacent tables and rescales are merged.
split: ends plain shared
    Operations that TOSA lacks are decomposed. Norms become arithmetic whose constants can be
    folded into weights.
lower: -> operators
    Every operation that has a TOSA operator becomes that operator.
legalize: -> operators; ends folded plain shared typed
    Every operation that has a TOSA operator becomes that operator. Whole operations are lowered
    before any is decomposed, because they need fewer operators.
share-operators: -> shared
    Lowering created the same constant or transpose for several users.
lower-control-to-tosa: operators
    Branches and loops become operators once their bodies consist of operators.
merge-layouts: -> met; ends shared
    Lowering left adjacent transposes, which are merged.
place-layouts-first: met; ends met shared
    A minimum cut over all operators decides which images are channels last.
merge-layouts-between: -> met
    The first cut left adjacent transposes, which are merged.
place-layouts-again: met; ends met
    Merging transposes changes costs, so the cut is computed again.
layout: -> met
    The cut left adjacent transposes, which are merged across slices and reshapes, too.
share-layouts:
    Several users of one tensor have the same transpose.
gather-truths:
    TOSA 1.0 does not gather booleans, so they are gathered as bytes.
scatter-truths:
    TOSA 1.0 does not scatter booleans either.
narrow-indices:
    Whether 32 bits suffice for an index is computed over all operators at once.
count-in-floats:
    The largest value of an index is known once its width is chosen.
finish-tosa:
    The profile is checked on the program that is emitted.
"""
CMSIS = """
lower-to-cmsis: typed; ends typed
    Quantized layers become the library's operators.
explain-floats:
    Each operation that stayed in floats gets a reason while its neighbors are still there.
lower-boundary:
    The remaining casts are the boundary between floats and bytes.
lift-number-operand:
    A kernel takes tensors where a graph had scalars.
decompose-for-kernels: -> apart; ends plain shared typed
    Operations that CMSIS-NN lacks run on ExecuTorch's kernels, so they must be operations that
    those kernels compute.
fold-constants-of-kernels:
    Operations that the decompositions produced may have constant operands.
split-projections:
    A packed projection is split before its parts are moved and its kernel sums computed.
channels-last-ports:
    Images that would be transposed at an input or output are taken and returned channels last.
lower-layouts: -> met
    Lowering left adjacent layout changes, which are merged.
assign-layouts: ends met
    A minimum cut over all operators decides which tensors are channels last.
merge-layouts: -> met
    The cut left adjacent layout changes, which are merged.
turn-rows: met
    Rows are turned once their padding is final, which may come from a pad.
absorb-flatten: met
    The layout change of a flattened image is folded into the next layer's weights. The
    remaining layout changes are copies.
share-kernels:
    Several users of one tensor have the same copy.
fold-kernel-sum:
    The form of a layer's bias depends on the core. It is chosen after the rest of the layer is
    known.
state-target:
    The level is set once the program contains only its operations.
order-operators:
    Operators are scheduled for the least peak memory, which requires the final operators.
plan-memory:
    Memory is planned for the final order of operators.
slices-as-parts:
    A contiguous slice is a view once memory is planned.
parts-as-they-are:
    Views are read with their own type once all contiguous slices are views.
integer-ports: typed
    Inputs and outputs are integers where the caller requests it.
lower-for-npu: typed; ends shared
    The accelerator gets the operations of the quantized program that it supports. The CPU gets
    the others.
keep-bytes:
    A rescale with several users is duplicated for each of them, because Vela fuses a rescale
    with its user only if it has no other, and then keeps bytes.
partition-ethosu:
    Operators are partitioned into delegates once no pass changes them any more.
share-operators:
    Lowering created the same constant for several users.
"""

NEUTRAL = (PLAIN, TYPED, FOLDED, WIDE, EXPANDED, APART, SHARED, ALIVE)
OF_TARGETS = {
    "xnnpack-published": (XNNPACK + PUBLISHED, (NODES, MET)),
    "xnnpack": (XNNPACK, (NODES, MET)),
    "c": (CMSIS, (CMSIS_MET,)),
    "ethos": (CMSIS, (CMSIS_MET,)),
    "tosa": (TOSA_STEPS, (OPERATORS, TOSA_MET)),
    "vgf": (TOSA_STEPS, (OPERATORS, TOSA_MET)),
}
"""The start of a target's name → the places of its passes, and its own forms; `c` begins those of
Cortex-M and of C."""

_PLACE = re.compile(
    r"^(?P<names>\S.*):(?P<needs>[^;>\n]*?)(?:->(?P<leaves>[^;\n]*))?(?:;? ends (?P<ends>.*))?\n"
    r"(?P<because>(?:    .*\n)+)",
    re.M,
)


def places_of(target: str) -> dict[str, Position]:
    """Return the ordering constraint of each pass of a target's pipeline, by the pass's name."""
    text, own = next(row for start, row in OF_TARGETS.items() if target.startswith(start))
    forms = {form.name: form for form in (*NEUTRAL, *own)}
    places: dict[str, Position] = {}
    for found in _PLACE.finditer(EVERYWHERE + text):
        needs, leaves, ends = (
            tuple(forms[name] for name in (found[part] or "").split())
            for part in ("needs", "leaves", "ends")
        )
        place = Position(" ".join(found["because"].split()), needs, leaves, ends)
        places |= dict.fromkeys(found["names"].split(", "), place)
    return places
