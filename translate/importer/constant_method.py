"""Methods that return constants, such as those that ExecuTorch's runners query about a model.

`get_max_seq_len`, `get_vocab_size`, `get_eos_ids` and similar methods have no arguments. Their
results are constants of the signature, so such a method has no op and, in a `.pte`, no instruction.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.signature import Port, Signature, set_signature

PLAIN = (bool, int, float, str)


def constant_method(name: str, value: Any) -> FuncOp:
    """Return the method of a plain value: int, float, bool, str, or a list of these.

    Raises:
        StepwellError: the value is of another kind.
    """
    leaves, out_spec = pytree.tree_flatten(value)
    for leaf in leaves:
        if not isinstance(leaf, PLAIN):
            raise StepwellError(
                f"method {name!r}: a {type(leaf).__name__} is no exported program and no plain "
                "value",
                help="give torch.export.export(module.eval(), example_inputs), or a number, a "
                "truth value, a text, or a list of these",
            )
    func = FuncOp(name, ((), ()), Region(Block([ReturnOp()])))
    _, in_spec = pytree.tree_flatten(((), {}))
    ports = tuple(Port(f"output_{index}", constant=(leaf,)) for index, leaf in enumerate(leaves))
    specs = (pytree.treespec_dumps(in_spec), pytree.treespec_dumps(out_spec))
    set_signature(func, Signature((), ports, *specs))
    return func
