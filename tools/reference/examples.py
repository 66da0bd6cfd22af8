"""The tutorials: the scripts in `examples`, each with its text first and then its code."""

from __future__ import annotations

import ast

from reference.text import ROOT, fenced

ORDER = (
    "first_rewrite",
    "add_a_backend_op",
    "quantize_for_cortex_m",
    "mx_accuracy",
    "language_model",
    "read_a_strangers_pte",
)


def pages() -> dict[str, str]:
    """Return one page per script, and an index."""
    files = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
    names = [n for n in ORDER if n in files] + [n for n in files if n not in ORDER]
    files["first_look"] = ROOT / "examples/notebooks/first_look.py"
    names.append("first_look")
    found: dict[str, str] = {}
    index = ["# Tutorials\n\nEach is a script in the repository that a test runs.\n"]
    for name in names:
        source = files[name].read_text(encoding="utf-8")
        path = files[name].relative_to(ROOT).as_posix()
        words = ast.get_docstring(ast.parse(source)) or name
        title = words.splitlines()[0].rstrip(".")
        code = source.split('"""', 2)[2].lstrip("\n")
        found[f"tutorials/{name}.md"] = (
            f"# {title}\n\n{chr(10).join(words.splitlines()[1:]).strip()}\n\n"
            f"Run it: `python {path}`\n\n{fenced(code, 'python')}"
        )
        index.append(f"- [{title}]({name}.md)")
    found["tutorials/index.md"] = "\n".join(index) + "\n"
    return found
