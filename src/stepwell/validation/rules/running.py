"""Compute verdicts on many rules, each in its own process, so that they are independent of each
other.

A solver numbers its terms in the order of creation, and its search depends on the numbers. In its
own process a rule has the same verdict regardless of the rules before it.
"""

import math
import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any, TypeVar, cast

from stepwell.dialects.symbols import Symbols
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f32
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import tensor
from stepwell.validation.rules.guards import without_each
from stepwell.validation.rules.kept_verdicts import Dropped
from stepwell.validation.rules.solver import z3
from stepwell.validation.rules.verdicts import Verdict, prove, rules

T = TypeVar("T")


def prove_each(
    names: Sequence[str], jobs: int | None = None, seconds: float = math.inf
) -> Iterator[Verdict]:
    """Return the verdicts on rules, in the order of `names`.

    Args:
        names: names of rules, as in `rules()`.
        jobs: the number of concurrent processes; by default the number of cores.
        seconds: the wall time for all rules; a rule without a verdict by then is open.
    """
    for name, found in zip(names, _each(_proved, names, jobs, seconds), strict=True):
        yield Verdict(name, "open", reason=found) if isinstance(found, str) else found


def without_conditions(
    names: Sequence[str], jobs: int | None = None, seconds: float = math.inf
) -> Iterator[list[Dropped]]:
    """Return, for each rule, the verdicts on the rule without each of its conditions."""
    for name, found in zip(names, _each(_dropped, names, jobs, seconds), strict=True):
        yield [Dropped(name, "", "", "open", found)] if isinstance(found, str) else found


def _proved(name: str) -> Verdict:
    return replace(prove(rules()[name]), rule=name)


def _dropped(name: str) -> list[Dropped]:
    return list(without_each(name, rules()[name]))


def _each(
    function: Callable[[str], T], names: Sequence[str], jobs: int | None, seconds: float
) -> Iterator[T | str]:
    """Call a function on each name in a forked process, which inherits all imports.

    Results are sent as bytes, because tensors would otherwise be shared with a process that has
    ended. If a process has no result, the string in its place states why.
    """
    rules()
    _import_all()
    is_forked = "fork" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if is_forked else "spawn")
    end = time.monotonic() + seconds
    waiting, running, found = list(names)[::-1], dict[Any, Any](), dict[str, T | str]()
    try:
        for name in names:
            while name not in found:
                while waiting and len(running) < (jobs or os.cpu_count() or 1):
                    receiver, sender = context.Pipe(duplex=False)
                    process = context.Process(target=_send, args=(sender, function, waiting[-1]))
                    process.start()
                    sender.close()
                    running[receiver] = (waiting.pop(), process)
                left = end - time.monotonic()
                if left <= 0:
                    found[name] = f"{LATE} of {seconds:g} seconds"
                    break
                for receiver in wait([*running], None if math.isinf(left) else left):
                    each, process = running.pop(receiver)
                    found[each] = f"{FAILED}: its process ended without a verdict"
                    with suppress(EOFError):
                        found[each] = pickle.loads(cast(Any, receiver).recv_bytes())
                    process.join()
            yield found[name]
    finally:
        for _, process in running.values():
            process.kill()


LATE, FAILED = "there is no verdict within the limit", "the prover failed"
"""Prefixes of reasons that are not about the rule."""


def _send(sender: Any, function: Callable[[str], T], name: str) -> None:
    """Send a function's pickled result; an exception as a sentence, with its traceback on
    stderr.
    """
    try:
        found: T | str = function(name)
    except StepwellError as error:
        found = error.problems[0].fact
    except Exception as error:
        traceback.print_exc()
        found = f"{FAILED}: {type(error).__name__}: {error}"
    sender.send_bytes(pickle.dumps(found))


def _import_all() -> None:
    """Import the modules that the first symbolic size and the first call of the solver need.

    These are some 750 modules of PyTorch, which would take two CPU seconds in each process.
    """
    z3.get_version()
    symbols = Symbols()
    fake = symbols.fake(tensor([Size.symbol("n"), 2], f32))
    with symbols.on_fakes():
        fake.flatten()
