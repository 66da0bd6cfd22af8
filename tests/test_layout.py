"""The tree is laid out as CONTRIBUTING.md says, and what guards it does find mistakes."""

import importlib.util
import os
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ir", "dialects", "translate", "backends")


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_imports", ROOT / "tools/check_imports.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(ROOT / "tools"))
    spec.loader.exec_module(module)
    return module


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_imports_point_one_way(checker: ModuleType) -> None:
    assert checker.problems(ROOT) == []


def test_an_import_within_a_function_has_a_reason(checker: ModuleType) -> None:
    assert checker.late_imports(ROOT, checker.LATE) == []


def test_an_import_within_a_function_and_a_stale_reason_are_found(
    checker: ModuleType, tmp_path: Path
) -> None:
    text = "def f():\n    from stepwell.ir.b import c\n"
    root = write(tmp_path, {"ir/a.py": text, "ir/b.py": "c = 1\n"})
    row = ("stepwell.ir.a", "stepwell.ir.b")
    (late,) = checker.late_imports(root, {})
    assert late.startswith("ir/a.py:2: a function imports stepwell.ir.b.c")
    assert checker.late_imports(root, {row: "10 ms"}) == []
    (stale,) = checker.late_imports(root, {row: "10 ms", (row[0], "torch"): "1 s"})
    assert "no function does so: ('stepwell.ir.a', 'torch')" in stale


@pytest.mark.parametrize(
    ("path", "line", "complaint"),
    [
        ("ir/a.py", "import stepwell.dialects.aten", "ir imports dialects"),
        ("ir/a.py", "from stepwell import dialects", "ir imports dialects"),
        ("dialects/a.py", "from stepwell.translate.b import c", "dialects imports translate"),
        ("translate/a.py", "from ..backends import b", "translate imports backends"),
        ("backends/a.py", "from stepwell.api import lower", "backends imports core"),
        ("backends/a.py", "def f():\n    import stepwell.cli.main", "backends imports public API"),
        ("src/stepwell/lowering.py", "import stepwell.validation.check", "core imports packages"),
        ("src/stepwell/loaders/a.py", "import stepwell.cli.main", "packages imports public API"),
        ("backends/a.py", "from ir import types", "bare import of ir"),
        ("dialects/a.py", "from torch.fx import Node", "belongs where programs enter"),
        ("translate/rewrites/a.py", "import torch.fx", "belongs where programs enter"),
        ("backends/a.py", "from torch.export import ExportedProgram", "belongs where programs"),
    ],
)
def test_an_import_against_the_direction_is_found(
    checker: ModuleType, tmp_path: Path, path: str, line: str, complaint: str
) -> None:
    (problem,) = checker.problems(write(tmp_path, {path: line + "\n"}))
    assert problem.startswith(f"{path}:") and complaint in problem


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("backends/a.py", "from stepwell.ir.types import tensor"),
        ("translate/importer/from_torch.py", "from torch.export import ExportedProgram"),
        ("src/stepwell/cli/main.py", "import stepwell.backends.tosa"),
        ("ir/a.py", "from . import types"),
        ("ir/a.py", "import torch"),
    ],
)
def test_an_import_along_the_direction_is_accepted(
    checker: ModuleType, tmp_path: Path, path: str, line: str
) -> None:
    assert checker.problems(write(tmp_path, {path: line + "\n"})) == []


def test_an_import_cycle_is_found(checker: ModuleType, tmp_path: Path) -> None:
    files = {"ir/a.py": "import stepwell.ir.b\n", "ir/b.py": "from stepwell.ir.a import x\n"}
    (problem,) = checker.problems(write(tmp_path, files))
    assert problem.startswith("import cycle: ")


def test_a_cycle_that_an_import_in_a_function_hides_is_found(
    checker: ModuleType, tmp_path: Path
) -> None:
    late = "def f():\n    import stepwell.ir.b\n"
    files = {"ir/a.py": late, "ir/b.py": "from stepwell.ir.a import x\n"}
    (problem,) = checker.problems(write(tmp_path, files))
    assert problem.startswith("import cycle: ")


def test_an_import_for_types_alone_closes_a_cycle(checker: ModuleType, tmp_path: Path) -> None:
    late = "def f():\n    import stepwell.ir.b\n"
    types = "if TYPE_CHECKING:\n    from stepwell.ir.a import x\n"
    (problem,) = checker.problems(write(tmp_path, {"ir/a.py": late, "ir/b.py": types}))
    assert problem.startswith("import cycle: ")


def test_a_name_of_a_module_above_in_a_string_is_found(checker: ModuleType, tmp_path: Path) -> None:
    files = {"ir/a.py": 'HOME = "stepwell.backends.b"\n', "backends/b.py": ""}
    (problem,) = checker.problems(write(tmp_path, files))
    assert "ir names backends" in problem


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_root_folder_is_the_package_of_its_name(folder: str) -> None:
    spec = importlib.util.find_spec(f"stepwell.{folder}")
    assert spec and spec.origin
    assert Path(spec.origin).resolve() == ROOT / folder / "__init__.py"


def test_every_folder_of_python_files_is_a_package() -> None:
    folders = {path.parent for name in FOLDERS for path in (ROOT / name).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_type_checker_is_told_every_folder() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]
    front = ROOT / "src/stepwell"
    own = {
        path.relative_to(ROOT).as_posix()
        for path in front.iterdir()
        if (path / "__init__.py").exists() and not path.is_symlink()
    }
    assert set(settings["include"]) == {*FOLDERS, *own, "src/stepwell/*.py"}
    assert settings["typeCheckingMode"] == "strict"


def test_a_file_written_by_hand_has_at_most_500_lines() -> None:
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for name in (*FOLDERS, "src/stepwell", "tests", "bench", "tools", "examples")
        for path in (ROOT / name).rglob("*.py")
        if "generated" not in path.as_posix()
    }
    assert {name: count for name, count in lines.items() if count > 500} == {}


@pytest.mark.skipif(
    not (ROOT / "src/stepwell/ir").is_symlink(), reason="a clone without links, or an sdist"
)
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_link_in_the_front_door_is_relative(folder: str) -> None:
    assert os.readlink(ROOT / "src/stepwell" / folder) == f"../../{folder}"
