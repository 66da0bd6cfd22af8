"""What a lowering gives: a program at its target's level, and every artifact of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

from stepwell.ir.calls.arguments import validate_arguments
from stepwell.ir.calls.calling import bind, with_frozen
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.levels import stopped_after
from stepwell.ir.options import OptionValue
from stepwell.ir.platform.files import Content, as_path, write_atomically, written_beside
from stepwell.ir.program import Program
from stepwell.ir.renderers import Shown
from stepwell.program import Plain
from stepwell.report.report import Report
from stepwell.targets.table import find_target
from stepwell.targets.target import Target

if TYPE_CHECKING:
    from executorch.devtools.etrecord import ETRecord
    from torch.export import ExportedProgram

    from stepwell.backends.cortex_m.c.standalone import Sources
    from stepwell.backends.ethos_u.vela import Estimate
    from stepwell.inspection.reports.profiling import Profile
    from stepwell.integrations.executorch.program_manager import ExecutorchProgram
    from stepwell.validation.certificates.certificate import Certificate

    Source = Program | ExportedProgram | Mapping[str, ExportedProgram | Plain]

FORMATS = frozenset(".pte .ptd .bpte .tosa .vgf .mlir .pt2 .safetensors .c .h".split())
"""The suffixes of files that hold one thing."""


@dataclass(frozen=True)
class Lowered(Shown):
    """A program at its target's level, ready to be emitted."""

    program: Program
    report: Report
    target: Target
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those that `lower` was given."""
    source: Source | None = field(default=None, repr=False)
    """What was lowered, as it was given to `lower`."""
    certificate: Certificate | None = field(default=None, repr=False)
    """What each application rests on, where `lower` was asked for it."""

    def __repr__(self) -> str:
        outside = self.report.outside.total()
        return (
            f"<lowered to {self.target.name}: delegates {self.report.delegates}, "
            f"ops outside {outside}, {self.program!r}>"
        )

    def __reduce__(self) -> Any:
        """In another process the target is found by its name; of sources a program goes along."""
        source = self.source if isinstance(self.source, Program) else None
        options = dict(self.options)
        given = (self.program, self.report, self.target.name, options, source, self.certificate)
        return _restored, given

    @validate_arguments
    def to_pte(self, **options: OptionValue) -> bytes:
        """The `.pte` bytes (xnnpack and cortex-m targets).

        Args:
            options: see the target's emitter; `embed_unpacked_constants=True` puts constants that
                XNNPACK does not copy into the delegate, for runtimes known to keep them alive.
        """
        return self._emit("pte", options)

    @validate_arguments
    def emit(self, kind: str | None = None, **options: OptionValue) -> Any:
        """An artifact of any kind that the target has an emitter of, such as a plug-in's.

        Args:
            kind: of artifact; None: the target's own format, as bytes.
            options: see the emitter.

        Raises:
            StepwellError: the target has no such artifact.
        """
        return self._emit(kind or self.target.artifact, options)

    @validate_arguments
    def save(
        self, path: str | PathLike[str], *, progress: Callable[[str, int, int], None] | None = None
    ) -> None:
        """Write the bytes of the target's own format to a file, whole or not at all.

        A `.pte` for XNNPACK is made in the file itself, without a copy of it in memory.

        Args:
            path: of the file; an older one stays until the new one is whole.
            progress: told, before each weight of such a `.pte`, its name, how many bytes of weights
                stand in the file, and how many there will be at most.

        Raises:
            StepwellError: the file cannot be written, or its name is one of another format.
        """
        self._require_end()
        place = as_path(path)
        artifact = self.target.artifact
        if place.suffix != f".{artifact}" and place.suffix in FORMATS:
            other = {".c": "to_c()", ".h": "to_c()", ".mlir": "program.save(path)"}
            raise StepwellError(
                f"the target {self.target.name} makes a .{artifact}, not a {place.suffix}",
                help=f"name it {place.with_suffix('.' + artifact)}"
                + (f", or use {other[place.suffix]}" if place.suffix in other else ""),
            )
        write = self.target.write
        if write is None:
            write_atomically(place, self.artifact)
            return
        told = self.target.for_artifact(self.target.artifact, self.options, {})
        if progress is not None:
            told["progress"] = progress
        with written_beside(place) as beside:
            write(self.program, path=beside, **told)

    @validate_arguments
    def to_bpte(
        self,
        cases: Content | Mapping[str, Sequence[tuple[Any, ...]]],
        **options: OptionValue,
    ) -> bytes:
        """The `.pte` bundled with inputs and what it should give for them (`.bpte`).

        Args:
            cases: a bundled program, whose cases are kept as they are; or inputs of calls by
                method, for which what was lowered says what they give.
            options: as for `to_pte`.

        Raises:
            StepwellError: the cases call a method that there is not, or what was lowered is gone.
        """
        from stepwell.integrations.executorch.bundled_program import to_bpte

        return to_bpte(self.source, self.to_pte(**options), cases)

    @validate_arguments
    def to_pte_and_ptd(self, **options: OptionValue) -> tuple[bytes, bytes]:
        """The `.pte` without weights, and the `.ptd` that holds them (xnnpack target)."""
        return self._emit("pte_and_ptd", options)

    @validate_arguments
    def to_pte_and_ptds(
        self, files: Mapping[str, str | Sequence[str]]
    ) -> tuple[bytes, dict[str, bytes]]:
        """The `.pte`, and weights in `.ptd` files of their own, found by name (xnnpack target).

        Programs that differ in the weights of one file alone have the same `.pte` and the same
        other files: a base model is lowered once with each adapter, and shipped once.

        Args:
            files: name of a file → patterns of the names of its weights (`"*lora_*"`), the first
                file that fits. A weight made of several (a gain folded into a layer) goes where any
                of them would. What fits nowhere stays in the `.pte`.

        Raises:
            StepwellError: no weight fits a pattern.
        """
        for name, patterns in files.items():
            held = [patterns] if isinstance(patterns, str) else patterns
            if not all(isinstance(text, str) for text in [name, *_items(held)]):
                raise StepwellError(
                    f"files[{name!r}] is {patterns!r}: a name, and patterns of names, are texts"
                )
        emit = self.target.emitter("pte_and_ptds")
        told = self.target.for_artifact("pte_and_ptds", self.options, {})
        return emit(self.program, files=files, **told)

    @overload
    def to_c(
        self, name: str = ..., *, header: bool = ..., runtime: Literal["executorch"] = ...
    ) -> str: ...

    @overload
    def to_c(
        self,
        name: str = ...,
        *,
        runtime: None,
        kernels: Literal["portable", "cmsis-nn", "mixed"] = ...,
        method: str | None = ...,
    ) -> Sources: ...

    @validate_arguments
    def to_c(
        self,
        name: str | None = None,
        *,
        header: bool = True,
        runtime: str | None = "executorch",
        kernels: str = "portable",
        method: str | None = None,
    ) -> str | Sources:
        """C for firmware (cortex-m targets).

        Args:
            name: a C identifier: of the array (`model_pte`), or of the function `<name>_run` and
                its files (`model`).
            header: of an array, a header with static constants, else a source file with external
                ones; its length is `<name>_length`.
            runtime: `"executorch"`: the `.pte` as an aligned array, for ExecuTorch's runtime.
                None: the program itself as C99: constants, one static arena, a function; and a
                CMake project around them.
            kernels: without a runtime, whose kernels: `"portable"`: our own, which need nothing
                but the C library; `"cmsis-nn"`: calls of CMSIS-NN's public API, which the program
                is then linked with, as the `.pte` makes them; `"mixed"`: the same, and our own
                where those take fewer instructions on such a core.
            method: which method alone, without a runtime; None: all. Of several, each has a
                function `<name>_<method>`.

        Returns:
            Text, or the files by name (`Sources.save(folder)`).

        Raises:
            StepwellError: the name cannot be one, or there is no such runtime, method or kernels.
            UnsupportedError: without a runtime, naming every call that has no kernel in C.
        """
        if runtime is None:
            told = {"name": name or "model", "method": method, "kernels": kernels}
            return self._emit("sources", {}, **told)
        if runtime != "executorch":
            raise StepwellError(
                f"there is no runtime {runtime!r}", help="it is 'executorch' or None"
            )
        return self._emit("c", {}, name=name or "model_pte", header=header)

    @validate_arguments
    def to_tosa(self, **options: OptionValue) -> bytes:
        """The TOSA flatbuffer (tosa targets)."""
        return self._emit("tosa", options)

    @validate_arguments
    def to_vgf(self, **options: OptionValue) -> bytes:
        """The file for Vulkan's ML extensions, by Arm's model converter (target vgf)."""
        return self._emit("vgf", options)

    @validate_arguments
    def to_mlir(self, **options: OptionValue) -> str:
        """The program as text for upstream MLIR's tools, constants and all (tosa targets)."""
        return self._emit("mlir", options)

    def estimate(self) -> list[Estimate]:
        """Vela's own cycles, SRAM and flash of each delegate, in order (ethos-u targets)."""
        return self._emit("estimates", {})

    @validate_arguments
    def to_etrecord(self, method: str = "forward", **options: OptionValue) -> ETRecord:
        """What ExecuTorch's Inspector needs to lead a profile of the `.pte` back to the model.

        Args:
            method: the Inspector knows one method, and calls it `forward`.
            options: those that `to_pte` was given.

        Raises:
            StepwellError: the target's runtime has no profiler, or the source cannot be a torch
                program.
        """
        exported = self._exported(method)
        return self._emit("etrecord", options, exported=exported, method=method)

    @validate_arguments
    def to_executorch(self, **options: OptionValue) -> ExecutorchProgram:
        """The `.pte` as the stock flow's last step gives it: `.buffer`, `.write_to_file(file)`, ….

        Args:
            options: as for `to_pte`.
        """
        from stepwell.integrations.executorch.program_manager import ExecutorchProgram

        record = partial(self.to_etrecord, **options)
        return ExecutorchProgram(self.to_pte(**options), frozenset(self.program.methods), record)

    @validate_arguments
    def profile(
        self,
        *inputs: Any,
        method: str = "forward",
        repeat: int = 20,
        record: ETRecord | None = None,
    ) -> Profile:
        """Run the `.pte` with its profiler on: time for each op of the model, by source line.

        Args:
            inputs: flat inputs.
            method: the method to call.
            repeat: calls; each event's median counts.
            record: what `to_etrecord` gave, if it is there already.
        """
        from stepwell.inspection.reports.profiling import profile

        record = record or self.to_etrecord(method)
        return profile(self.artifact, inputs, method, record=record, repeat=repeat)

    def _exported(self, method: str) -> ExportedProgram:
        source = self.source
        if isinstance(source, Program):
            return source.to_exported_program(method)
        found = source.get(method) if isinstance(source, Mapping) else source
        if source is None:
            raise StepwellError(
                "what was lowered did not go along to this process",
                help="lower a stepwell program: from_exported_program(exported)",
            )
        if found is None or isinstance(found, bool | int | float | str | Sequence):
            raise StepwellError(
                f"there is no method {method!r}",
                help="methods are " + ", ".join(self.program.methods),
            )
        return found

    def _emit(self, kind: str, options: Mapping[str, Any], **arguments: Any) -> Any:
        """Call an emitter with the options it reads, and arguments that are no options."""
        self._require_end()
        emitter = self.target.emitter(kind)
        told = self.target.for_artifact(kind, self.options, options)
        return emitter(self.program, **told, **arguments)

    @property
    def stopped_after(self) -> str | None:
        """The step behind which the program stopped on its way; None at its end."""
        after = stopped_after(self.program.module)
        return None if after is None else after.partition("/")[2]

    def require_artifact(self) -> None:
        """Raise where the artifact cannot be emitted, or its runtime would refuse it.

        Raises:
            UnsupportedError: naming everything that stands against it, with the model's lines.
        """
        find = self.target.problems
        if find is not None and (problems := find(self.program)):
            raise UnsupportedError(problems)

    def _require_end(self) -> None:
        if self.stopped_after is not None:
            raise StepwellError(
                f"the program stopped behind {self.stopped_after!r}: it is no artifact yet",
                help=f"stepwell.emit(program, {self.target.name!r}) takes the rest",
            )

    @cached_property
    def artifact(self) -> bytes:
        """The bytes of the target's own format, emitted once."""
        return self._emit(self.target.artifact, {})

    @validate_arguments
    def run(
        self, *args: Any, method: str = "forward", cpu: str | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run the artifact on the target's real engine where this machine has one.

        Args:
            args, kwargs: inputs nested as the model takes them, or flat.
            method: the method to call.
            cpu: an Arm64 core to emulate (`docs/arm64.md`), for a target that runs on one.

        Returns:
            The flat tuple of outputs. An input that the model writes in place is written, as by
            eager.

        Raises:
            InputMismatch: naming every argument that is not what the signature says.
        """
        func = self.program.method(method)
        given = bind(func, args, kwargs)
        values = given.copies()  # The engine writes to what it is given.
        by_name = self.target.per_method and method != "forward"
        artifact = (
            self._emit(self.target.artifact, {"method": method}) if by_name else self.artifact
        )
        outputs = self.target.run(artifact, values, method, cpu)
        given.give_back({at: values[at] for at in given.written})
        return with_frozen(func, outputs) if self.target.per_method else outputs


def _items(value: Any) -> list[Any]:
    """The items of a list; of anything else, itself, which is none of what is asked for."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _restored(
    program: Program,
    report: Report,
    target: str,
    options: dict[str, Any],
    source: Program | None,
    certificate: Certificate | None,
) -> Lowered:
    return Lowered(program, report, find_target(target), options, source, certificate)
