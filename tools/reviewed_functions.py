"""Write the table of functions that treat every rank alike (`validation/rules/reviewed.py`).

    python tools/reviewed_functions.py

prints the functions that rules reach and that are new, or have changed. Look at each: does it do
the same whatever the number of axes is? If not, name it in `EXCLUDED`, and run this again.
"""

import json
from types import FunctionType

from stepwell.ir.platform.files import write_atomically
from stepwell.validation.rules.reviewed import EXCLUDED, TABLE, digest_of, named, reached, table
from stepwell.validation.rules.rule_terms import named_callables
from stepwell.validation.rules.verdicts import rules


def main() -> None:
    """Write the table, and print what was not in it."""
    values = [v for rewrite in rules().values() for v in named_callables(rewrite).values()]
    functions = [f for f in reached(values) if isinstance(f, FunctionType)]
    found = {named(f): digest_of(f) for f in functions if named(f) not in EXCLUDED}
    for name in sorted(found):
        if table().get(name) != found[name]:
            print(name)
    write_atomically(TABLE, (json.dumps(dict(sorted(found.items())), indent=0) + "\n").encode())


if __name__ == "__main__":
    main()
