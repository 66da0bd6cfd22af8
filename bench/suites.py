"""Complete foreign test suites: ExecuTorch's own operator and module tests with our lowering.

    python bench/suites.py STATE [--suites arm-int arm-fp cortex-m xnnpack] [-k EXPRESSION]
    python bench/suites.py STATE --again ours         those that were not right
    python bench/suites.py STATE --again stock     the same as they stand, with the stock lowering
    python bench/suites.py STATE --table [PAGE]       what STATE has; its counts into PAGE

The tests are those of the installed `executorch` (nothing of them is copied), collected by pytest,
all parameters, without those that it marks as failing or skipped. What they quantize, export, feed
in and compare, with which tolerances, stays theirs; their lowering stages are `stepwell.lower` for
the target that a test names, their structural checks (which delegate holds which node) nothing.
What they run is our artifact: on the TOSA reference model, in ExecuTorch's runtime, for Cortex-M in
the interpreter, which is CMSIS-NN's arithmetic (`tests/cmsis/test_kernels_golden.py`).

| verdict | |
|---|---|
| right | every comparison of the test passes; where it has none, its harness's default one |
| beside CPU | the same, where TOSA does not take the whole program: what `-t tosa-…+cpu` makes |
| wrong | one does not |
| refused | a `StepwellError`, with its sentence |
| crash | any other error, or the end of the process |
| stock ends | the test fails as it stands, with the stock lowering, or our comparison ends its
  process; or it ends in its own export, quantizer or reference (eager has no kernel) |
| no program | a test of something else than a lowering |

STATE holds a line a case; an ended run goes on where it was. Cases come by the hash of their names,
which the order of operators has no part in: what is run so far is a fair sample.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _report import between_markers

# The folder of this script holds a `tosa.py`, which hides the package of that name.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent]

import pytest  # noqa: E402
import torch  # noqa: E402


@dataclass(frozen=True)
class Suite:
    """Folders of tests below `executorch/backends`, and a word that names of its tests hold."""

    folders: tuple[str, ...]
    word: str = "test"


ARM = ("arm/test/ops", "arm/test/modules")
SUITES = {
    "arm-int": Suite(ARM, "tosa_INT"),
    "arm-fp": Suite(ARM, "tosa_FP"),
    "cortex-m": Suite(("cortex_m/test/ops",)),
    "xnnpack": Suite(("xnnpack/test/ops",)),
}
RIGHT = ("right", "beside CPU")
WRONG = ("wrong", "refused", "crash")
STOCK = "stock"
"""Cases that are not right are run as they stand, with the stock lowering."""
OPEN = "open"
"""The verdict of a case that runs; it stays that of one that ended its process."""
LOWERING = ("to_edge", "partition", "run_passes", "to_edge_transform_and_lower", "to_executorch")
CHECKS = ("check", "check_not", "check_count", "check_node_count", "check_dtype_count")
EXTENSIONS = {"cf": "controlflow", "mxfp": "mxfp+mxfp_conv"}
"""Their names of TOSA's extensions where ours are the specification's."""


class Judged:
    """What one test has shown so far."""

    def __init__(self) -> None:
        self.tester: Any = None
        self.compared = self.ran = False
        self.good, self.why = RIGHT[0], ""
        self.verdict: tuple[str, str] | None = None

    def say(self, verdict: str, reason: str) -> None:
        """The first report is kept."""
        self.verdict = self.verdict or (verdict, reason)


def told(error: BaseException) -> str:
    """An error's class and its first line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


class Ours:
    """A stage of their harness whose artifact is ours."""

    artifact = None
    graph_module = None

    def __init__(self, lowered: Any, exported: Any, judged: Judged) -> None:
        self.lowered, self.exported, self.judged = lowered, exported, judged

    def stage_type(self) -> str:
        return "stepwell"

    def run_artifact(self, inputs: tuple[Any, ...]) -> Any:
        """Return results in the program's form, integers at the boundary as their values."""
        self.judged.ran = True
        try:
            return self._run(inputs)
        except Exception as error:
            self.judged.say(*of_error(error))
            raise

    def _run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from stepwell.dialects.quant.ops import dequantize, quantize
        from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
        from stepwell.ir.calls.nested_inputs import flat_arguments
        from stepwell.ir.signature import get_signature

        func = self.lowered.program.method()
        signature = get_signature(func)
        if ports := meanings(func, INPUT):
            leaves = flat_arguments(signature, inputs, {}, "the test")
            inputs = through(quantize, signature.inputs, ports, leaves)
        beside_cpu = self.lowered.target.name.endswith("+cpu")  # No engine runs such a `.pte`.
        results = (self.lowered.program if beside_cpu else self.lowered).run(*inputs)
        results = tuple(results) if isinstance(results, tuple | list) else (results,)
        if ports := meanings(func, OUTPUT):
            results = through(dequantize, signature.outputs, ports, results)
        return self._typed(results, bool(ports))

    def _typed(self, results: tuple[Any, ...], meant: bool) -> tuple[Any, ...]:
        """Results in the model's types: integers of 64 bits are of 32 in TOSA, halves bytes."""
        nodes = {node.name: node for node in self.exported.graph.nodes}
        names = self.exported.graph_signature.user_outputs
        types = [nodes[name].meta["val"].dtype if name in nodes else None for name in names]
        return tuple(
            x.to(type_) if type_ is not None and (meant or x.dtype == torch.int32) else x
            for x, type_ in zip(results, types, strict=True)
        )


def through(convert: Any, ports: Any, meanings: Any, values: Any) -> tuple[Any, ...]:
    """Convert values at the boundary if their port has a meaning; frozen ones have no port."""
    meant = iter(meanings)
    pairs = [
        (value, next(meant) if port.constant is None else None)
        for port, value in zip(ports, values, strict=True)
    ]
    return tuple(value if meaning is None else convert(value, meaning) for value, meaning in pairs)


def of_error(error: BaseException) -> tuple[str, str]:
    """The verdict that an error of ours is."""
    import stepwell

    return ("refused" if isinstance(error, stepwell.StepwellError) else "crash"), told(error)


def target_of(tester: Any) -> str:
    """The target of ours that a tester of theirs is for."""
    config = getattr(tester, "stepwell_config", None)
    if config is not None:
        cpu = config.cpu.name.lower().replace("plus", "+")
        return f"cortex-{cpu}"
    spec = getattr(getattr(tester, "compile_spec", None), "tosa_spec", None)
    words = str(spec).lower().split("+") if spec is not None else ["xnnpack"]
    return "+".join(EXTENSIONS.get(word, word) for word in words)


def lower(exported: Any, target: str, judged: Judged) -> Any:
    """Lower to the target; what TOSA refuses goes to the CPU, as with their partitioner."""
    import stepwell

    try:
        return stepwell.lower(exported, target)
    except stepwell.StepwellError as error:
        if not target.startswith("tosa"):
            raise
        lowered = stepwell.lower(exported, target + "+cpu")
        lowered.to_pte()
        judged.good, judged.why = RIGHT[1], told(error)
        return lowered


class Harvest:
    """A plug-in of pytest: our lowering in the place of theirs, verdicts in a file."""

    def __init__(self, suite: str, state: Path, again: str = "") -> None:
        self.suite, self.state = suite, state
        self.again = again
        self.judged = Judged()

    def pytest_configure(self, config: Any) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        logging.disable(logging.WARNING)
        if self.again == STOCK:
            self._watch()
        else:
            self._put_in_place()

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        done = {name for suite, name, verdict, _ in rows(self.state)
                if suite == self.suite and verdict != OPEN}  # fmt: skip
        wrong = {name for suite, name, verdict, _ in rows(self.state)
                 if suite == self.suite and verdict in WRONG}  # fmt: skip
        word = SUITES[self.suite].word
        items[:] = [
            item for item in items
            if word in item.name and not is_marked(item)
            and (item.nodeid in wrong if self.again else item.nodeid not in done)
        ]  # fmt: skip
        items.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any]:
        self.judged = judged = Judged()
        torch.manual_seed(0)
        before = verdicts(self.state).get((self.suite, item.nodeid), ("", ""))
        self._write(item.nodeid, OPEN, "")
        outcome = yield
        error = outcome.excinfo[1] if outcome.excinfo is not None else None
        for kept in getattr(item, "_excinfo", None) or ():  # A `TestCase` keeps what it raises.
            error = kept.value
        item._excinfo = None
        outcome.force_result(None)
        if self.again == STOCK:
            if isinstance(error, Exception):
                before = ("stock ends", f"as it stands: {told(error)}")
            elif judged.tester is not None and not judged.compared:
                run_as_by_default(judged.tester)  # Whose end is the process's, if it is one.
            self._write(item.nodeid, *before)
            return
        if isinstance(error, KeyboardInterrupt):
            raise error
        if judged.verdict is None and judged.tester is not None and not judged.compared:
            compare_as_by_default(judged)
        if judged.verdict is None and judged.compared:
            judged.say(judged.good, judged.why if error is None else told(error))
        elif judged.verdict is None and error is not None:
            judged.say("stock ends", told(error))
        self._write(item.nodeid, *(judged.verdict or ("no program", "")))

    def _write(self, name: str, verdict: str, reason: str) -> None:
        write(self.state, self.suite, name, verdict, reason)

    def _put_in_place(self) -> None:
        """Their stages after the export, and their comparison, judged."""
        from executorch.backends.arm.test.tester.arm_tester import ArmTester
        from executorch.backends.cortex_m.test.tester import CortexMTester
        from executorch.backends.test.harness import Tester
        from executorch.backends.test.harness.error_statistics import ErrorStatistics
        from executorch.backends.test.harness.stages import Export
        from executorch.backends.xnnpack.test.tester import Tester as XnnpackTester

        made = CortexMTester.__init__

        def for_core(tester: Any, module: Any, inputs: Any, target_config: Any = None, **more: Any):
            from executorch.backends.cortex_m.target_config import CortexM, CortexMTargetConfig

            tester.stepwell_config = target_config or CortexMTargetConfig(cpu=CortexM.M55)
            made(tester, module, inputs, target_config, **more)

        setattr(CortexMTester, "__init__", for_core)  # noqa: B010
        described = ErrorStatistics.from_tensors

        def differences(*tensors: Any, **more: Any) -> Any:
            """Theirs, which end on tensors without elements: of a zero in the place of those."""
            return described(*(x if x.numel() else torch.zeros(1) for x in tensors), **more)

        setattr(ErrorStatistics, "from_tensors", differences)  # noqa: B010
        for kind in (Tester, XnnpackTester, ArmTester, CortexMTester):
            for name in CHECKS:
                if hasattr(kind, name):
                    setattr(kind, name, named(name, passed))
            for name in (*LOWERING, "serialize"):
                setattr(kind, name, self._stage(name))
            if "run_method_and_compare_outputs" in vars(kind):
                compare = kind.run_method_and_compare_outputs
                kind.run_method_and_compare_outputs = self._comparison(compare)

        traced = Export.run

        def export(stage: Any, artifact: Any, inputs: Any) -> None:
            """As theirs; dynamo does not trace again what torch has traced, without branches."""
            parts = list(artifact.modules())
            if not isinstance(artifact, torch.fx.GraphModule) or any(
                isinstance(part, torch.fx.GraphModule) for part in parts[1:]
            ):
                traced(stage, artifact, inputs)
            else:
                shapes = stage.dynamic_shapes
                stage.exported_program = torch.export.export(
                    artifact, inputs, dynamic_shapes=shapes
                )

        Export.run = export

    def _watch(self) -> None:
        """Which tester a test has, and whether it compares."""
        from executorch.backends.test.harness import Tester

        export, compare = Tester.export, Tester.run_method_and_compare_outputs

        def exported(tester: Any, *args: Any, **options: Any) -> Any:
            self.judged.tester = tester
            return export(tester, *args, **options)

        def compared(tester: Any, *args: Any, **options: Any) -> Any:
            self.judged.compared = True
            return compare(tester, *args, **options)

        Tester.export, Tester.run_method_and_compare_outputs = exported, compared

    def _stage(self, name: str) -> Any:
        from executorch.backends.test.harness.stages import StageType

        kind = StageType[name.upper()]

        def stage(tester: Any, *_: Any, **__: Any) -> Any:
            if tester.stages[StageType.EXPORT] is None:  # Passes on what is not exported yet.
                return tester
            if self.judged.tester is not tester:
                self._lower(tester)
            tester.stages[kind] = tester.stepwell_stage
            tester.cur = kind
            return tester

        return named(name, stage)

    def _lower(self, tester: Any) -> None:
        from executorch.backends.test.harness.stages import StageType

        exported = tester.stages[StageType.EXPORT].artifact
        self.judged.tester = tester
        try:
            lowered = lower(exported, target_of(tester), self.judged)
        except Exception as error:
            self.judged.say(*of_error(error))
            raise
        tester.stepwell_stage = Ours(lowered, exported, self.judged)

    def _comparison(self, compare: Any) -> Any:
        def judged_comparison(tester: Any, *args: Any, **options: Any) -> Any:
            if options.get("run_eager_mode"):  # Of their quantizer with eager: nothing of ours.
                return tester
            if self.judged.tester is not tester:
                self._lower(tester)
            self.judged.compared = True
            try:
                return compare(tester, *args, **options)
            except Exception as error:
                is_wrong = isinstance(error, AssertionError)
                ended = "crash" if self.judged.ran else "stock ends"
                self.judged.say("wrong" if is_wrong else ended, told(error))
                raise

        return named(compare.__name__, judged_comparison)


def passed(tester: Any, *_: Any, **__: Any) -> Any:
    """A check of structure that asks nothing."""
    return tester


def named(name: str, function: Any) -> Any:
    """A function under the name by which their pipelines find it among their stages."""

    def called(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    called.__name__ = name
    return called


def compare_as_by_default(judged: Judged) -> None:
    """A test that only looks at structure is compared by its harness, quantized within one step."""
    judged.compared = True
    tester = judged.tester
    try:
        tester.run_method_and_compare_outputs(inputs=tester.example_inputs, qtol=1)
    except Exception as error:
        is_wrong = isinstance(error, AssertionError)
        judged.say("wrong" if is_wrong else "crash" if judged.ran else "stock ends", told(error))


def run_as_by_default(tester: Any) -> None:
    """The stock program of a test that runs none, as `compare_as_by_default` runs ours."""
    with suppress(Exception):
        tester.to_executorch().serialize()
        tester.run_method_and_compare_outputs(inputs=tester.example_inputs, qtol=1)


def is_marked(item: Any) -> bool:
    """Whether its own suite marks a test as failing or skipped."""
    marks = [*item.iter_markers("xfail"), *item.iter_markers("skip")]
    return bool(marks) or getattr(getattr(item, "obj", None), "__unittest_skip__", False)


def write(state: Path, *row: str) -> None:
    """A line more: a suite, a case, a verdict and its reason."""
    with state.open("a") as file:
        file.write(json.dumps(row) + "\n")


def verdicts(state: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Suite and case → verdict and reason; the last word on a case counts, and comes last."""
    last: dict[tuple[str, str], tuple[str, str]] = {}
    for line in state.read_text().splitlines() if state.exists() else ():
        suite, name, verdict, reason = json.loads(line)
        last.pop((suite, name), None)
        last[suite, name] = verdict, reason
    return last


def rows(state: Path) -> list[tuple[str, str, str, str]]:
    """Suite, case, verdict and reason."""
    return [(*key, *row) for key, row in verdicts(state).items()]


def table(state: Path, page: str = "") -> str:
    """Counts a suite, which a page takes too, then every case that is not right."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    others: list[str] = []
    for suite, name, verdict, reason in rows(state):
        counts[suite][verdict] += 1
        if verdict in WRONG:
            others.append(f"{suite} {verdict}: {name}: {reason[:240]}")
    lines = [
        f"| | cases | {' | '.join(RIGHT + WRONG)} | % | stock ends | no program |",
        "|" + "---|" * 10,
    ]
    for suite, count in counts.items():
        cases = sum(count[verdict] for verdict in RIGHT + WRONG)
        share = 100 * sum(count[verdict] for verdict in RIGHT) / max(cases, 1)
        row = [suite, cases, *(count[verdict] for verdict in RIGHT + WRONG), f"{share:.2f}"]
        row += [count["stock ends"], count["no program"]]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    if page:
        between_markers(Path(page), "suites", lines)
    return "\n".join([*lines, "", *sorted(others)])


def collect(suite: str, state: Path, expression: str, again: str = "") -> int:
    """Run what is open of a suite in this process; pytest's exit status."""
    warnings.filterwarnings("ignore")
    spec = find_spec("executorch.backends")
    assert spec is not None and spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations)))
    folders = [str(root / folder) for folder in SUITES[suite].folders]
    options = ["-c", os.devnull, "--rootdir", str(root), "-W", "ignore", "-o", "addopts="]
    options += ["-p", "no:cacheprovider", "-q", "--no-header", "--tb=no"]
    options += ["-k", expression] if expression else []
    return int(pytest.main([*options, *folders], plugins=[Harvest(suite, state, again)]))


def main() -> None:
    """Each suite in a process of its own, again where a case has ended it; then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("state", type=Path, metavar="STATE")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("-k", dest="expression", default="", help="as pytest's")
    parser.add_argument("--again", choices=("ours", STOCK), default="", help="what was not right")
    parser.add_argument("--table", nargs="?", const="", metavar="PAGE", help="what STATE has")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        held = arguments.state, arguments.expression, arguments.again
        sys.exit(collect(arguments.suites[0], *held))
    for suite in () if arguments.table is not None else arguments.suites:
        command = [sys.executable, __file__, str(arguments.state), "--inside", "--suites", suite]
        command += ["-k", arguments.expression] if arguments.expression else []
        command += ["--again", arguments.again] if arguments.again else []
        while subprocess.run(command, stdout=sys.stderr).returncode < 0:  # Ended by a signal.
            suite, name, *_ = rows(arguments.state)[-1]
            verdict = "stock ends" if arguments.again == STOCK else "crash"
            write(arguments.state, suite, name, verdict, "ends the process")
    print(table(arguments.state, arguments.table or ""))


if __name__ == "__main__":
    main()
