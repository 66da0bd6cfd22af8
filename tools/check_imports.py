"""Check that imports point one way, from each layer to those before it.

The layers are ir, dialects, translate, backends, the core, the packages built on the core, and the
public API with the command line.

The check also rejects the bare name of a root folder (it creates a second copy of every class in
it), torch.fx and torch.export outside the importer and exporter, names of higher modules in
strings, and import cycles (a type checker reaches a file of a cycle by two paths and sees its
classes twice). All imports count: at module level, within a function, and under `TYPE_CHECKING`.

An import within a function needs a row of the table in `late_imports.py`.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from late_imports import LATE

ROOTS = ("ir", "dialects", "translate", "backends")
LAYERS = (*ROOTS, "core", "packages", "public API")
PACKAGES = frozenset(
    "cost_model inspection integrations language_models loaders model_zoo quantization "
    "validation".split()
)
"""Built on the core, which imports none of them."""
PUBLIC = frozenset(("", "__main__", "cli"))
PASSES = ("stepwell.translate.canonicalize", "stepwell.translate.rewrites")
PROGRAM_IMPORTS = ("torch.fx", "torch.export")
IN_A_STRING = re.compile(r"^(?!\s*(?:from|import)\b).*\bstepwell\.", re.M)
"""A line that may name a module without an import."""
SIZES = "torch.fx.experimental.symbolic_shapes"  # symbolic numbers, which contain no program


@dataclass(frozen=True)
class Import:
    """One imported name: ``from stepwell.ir import types`` imports ``stepwell.ir.types``.

    ``is_typing`` means that it is under ``if TYPE_CHECKING`` and never runs. It is for display: all
    kinds count equally.
    """

    name: str
    line: int
    runs_at_import: bool
    is_typing: bool = False


def source_files(root: Path) -> Iterator[Path]:
    """Yield every Python file of the package relative to ``root``, each under one path only."""
    for folder in ROOTS:
        yield from sorted(path.relative_to(root) for path in (root / folder).rglob("*.py"))
    front = root / "src/stepwell"
    yield from sorted(path.relative_to(root) for path in front.glob("*.py"))
    for folder in sorted(path for path in front.glob("*") if path.is_dir()):
        if not folder.is_symlink():
            yield from sorted(path.relative_to(root) for path in folder.rglob("*.py"))


def module_name(path: Path) -> str:
    """Return a module's name: ``ir/types.py`` -> ``stepwell.ir.types``;
    ``src/stepwell/cli/main.py`` -> ``stepwell.cli.main``.
    """
    parts = path.with_suffix("").parts
    parts = parts[2:] if parts[0] == "src" else parts
    return ".".join(("stepwell", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def layer_of(module: str) -> int:
    """Return the index in ``LAYERS`` of a stepwell module."""
    folder = (*module.split("."), "")[1]
    if folder in ROOTS:
        return ROOTS.index(folder)
    return LAYERS.index(
        "packages" if folder in PACKAGES else "public API" if folder in PUBLIC else "core"
    )


def imports_of(path: Path, module: str) -> Iterator[Import]:
    """Yield every import of a file, also in functions and under `TYPE_CHECKING`."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node, at_import, is_typing in import_statements(tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_import, is_typing)
        else:
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join((*above, base)).rstrip(".")
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, at_import, is_typing)


def import_statements(
    body: list[ast.stmt], at_import: bool = True, is_typing: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Yield the imports among statements and below them, with the flags of `Import`.

    Only statements are visited, because a file has twenty times as many expressions.
    """
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at_import, is_typing
            continue
        runs = at_import and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typing = is_typing or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in (statements := getattr(node, part, ())):
                if not isinstance(inner, ast.stmt):  # `except …:` and `case …:`.
                    yield from import_statements(inner.body, runs, typing)
            if statements and isinstance(statements[0], ast.stmt):
                yield from import_statements(statements, runs, typing)


def may_hold_torch_programs(module: str) -> bool:
    """Whether a module may use torch programs: translate without its rewrites, and src/stepwell."""
    layer = LAYERS[layer_of(module)]
    return layer not in ROOTS or (layer == "translate" and not module.startswith(PASSES))


def broken_rule(module: str, name: str) -> str | None:
    """Return the rule that an import of ``name`` by ``module`` breaks, or None."""
    if name.split(".")[0] in ROOTS:
        return f"bare import of {name}: import stepwell.{name}"
    if name.startswith("stepwell.") and layer_of(name) > layer_of(module):
        return f"{LAYERS[layer_of(module)]} imports {LAYERS[layer_of(name)]} ({name})"
    holds_programs = any(name == p or name.startswith(p + ".") for p in PROGRAM_IMPORTS)
    holds_programs = holds_programs and not name.startswith(SIZES)
    if holds_programs and not may_hold_torch_programs(module):
        return f"{name} belongs where programs enter and leave"
    return None


def problems(root: Path) -> list[str]:
    """List the imports that break a rule, one per line, and a cycle if there is one."""
    files = {module_name(path): path for path in source_files(root)}
    found: list[str] = []
    graph: dict[str, set[str]] = {module: set() for module in files}
    known = {".".join(m.split(".")[:n]) for m in files for n in range(2, m.count(".") + 2)}
    for module, path in files.items():
        found += [
            f"{path}:{line}: {rule}" for line, rule in names_above(root / path, module, known)
        ]
        for imported in imports_of(root / path, module):
            rule = broken_rule(module, imported.name)
            if rule is not None:
                found.append(f"{path}:{imported.line}: {rule}")
            parent = imported.name.rpartition(".")[0]
            target = imported.name if imported.name in files else parent
            if target in files and target != module:
                graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("import cycle: " + " <- ".join(error.args[1]))
    return found


def late_imports(root: Path, table: Mapping[tuple[str, str], str]) -> list[str]:
    """List imports within functions that a table does not have, and its rows without an import."""
    found: list[str] = []
    unused = set(table)
    for path in source_files(root):
        module = module_name(path)
        for imported in imports_of(root / path, module):
            if imported.runs_at_import or imported.is_typing:
                continue
            rows = {
                (module, home)
                for home in (imported.name, imported.name.rpartition(".")[0])
                if (module, home) in table
            }
            unused -= rows
            if not rows:
                reason = "import it at the top, or state a reason in tools/late_imports.py"
                found.append(
                    f"{path}:{imported.line}: a function imports {imported.name}: {reason}"
                )
    return found + [f"tools/late_imports.py: no function does so: {row}" for row in sorted(unused)]


def names_above(path: Path, module: str, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yield (line, rule) of strings in the lower folders that are names of higher modules."""
    text = path.read_text(encoding="utf-8")
    if LAYERS[layer_of(module)] not in ROOTS or not IN_A_STRING.search(text):
        return
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.rstrip(".")
            if name in known and layer_of(name) > layer_of(module):
                folder = LAYERS[layer_of(module)]
                yield node.lineno, f"{folder} names {LAYERS[layer_of(name)]} ({name})"


def main() -> int:
    """Print every problem; exit status 1 if there is one."""
    root = Path(__file__).resolve().parents[1]
    found = problems(root) + late_imports(root, LATE)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
