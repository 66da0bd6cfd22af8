"""Every target: its artifact, its options, and its limits."""

from __future__ import annotations

from reference.text import first_paragraph, prose, table
from stepwell.backends.ethos_u.vela import FAMILIES
from stepwell.dialects.cmsis.target import C_TARGETS, CORES, CPUS, target
from stepwell.dialects.tosa import limits
from stepwell.dialects.tosa.limits import EIGHT_K, NONE
from stepwell.dialects.tosa.targets import parse_target
from stepwell.dialects.xnnpack import MAX_EXTERNALS, NODES
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.targets.arm import TOSA_NAMES
from stepwell.targets.table import find_target


def pages() -> dict[str, str]:
    """Return one page."""
    parts = [
        "# Targets\n\n`stepwell.lower(program, NAME)`, `stepwell lower MODEL -t NAME`. Operators "
        "outside these limits run on the runtime's own kernels if the target has any, and "
        "are refused with their line in the model otherwise.\n",
        _section("xnnpack", "XNNPACK on a CPU, through ExecuTorch"),
        _limits(
            ("nodes", f"{len(NODES)}: [ops](ops/xnnpack.md)"),
            ("rank", f"at most {MAX_RANK}"),
            ("sizes", "none may be 0; symbolic sizes need an upper bound"),
            ("inputs and outputs of a delegate", f"at most {MAX_EXTERNALS}"),
            ("left over", "ExecuTorch's portable and quantized kernels"),
            ("more", "[XNNPACK](../xnnpack.md)"),
        ),
        "`xnnpack-published` is the same target with only the pipeline of an upstream change.\n",
        _section("cortex-m55", "a Cortex-M through CMSIS-NN, int8", "cortex-m*"),
        table(
            ("name", "instructions of its kernels", "a linear layer's bias from kernel sums"),
            [
                (f"`{cpu}`", str(target(cpu).isa), "yes" if target(cpu).reads_kernel_sum else "no")
                for cpu in CPUS
            ],
        ),
        _limits(
            ("operators", "[ops](ops/cmsis.md)"),
            ("sizes", "static; fix symbolic ones with `sizes=`"),
            (
                "left over",
                "ExecuTorch's portable kernels; without a runtime, `to_c(runtime=None)`, nothing",
            ),
            ("more", "[Cortex-M](../cortex_m.md)"),
        ),
        _section("c", "C without a runtime for any core", "c, c-*"),
        table(
            ("name", "devices, for instance", "flags", "vectors"),
            [
                (f"`{name}`", CORES[name].devices, " ".join(CORES[name].flags), CORES[name].vectors)
                for name in C_TARGETS
            ],
        ),
        _limits(
            ("operators", "those of cortex-m*, and loops for the others"),
            ("sizes", "static; fix symbolic ones with `sizes=`"),
            ("left over", "nothing: what has no form in C is an error that lists it"),
            ("more", "[C](../c.md)"),
        ),
        _section("ethos-u55-128", "an Ethos-U with a Cortex-M, compiled by Vela", "ethos-u*"),
        table(
            ("names", "Vela's system", "memory mode"),
            [
                (", ".join(f"`{family}-{macs}`" for macs in sizes), f"`{system}`", f"`{mode}`")
                for family, (system, mode, sizes) in FAMILIES.items()
            ],
        ),
        _limits(
            ("inside a delegate", "TOSA's integer operators that Vela supports"),
            ("left over", "the CPU's operators"),
            ("needs", "`pip install 'stepwell[ethos-u]'`"),
            ("more", "[Ethos-U](../ethos_u.md)"),
        ),
        _section("tosa-1.0+fp", "a TOSA flatbuffer", "tosa-*"),
        "Any combination of a version, profiles and extensions is a name: "
        + ", ".join(f"`{name}`" for name in TOSA_NAMES)
        + ".\n\n"
        + prose(parse_target.__doc__).split("\n\n")[0]
        + "\n",
        _limits(
            (
                "operators",
                "[ops](ops/tosa.md), with the profile or extension that each type requires",
            ),
            ("level", "8K: " + first_paragraph(limits.__doc__)),
            (
                "largest kernel, stride, scale",
                f"{EIGHT_K.kernel}, {EIGHT_K.stride}, {EIGHT_K.scale}",
            ),
            ("rank", f"at most {EIGHT_K.rank}"),
            ("bytes of a tensor", f"at most {EIGHT_K.bytes:,}"),
            ("with `+level_none`", f"rank {NONE.rank}, lists of {NONE.list}, kernels of any size"),
            ("left over", "nothing: one unsupported op is an error that lists them all"),
            ("more", "[TOSA](../tosa.md), [operators](../tosa_operators.md), [MX](../mxfp.md)"),
        ),
        _section("vgf", "a `.vgf` file for Vulkan's ML extensions"),
        _limits(
            ("inside", "TOSA 1.0 of both profiles, static shapes"),
            ("needs", "`pip install 'stepwell[vgf]'`"),
            ("more", "[TOSA](../tosa.md)"),
        ),
    ]
    return {"reference/targets.md": "\n".join(parts)}


def _section(name: str, title: str, family: str | None = None) -> str:
    found = find_target(name)
    made = ", ".join(
        f"`to_{kind}()`" for kind in found.emitters if kind not in ("sources", "estimates")
    )
    rows = [(f"`{o.name}`", o.values, f"`{o.default!r}`", o.meaning) for o in found.options]
    return f"## {family or name}\n\n{title[:1].upper() + title[1:]}. Produces {made}.\n\n" + table(
        ("option", "values", "default", "meaning"), rows
    )


def _limits(*rows: tuple[str, str]) -> str:
    return table(("limit", ""), rows)
