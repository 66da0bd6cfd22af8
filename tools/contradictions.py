"""Compare what the commands of stepwell say of the same thing, and look for wrong statements.

    python tools/contradictions.py [GROUP …] [--quick] [--json FILE] [--text FOLDER]

A *group* is a net for a target: the model before lowering (`file.py:name`, a `.pt2`), the IR text
of its levels, and the file. Groups named `stock/…` have ExecuTorch's own file in its place. Every
command runs in this process on every state of a group that it takes. From what it prints and from
its JSON come *facts*: delegates, operators outside of them and their share of the work, arena,
bytes, inputs and outputs, the costliest operator, the target, outputs for a seed, verdicts. Two
commands that state one fact differently are a contradiction. Each text is also searched for
statements that cannot be right: a count of one with a plural, a sentence that is repeated, a path
into PyTorch, advice that names an option or a command that does not exist, a traceback, exit 0
without the file, another exit with one. Printed is a row for each group; the status is the number
of findings. `--text` keeps what the commands print.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NETS = Path(__file__).with_name("_contradiction_nets.py").read_text(encoding="utf-8")
INT8 = "--quantize int8"
GROUPS = {
    "net/xnnpack": ("net", "-t xnnpack"),
    "sorts/xnnpack": ("sorts", "-t xnnpack"),
    "anyrows/xnnpack": ("anyrows", "-t xnnpack"),
    "net/xnnpack/int8": ("net", f"-t xnnpack {INT8}"),
    "net/cortex-m55": ("net", f"-t cortex-m55 {INT8} -O io=int8"),
    "sorts/cortex-m4": ("sorts", f"-t cortex-m4 {INT8}"),
    "net/c-rv32imc": ("net", f"-t c-rv32imc {INT8}"),
    "net/tosa-1.0+fp": ("net", "-t tosa-1.0+fp"),
    "net/tosa-1.0+int": ("net", f"-t tosa-1.0+int {INT8}"),
    "sorts/ethos-u55-128": ("sorts", f"-t ethos-u55-128 {INT8}"),
    "rows/openvino": ("rows", "-t openvino"),
    "rows/vgf": ("rows", "-t vgf"),
    "stock/net/xnnpack": ("net", ""),
    "stock/sorts/xnnpack": ("sorts", ""),
    "stock/anyrows/xnnpack": ("anyrows", ""),
    "stock/net/int8": ("net", INT8),
    "stock/net/cortex-m": ("net", INT8),
    "stock/net/tosa": ("net", ""),
}
QUICK = ("sorts/xnnpack",)
SUFFIXES = {"tosa": ".tosa", "vgf": ".vgf", "c": "", "c-rv32imc": ""}


@dataclass
class Run:
    """A command line with its exit status, its text, and the `result` of its JSON."""

    line: str
    status: int
    text: str
    errors: str
    result: Any

    @property
    def command(self) -> str:
        return self.line.split()[0]


@dataclass
class Group:
    """A group's runs, and the values of each fact with the command lines that state them."""

    name: str
    runs: list[Run] = field(default_factory=list[Run])
    facts: dict[str, dict[Any, list[str]]] = field(default_factory=dict[str, dict[Any, list[str]]])
    findings: list[str] = field(default_factory=list[str])

    def run(self, line: str, *, may_fail: bool = False) -> Run:
        """Run a command line in this process; collect its facts, and look at its text."""
        found = _run(line)
        self.runs.append(found)
        self.findings += [f"{line}: {what}" for what in wrong_statements(found)]
        if found.status == 1 and not found.text and not may_fail:
            self.findings.append(f"{line}: fails: {found.errors.strip().splitlines()[:2]}")
        for name, value in facts(found):
            self.facts.setdefault(name, {}).setdefault(value, []).append(line)
        return found

    def compare(self) -> None:
        """Add a finding for each fact that is stated in two ways."""
        for name, values in self.facts.items():
            if len(values) == 1 or _agree(name, list(values)):
                continue
            said = "; ".join(f"{value}: {', '.join(lines[:3])}" for value, lines in values.items())
            self.findings.append(f"{name} is {said}")


def _agree(name: str, values: Sequence[Any]) -> bool:
    if name == "loss":
        return max(values) - min(values) <= 1e-6 + 1e-3 * max(map(abs, values))
    if name == "share":
        return max(values) - min(values) <= 0.11  # Percent, printed with one place.
    if name == "outputs":  # A kernel may round to another integer than the interpreter.
        pairs = zip(values[0], values[1], strict=True)
        return len(values) == 2 and all(abs(a - b) <= 0.005 for a, b in pairs)
    return False


def _run(line: str) -> Run:
    from stepwell.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    Path("result.json").unlink(missing_ok=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([*line.split(), "--json", "result.json"])
        except SystemExit as error:
            status = int(error.code or 0)
        except Exception:
            status = 3
            err.write(traceback.format_exc())
    path = Path("result.json")
    result = json.loads(path.read_text())["result"] if path.exists() else None
    return Run(line, status, out.getvalue(), err.getvalue(), result)


# -- facts ----------------------------------------------------------------------------------------

NUMBER = r"([\d,]+)"


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def facts(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield the facts that a command states, as (name, value)."""
    if run.command == "opt":
        return
    of_model = run.command == "check" and "nets.py" in run.line
    if (of_model and run.status == 0) or (run.command == "validate" and run.text):
        yield "right", not run.text.startswith("Wrong")
    if run.status or run.result is None:
        return
    if "anyrows" in run.line and (run.command == "run" or ".pte" not in run.line):
        return  # Sizes that calls choose count as 1, but a file is read at its largest.
    is_compiled = re.search(r"(ethos_u\w+|openvino)\.pte", run.line)  # By another compiler.
    has_scratch = re.search(r"cortex|ethos|c-rv", run.line)  # Only the plan of memory has it.
    text, result, line = run.text, run.result, run.line
    if run.command == "lower":
        yield "delegates", result["delegates"]
        yield "outside", sum(result["outside"].values())
        if found := re.search(rf"(?:{NUMBER} bytes of activations|arena {NUMBER} B)", text):
            yield "arena", _number(found[1] or found[2])
        if (path := Path(line.split(" -o ")[1].split()[0])).is_file():
            yield "bytes", path.stat().st_size
        yield "share", _share(text)
    elif run.command == "explain" and "--memory" in line:
        for plan in result["memory"]:
            yield "arena", plan["size"]
            holds = re.findall(rf"holds {NUMBER} bytes", text)
            yield from (("peak", _number(n)) for n in holds if not has_scratch)
    elif run.command == "explain" and "--deploy" in line:
        yield "arena", sum(result["arena"].values())
        yield from (("bytes", _number(n)) for n in re.findall(rf"file: {NUMBER} bytes", text))
        for kind, port in re.findall(r"^  (input|output) 0: (\S+(?: \d+| x)*)", text, re.M):
            yield kind, port.replace("float", "f").replace("int", "i").replace(" x ", "x")
    elif run.command == "explain":
        kernels = [op for op in result["ops"] if op["where"] in ("kernel", "split")]
        # Reading a stock file states changes of the order in memory, which no call computes.
        moves = sum("stock" in line and "permute" in op["op"] for op in kernels)
        yield "outside", len(kernels) - moves
        if is_compiled:
            return
        yield "share", _share(text)
        if "--outside" not in line and (ops := result["ops"]):
            yield "costliest", max(op["cost"] for op in ops)
    elif run.command == "show":
        summary = result["summary"]
        state = "program" if summary["level"] == "aten" else "lowered"
        if state == "lowered":
            yield "delegates", summary["delegates"]
        if state == "lowered" and not has_scratch:
            yield "peak", summary["activations"]
        if not is_compiled:
            yield f"ops of the {state}", sum(count for count, _ in summary["ops"].values())
            yield f"costliest op of the {state}", max(work for _, work in summary["ops"].values())
        if ports := re.findall(r"tensor<((?:\d+x)+)(\w+)>", summary["methods"][0]):
            given = "" if state == "lowered" else " of the model"  # Boundaries may become int8.
            for kind, (sizes, dtype) in (("input", ports[0]), ("output", ports[-1])):
                yield kind + given, f"{dtype} {sizes.rstrip('x')}"
    elif run.command == "budget":
        for name, value in result["programs"][0]["figures"].items():
            if value is not None and name in ("delegates", "outside", "arena", "bytes"):
                yield name, value
    elif run.command == "check":
        yield "target", result["target"]
        if (found := re.findall(rf"; {NUMBER} bytes", text)) and "artifact (c)" not in text:
            yield "bytes", _number(found[-1])
    elif run.command == "accuracy":
        yield "loss", result["lost"]["mean"]
        (stage,) = (one for one in result["stages"] if one["name"] == "quantized")
        yield "loss", stage["change"]["mean"]
    elif run.command == "run" and "--profile" not in line:
        yield "outputs", tuple(float(v) for one in result["outputs"] for v in _flat(one["values"]))


def _flat(value: Any) -> Iterator[Any]:
    for one in value if isinstance(value, list) else ():
        yield from _flat(one) if isinstance(one, list) else (one,)


def _share(text: str) -> float:
    return round(sum(map(float, re.findall(r"([\d.]+)% of the work(?! in)", text))), 1)


# -- statements -----------------------------------------------------------------------------------

WRONG = {
    r"(?<![\d.,])1 (?:delegates|ops|programs|findings|samples|steps|calls|layers|passes|dead ops"
    r"|equal ops|inputs|kernels|bytes|nodes|weights|other kinds)\b": "a plural of one",
    r"\b0 of 0\b": "nothing of nothing",
    r"\b(nan|NaN)%": "a share that is no number",
    r"site-packages|torch/(?:nn|fx|_ops|export)": "a path into PyTorch",
    r"\bto_\w+\(\)|\w+\(data, largest": "Python as help for a command",
    r"Traceback": "a traceback",
    r"-DEXECUTORCH_SELECT_OPS_LIST=\"\"": "an empty selection",
}
MOST_LINES = 60
"""Lines of messages of one command above which it repeats itself."""


def wrong_statements(run: Run) -> Iterator[str]:
    """Yield what cannot be right in a command's text, its status or its files."""
    native = re.compile(r"^\[\w+\.cpp:\d+\].*\n", re.M)  # What another library prints.
    whole = run.text + native.sub("", run.errors)
    for pattern, what in WRONG.items():
        if found := re.search(pattern, whole):
            yield f"{what}: {found[0]!r}"
    rows = (line.strip() for line in whole.splitlines() if not re.match(r"\s*[\d.]+%", line))
    repeated = Counter(row for row in rows if len(row.split()) > 5)
    if (most := repeated.most_common(1)) and most[0][1] > 2:
        yield f"says {most[0][1]} times: {most[0][0][:80]!r}"
    if len(run.errors.splitlines()) > MOST_LINES:
        yield f"{len(run.errors.splitlines())} lines of messages"
    yield from (f"advises {named!r}, which does not exist" for named in unknown_advice(whole))
    if " -o " in run.line:
        path = Path(run.line.split(" -o ")[1].split()[0])
        if path.exists() != (run.status == 0):
            yield f"status {run.status}, but {path} {'exists' if path.exists() else 'does not'}"


def unknown_advice(text: str) -> Iterator[str]:
    """Yield the options and commands in a text that the command line does not have."""
    commands = _parsers()
    options = {name for one in commands.values() for name in one._option_string_actions}
    for command, rest in re.findall(r"\bstepwell ([a-z-]+)((?: \S+)*)", text):
        if command not in commands and command not in ("opt", "reduce"):
            if rest.strip().startswith("-"):
                yield f"stepwell {command}"
            continue
        if command in commands and command != "opt":
            known = commands[command]._option_string_actions
            used = re.findall(r"(?<= )--[a-z][a-z-]+", rest)
            yield from (f"stepwell {command} {name}" for name in used if name not in known)
    yield from (o for o in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text) if o not in options)


def _parsers() -> dict[str, argparse.ArgumentParser]:
    from stepwell.cli import main

    actions = main._parser()._actions
    (held,) = (one for one in actions if isinstance(one, argparse._SubParsersAction))
    return dict(held.choices)


# -- groups ---------------------------------------------------------------------------------------


def compared(name: str, *, quick: bool = False) -> Group:
    """Run the commands of a group in the current folder, which has the nets, and compare them."""
    group, (net, options) = Group(name), GROUPS[name]
    if name.startswith("stock/"):
        file = _stock(name, net, options)
        _of_file(group, file, net, options, quick)
    else:
        target = options.split()[1]
        suffix = SUFFIXES.get(target.partition("-1.")[0], ".pte")
        stem = re.sub(r"\W", "_", name)
        file = stem + suffix
        lowered = group.run(f"lower nets.py:{net} {options} -o {file} --emit-ir {stem}.mlir")
        if lowered.status == 0:
            _of_model(group, f"nets.py:{net} {options}", quick)
            own = f"-t {target}"
            group.run(f"explain {stem}.mlir {own}")
            group.run(f"show {stem}.mlir --summary")
            text = group.run(f"opt {stem}.mlir").text
            Path(f"{stem}_again.mlir").write_text(text)
            if group.run(f"opt {stem}_again.mlir").text != text:
                group.findings.append("opt reads back another text than it prints")
            if not quick:
                group.run(f"check {stem}.mlir {own}", may_fail=True)
                group.run(f"run {stem}.mlir", may_fail=True)
            if suffix:
                _of_file(group, file, net, options, quick)
    group.compare()
    return group


def _of_model(group: Group, model: str, quick: bool) -> None:
    group.run(f"explain {model}")
    if not quick and "--quantize" not in model:
        name, options = model.removeprefix("nets.py:").split(" ", 1)
        _export(name)
        group.run(f"explain {name}.pt2 {options}")
        group.run(f"check {name}.pt2 {options}")
    if (
        not quick
        and model.startswith("nets.py:net ")
        and "-t c-" not in model
        and "+fp" not in model
    ):
        group.run(f"accuracy {model} --data nets.py:data".replace("--quantize int8 ", ""))
    group.run(f"explain {model} --outside")
    group.run(f"budget {model} --write --file {re.sub(r'[^a-z0-9]', '_', group.name)}.toml")
    group.run(f"check {model}")
    if not quick:
        group.run(f"explain {model} --memory", may_fail=True)
        group.run(f"explain {model} --deploy", may_fail=True)
        group.run(f"show {model.split()[0]} --summary")


def _of_file(group: Group, file: str, net: str, options: str, quick: bool) -> None:
    is_open = "sorts" not in file or "stock" not in file  # The runtime has no kernel of sort.
    group.run(f"show {file} --summary", may_fail=not is_open)
    group.run(f"explain {file}", may_fail=not is_open)
    group.run(f"explain {file} --outside", may_fail=not is_open)
    group.run(f"run {file}", may_fail=True)
    group.run(f"check {file}", may_fail=True)
    if file.endswith(".pte"):
        group.run(f"explain {file} --memory")
        group.run(f"explain {file} --deploy", may_fail=not is_open)
        group.run(f"budget {file} --write --file file_{Path(file).stem}.toml")
    if not quick:
        quantized = " ".join(re.findall(r"--quantize \S+", options))
        group.run(f"validate {file} nets.py:{net} {quantized}".strip(), may_fail=True)
        if file.endswith(".pte"):
            group.run(f"run {file} --profile", may_fail=True)


def _export(net: str) -> None:
    """Write a net as a `.pt2`."""
    import torch

    model, inputs, *rest = _nets(net)
    torch.export.save(
        torch.export.export(model, inputs, dynamic_shapes=rest[1] if rest else None), f"{net}.pt2"
    )


def _nets(net: str) -> Any:
    sys.path.insert(0, os.getcwd())
    import nets  # pyright: ignore[reportMissingImports]

    return getattr(nets, net)()


def _stock(name: str, net: str, options: str) -> str:
    """Write the file of ExecuTorch's own flow; return its name."""
    import torch
    from _artifacts import stock

    model, inputs, *shapes = _nets(net)
    kind = name.rpartition("/")[2]
    if kind == "cortex-m":
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(each.to(memory_format=torch.channels_last) for each in inputs)
    dynamic = shapes[1] if shapes else None
    program = torch.export.export(model, inputs, dynamic_shapes=dynamic)
    if options:
        program = torch.export.export(_quantized(program, inputs, kind), inputs)
    path = Path(f"{name.replace('/', '_')}.pte")
    path.write_bytes(_stock_tosa(program) if kind == "tosa" else stock(
        program, "cortex-m" if kind == "cortex-m" else "xnnpack"))  # fmt: skip
    return str(path)


def _quantized(program: Any, inputs: tuple[Any, ...], kind: str) -> Any:
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = get_symmetric_quantization_config(is_per_channel=True)
    own = CortexMQuantizer() if kind == "cortex-m" else XNNPACKQuantizer().set_global(config)
    prepared = prepare_pt2e(program.module(check_guards=False), own)
    prepared(*inputs)
    return convert_pt2e(prepared)


def _stock_tosa(program: Any) -> bytes:
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import to_edge_transform_and_lower

    partitioner = TOSAPartitioner(TosaCompileSpec("TOSA-1.0+FP"))
    return to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch().buffer


def main() -> int:
    """Compare the groups that the command line names, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("groups", nargs="*", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="one group, few commands")
    parser.add_argument("--json", type=Path, help="write facts and findings")
    parser.add_argument("--text", type=Path, help="a folder for what the commands print")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    chosen = arguments.groups or (QUICK if arguments.quick else list(GROUPS))
    written = {at: path.absolute() for at in ("json", "text") if (path := vars(arguments)[at])}
    groups: list[Group] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("nets.py").write_text(NETS)
        print(f"{'group':24} {'commands':>8} {'facts':>6} {'findings':>8}")
        for name in chosen:
            groups.append(group := compared(name, quick=arguments.quick))
            facts = sum(map(len, group.facts.values()))
            print(f"{name:24} {len(group.runs):8} {facts:6} {len(group.findings):8}", flush=True)
            for one in group.findings:
                print(f"    {one}", flush=True)
            if folder := written.get("text"):
                folder.mkdir(exist_ok=True)
                said = (
                    f"$ stepwell {r.line}  # {r.status}\n{r.text}{r.errors}" for r in group.runs
                )
                (folder / f"{name.replace('/', '_')}.txt").write_text("\n".join(said))
    if "json" in written:
        rows = [{"group": g.name, "commands": len(g.runs), "findings": g.findings} for g in groups]
        written["json"].write_text(json.dumps(rows, indent=1))
    total = sum(len(group.findings) for group in groups)
    print(f"{len(groups)} groups, {sum(len(g.runs) for g in groups)} commands, {total} findings")
    return total


if __name__ == "__main__":
    sys.exit(main())
