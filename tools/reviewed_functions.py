"""Write the table of functions that treat every rank alike (`validation/rules/reviewed.py`).

    python tools/reviewed_functions.py

prints the functions that rules reach and that are new, or have changed. Look at each: does it do
the same whatever the number of axes is? If not, name it in `EXCLUDED`, and run this again.
"""

import json
from types import FunctionType
from typing import Any

from uniformity import rows

from stepwell.ir.platform.files import write_atomically
from stepwell.validation.rules.reviewed import TABLE, digest_of, named, reached, table
from stepwell.validation.rules.rule_terms import named_callables
from stepwell.validation.rules.verdicts import rules

EXCLUDED = frozenset(("stepwell.translate.rewrites.xnnpack.nodes.lower_shape.with_units",))
"""Functions that tell ranks apart: by the parity of the number of axes of size 1."""
COUNTING_ELEMENTS = frozenset(
    f"stepwell.{name if name.startswith('ir.') else f'translate.rewrites.{name}'}"
    for name in """ir.axes.alignment.dropped_units
    slices.hoist_slice_over_layout.static_bounds building.slice_op building.view_op
    xnnpack.nodes.lower_shape.slice_bounds xnnpack.nodes.lower_shape.offsets_of
    xnnpack.nodes.lower_shape.slice_sizes xnnpack.nodes.lower_shape.amounts_before
    xnnpack.nodes.lower_shape.amounts_after xnnpack.nodes.guards.may_cut_all
    xnnpack.partitioning.merge_transposes.are_stated cmsis.layout.slice_as_part.start_of
    tosa.layout.simplify_transpose.simplest tosa.layout.simplify_transpose.of_fewer_axes
    tosa.layout.simplify_transpose._follows tosa.integers.compose_byte_functions.tabulated
    """.split()
)
"""Functions whose integers count elements or steps, or name an item of a list of other lists: they
were looked at, and name no axis.
"""


def made() -> dict[str, Any]:
    """Return the rows of the table."""
    values = [v for rewrite in rules().values() for v in named_callables(rewrite).values()]
    functions = {named(f): f for f in reached(values) if isinstance(f, FunctionType)}
    found = rows(functions.values(), COUNTING_ELEMENTS)
    held = {name: {"digest": digest_of(functions[name])} | row for name, row in found.items()}
    return {name: held[name] for name in sorted(held) if name not in EXCLUDED}


def main() -> None:
    """Write the table, and print what was not in it."""
    found = made()
    for name, row in found.items():
        if table().get(name) != row:
            print(name)
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    write_atomically(TABLE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


if __name__ == "__main__":
    main()
