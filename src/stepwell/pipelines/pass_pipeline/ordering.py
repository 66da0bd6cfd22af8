"""Ordering constraints of the passes: the forms that each requires and establishes, and why.

Tests check the order of every pipeline against these tables, and the forms on programs.
"""

from __future__ import annotations

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.forms import Form, Position
from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.pipelines.arm import MEETING
from stepwell.pipelines.xnnpack import TO_XNNPACK
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM, FOLD_WEIGHTS
from stepwell.translate.decompositions import attention, floats, promotions
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.quant import TYPES
from stepwell.translate.rewrites.tosa.layout.order import MEETING as TOSA_MEETING
from stepwell.translate.rewrites.tosa.layout.order import TO_TOSA
from stepwell.translate.rewrites.xnnpack import MERGES

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

FIND_ATTENTION = Position(
    "Attention that was written as matrix products must be found before the products are lowered.",
    (PLAIN,),
    ends=(PLAIN,),
)
EXPAND_ATTENTION = Position(
    "No target has attention as one operation. After expansion, its products can be "
    "merged with the operations around them.",
    leaves=(EXPANDED,),
    ends=(FOLDED, PLAIN, SHARED, TYPED),
)

EVERYWHERE = {
    "normalize": Position(
        "Every later pattern is written for the canonical form.", leaves=(PLAIN,)
    ),
    "normalize-quantized": Position(
        "Quantized layers are recognized in canonical form, too.", leaves=(PLAIN,)
    ),
    "normalize-parts": Position(
        "The decompositions produced operations that are not canonical.",
        leaves=(PLAIN,),
    ),
    "type-quantization": Position(
        "Scales and zero points are arguments before this pass. After it, the quantization "
        "of a tensor is in its type.",
        leaves=(TYPED,),
    ),
    "share-types": Position(
        "A tensor that is quantized twice with the same parameters is quantized once.",
        (TYPED,),
        (SHARED,),
    ),
    "fold-weights": Position(
        "Norms, scales and biases are folded into weights while layers are still single "
        "operations.",
        (PLAIN,),
        (FOLDED,),
    ),
    "find-attention": FIND_ATTENTION,
    "recognize-attention": FIND_ATTENTION,
    "attention-to-products": EXPAND_ATTENTION,
    "share-parts": Position(
        "The decompositions compute the same mean or mask in several places.",
        leaves=(SHARED,),
    ),
    "absorb": Position(
        "Scales and shifts that remain from norms and attention are folded into weights. "
        "They are adjacent to layers only after the expansion.",
        (EXPANDED, PLAIN),
        ends=(PLAIN, SHARED),
    ),
    "arrange": Position(
        "Merging left views and permutes that have no effect or that are adjacent.",
        ends=(PLAIN, SHARED),
    ),
    "unroll-loop": Position(
        "A loop with a static trip count is unrolled before any pass looks at loop bodies."
    ),
    "fold-constants": Position(
        "Operations that the decompositions produced may have constant operands."
    ),
    "gather-strides": Position(
        "Strided views of inputs become copies, so kernels need not support strides."
    ),
    "remove-dead-code": Position("Dead operations must not be emitted.", leaves=(ALIVE,)),
    "sweep": Position("The last passes count operators, so dead ones must be removed before them."),
    "sweep-again": Position("Finishing left unused constants.", leaves=(ALIVE,)),
}

XNNPACK = {
    "widen-floats": Position(
        "The operands of a node have one float type. Adjacent casts must cancel before "
        "layers are matched.",
        leaves=(WIDE,),
    ),
    "lower-quantized": Position(
        "Operations between casts are lowered to integer kernels where there is one, before "
        "floats are rewritten around them.",
        (TYPED,),
    ),
    "lower-casts": Position(
        "The remaining casts become nodes. A tensor without a quantized node loses its "
        "quantized type.",
        (TYPED,),
    ),
    "multiply-experts": Position(
        "Experts are a sum over constant tables only after weights are folded.", (FOLDED,)
    ),
    "choose-by-rank": Position(
        "The selected experts are found by comparing ranks where the model multiplies by all "
        "experts."
    ),
    "keep-images": Position(
        "A dynamic height and width must stay two axes while attention over them is one operation."
    ),
    "ask-inputs": Position(
        "The sizes that attention needs as integers are known once it is expanded. They are "
        "read from an input before any other operation uses them.",
        (EXPANDED,),
    ),
    "center-residual-stream": Position(
        "A mean that can be folded into a layer's weights is found while a layer norm is one "
        "operation."
    ),
    "decompose": Position(
        "Norms and functions without a node become arithmetic whose constants can be folded "
        "into weights.",
        ends=(FOLDED, PLAIN, SHARED, WIDE),
    ),
    "legalize": Position(
        "Every operation that has a node becomes that node. Whole operations are lowered before "
        "any is decomposed, because they need fewer nodes. The rest runs on ExecuTorch's kernels.",
        leaves=(NODES, APART),
        ends=(FOLDED, PLAIN, SHARED, TYPED),
    ),
    "lift-scalars": Position(
        "A node has no scalar operand. The upstream change consists of this pass.", ends=(PLAIN,)
    ),
    "leave-to-kernels": Position(
        "Operations that are not nodes by now run on ExecuTorch's kernels, so they must be "
        "operations that those kernels compute.",
        (NODES,),
        (APART,),
    ),
    "share-nodes": Position(
        "Lowering created the same transpose or constant for several users.", (NODES,), (SHARED,)
    ),
    "narrow-to-what-is-read": Position(
        "The parts of its operands that a node reads are known once all operations are nodes.",
        (NODES,),
        ends=(SHARED,),
    ),
    "assign-layouts-first": Position(
        "A minimum cut over all nodes decides which images are channels last.", (NODES,)
    ),
    "merge-layouts": Position(
        "The cut left adjacent transposes, which are merged.", (NODES,), (MET,)
    ),
    "assign-layouts-again": Position(
        "Merging transposes changes costs, so the cut is computed again.", (MET,), ends=(MET,)
    ),
    "merge-layouts-again": Position(
        "The second cut left adjacent transposes, too.", (NODES,), (MET,)
    ),
    "patches-to-linear": Position(
        "A convolution whose windows do not overlap is a matrix product. Whether the product "
        "is cheaper depends on its layout.",
        (MET,),
        ends=(MET,),
    ),
    "merge-layouts-of-patches": Position(
        "The product's views are merged with adjacent data movement.", (), (MET,)
    ),
    "affine-by-channels": Position(
        "An affine operation per channel is a depthwise node where layouts are channels last.",
        (MET,),
    ),
    "fuse-clamp": Position(
        "A clamp is fused into its producer once no rewrite moves nodes any more.", (NODES,)
    ),
    "split-batch": Position(
        "A batch is split after clamps are fused into their nodes. Each piece then chooses "
        "its kernel.",
        (NODES, MET),
    ),
    "choose-kernels": Position(
        "Forms that are slow on some kernels only are chosen last, by cost.", (NODES,)
    ),
    "partition-xnnpack": Position(
        "Nodes are partitioned into delegates once no pass changes them any more.", (NODES, APART)
    ),
    "remove-noop-expands": Position("The upstream change consists of this pass.", (APART,)),
}
PUBLISHED = {
    "take-apart": Position(
        "The stock flow decomposes first, and thereby decomposes attention.",
        leaves=(APART,),
        ends=(PLAIN,),
    ),
}

TOSA_STEPS = {
    "adopt-executorch-mx": Position(
        "ExecuTorch's form of block-scaled layers is replaced by the canonical form."
    ),
    "choose-mx-form": Position(
        "A block-scaled layer gets the element types that the target's extensions allow "
        "while it is one operation."
    ),
    "lower-custom-to-tosa": Position(
        "An operator of a user's library must be lowered as a whole before the decompositions run."
    ),
    "strip-boundary": Position(
        "The inputs and outputs of an integer program are the quantized integers.", (TYPED,)
    ),
    "lower-int8": Position(
        "Quantized layers become integer operators and RESCALE before floats are lowered.",
        (TYPED,),
        ends=(SHARED,),
    ),
    "lower-casts": Position("The remaining casts become arithmetic.", (TYPED,)),
    "fewer-integers": Position("Adjacent tables and rescales are merged."),
    "split": Position(
        "Operations that TOSA lacks are decomposed. Norms become arithmetic whose constants "
        "can be folded into weights.",
        ends=(PLAIN, SHARED),
    ),
    "lower": Position(
        "Every operation that has a TOSA operator becomes that operator.", leaves=(OPERATORS,)
    ),
    "legalize": Position(
        "Every operation that has a TOSA operator becomes that operator. Whole operations are "
        "lowered before any is decomposed, because they need fewer operators.",
        leaves=(OPERATORS,),
        ends=(FOLDED, PLAIN, SHARED, TYPED),
    ),
    "share-operators": Position(
        "Lowering created the same constant or transpose for several users.", leaves=(SHARED,)
    ),
    "lower-control-to-tosa": Position(
        "Branches and loops become operators once their bodies consist of operators.", (OPERATORS,)
    ),
    "merge-layouts": Position(
        "Lowering left adjacent transposes, which are merged.", (), (TOSA_MET,), (SHARED,)
    ),
    "place-layouts-first": Position(
        "A minimum cut over all operators decides which images are channels last.",
        (TOSA_MET,),
        ends=(TOSA_MET, SHARED),
    ),
    "merge-layouts-between": Position(
        "The first cut left adjacent transposes, which are merged.", (), (TOSA_MET,)
    ),
    "place-layouts-again": Position(
        "Merging transposes changes costs, so the cut is computed again.",
        (TOSA_MET,),
        ends=(TOSA_MET,),
    ),
    "layout": Position(
        "The cut left adjacent transposes, which are merged across slices and reshapes, too.",
        (),
        (TOSA_MET,),
    ),
    "share-layouts": Position("Several users of one tensor have the same transpose."),
    "gather-truths": Position("TOSA 1.0 does not gather booleans, so they are gathered as bytes."),
    "scatter-truths": Position("TOSA 1.0 does not scatter booleans either."),
    "narrow-indices": Position(
        "Whether 32 bits suffice for an index is computed over all operators at once.", ()
    ),
    "count-in-floats": Position("The largest value of an index is known once its width is chosen."),
    "finish-tosa": Position("The profile is checked on the program that is emitted.", ()),
}

CMSIS = {
    "lower-to-cmsis": Position(
        "Quantized layers become the library's operators.", (TYPED,), ends=(TYPED,)
    ),
    "explain-floats": Position(
        "Each operation that stayed in floats gets a reason while its neighbors are still there."
    ),
    "lower-boundary": Position("The remaining casts are the boundary between floats and bytes."),
    "lift-number-operand": Position("A kernel takes tensors where a graph had scalars."),
    "decompose-for-kernels": Position(
        "Operations that CMSIS-NN lacks run on ExecuTorch's kernels, so they must be "
        "operations that those kernels compute.",
        leaves=(APART,),
        ends=(PLAIN, SHARED, TYPED),
    ),
    "fold-constants-of-kernels": Position(
        "Operations that the decompositions produced may have constant operands."
    ),
    "channels-last-ports": Position(
        "Images that would be transposed at an input or output are taken and returned "
        "channels last."
    ),
    "lower-layouts": Position(
        "Lowering left adjacent layout changes, which are merged.", leaves=(CMSIS_MET,)
    ),
    "assign-layouts": Position(
        "A minimum cut over all operators decides which tensors are channels last.",
        ends=(CMSIS_MET,),
    ),
    "merge-layouts": Position(
        "The cut left adjacent layout changes, which are merged.", leaves=(CMSIS_MET,)
    ),
    "absorb-flatten": Position(
        "The layout change of a flattened image is folded into the next layer's weights. The "
        "remaining layout changes are copies.",
        (CMSIS_MET,),
    ),
    "share-kernels": Position("Several users of one tensor have the same copy."),
    "fold-kernel-sum": Position(
        "The form of a layer's bias depends on the core. It is chosen after the rest of the "
        "layer is known."
    ),
    "state-target": Position("The level is set once the program contains only its operations."),
    "order-operators": Position(
        "Operators are scheduled for the least peak memory, which requires the final operators."
    ),
    "plan-memory": Position("Memory is planned for the final order of operators."),
    "slices-as-parts": Position("A contiguous slice is a view once memory is planned."),
    "parts-as-they-are": Position(
        "Views are read with their own type once all contiguous slices are views."
    ),
    "integer-ports": Position(
        "Inputs and outputs are integers where the caller requests it.", (TYPED,)
    ),
    "lower-for-npu": Position(
        "The accelerator gets the operations of the quantized program that it supports. The "
        "CPU gets the others.",
        (TYPED,),
        ends=(SHARED,),
    ),
    "keep-bytes": Position(
        "A rescale with several users is duplicated for each of them, because Vela fuses a "
        "rescale with its user only if it has no other, and then keeps bytes."
    ),
    "partition-ethosu": Position(
        "Operators are partitioned into delegates once no pass changes them any more."
    ),
    "share-operators": Position("Lowering created the same constant for several users."),
}

OF_TARGETS = {
    "xnnpack-published": {**XNNPACK, **PUBLISHED},
    "xnnpack": XNNPACK,
    "cortex": CMSIS,
    "ethos": CMSIS,
    "tosa": TOSA_STEPS,
    "vgf": TOSA_STEPS,
}


def places_of(target: str) -> dict[str, Position]:
    """Return the ordering constraint of each pass of a target's pipeline, by the pass's name."""
    own = next(places for start, places in OF_TARGETS.items() if target.startswith(start))
    return {**EVERYWHERE, **own}
