"""The result of a lowering: a program at its target's level, and its artifacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from stepwell.backends.executorch.container import FUSED
from stepwell.ir.calls.arguments import validate_arguments
from stepwell.ir.calls.calling import bind, with_frozen
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError
from stepwell.ir.extensions import extension
from stepwell.ir.levels import stopped_after
from stepwell.ir.options import OptionValue
from stepwell.ir.platform.files import Content, as_path, write_atomically, written_beside
from stepwell.ir.program import Program
from stepwell.ir.renderers import Shown
from stepwell.program import Plain, from_exported_program
from stepwell.report.outcomes import fates, fused
from stepwell.report.report import Report
from stepwell.targets.table import find_target
from stepwell.targets.target import Target

if TYPE_CHECKING:
    from executorch.devtools.etrecord import ETRecord
    from torch.export import ExportedProgram

    from stepwell.backends.cortex_m.c.standalone import Sources
    from stepwell.backends.ethos_u.vela import Estimate

    Source = Program | ExportedProgram | Mapping[str, ExportedProgram | Plain]

FORMATS = frozenset(
    ".pte .ptd .bpte .tosa .vgf .mlir .pt2 .safetensors .c .h "
    ".onnx .ort .tflite .pt .pth .so .xml .mlmodel .mlpackage .engine".split()
)
"""The suffixes of files with a known format."""


def require_suffix(target: Target, place: Path) -> None:
    """Check that a file's suffix is not that of another format than the target's.

    Raises:
        StepwellError: it is; the remedy is the name with the target's suffix.
    """
    artifact = target.artifact
    if place.suffix not in FORMATS or place.suffix == f".{artifact}":
        return
    if artifact == "c":
        fact = f"the target {target.name} writes a folder of C, not a {place.suffix} file"
        raise StepwellError(fact, help=f"name it {place.with_suffix('')}")
    arrays = dict.fromkeys((".c", ".h") if "c" in target.emitters else (), "to_c()")
    other = {**arrays, ".mlir": "program.save(path)"}
    raise StepwellError(
        f"the target {target.name} writes .{artifact} files, not {place.suffix}",
        help=f"name it {place.with_suffix('.' + artifact)}"
        + (f", or use {other[place.suffix]}" if place.suffix in other else ""),
    )


@dataclass(frozen=True)
class Lowered(Shown):
    """A program at its target's level, ready to be emitted."""

    program: Program
    report: Report
    target: Target
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options that were passed to `lower`."""
    source: Source | None = field(default=None, repr=False)
    """The source program, as passed to `lower`."""
    certificate: Any = field(default=None, repr=False)
    """The certificate of each application, if `lower` was called with `certify`."""

    def __repr__(self) -> str:
        outside = self.report.outside.total()
        return (
            f"<lowered to {self.target.name}: delegates {self.report.delegates}, "
            f"ops outside {outside}, {self.program!r}>"
        )

    def __reduce__(self) -> Any:
        """Pickle the target by its name, and the source only if it is a program."""
        source = self.source if isinstance(self.source, Program) else None
        options = dict(self.options)
        given = (self.program, self.report, self.target.name, options, source, self.certificate)
        return _restored, given

    @validate_arguments
    def to_pte(self, **options: OptionValue) -> bytes:
        """Return the `.pte` bytes (targets that run in ExecuTorch; the targets `c` do not).

        Args:
            options: see the target's emitter; `embed_unpacked_constants=True` puts constants that
                XNNPACK does not copy into the delegate, for runtimes known to keep them alive.
        """
        return self._emit("pte", options)

    @validate_arguments
    def emit(self, kind: str | None = None, **options: OptionValue) -> Any:
        """Return an artifact of any kind for which the target has an emitter, such as a plug-in's.

        Args:
            kind: the kind of artifact; None: the target's own format, as bytes.
            options: see the emitter.

        Raises:
            StepwellError: the target has no such artifact.
        """
        return self._emit(kind or self.target.artifact, options)

    @validate_arguments
    def save(
        self, path: str | PathLike[str], *, progress: Callable[[str, int, int], None] | None = None
    ) -> None:
        """Write the bytes of the target's own format to a file, completely or not at all.

        A `.pte` for XNNPACK is written to the file directly, without a copy in memory. The format
        of the targets `c` is a folder.

        Args:
            path: the file's path; an existing file is replaced once the new one is complete.
            progress: called before each weight of such a `.pte` with the weight's name, the bytes
                of weights in the file so far, and an upper bound of their final number.

        Raises:
            StepwellError: the file cannot be written, or its suffix is that of another format.
        """
        self._require_end()
        place = as_path(path)
        require_suffix(self.target, place)
        if self.target.artifact == "c":
            self.artifact.save(place)
            return
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
        """Return the `.pte` bundled with inputs and expected outputs (`.bpte`).

        Args:
            cases: a bundled program, whose cases are copied; or the inputs of calls by method, for
                which the source program computes the expected outputs.
            options: as for `to_pte`.

        Raises:
            StepwellError: the cases call an unknown method, or the source program is not available.
        """
        return extension("bundled-program")(self.source, self.to_pte(**options), cases)

    @validate_arguments
    def to_pte_and_ptd(self, **options: OptionValue) -> tuple[bytes, bytes]:
        """Return the `.pte` without weights, and the `.ptd` with the weights (xnnpack target)."""
        return self._emit("pte_and_ptd", options)

    @validate_arguments
    def to_pte_and_ptds(
        self, files: Mapping[str, str | Sequence[str]]
    ) -> tuple[bytes, dict[str, bytes]]:
        """Return the `.pte`, and `.ptd` files whose weights are selected by name (xnnpack target).

        Programs that differ only in the weights of one file have the same `.pte` and the same
        other files. A base model is therefore lowered with each adapter, but shipped once.

        Args:
            files: name of a file → patterns of the names of its weights (`"*lora_*"`). The first
                file that matches gets the weight. A weight derived from several (a gain folded into
                a layer) goes to a file that matches any of them. A weight without a match stays in
                the `.pte`.

        Raises:
            StepwellError: a pattern matches no weight.
        """
        for name, patterns in files.items():
            held = [patterns] if isinstance(patterns, str) else patterns
            if not all(isinstance(text, str) for text in [name, *_items(held)]):
                raise StepwellError(
                    f"files[{name!r}] is {patterns!r}: a name and its patterns must be strings"
                )
        emit = self.target.emitter("pte_and_ptds")
        told = self.target.for_artifact("pte_and_ptds", self.options, {})
        return emit(self.program, files=files, **told)

    @overload
    def to_c(
        self, name: str = ..., *, header: bool = ..., runtime: Literal["executorch"]
    ) -> str: ...

    @overload
    def to_c(
        self,
        name: str = ...,
        *,
        runtime: None,
        kernels: Literal["portable", "cmsis-nn", "mixed"] = ...,
        method: str | None = ...,
        project: str | None = ...,
    ) -> Sources: ...

    @overload
    def to_c(self, name: str = ..., **options: Any) -> Any: ...

    @validate_arguments
    def to_c(
        self,
        name: str | None = None,
        *,
        header: bool = True,
        runtime: str | None = "target",
        kernels: str = "portable",
        method: str | None = None,
        project: str | None = None,
    ) -> str | Sources:
        """Return C source for firmware (cortex-m and c targets).

        Args:
            name: a C identifier for the array (`model_pte`), which follows the facts of
                `deployment` as a comment and macros; or for the function `<name>_run` and its files
                (`model`).
            header: for an array, a header with static constants instead of a source file with
                external ones. The array's length is `<name>_length`.
            runtime: `"executorch"`: the `.pte` as an aligned array, for ExecuTorch's runtime.
                None: the program as C99 (constants, one static arena and a function) in a
                project. `"target"`, the default: None for the targets `c`, else ExecuTorch's.
            kernels: the kernels of a program without a runtime. `"portable"`: stepwell's own, which
                need only the C library. `"cmsis-nn"`: calls of CMSIS-NN's public API, as in the
                `.pte`; the program must be linked with it. `"mixed"`: the same, but stepwell's own
                kernels where they take fewer instructions on such a core.
            method: the only method to emit, without a runtime; None: all. If there are several,
                each has a function `<name>_<method>`.
            project: the files around a program without a runtime: `"cmake"` (the default; with a
                `main` that reads standard input), `"zephyr"` (a module), `"esp-idf"` (a component),
                `"arduino"` (a library) or `"wasm"` (with a loader in JavaScript).

        Returns:
            The text, or the files by name (`Sources.save(folder)`).

        Raises:
            StepwellError: the name is not an identifier, or the runtime, method or kernels are
                unknown.
            UnsupportedError: without a runtime, naming every call that has no kernel in C.
        """
        only_c = self.target.artifact == "c"
        if runtime is None or (runtime == "target" and only_c):
            told = {"name": name or "model", "method": method, "kernels": kernels}
            options = {} if project is None else {"project": project}
            return self._emit("c" if only_c else "sources", options, **told)
        if runtime not in ("target", "executorch"):
            raise StepwellError(f"runtime {runtime!r} is unknown", help="use 'executorch' or None")
        if only_c:
            fact = f"C of the target {self.target.name} has no runtime"
            raise StepwellError(
                fact, help="omit runtime=; ExecuTorch's takes the target cortex-m55"
            )
        if project is not None:
            fact = "a project contains a program without a runtime"
            raise StepwellError(fact, help="to_c(…, runtime=None, project=…)")
        name = name or "model_pte"
        text = self._emit("c", {}, name=name, header=header)
        return "\n".join([*self.deployment().c_lines(name), text])

    @validate_arguments
    def to_tosa(self, **options: OptionValue) -> bytes:
        """Return the TOSA flatbuffer (tosa targets)."""
        return self._emit("tosa", options)

    @validate_arguments
    def to_vgf(self, **options: OptionValue) -> bytes:
        """Return the file for Vulkan's ML extensions, by Arm's model converter (target vgf)."""
        return self._emit("vgf", options)

    @validate_arguments
    def to_mlir(self, **options: OptionValue) -> str:
        """Return the program with constants as text for upstream MLIR's tools (tosa targets)."""
        return self._emit("mlir", options)

    def deployment(self) -> Any:
        """Return what an application needs to run the program, as a
        `stepwell.inspection.reports.deployment.Deployment`: kernels, backends, memory, ports.

        Raises:
            StepwellError: the target's artifact is neither a `.pte` nor C.
        """
        return extension("deployment")(self)

    def estimate(self) -> list[Estimate]:
        """Return Vela's cycles, SRAM and flash of each delegate, in order (ethos-u targets)."""
        return self._emit("estimates", {})

    @validate_arguments
    def to_etrecord(self, method: str = "forward", **options: OptionValue) -> ETRecord:
        """Return the ETRecord by which ExecuTorch's Inspector maps a profile to the model.

        Nodes into which others were fused name them, the costliest first, in their stack traces.

        Args:
            method: the method to record; the Inspector supports one, and calls it `forward`.
            options: those that were passed to `to_pte`.

        Raises:
            StepwellError: the target's runtime has no profiler, or the source cannot be exported
                to PyTorch.
        """
        exported = self._exported(method)
        record = self._emit("etrecord", options, exported=exported, method=method)
        groups = fused(
            fates(from_exported_program(exported), self.program, self.target, self.report)
        )
        for node in record.edge_dialect_program.graph.nodes:
            if others := groups.get(node.name):
                trace = node.meta.get("stack_trace") or ""
                node.meta["stack_trace"] = f"{trace}\n{FUSED}{', '.join(others)}"
        return record

    @validate_arguments
    def to_executorch(self, **options: OptionValue) -> Any:
        """Return the `.pte` in the form of the stock flow's result: `.buffer`,
        `.write_to_file(file)`, ….

        Args:
            options: as for `to_pte`.
        """
        record = partial(self.to_etrecord, **options)
        return extension("program-manager")(
            self.to_pte(**options), frozenset(self.program.methods), record
        )

    @validate_arguments
    def profile(
        self,
        *inputs: Any,
        method: str = "forward",
        repeat: int = 20,
        record: ETRecord | None = None,
    ) -> Any:
        """Run the `.pte` with the profiler; return the time of each op of the model by source line.

        Args:
            inputs: flat inputs.
            method: the method to call.
            repeat: the number of calls; the result is each event's median.
            record: the result of `to_etrecord`, if it exists already.
        """
        record = record or self.to_etrecord(method)
        return extension("profile")(self.artifact, inputs, method, record=record, repeat=repeat)

    def _exported(self, method: str) -> ExportedProgram:
        source = self.source
        if isinstance(source, Program):
            return source.to_exported_program(method)
        found = source.get(method) if isinstance(source, Mapping) else source
        if source is None:
            raise StepwellError(
                "the source program is missing: pickling a lowered program omits it",
                help="lower stepwell.from_exported_program(exported), which is pickled too",
            )
        if found is None or isinstance(found, bool | int | float | str | Sequence):
            raise StepwellError(
                f"the program has no method {method!r}",
                help="methods are " + ", ".join(self.program.methods),
            )
        return found

    def _emit(self, kind: str, options: Mapping[str, Any], **arguments: Any) -> Any:
        """Call an emitter with the options that it reads, and further arguments."""
        self._require_end()
        emitter = self.target.emitter(kind)
        told = self.target.for_artifact(kind, self.options, options)
        return emitter(self.program, **told, **arguments)

    @property
    def stopped_after(self) -> str | None:
        """Return the pass after which the lowering stopped; None if the lowering is complete."""
        after = stopped_after(self.program.module)
        return None if after is None else after.partition("/")[2]

    def require_artifact(self) -> None:
        """Raise an error if the artifact cannot be emitted, or if its runtime would reject it.

        Raises:
            UnsupportedError: naming every problem, with the model's lines.
        """
        find = self.target.problems
        if find is not None and (problems := find(self.program)):
            raise UnsupportedError([self._with_refusals(problem) for problem in problems])

    def _with_refusals(self, problem: Problem) -> Problem:
        """Return a problem of an op whose remedy names why rewrites refused the op."""
        refused = [
            f"{record.rewrite} refuses it: {record.reason}"
            for record in self.report.refusals
            if record.where == problem.where and problem.fact.startswith(f"{record.op}: ")
        ]
        remedies = [*list(dict.fromkeys(refused))[:2], problem.help]
        return replace(problem, help="; ".join(filter(None, remedies)) or None)

    def _require_end(self) -> None:
        if self.stopped_after is not None:
            raise StepwellError(
                f"the lowering stopped after {self.stopped_after!r}: there is no artifact yet",
                help=f"stepwell.emit(program, {self.target.name!r}) runs the remaining passes",
            )

    @cached_property
    def artifact(self) -> Any:
        """Return the bytes of the target's own format (of C, its files), which are emitted once."""
        return self._emit(self.target.artifact, {})

    @validate_arguments
    def run(
        self, *args: Any, method: str = "forward", cpu: str | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run the artifact on the target's real engine if this machine has one.

        Args:
            args, kwargs: inputs in the nesting that the model takes, or flat.
            method: the method to call.
            cpu: an Arm64 core to emulate (`docs/arm64.md`), for a target that runs on one.

        Returns:
            The flat tuple of outputs. An input that the model modifies in place is modified, as in
            eager mode.

        Raises:
            InputMismatch: naming every argument that does not match the signature.
        """
        func = self.program.method(method)
        given = bind(func, args, kwargs)
        values = given.copies()  # The engine may modify its inputs.
        by_name = self.target.per_method and method != "forward"
        artifact = (
            self._emit(self.target.artifact, {"method": method}) if by_name else self.artifact
        )
        outputs = self.target.run(artifact, values, method, cpu)
        given.give_back({at: values[at] for at in given.written})
        return with_frozen(func, outputs) if self.target.per_method else outputs


def _items(value: Any) -> list[Any]:
    """Return the items of a list; other values unchanged, which then raise an error."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _restored(
    program: Program,
    report: Report,
    target: str,
    options: dict[str, Any],
    source: Program | None,
    certificate: Any,
) -> Lowered:
    return Lowered(program, report, find_target(target), options, source, certificate)
