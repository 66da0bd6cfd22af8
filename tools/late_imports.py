"""The imports that stay within functions, and why. `tools/check_imports.py` compares.

    python tools/late_imports.py

prints the CPU milliseconds that each of them adds to the import of its module, which are the
figures of the table. Other packages that are optional or slow to import are `OnDemand` objects at
the top of their module (`stepwell.ir.compat.torch.lazy_imports`).
"""

import subprocess
import sys

TORCH = "brings torch"
TEXT = "a text is read, verified and printed without it"
ZOO = "`sweep --list`, or a sweep whose rows are stored, takes 500 ms"
COMMIT = "runs with the stepwell of any commit, once its output is redirected"

LATE = {
    ("stepwell", "stepwell.ir.calls.arguments"): "2 ms of 155 for `import stepwell`",
    ("stepwell", "stepwell.ir.platform.process_settings"): "6 ms of 155 for `import stepwell`",
    ("stepwell.__main__", "stepwell.cli.main"): "29 ms; Ctrl-C is handled before any other import",
    ("stepwell.cli.commands.show", "stepwell.inspection.viewer.differences"): (
        "534 ms, with the kernels of engines; only `--difference` needs it"
    ),
    ("stepwell.cli.commands.show", "stepwell.loaders.artifacts"): (
        "461 ms, with all targets; only `--profile` and `--difference` need it"
    ),
    ("stepwell.cli.commands.sweep", "stepwell.model_zoo.sweep.report"): f"2136 ms, {TORCH}; {ZOO}",
    (
        "stepwell.cli.terminal.completing",
        "argcomplete",
    ): "optional; only a shell's request needs it",
    (
        "stepwell.dialects",
        "stepwell.dialects.aten.registry",
    ): "143 ms; a dialect of no use otherwise",
    ("stepwell.cli.terminal.sources", "stepwell.loaders.artifacts"): (
        "498 ms, with all targets; most models are no artifacts"
    ),
    ("stepwell.cli.terminal.sources", "stepwell.validation.samples"): (
        "629 ms, with `check`; only `run` and bundled programs need inputs"
    ),
    ("stepwell.loaders.models", "stepwell.quantization.sensitivity.measure"): (
        "790 ms, with `accuracy`; only mixtures need it"
    ),
    ("stepwell.dialects", "stepwell.dialects.linalg_named"): "7 ms; few texts have these operators",
    ("stepwell.dialects", "stepwell.dialects.torch_mlir"): "12 ms; few texts have these operators",
    ("stepwell.dialects.aten.inference", "stepwell.dialects.symbols"): f"1563 ms, {TORCH}; {TEXT}",
    (
        "stepwell.dialects.executorch",
        "stepwell.dialects.aten.op",
    ): "145 ms; a level of few programs",
    ("stepwell.integrations.xdsl.opt", "stepwell.validation.reducer.reproducer"): (
        f"2720 ms, {TORCH}; {TEXT}"
    ),
    ("stepwell.ir.platform.dataframes", "pandas"): "242 ms; optional, and its absence is reported",
    ("stepwell.loaders.load", "stepwell.loaders.artifacts"): f"2126 ms, {TORCH}; {TEXT}",
    ("stepwell.loaders.load", "stepwell.translate.importer.pt2"): f"1316 ms, {TORCH}; {TEXT}",
    ("stepwell.model_zoo.catalogue.models", "stepwell.loaders.factories"): f"180 ms; {ZOO}",
    ("stepwell.model_zoo.catalogue.models", "stepwell.model_zoo.catalogue.wrapping"): (
        f"1187 ms, {TORCH}; {ZOO}"
    ),
    ("stepwell.model_zoo.catalogue.quantized", "stepwell.quantization.quantizers"): (
        f"182 ms; {ZOO}"
    ),
    ("stepwell.model_zoo.catalogue.quantized", "stepwell.translate.mxfp"): (
        f"2277 ms, {TORCH}; {ZOO}"
    ),
    ("stepwell.model_zoo.catalogue.vision", "torchvision"): "optional; its schemas replace it",
    ("stepwell.model_zoo.regression.child", "stepwell"): COMMIT,
    ("stepwell.model_zoo.regression.child", "stepwell.dialects.aten"): COMMIT,
    ("stepwell.model_zoo.regression.child", "stepwell.ir.work"): f"{COMMIT}; older ones have none",
    ("stepwell.model_zoo.regression.child", "stepwell.pipelines"): COMMIT,
    ("stepwell.model_zoo.regression.child", "torch"): COMMIT,
    ("stepwell.model_zoo.regression.replay", "stepwell.model_zoo.sweep.measuring"): (
        "1694 ms; exported programs are cached"
    ),
    (
        "stepwell.model_zoo.sweep.cluster",
        "distributed",
    ): "280 ms; optional, its absence is reported",
    ("stepwell.model_zoo.sweep.driver", "stepwell.cost_model.tuning"): f"1968 ms, {TORCH}; {ZOO}",
    ("stepwell.model_zoo.sweep.worker", "stepwell.model_zoo.sweep.measuring"): (
        f"3066 ms, {TORCH}; each job is measured in a child process"
    ),
    ("stepwell.plugins.registry", "stepwell.backends.executorch.kernels"): (
        "123 ms; few plug-ins register kernels, and every command lists plug-ins"
    ),
    ("stepwell.plugins.registry", "stepwell.plugins.register_op"): (
        "209 ms, with TOSA; few plug-ins register operators, and every command lists plug-ins"
    ),
    ("stepwell.program", "stepwell.translate.importer.from_torch"): f"1803 ms, {TORCH}; {TEXT}",
    ("stepwell.quantization.quantizers", "stepwell.translate.importer.export_call"): (
        f"1162 ms, {TORCH}; names of quantizers are checked without it"
    ),
    ("stepwell.quantization.quantizers", "stepwell.translate.pt2e.cortex_m_quantizer"): (
        f"2916 ms, with torchao, {TORCH}; names of quantizers are checked without it"
    ),
    ("stepwell.targets.target", "stepwell.backends.inventory"): (
        "191 ms, with XNNPACK's dialect; plug-ins and commands import `Target` for its class"
    ),
    ("stepwell.translate.decompositions.floats", "stepwell.dialects.tosa.targets"): (
        "200 ms; a lowering to XNNPACK imports no TOSA"
    ),
    ("stepwell.translate.decompositions.fourier", "stepwell.dialects.tosa.targets"): (
        "200 ms; a lowering to XNNPACK imports no TOSA"
    ),
    (
        "stepwell.translate.decompositions.floats",
        "stepwell.translate.rewrites.tosa.operators.windows",
    ): "210 ms; a lowering to XNNPACK imports no TOSA",
    ("stepwell.translate.rules.writing", "stepwell.dialects.tosa.constants"): (
        "80 ms; a lowering to XNNPACK imports no TOSA"
    ),
}
"""(module, the module that a function of it imports) → CPU time and reason."""

MEASURE = """
import sys, time, importlib
importlib.import_module(sys.argv[1])
begun = time.process_time()
importlib.import_module(sys.argv[2])
print(round(1000 * (time.process_time() - begun)))
"""


def main() -> None:
    """Print the CPU time of each row, measured in a new process."""
    for module, imported in LATE:
        command = [sys.executable, "-c", MEASURE, module, imported]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.split() if done.returncode == 0 else ["not installed"]
        print(f"{module} {imported}: {lines[-1]} ms")


if __name__ == "__main__":
    main()
