"""The public names, each with its signature and docstring; mkdocstrings reads the sources."""

from __future__ import annotations

import stepwell

GROUPS = {
    "Programs": ("from_exported_program", "parse", "load", "Program", "Session"),
    "Lowering": ("lower", "Lowered", "Report", "PIPELINES", "Pipeline"),
    "Artifacts": ("read_pte", "read_tosa", "run_pte", "to_mxfp", "mx_accuracy", "accuracy"),
    "Looking and checking": ("explain", "check"),
    "Rewrites of your own": (
        "Rewrite",
        "Refusal",
        "Rewriter",
        "Bound",
        "Pass",
        "GreedyRewrites",
        "History",
        "transform_pass",
        "register_op",
    ),
    "Plug-ins": (
        "load_plugin",
        "unload_plugin",
        "Registry",
        "Plugin",
        "Target",
        "Option",
        "Level",
        "set_level",
        "infers",
        "interprets",
    ),
    "Errors": ("StepwellError", "VerificationError"),
}


def pages() -> dict[str, str]:
    """Return one page; public names without a group are at the end, so that none is missing."""
    named = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "More": tuple(n for n in stepwell.__all__ if n not in named)}
    parts = [
        "# Python\n\nEverything here is imported from `stepwell`; `import stepwell` is cheap: each "
        "name is loaded on first use.\n"
    ]
    for title, names in groups.items():
        if names:
            parts.append(f"## {title}\n")
        for name in names:
            parts += [f"::: {_home(name)}", "    options: {heading_level: 3}\n"]
    return {"reference/api.md": "\n".join(parts)}


def _home(name: str) -> str:
    """Return where a public name is defined, which is where its docstring is."""
    value = getattr(stepwell, name)
    home = getattr(value, "__module__", None)
    if name == "PIPELINES" or home is None:
        return "stepwell.targets.table.PIPELINES"
    return f"{home}.{value.__qualname__}"
