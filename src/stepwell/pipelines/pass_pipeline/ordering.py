"""Why each step stands where it stands, by pipeline: the forms it needs and leaves, and a reason.

Tests check the order of every pipeline against this page, and the forms on programs.
"""

from __future__ import annotations

from stepwell.backends.executorch.decompose import DecomposeForKernels
from stepwell.ir.rewriting.cleanup import RemoveDeadCode, ShareCommonSubexpressions
from stepwell.ir.rewriting.forms import Form, Place
from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.pipelines.arm import MEETING
from stepwell.pipelines.xnnpack import TO_XNNPACK
from stepwell.translate.canonicalize.pipeline import CANONICAL_FORM, FOLD_WEIGHTS
from stepwell.translate.decompositions.aten import attention, floats
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.quant import TYPES
from stepwell.translate.rewrites.tosa.layout.order import MEETING as TOSA_MEETING
from stepwell.translate.rewrites.tosa.layout.order import TO_TOSA
from stepwell.translate.rewrites.xnnpack import MERGES

PLAIN = Form("plain", "each operation has one spelling", GreedyRewrites("plain", CANONICAL_FORM))
TYPED = Form("typed", "quantization stands in types", GreedyRewrites("typed", TYPES))
FOLDED = Form("folded", "what is constant is in weights", GreedyRewrites("folded", FOLD_WEIGHTS))
WIDE = Form(
    "wide",
    "a node's floats are of one type that it has",
    GreedyRewrites("wide", (step(floats.widen_mixed_floats), step(floats.widen_bfloat))),
)
EXPANDED = Form(
    "expanded",
    "attention is products and a softmax",
    GreedyRewrites("expanded", (step(attention.expand_attention),)),
)
NODES = Form(
    "nodes", "what XNNPACK has a node for is that node", GreedyRewrites("to-xnnpack", TO_XNNPACK)
)
OPERATORS = Form(
    "operators",
    "what TOSA has an operator for is that operator",
    GreedyRewrites("to-tosa", TO_TOSA),
)
APART = Form(
    "apart",
    "what no kernel computes is in parts that kernels compute",
    GreedyRewrites("apart", (DecomposeForKernels(),)),
)
SHARED = Form("shared", "nothing is computed twice", ShareCommonSubexpressions())
ALIVE = Form("alive", "everything is read", RemoveDeadCode())
MET = Form("met", "transposes that meet are one or none", GreedyRewrites("met", MERGES))
TOSA_MET = Form("met", "transposes that meet are one or none", GreedyRewrites("met", TOSA_MEETING))
CMSIS_MET = Form("met", "layout changes that meet are one or none", GreedyRewrites("met", MEETING))

FIND_ATTENTION = Place(
    "Attention that was written as products is found before products are lowered.",
    (PLAIN,),
    ends=(PLAIN,),
)
EXPAND_ATTENTION = Place(
    "No target has attention as one operation; its products can then be merged with what "
    "stands around them.",
    leaves=(EXPANDED,),
    ends=(FOLDED, PLAIN, SHARED, TYPED),
)

EVERYWHERE = {
    "normalize": Place("Every later pattern is written for one spelling.", leaves=(PLAIN,)),
    "normalize-quantized": Place(
        "Quantized layers are recognized in one spelling, too.", leaves=(PLAIN,)
    ),
    "normalize-parts": Place(
        "What was taken apart brought other spellings.",
        leaves=(PLAIN,),
    ),
    "type-quantization": Place(
        "Scales and zero points are arguments until here; behind it a type says what a tensor "
        "holds.",
        leaves=(TYPED,),
    ),
    "share-types": Place(
        "One tensor that is quantized twice alike is quantized once.", (TYPED,), (SHARED,)
    ),
    "fold-weights": Place(
        "Norms, scales and biases join weights while layers are still layers.",
        (PLAIN,),
        (FOLDED,),
    ),
    "find-attention": FIND_ATTENTION,
    "recognize-attention": FIND_ATTENTION,
    "attention-to-products": EXPAND_ATTENTION,
    "expand-attention": EXPAND_ATTENTION,
    "share-parts": Place(
        "What was taken apart computes the same mean or mask in several places.",
        leaves=(SHARED,),
    ),
    "absorb": Place(
        "Scales and shifts that norms and attention left go into weights: they stand beside "
        "layers only now.",
        (EXPANDED, PLAIN),
        ends=(PLAIN, SHARED),
    ),
    "arrange": Place(
        "Merging left views and permutes that are neutral or meet.", ends=(PLAIN, SHARED)
    ),
    "unroll-loop": Place("A loop of known length is its body, before anything looks at bodies."),
    "fold-constants": Place("What was taken apart may have constant operands."),
    "gather-strides": Place("Strides of inputs are copies, which kernels then need not know."),
    "remove-dead-code": Place("Nothing may be emitted that is not read.", leaves=(ALIVE,)),
    "sweep": Place("What the last looks at operators count should not hold dead ones."),
    "sweep-again": Place("Finishing left constants that nothing reads.", leaves=(ALIVE,)),
}

XNNPACK = {
    "widen-floats": Place(
        "A node's operands are of one float type; casts meet before layers are looked at.",
        leaves=(WIDE,),
    ),
    "lower-quantized": Place(
        "Ops between casts take the integers where a kernel does, before floats are rewritten "
        "around them.",
        (TYPED,),
    ),
    "lower-casts": Place(
        "The casts that are left become nodes; where a tensor has no node its type is given up.",
        (TYPED,),
    ),
    "multiply-experts": Place(
        "Experts are a sum over constant tables only once weights are folded.", (FOLDED,)
    ),
    "choose-by-rank": Place(
        "Which experts are taken is found by comparing ranks where all of them are multiplied by."
    ),
    "keep-images": Place(
        "Height and width that are open stay two axes, while attention over them is one op."
    ),
    "ask-inputs": Place(
        "Sizes that attention needs as numbers are known once it is expanded, and are asked of "
        "an input before anything else reads them.",
        (EXPANDED,),
    ),
    "center-residual-stream": Place(
        "A mean that a layer's weights can take is found while a layer norm is one op."
    ),
    "decompose": Place(
        "Norms and functions without a node are arithmetic whose constants can join weights.",
        ends=(FOLDED, PLAIN, SHARED, WIDE),
    ),
    "lower-products": Place(
        "A product absorbs the permutes of its operands, which lowering would make nodes.",
    ),
    "lower": Place("All that has a node becomes one.", leaves=(NODES,)),
    "take-apart": Place(
        "What has no node may be an expression of ops that have one; whole ops come first, as "
        "fewer nodes.",
        (NODES,),
        leaves=(APART,),
        ends=(FOLDED, NODES, PLAIN, SHARED, TYPED),
    ),
    "lower-pieces": Place("The parts become nodes.", (APART,), (NODES,)),
    "lift-scalars": Place(
        "A node has no scalar operand; the upstream change does this one thing.", ends=(PLAIN,)
    ),
    "lift-scalars-of-pieces": Place(
        "The parts bring numbers, which a node takes as a constant tensor.", ends=(NODES, PLAIN)
    ),
    "lower-lifted": Place("What numbers were lifted from has a node now.", leaves=(NODES,)),
    "leave-to-kernels": Place(
        "What is no node by now runs on ExecuTorch's kernels, and must be what they compute.",
        (NODES,),
        (APART,),
    ),
    "share-nodes": Place(
        "Lowering wrote the same transpose or constant for several readers.", (NODES,), (SHARED,)
    ),
    "narrow-to-what-is-read": Place(
        "What a node reads of its operands is known once all are nodes.", (NODES,), ends=(SHARED,)
    ),
    "assign-layouts-first": Place(
        "A cut over all nodes decides where images lie channels last.", (NODES,)
    ),
    "merge-layouts": Place("Transposes that the cut left side by side meet.", (NODES,), (MET,)),
    "assign-layouts-again": Place(
        "Merged transposes have other costs, so the cut is another.", (MET,), ends=(MET,)
    ),
    "merge-layouts-again": Place("As before, for the second cut.", (NODES,), (MET,)),
    "patches-to-linear": Place(
        "A convolution whose windows do not overlap is a product; whether it is cheaper hangs on "
        "its layout.",
        (MET,),
        ends=(MET,),
    ),
    "merge-layouts-of-patches": Place("The product's views meet their neighbors.", (), (MET,)),
    "affine-by-channels": Place(
        "An affine step by channels is a depthwise node where layouts stand so.", (MET,)
    ),
    "fuse-clamp": Place(
        "A clamp joins the node that it limits when no rewrite moves nodes any more.", (NODES,)
    ),
    "split-batch": Place(
        "A batch goes in pieces when clamps are in their nodes, and each then chooses its kernel.",
        (NODES, MET),
    ),
    "choose-kernels": Place(
        "Forms that only some kernels are slow at are chosen last, by cost.", (NODES,)
    ),
    "partition-xnnpack": Place(
        "Nodes go into delegates when nothing changes them any more.", (NODES, APART)
    ),
    "remove-noop-expands": Place("The upstream change does this one thing.", (APART,)),
}
PUBLISHED = {
    "take-apart": Place(
        "The stock flow decomposes first, which takes attention apart.",
        leaves=(APART,),
        ends=(PLAIN,),
    ),
}

TOSA_STEPS = {
    "adopt-executorch-mx": Place("ExecuTorch's spelling of block-scaled layers becomes ours."),
    "choose-mx-form": Place(
        "A block-scaled layer gets the element types that the target's extensions allow, while it "
        "is one op."
    ),
    "lower-custom-to-tosa": Place(
        "An operator of a user's library stays whole before decompositions look at it."
    ),
    "strip-boundary": Place("Of an integer program inputs and outputs are the integers.", (TYPED,)),
    "lower-int8": Place(
        "Quantized layers are integers and RESCALE before floats are looked at.",
        (TYPED,),
        ends=(SHARED,),
    ),
    "lower-casts": Place("The casts that are left are arithmetic.", (TYPED,)),
    "fewer-integers": Place("Tables and rescales that meet are one."),
    "split": Place(
        "What TOSA has not is written by others, norms as arithmetic whose constants can join "
        "weights.",
        ends=(PLAIN, SHARED),
    ),
    "lower": Place("All that has an operator becomes one.", leaves=(OPERATORS,)),
    "take-apart": Place(
        "What has no operator may be an expression of ops that have; whole ops come first, as "
        "fewer operators.",
        (OPERATORS,),
        ends=(FOLDED, OPERATORS, PLAIN, SHARED, TYPED),
    ),
    "guard-softmax": Place("A softmax that was taken apart keeps rows that are all masked finite."),
    "lower-pieces": Place("The parts become operators.", leaves=(OPERATORS,)),
    "take-the-rest-apart": Place(
        "What PyTorch's decompositions left is traced through its own definition.",
        (OPERATORS,),
        ends=(FOLDED, OPERATORS, PLAIN, SHARED, TYPED),
    ),
    "lower-the-rest": Place("Its parts become operators.", leaves=(OPERATORS,)),
    "share-operators": Place(
        "Lowering wrote the same constant or transpose for several readers.", leaves=(SHARED,)
    ),
    "lower-control-to-tosa": Place(
        "Branches and loops become operators when their bodies are.", (OPERATORS,)
    ),
    "merge-layouts": Place(
        "Transposes that lowering left side by side meet.", (), (TOSA_MET,), (SHARED,)
    ),
    "place-layouts-first": Place(
        "A cut over all operators decides where images lie channels last.",
        (TOSA_MET,),
        ends=(TOSA_MET, SHARED),
    ),
    "merge-layouts-between": Place("Transposes of the first cut meet.", (), (TOSA_MET,)),
    "place-layouts-again": Place(
        "Merged transposes have other costs, so the cut is another.", (TOSA_MET,), ends=(TOSA_MET,)
    ),
    "layout": Place("What the cut left meets, also over slices and reshapes.", (), (TOSA_MET,)),
    "share-layouts": Place("Several readers of one tensor were given the same transpose."),
    "gather-truths": Place("Version 1.0 gathers no booleans: bytes stand for them."),
    "scatter-truths": Place("Nor does it scatter them."),
    "narrow-indices": Place(
        "Whether 32 bits suffice for an index is computed over all operators at once.", ()
    ),
    "count-in-floats": Place("How large an index gets is known once its width is."),
    "finish-tosa": Place("The profile is checked on what is going to be written.", ()),
}

CMSIS = {
    "lower-to-cmsis": Place(
        "Quantized layers become the library's operators.", (TYPED,), ends=(TYPED,)
    ),
    "explain-floats": Place("What stayed in floats says why, while its neighbors are there."),
    "lower-boundary": Place("The casts that are left are the border between floats and bytes."),
    "lift-number-operand": Place("A kernel takes tensors where a graph had numbers."),
    "decompose-for-kernels": Place(
        "What the library lacks runs on ExecuTorch's kernels, and must be what they compute.",
        leaves=(APART,),
        ends=(PLAIN, SHARED, TYPED),
    ),
    "fold-constants-of-kernels": Place("What was taken apart may have constant operands."),
    "channels-last-ports": Place(
        "Images that would be turned as they come or go are taken and given channels last."
    ),
    "lower-layouts": Place("Layout changes beside operators meet.", leaves=(CMSIS_MET,)),
    "assign-layouts": Place(
        "A cut over all operators decides where bytes lie channels last.", ends=(CMSIS_MET,)
    ),
    "merge-layouts": Place("What the cut left meets.", leaves=(CMSIS_MET,)),
    "absorb-flatten": Place(
        "A flatten of an image goes into the next layer's weights; what stays is a copy.",
        (CMSIS_MET,),
    ),
    "share-kernels": Place("Several readers of one tensor were given the same copy."),
    "fold-kernel-sum": Place(
        "The form of a layer's bias is the core's, once all else of a layer is known."
    ),
    "state-target": Place("The level is stated when only its ops are left."),
    "order-operators": Place("The order that holds the least memory is of the final operators."),
    "plan-memory": Place("Memory is planned for operators in their order."),
    "slices-as-parts": Place(
        "A slice of what lies in one piece is a view, once memory is planned."
    ),
    "parts-as-they-are": Place("Parts are read as what they are once all slices are parts."),
    "integer-ports": Place("Inputs and outputs are integers where that is asked for.", (TYPED,)),
    "lower-for-npu": Place(
        "The accelerator takes what it can of the quantized program; the CPU gets the rest.",
        (TYPED,),
        ends=(SHARED,),
    ),
    "keep-bytes": Place("A rescale before several readers is theirs, so that bytes are kept."),
    "partition-ethosu": Place("Operators go into delegates when nothing changes them any more."),
    "share-operators": Place("Lowering wrote the same constant for several readers."),
}

OF_TARGETS = {
    "xnnpack-published": {**XNNPACK, **PUBLISHED},
    "xnnpack": XNNPACK,
    "cortex": CMSIS,
    "ethos": CMSIS,
    "tosa": TOSA_STEPS,
    "vgf": TOSA_STEPS,
}


def places_of(target: str) -> dict[str, Place]:
    """Why each step of a target's pipeline stands where it stands, by the step's name."""
    own = next(places for start, places in OF_TARGETS.items() if target.startswith(start))
    return {**EVERYWHERE, **own}
