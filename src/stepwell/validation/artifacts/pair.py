"""An artifact and its source: call both on the same inputs, and compare their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import StringAttr, TensorType, i8, i16

from stepwell.backends.cortex_m.read import is_cortex_m
from stepwell.backends.executorch.container import Method, TensorValue
from stepwell.backends.executorch.reading.read import read_container
from stepwell.dialects.executorch import OpaqueDelegateOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.dtypes import is_float
from stepwell.ir.program import Program
from stepwell.ir.types import dims, element, is_static
from stepwell.loaders.artifacts import read_artifact, read_at_any_size, read_pte
from stepwell.validation.artifacts.comparing import Allowed, differs
from stepwell.validation.artifacts.engine_process import EngineCall, Failure, run_calls
from stepwell.validation.artifacts.fingerprints import ROUNDING, Call, interpret
from stepwell.validation.artifacts.given import recorded_results
from stepwell.validation.artifacts.inputs import Case
from stepwell.validation.artifacts.opaque import assuming, values_of
from stepwell.validation.artifacts.verdict import CallDifference
from stepwell.validation.histories import state_of
from stepwell.validation.rounding import NOISE, rounds_floats
from stepwell.validation.samples import Sample

RUNTIME, INTERPRETER = "the ExecuTorch runtime", "stepwell's interpreter"
DEVICE = "the device, as recorded"
TRIALS = 2
"""The number of runs with noise."""


@dataclass
class ComparedCall:
    """A call of the source, and the results of the artifact."""

    case: Case
    exact: tuple[Any, ...]
    found: tuple[Any, ...]


@dataclass
class Pair:
    """An artifact and its source."""

    data: bytes
    external: bytes | None
    origin: Program
    recorded: Mapping[str, torch.Tensor] | None = None
    made: Program | None = None
    named: dict[str, str] = field(default_factory=dict[str, str])
    """The artifact's name of a method, if it is another one."""
    methods: list[str] = field(default_factory=list[str])
    differing: list[tuple[ComparedCall, CallDifference]] = field(
        default_factory=list[tuple[ComparedCall, CallDifference]]
    )
    compared: list[ComparedCall] = field(default_factory=list[ComparedCall])
    crashes: list[tuple[Case, CallDifference]] = field(
        default_factory=list[tuple[Case, CallDifference]]
    )
    engine: str = RUNTIME
    noise: float = ROUNDING
    outputs: dict[str, int] = field(default_factory=dict[str, int])
    """The number of outputs of each method of a `.pte`, by the source's names."""
    refused: int = 0
    """The number of calls that the artifact declares not to take."""
    notes: list[str] = field(default_factory=list[str])
    sized: dict[Any, Program] = field(default_factory=dict[Any, Program])
    """Programs that are read for the sizes of a call, by method and sizes."""

    def read(self) -> None:
        """Read the artifact's program if there is a reader, and its methods."""
        is_pte = self.data[4:6] == b"ET"
        container = read_container(self.data) if is_pte else None
        try:
            if container is None:
                self.made = read_artifact(self.data)
            elif is_cortex_m(container):
                self.made = read_pte(self.data)
            else:
                self.made = read_at_any_size(self.data, self.external)
        except StepwellError as error:
            if container is None:
                raise
            self.notes.append(f"its operators were not compared: {error.problems[0].fact}")
        if container is None or is_cortex_m(container):
            self.engine = INTERPRETER
        self.set_noise()
        known = [m.name for m in container.methods] if container else [*_made(self.made).methods]
        constant = [n for n, f in self.origin.methods.items() if not f.function_type.outputs.data]
        self.methods = [name for name in self.origin.methods if name in known]
        if not self.methods and len(known) == len(self.origin.methods) == 1:
            self.methods = [*self.origin.methods]
            self.named = {self.methods[0]: known[0]}
            if self.made is not None:
                own = StringAttr(self.methods[0])
                self.made.method(known[0]).properties["sym_name"] = own
            known = self.methods
        missing = [name for name in self.origin.methods if name not in known]
        if missing:
            raise StepwellError(
                f"the artifact has no method {', '.join(missing)}; it has {', '.join(known)}",
                help="pass the program from which the artifact was made",
            )
        self.methods = [name for name in self.methods if name not in constant]
        for name in constant if self.made is not None else ():
            own, wanted = (
                [port.constant for port in p.signature(name).outputs]
                for p in (_made(self.made), self.origin)
            )
            if repr(own) != repr(wanted):
                said = f"it returns {own}, not {wanted}"
                case = Case(name, Sample("no inputs", (), True), {})
                self.crashes.append((case, CallDifference(name, case.sample.label, said)))
        for method in container.methods if container is not None else ():
            self._note_interface(method)
        for name in self.methods if self.made is not None else ():
            own = _made(self.made).method(name).function_type.inputs
            wanted = self.origin.method(name).function_type.inputs
            if len(own.data) != len(wanted.data):
                raise StepwellError(
                    f"the artifact's method {name} takes {len(own.data)} inputs, the source's "
                    f"takes {len(wanted.data)}",
                    help="pass the program from which the artifact was made",
                )
            self._require_floats(name)

    def _require_floats(self, method: str) -> None:
        """Refuse integers at the boundary for the source's floats: the file does not state which
        numbers they are.
        """
        own, wanted = (p.method(method).function_type for p in (_made(self.made), self.origin))
        for side in ("inputs", "outputs"):
            pairs = zip(getattr(own, side).data, getattr(wanted, side).data, strict=False)
            for at, (ours, theirs) in enumerate(pairs):
                kinds = [element(t) for t in (ours, theirs) if isinstance(t, TensorType)]
                if len(kinds) < 2 or kinds[0] not in (i8, i16) or not is_float(kinds[1]):
                    continue
                raise StepwellError(
                    f"of the {side} of {method}, number {at} is {kinds[0]} in the artifact and "
                    f"{kinds[1]} in the source; no file states what these integers are",
                    help="validate a lowering with floats there (without io=), or `stepwell "
                    "check` the model with the options of the lowering",
                )

    def _note_interface(self, method: Method) -> None:
        """Count the outputs, and note the inputs that the runtime misreads if they are contiguous,
        as the source takes them.
        """
        origin = next((o for o in self.methods if self.named.get(o, o) == method.name), None)
        if origin is not None:
            self.outputs[origin] = len(method.outputs)
        ports = () if origin is None else self.origin.signature(origin).inputs
        for at, (index, port) in enumerate(zip(method.inputs, ports, strict=False)):
            value = method.values[index]
            order = value.dim_order if isinstance(value, TensorValue) else ()
            if tuple(order) != tuple(port.dim_order or sorted(order)):
                self.notes.append(
                    f"input {at} of {method.name} lies in the order {tuple(order)} in the file: "
                    "the runtime misreads a contiguous one"
                )

    def set_noise(self) -> None:
        """Choose the noise: floats that are rounded to integers are few near the middle of two."""
        programs = [self.origin, *([] if self.made is None else [self.made])]
        if any(map(rounds_floats, programs)):
            self.noise = NOISE

    def compare(self, cases: Sequence[Case]) -> None:
        """Call both programs."""
        cases = cases[:1] if self.recorded is not None else cases
        state, exact, kept = state_of(self.origin), list[tuple[Any, ...]](), list[Case]()
        has_state = bool(state)
        for case in cases:
            func = self.origin.method(case.method)
            before = dict(state)
            try:
                call = interpret(
                    func, self.origin.weights, case.sample.inputs, before, prints=False
                )
            except StepwellError as error:
                if not case.sample.guessed:
                    fact = error.problems[0].fact
                    self.notes.append(f"the model refuses {case.sample.label}: {fact}")
                continue
            exact.append(call.results)
            kept.append(Case(case.method, case.sample, before if has_state else {}))
            state.update(call.outcome.state)
        if not kept:
            raise StepwellError(
                "; ".join(["the model runs on none of the samples", *self.notes[:1]]),
                help="pass inputs that it takes: inputs=…",
            )
        for case, wanted, found in zip(kept, exact, self._run(kept, exact[0]), strict=True):
            if isinstance(found, Failure) and (found.refused or found.unsupported):
                how = "refuses inputs that the model takes" if found.refused else "was not run"
                said = f"the artifact {how}: {found.fact}"
                self.notes += [] if said in self.notes else [said]
                self.refused += found.refused
                if has_state:
                    break  # Its buffers are no longer those of the source.
                continue
            if isinstance(found, Failure):
                said = CallDifference(case.method, case.sample.label, found.fact, "crash")
                self.crashes.append((case, said))
                if has_state:
                    break
                continue
            found, wrong = self.without_constants(case, found)
            one = ComparedCall(case, wanted, found)
            self.compared.append(one)
            allowed = self.allowed(case)
            if (fact := wrong or differs(wanted, found, allowed)) is not None:
                label = case.sample.label
                self.differing.append((one, CallDifference(case.method, label, fact)))

        if not self.compared and not self.crashes:
            raise StepwellError(
                f"no call could be compared: {self.notes[-1]}",
                help="give what the device returned: recorded=…, --recorded",
            )

    def _run(self, cases: Sequence[Case], exact: Sequence[Any]) -> list[tuple[Any, ...] | Failure]:
        """Return the artifact's results, by the runtime if it runs here."""
        if self.recorded is not None:
            self.engine = DEVICE
            return [tuple(recorded_results(self.recorded, exact))]
        if self.engine == RUNTIME:
            found = run_calls(self.data, [*map(self.engine_call, cases)], self.external)
            failures = [one for one in found if isinstance(one, Failure)]
            missing = next((one for one in failures if one.unsupported), None)
            if self.opaque() and len(failures) == len(found):  # Its libraries are elsewhere.
                missing = failures[0]
            if missing is None:
                return found
            self.engine = INTERPRETER
            self.notes.append(f"the runtime does not run it here: {missing.fact}")
        return [*self._interpreted(cases)]

    def engine_call(self, case: Case) -> EngineCall:
        """Return a call of the artifact."""
        return EngineCall(self.named.get(case.method, case.method), case.sample.inputs)

    def without_constants(
        self, case: Case, found: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], str | None]:
        """Return the results that are computed, and how a constant one differs from the source's.

        The runtime returns constant outputs, too; an interpreted call has none.
        """
        ports = self.origin.signature(case.method).outputs
        extra = self.outputs.get(case.method, len(ports)) - len(ports)
        if extra > 0:  # ExecuTorch's flow returns the inputs that a method writes, first.
            found = (*found[extra:], *found[:extra])
        if all(port.constant is None for port in ports) or len(found) < len(ports):
            return found, None
        wrong = [
            f"result {at} is {value!r}, not {port.constant[0]!r}"
            for at, (port, value) in enumerate(zip(ports, found, strict=False))
            if port.constant is not None and repr(value) != repr(port.constant[0])
        ]
        kept = [v for p, v in zip(ports, found, strict=False) if p.constant is None]
        return (*kept, *found[len(ports) :]), next(iter(wrong), None)

    def _interpreted(self, cases: Sequence[Case]) -> Iterator[tuple[Any, ...] | Failure]:
        if self.made is None:
            raise StepwellError(
                f"the artifact neither runs here nor can be read: {self.notes[-1]}",
                help="give what the device returned: recorded=…",
            )
        state = state_of(self.made)
        for case in cases:
            try:
                call = self.made_call(case, state)
            except StepwellError as error:
                yield Failure(error.problems[0].fact, isinstance(error, UnsupportedError))
                continue
            state.update(call.outcome.state)
            yield call.results

    def allowed(self, case: Case) -> Allowed:
        """Return the differences of a call's results that rounding explains."""
        return Allowed(lambda: [call.results for call in self.noisy(case, prints=False)])

    def noisy(self, case: Case, *, prints: bool, program: Program | None = None) -> Iterator[Call]:
        """Yield a call of a program, by default the source, with several noises in its floats."""
        of = program or self.origin
        state = case.state if program is None else self.state_at(case)
        func, inputs, noise = of.method(case.method), case.sample.inputs, self.noise
        for seed in range(TRIALS):
            yield interpret(func, of.weights, inputs, state, (seed, noise), prints=prints)

    def state_at(self, case: Case) -> Mapping[str, torch.Tensor]:
        """Return the artifact's buffers before a call, after those before it."""
        if self.made is None or not case.state:
            return {}
        state = state_of(self.made)
        for one in self.compared:
            if one.case is case:
                break
            state.update(self.made_call(one.case, state).outcome.state)
        return state

    def made_call(
        self, case: Case, state: Mapping[str, torch.Tensor], *, prints: bool = False
    ) -> Call:
        """Interpret the artifact; the results of opaque delegates are the source's."""
        made, inputs = self.at_sizes(case), case.sample.inputs
        func = made.method(case.method)
        if not self.opaque():
            return interpret(func, made.weights, inputs, state, prints=prints)
        origin = self.origin.method(case.method)
        return assuming(func, made.weights, inputs, state, values_of(self.origin, origin, case))

    def at_sizes(self, case: Case) -> Program:
        """Return the artifact's program, for the sizes of a case if it is read for fixed ones."""
        made = _made(self.made)
        types = made.method(case.method).function_type.inputs.data
        given = [x.shape for x in case.sample.inputs if isinstance(x, torch.Tensor)]
        fixed = [dims(t) for t in types if isinstance(t, TensorType)]
        if self.named or not all(map(is_static, types)) or given == fixed:
            return made
        key = (case.method, *given)
        if key not in self.sized:
            sizes = {case.method: given}
            self.sized[key] = read_pte(self.data, external=self.external, sizes=sizes)
        return self.sized[key]

    def opaque(self) -> tuple[str, ...]:
        """Return the delegates that cannot be read."""
        ops = self.made.module.walk() if self.made is not None else ()
        found = Counter(op.backend.data for op in ops if isinstance(op, OpaqueDelegateOp))
        return tuple(
            f"a delegate of {name}" if count == 1 else f"{count} delegates of {name}"
            for name, count in found.items()
        )


def _made(program: Program | None) -> Program:
    assert program is not None
    return program
