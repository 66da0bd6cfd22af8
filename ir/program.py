"""A program: one module, its weights, and the operations of every level."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from stepwell.ir.calls.argument_marshalling import Arguments
from stepwell.ir.calls.arguments import validate_arguments
from stepwell.ir.calls.calling import bind
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.context import Context
from stepwell.ir.declared.engine_behavior import known_engine
from stepwell.ir.declared.interpretation import Interpreter, Outcome
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import UPSTREAM, level_of
from stepwell.ir.renderers import Shown
from stepwell.ir.signature import Signature, get_signature
from stepwell.ir.syntax.inline_values import LIMIT, take_values, with_values
from stepwell.ir.syntax.storage import (
    load_module,
    save_module,
    used_weights,
)
from stepwell.ir.syntax.text import parse_module, to_text
from stepwell.ir.verification import verify
from stepwell.ir.weights import WeightStore


@dataclass
class Program(Shown):
    """An xDSL module whose methods are `func.func`s, with the store of its weight keys."""

    module: ModuleOp
    weights: WeightStore = field(default_factory=WeightStore)
    samples: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)
    """Example inputs by method, `(args, kwargs)`, if the source had them; text has none."""
    context: Context = field(default_factory=Context, compare=False, repr=False)
    """The context of the current lowering."""

    @classmethod
    def of(cls, program: Program) -> Program:
        """Return the program itself, because there is only one class of programs."""
        return program

    @property
    def level(self) -> str:
        """Return the level: `aten`, `xnnpack`, `cmsis`, `tosa` or `executorch`."""
        return level_of(self.module)

    @property
    def methods(self) -> dict[str, FuncOp]:
        """Return the methods by name, in the module's order."""
        return {op.sym_name.data: op for op in self.module.ops if isinstance(op, FuncOp)}

    @validate_arguments
    def method(self, name: str = "forward") -> FuncOp:
        """Return a method; with the default name, the only method of a program with one."""
        methods = self.methods
        if name in methods:
            return methods[name]
        if name == "forward" and len(methods) == 1:
            return next(iter(methods.values()))
        raise StepwellError(
            f"the program has no method {name!r}", help="methods are " + ", ".join(methods)
        )

    @validate_arguments
    def signature(self, name: str = "forward") -> Signature:
        """Return the inputs and outputs of a method."""
        return get_signature(self.method(name))

    def clone(self) -> Self:
        """Copy the IR over an overlay of the same weights; no tensor is copied."""
        module, weights = self.module.clone(), self.weights.child()
        return type(self)(module, weights, dict(self.samples), self.context)

    def report(self, name: str, amount: int = 1) -> None:
        """Add to a statistic of the pass that runs now (MLIR's pass statistics).

        `report.statistics`, `stepwell explain` and `stepwell opt --stats` show it.
        """
        self.context.count(name, amount)

    def verify(self) -> None:
        """Raise `VerificationError` with every problem of structure, types, level or signature."""
        verify(self.module, self.weights)

    @validate_arguments
    def run(
        self, *args: Any, method: str = "forward", engine: str | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Interpret a method from the initial state.

        Args:
            args, kwargs: inputs, nested as the model takes them.
            method: the name of the method.
            engine: for a lowered program, an engine such as `xnnpack/avx2`
                (`engine_behavior.engines`), whose behavior on NaN, infinities, zeros, denormal
                numbers and overflow the nodes follow. Ordinary numbers are computed as in PyTorch;
                with None, all are.

        Returns:
            The flat tuple of outputs, which share no memory with other tensors. Neither the model
            nor the program changes. An input that the model mutates is mutated, as by eager.

        Raises:
            InputMismatch: naming every argument that is not what the signature says.
            StepwellError: the engine was not measured, or the method has none of its nodes.
        """
        if engine is not None:
            self._follow(engine, self.method(method))
        return Session(self, engine=engine).run(*args, method=method, **kwargs)

    def _follow(self, engine: str, func: FuncOp) -> None:
        dialect = known_engine(engine).partition("/")[0]
        if not any(op.name.startswith(f"{dialect}.") for op in func.walk()):
            raise StepwellError(
                f"the program at level {self.level} has no node of the engine {engine}",
                help=f"lower it first: stepwell.lower(program, {dialect!r}).program.run(...)",
            )

    @validate_arguments
    def start(self) -> Session:
        """Start a session over a fresh copy of the initial state."""
        return Session(self)

    def __repr__(self) -> str:
        ops = sum(1 for func in self.methods.values() for _ in func.body.walk())
        methods = ", ".join(f"@{name}" for name in self.methods)
        return f"<program {methods} at level {self.level}: {ops} ops>"

    def __str__(self) -> str:
        """Return the module as MLIR text, without locations; weights are keys."""
        return to_text(self.module)

    @validate_arguments
    def text(self, constants: int = LIMIT, *, locations: bool = False) -> str:
        """Print the module as MLIR text, with constants of at most `constants` elements inline.

        `parse` reads the text. A constant with more elements is a key, for which `parse` needs
        these weights.

        Args:
            constants: the largest number of elements of an inline constant.
            locations: also print the location of each op in the model; artifacts refer to it.
        """
        return to_text(with_values(self.module, self.weights, constants), locations=locations)

    @validate_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the text, with locations, to `path`, and the weights to a safetensors file next to
        it.

        Derived weights are evaluated. Each file is written atomically.

        Raises:
            StepwellError: the folder cannot be written.
        """
        save_module(self.module, self.weights, path)

    @classmethod
    @validate_arguments
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a program that `save` wrote; nothing in its files is executed.

        Raises:
            StepwellError: a file is missing or unreadable.
            ParseFailure: a file is not what `save` writes.
        """
        return cls(*load_module(path))

    @classmethod
    @validate_arguments
    def parse(cls, text: str, weights: WeightStore | None = None) -> Self:
        """Parse a program from its text, with the weights of the program that printed it.

        Inline constants are moved into the store.

        Raises:
            ParseFailure: with line and column.
        """
        module, store = parse_module(text), WeightStore() if weights is None else weights.child()
        take_values(module, store)
        return cls(module, store)

    @validate_arguments
    def raise_to(self, level: str = "aten") -> Program:
        """Raise the program to the level `aten`, from XNNPACK's nodes, TOSA's operators or MLIR's
        dialects.

        Each op is replaced by its semantics in ATen operators; `lower` can then lower it to any
        target.

        Raises:
            StepwellError: the program's level cannot be raised, or `level` is not `aten`.
            UnsupportedError: lists every op that torch's operators cannot express.
        """
        if level != "aten":
            raise StepwellError(
                f"a program cannot be raised to level {level!r}", help="the only level is 'aten'"
            )
        return self.render("brought-in" if self.level == UPSTREAM else "aten")

    @validate_arguments
    def to_exported_program(self, method: str = "forward") -> torch.export.ExportedProgram:
        """Export a program at the aten level to torch.

        Raises:
            StepwellError: the program is at another level; `raise_to("aten")` may raise it.
        """
        return self.render("torch")(method)

    def used_weights(self) -> set[str]:
        """List the keys of the weights that the module uses."""
        return used_weights(self.module)


@dataclass
class Session:
    """Calls of one program that share its mutable buffers; methods share them too."""

    program: Program
    state: dict[str, torch.Tensor] = field(default_factory=dict[str, "torch.Tensor"])
    engine: str | None = None
    """Whose kernels nodes follow on special values, as in `Program.run`."""

    def run(self, *args: Any, method: str = "forward", **kwargs: Any) -> tuple[Any, ...]:
        """Call a method; later calls see the buffers that it updates.

        Inputs are mutated after everything is computed, as by eager.
        """
        arguments, outcome = self._called(method, args, kwargs)
        arguments.give_back(outcome.mutated_inputs)
        return outcome.outputs

    @validate_arguments
    def call(
        self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> Outcome:
        """Call a method, and return its outputs and the new values of mutated inputs, which do not
        change.
        """
        return self._called(method, args, kwargs or {})[1]

    def _called(
        self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Arguments, Outcome]:
        func = self.program.method(method)
        signature = get_signature(func)
        arguments = bind(func, args, kwargs)
        outcome = Interpreter(self.program.weights, self.state, engine=self.engine).call(
            func, arguments.values
        )
        self.state.update(outcome.state)
        outputs = iter(outcome.outputs)
        flat = tuple(
            port.constant[0] if port.constant is not None else next(outputs)
            for port in signature.outputs
        )
        return arguments, Outcome(flat, outcome.state, outcome.mutated_inputs)
