"""Run pyright in strict mode over the package, and prove that it checks every folder.

pyright does not follow the symlinks in src/stepwell: a configuration that names only src checks
nothing and passes. Therefore the sources are copied, and a type error is planted in a new file in
each folder. The check passes if pyright finds exactly the planted errors.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDERS = ("ir", "dialects", "translate", "backends", "src/stepwell")
PLANTED = "planted_type_error.py"


def main() -> int:
    """Print pyright's errors; exit status 1 if there is one, or if a planted error was
    not found.
    """
    root = Path(__file__).resolve().parents[1]
    with TemporaryDirectory() as scratch:
        copy = Path(scratch).resolve() / root.name
        for folder in FOLDERS:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(root / folder, copy / folder, symlinks=True, ignore=ignore)
            (copy / folder / PLANTED).write_text('mistake: int = "planted"\n')
        shutil.copy(root / "pyproject.toml", copy)
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
        run = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        if not run.stdout.startswith("{"):
            print(run.stdout, run.stderr, sep="\n")
            return 1
        diagnostics = json.loads(run.stdout)["generalDiagnostics"]
        missed, failures = set(FOLDERS), 0
        for diagnostic in diagnostics:
            path = Path(diagnostic["file"]).relative_to(copy)
            if path.name == PLANTED:
                missed.discard(path.parent.as_posix())
            elif diagnostic["severity"] == "error":
                failures += 1
                line = diagnostic["range"]["start"]["line"] + 1
                print(f"{path}:{line}: {diagnostic['message']} ({diagnostic.get('rule', '')})")
    for folder in sorted(missed):
        print(f"{folder}: the planted type error was not found, so this folder is not checked")
    print(f"pyright: {failures} errors, {len(FOLDERS) - len(missed)} of {len(FOLDERS)} planted")
    return 1 if missed or failures else 0


if __name__ == "__main__":
    sys.exit(main())
