"""Texts of upstream's dialects, one function each: which come in and go down, and what is refused.

    python bench/upstream.py FOLDER [-t TARGET]   # .mlir files; functions part them
    python bench/upstream.py FOLDER --rows FILE   # a row a function, kept; not asked again
    python bench/upstream.py --tosa-opt 46        # texts that upstream's tosa-opt prints

Nothing of the files is kept. With `--tosa-opt` stepwell's programs go through the `tosa-opt` of
tosa-tools, pretty and generic, and what it prints is read and must give the same flatbuffer.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

import stepwell
from stepwell.ir.diagnostics import StepwellError

TOSA = "tosa-1.1+int+fp+int16+int4+bf16+fp8e4m3+fp8e5m2+controlflow+fft+variable"
"""What texts of TOSA go down to."""
ALIAS = re.compile(r"^[#!][\w.$-]+ *= *[^\n]*(?:\n(?:[ \t]+|[\]})>])[^\n]*)*\n?", flags=re.M)
FUNCTION = re.compile(r"^[ \t]*func\.func (?:private |public |nested )?@([\w.$-]+)", flags=re.M)
UNARY = "abs ceil cos erf exp floor log neg reciprocal rsqrt sigmoid sin tanh relu".split()
BINARY = "add sub mul maximum minimum pow eq ge gt".split()


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of each function with a body in the files of a folder.

    A text has what its part of the file (between lines of `// -----`) states beside functions
    with a `#` or `!`, and the functions that it calls.
    """
    for path in sorted(folder.rglob("*.mlir")):
        for part in re.split(r"^// -----.*$", path.read_text(errors="replace"), flags=re.M):
            bare = re.sub(r"//.*$", "", part, flags=re.M)
            aliases = "".join(found[0] for found in ALIAS.finditer(bare))
            bodies = {found[1]: _whole(bare, found.start()) for found in FUNCTION.finditer(bare)}
            for name, body in bodies.items():
                if body is not None:
                    called = _called(body, bodies, {name})
                    yield f"{path.relative_to(folder)}: {name}", "\n".join([aliases, body, *called])


def _called(text: str, bodies: Mapping[str, str | None], seen: set[str]) -> list[str]:
    """The functions that a text calls, and those that these call."""
    found: list[str] = []
    for name in re.findall(r"\bcall @([\w.$-]+)", text):
        body = bodies.get(name)
        if body is not None and name not in seen:
            seen.add(name)
            found += [body, *_called(body, bodies, seen)]
    return found


def _whole(text: str, start: int) -> str | None:
    """The function that begins there, up to the bracket that closes its body; None: no body."""
    if len(FUNCTION.findall(text, start, text.find("{", start))) > 1:
        return None
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0 and text[at] == "}" and not text[at + 1 :].lstrip().startswith("{"):
            return text[start : at + 1]
        if depth < 0:
            return None
    return None


def outcome(text: str, target: str) -> tuple[str, str]:
    """(how far a text comes, the reason why no further)."""
    try:
        program = stepwell.parse(text)
    except StepwellError as error:
        return "not parsed", error.problems[0].fact
    try:
        if program.level == "upstream":
            program = program.raise_to("aten")
    except StepwellError as error:
        return "not in", error.problems[0].fact
    try:
        stepwell.lower(program, TOSA if program.level == "tosa" else target)
    except StepwellError as error:
        return "not down", error.problems[0].fact
    return "down", ""


def made_by_tosa_opt(count: int) -> None:
    """Programs of ours, printed by tosa-opt and read again."""
    done = Counter[str]()
    x, y = torch.rand(2, 3, 4) + 0.5, torch.rand(2, 3, 4) + 0.5
    cases = [(name, (x,)) for name in UNARY] + [(name, (x, y)) for name in BINARY]
    for name, inputs in cases[: (count + 1) // 2]:

        class Op(torch.nn.Module):
            called = staticmethod(getattr(torch, name))

            def forward(self, *given: torch.Tensor) -> torch.Tensor:
                return self.called(*given)

        lowered = stepwell.lower(torch.export.export(Op(), inputs), "tosa-1.0+fp")
        for form in ((), ("--mlir-print-op-generic",)):
            tool = [str(Path(sys.executable).with_name("tosa-opt")), *form]
            printed = subprocess.run(
                tool, input=lowered.to_mlir(), capture_output=True, text=True, check=True
            ).stdout
            again = stepwell.emit(stepwell.parse(printed), "tosa-1.0+fp")
            same = stepwell.read_tosa(again).run(*inputs)[0].equal(lowered.program.run(*inputs)[0])
            done["the same" if same else f"{name} differs"] += 1
    print(f"{sum(done.values())} texts of tosa-opt: {dict(done)}")


def main() -> None:
    """Print how far each comes, and every reason with its count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("-t", "--target", default="xnnpack")
    parser.add_argument("--tosa-opt", type=int, default=0, metavar="N")
    parser.add_argument("--rows", type=Path, help="kept here, a line each")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    if given.tosa_opt:
        made_by_tosa_opt(given.tosa_opt)
    if given.folder is None:
        return
    rows = _kept(given.rows)
    for name, text in texts(given.folder):
        if name in rows:
            continue
        try:
            rows[name] = outcome(text, given.target)
        except Exception as error:  # It is a row too.
            rows[name] = "fault", f"{type(error).__name__}: {error}"[:200]
        if given.rows is not None:
            with given.rows.open("a", encoding="utf-8") as out:
                out.write(json.dumps([name, *rows[name]]) + "\n")
        if given.verbose:
            print(f"{rows[name][0]:10} {name}: {rows[name][1]}", flush=True)
    _show(rows, given.target)


def _kept(file: Path | None) -> dict[str, tuple[str, str]]:
    """Rows of an earlier run: name to how far, and why."""
    if file is None or not file.exists():
        return {}
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {name: (kind, reason) for name, kind, reason in lines}


def _show(rows: Mapping[str, tuple[str, str]], target: str) -> None:
    far = Counter(kind for kind, _ in rows.values())
    print(f"{far.total()} texts to {target}: {dict(far)}")
    files: dict[str, list[str]] = {}
    for name, (kind, _) in rows.items():
        files.setdefault(name.partition(": ")[0], []).append(kind)
    some = sum("down" in kinds for kinds in files.values())
    whole = sum(set(kinds) == {"down"} for kinds in files.values())
    print(f"{len(files)} files: {some} of which functions go down, {whole} whole")
    why = Counter(
        f"{kind}: {re.sub(r'<[^:]*>', '<…>', reason)[:110]}"
        for kind, reason in rows.values()
        if reason
    )
    for reason, count in why.most_common():
        print(f"{count:5} {reason}")


if __name__ == "__main__":
    main()
