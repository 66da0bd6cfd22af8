"""`from_exported_program`: imports a PyTorch program unchanged.

Nothing is decomposed, the argument is not modified, and no weight is copied: the weight store holds
the program's own tensors. Training graphs, functional graphs and programs of ExecuTorch's edge
dialect can be imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.export import ExportedProgram
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

import stepwell.dialects.aten.level
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.levels import set_level
from stepwell.ir.platform.process_settings import without_collection
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.weights import WeightStore
from stepwell.translate.importer.context import Importing
from stepwell.translate.importer.method import ExportedSource, import_method
from stepwell.translate.importer.mutation import functional

_LEVEL = stepwell.dialects.aten.level.ATEN_LEVEL.name


def from_exported_program(
    exported: ExportedProgram | Mapping[str, Any], *, method: str = "forward"
) -> Program:
    """Import a PyTorch program, or several as methods of one program that share weights and state.

    Args:
        exported: a program of `torch.export` or of ExecuTorch's edge dialect, or a mapping from
            method names to programs, or to plain values that the methods return.
        method: the name of the method of a single program.

    Raises:
        UnsupportedError: lists all operations without an equivalent in the IR, with source lines.
    """
    programs = exported if isinstance(exported, Mapping) else {method: exported}
    _check_names(programs)
    shared = Importing(WeightStore())
    with without_collection():
        sources = {
            name: ExportedSource(*functional(program))
            for name, program in programs.items()
            if isinstance(program, ExportedProgram)
        }
        mutable = {key for source in sources.values() for key in source.mutable}
        methods = [
            import_method(shared, sources[name], name, mutable)
            if name in sources
            else _constant_method(name, value)
            for name, value in programs.items()
        ]
        if shared.problems:
            raise UnsupportedError(shared.problems)
        module = ModuleOp(methods)
    set_level(module, _LEVEL)
    samples = {
        name: program.example_inputs
        for name, program in programs.items()
        if isinstance(program, ExportedProgram) and program.example_inputs is not None
    }
    return Program(module, shared.weights, samples)


def _check_names(programs: Mapping[Any, Any]) -> None:
    """Raise `StepwellError` unless there are methods, each with a valid identifier as its name."""
    if not programs:
        raise StepwellError("there is no method", help='give a program, or {"forward": program}')
    for name in programs:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise StepwellError(
                f"{name!r} is not a valid method name",
                help='give texts, such as {"forward": program}',
            )


_PLAIN = (bool, int, float, str)


def _constant_method(name: str, value: Any) -> FuncOp:
    """Return a method without arguments that returns a plain value or a list of these.

    ExecuTorch's runners query a model by such methods (`get_max_seq_len`, `get_eos_ids`). The
    results are stored in the signature, so that the method has no op and, in a `.pte`, no
    instruction.

    Raises:
        StepwellError: the value is of another kind.
    """
    leaves, out_spec = pytree.tree_flatten(value)
    for leaf in leaves:
        if not isinstance(leaf, _PLAIN):
            raise StepwellError(
                f"method {name!r}: a value of type {type(leaf).__name__} is not an exported "
                "program or a plain value",
                help="give torch.export.export(module.eval(), example_inputs), or a number, a "
                "truth value, a text, or a list of these",
            )
    func = FuncOp(name, ((), ()), Region(Block([ReturnOp()])))
    _, in_spec = pytree.tree_flatten(((), {}))
    ports = tuple(Port(f"output_{index}", constant=(leaf,)) for index, leaf in enumerate(leaves))
    specs = (pytree.treespec_dumps(in_spec), pytree.treespec_dumps(out_spec))
    set_signature(func, Signature((), ports, *specs))
    return func
