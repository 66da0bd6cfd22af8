"""Control-flow recovery: the reads and writes of a method's instructions, and jumps as a tree.

A plan jumps; a program has regions. Three forms are supported, which ExecuTorch's own
emitter and ours write:

    jump_if_false c, E           s: …                         s: select_copy x, 0, n, slice
    …                            jump_if_false c, out            …
    jump_if_false False, end     …                            et_copy_index stacked, value, n
    E: …                         jump_if_false False, s       add n, 1, n; eq n, size, done
    end:                         out:                         jump_if_false done, s
    (cond)                       (while)                      (map, scan)
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stepwell.backends.executorch.container import (
    DelegateCall,
    Instruction,
    IntList,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    OptionalTensorList,
    Planned,
    State,
    TensorList,
    TensorValue,
)
from stepwell.backends.executorch.kernels.signatures import InPlace, Output, functional_of
from stepwell.backends.executorch.reading.read_arguments import SCALARS, SIZE
from stepwell.ir.diagnostics import UnsupportedError

COPY_INDEX = "executorch_prim::et_copy_index.tensor"
SELECT = "aten::select_copy.int_out"
_COUNT, _DONE = "executorch_prim::add.Scalar", "executorch_prim::eq.Scalar"
MAX_DEPTH, MAX_LOOPS = 64, 6
_IN_PLACE = frozenset({"aten::copy_", "aten::index_put_", COPY_INDEX})
"""Kernels that read and write their first argument."""
VIEW = "executorch_prim::et_view.default"

Written = Callable[[KernelCall | DelegateCall], Sequence[int] | None]
"""The positions that a call writes, if its reader knows them; else None."""


@dataclass(frozen=True)
class Branch:
    """A branch `if condition: yes else: no`; both are ranges of instructions."""

    condition: int
    yes: range
    no: range
    stop: int


@dataclass(frozen=True)
class Loop:
    """A loop `while True: head; if not condition: break; body`."""

    head: range
    condition: int
    body: range
    stop: int


@dataclass(frozen=True)
class CountedLoop:
    """A loop `for n in range(size): body`, whose body takes slices and stores slices.

    Attributes:
        counter: the value that counts.
        size: the value with which it is compared.
        sliced: (tensor, its slice) of each `select_copy`.
        slicing: the numbers of those instructions.
        stored: the tensors in which `et_copy_index` stores slices.
        body: the instructions except for the counting.
    """

    counter: int
    size: int
    sliced: tuple[tuple[int, int], ...]
    slicing: frozenset[int]
    stored: tuple[int, ...]
    body: range
    stop: int


Part = Branch | Loop | CountedLoop | int
"""A part of a range of instructions; a number is a single instruction."""


class Flow:
    """The control flow of one method."""

    def __init__(self, method: Method, written: Written) -> None:
        self.method = method
        self._written = written
        self._reads = [frozenset(self._read(i)) for i in method.instructions]
        self._writes = [frozenset(self._wrote(i)) for i in method.instructions]
        self._assigned = frozenset[int]().union(*self._writes) if self._writes else frozenset[int]()
        self._depth = self._loops = 0
        self._back: dict[int, list[int]] = {}
        for step, instruction in enumerate(method.instructions):
            if isinstance(instruction, JumpFalse) and instruction.target <= step:
                self._back.setdefault(instruction.target, []).append(step)

    def parts(self, start: int, stop: int) -> Iterator[Part]:
        """Yield the instructions from `start` up to `stop`, with branches and loops as parts.

        Raises:
            UnsupportedError: a jump belongs to none of the supported forms.
        """
        at = start
        while at < stop:
            back = [end for end in self._back.get(at, ()) if end < stop]
            if back:
                loop = self._loop(at, max(back))
                yield loop
                at = loop.stop
                continue
            instruction = self.method.instructions[at]
            if isinstance(instruction, JumpFalse):
                branch = self._branch(at, instruction, stop)
                yield branch
                at = branch.stop
                continue
            yield at
            at += 1

    def reads(self, steps: Sequence[int]) -> frozenset[int]:
        """Return values that these instructions read, in any order."""
        return frozenset[int]().union(*(self._reads[step] for step in steps))

    def writes(self, steps: Sequence[int]) -> dict[int, None]:
        """Return values that these instructions write, the last written last."""
        found: dict[int, None] = {}
        for step in steps:
            for value in sorted(self._writes[step]):
                found.pop(value, None)
                found[value] = None
        return found

    def live(self, parts: Sequence[Part], after: frozenset[int]) -> list[frozenset[int]]:
        """Return, for each part, the values that may be read after it (liveness analysis).

        Args:
            parts: the parts of a range.
            after: the values that may be read after the range.
        """
        found: list[frozenset[int]] = []
        for part in reversed(parts):
            found.append(after)
            after = self._live_before(part, after)
        return found[::-1]

    def live_at(self, steps: range, after: frozenset[int]) -> frozenset[int]:
        """Return the values that may be read from the start of a range on."""
        for part in reversed(list(self.parts(steps.start, steps.stop))):
            after = self._live_before(part, after)
        return after

    def _live_before(self, part: Part, after: frozenset[int]) -> frozenset[int]:
        match part:
            case Branch(condition, yes, no):
                with self._nested(yes.start):
                    return self.live_at(yes, after) | self.live_at(no, after) | {condition}
            case Loop(head, condition, body):
                with self._nested(head.start, loop=True):
                    left = after | {condition}
                    again = self.live_at(body, self.live_at(head, left))
                    return self.live_at(head, left | self.live_at(body, again | left))
            case CountedLoop():
                with self._nested(part.body.start, loop=True):
                    again = self.live_at(part.body, after)
                    again |= self.live_at(part.body, after | again)
                    return (again - {*part.stored, part.counter}) | {part.size}
            case _:
                return (after - self._writes[part]) | self._reads[part]

    @contextmanager
    def _nested(self, step: int, *, loop: bool = False) -> Generator[None]:
        """Enter a nested level; the depth is limited, since the file is untrusted."""
        self._depth += 1
        self._loops += loop
        if self._depth > MAX_DEPTH or self._loops > MAX_LOOPS:
            raise UnsupportedError(
                f"control flow nests deeper than {MAX_LOOPS} loops or {MAX_DEPTH} branches",
                f"method {self.method.name}, instruction {step}",
            )
        try:
            yield
        finally:
            self._depth -= 1
            self._loops -= loop

    def overlaps(self, first: int, second: int) -> bool:
        """Whether two values are the same, or share bytes."""
        if first == second:
            return True
        a, b = self.method.values[first], self.method.values[second]
        if not isinstance(a, TensorValue) or not isinstance(b, TensorValue):
            return False
        x, y = a.storage, b.storage
        if not isinstance(x, Planned | State) or not isinstance(y, Planned | State):
            return False
        return (
            x.memory_id == y.memory_id
            and x.offset < y.offset + b.nbytes
            and y.offset < x.offset + a.nbytes
        )

    def is_never(self, value: int) -> bool:
        """Whether a value is the constant False, which makes a jump unconditional."""
        return self.method.values[value] is False and value not in self._assigned

    # -- forms ---------------------------------------------------------------------------------

    def _jump(self, step: int) -> JumpFalse | None:
        instruction = self.method.instructions[step]
        return instruction if isinstance(instruction, JumpFalse) else None

    def _branch(self, at: int, jump: JumpFalse, stop: int) -> Branch:
        if not at < jump.target <= stop or self.is_never(jump.condition):
            raise self._refusal(at)
        last = self._jump(jump.target - 1) if jump.target - 1 > at else None
        if last is not None and self.is_never(last.condition) and last.target >= jump.target:
            if last.target > stop:
                raise self._refusal(jump.target - 1)
            yes, no = range(at + 1, jump.target - 1), range(jump.target, last.target)
            return Branch(jump.condition, yes, no, last.target)
        return Branch(jump.condition, range(at + 1, jump.target), range(0), jump.target)

    def _loop(self, start: int, end: int) -> Loop | CountedLoop:
        jump = self._jump(end)
        assert jump is not None
        if not self.is_never(jump.condition):
            return self._counted(start, end, jump.condition)
        for step in range(start, end):
            way_out = self._jump(step)
            if way_out is not None and way_out.target == end + 1:
                head, body = range(start, step), range(step + 1, end)
                return Loop(head, way_out.condition, body, end + 1)
        raise self._refusal(end)

    def _counted(self, start: int, end: int, done: int) -> CountedLoop:
        instructions, body = self.method.instructions, range(start, end - 2)
        match instructions[max(start, end - 2) : end]:
            case [
                KernelCall(count, (counter, one, counted)),
                KernelCall(compare, (compared, size, flag)),
            ] if (count, compare) == (_COUNT, _DONE) and self._number(one) == 1:
                is_count = (counted, compared, flag) == (counter, counter, done)
            case _:
                raise self._refusal(end)
        sliced: list[tuple[int, int]] = []
        stored: list[int] = []
        selects: set[int] = set()
        stores: set[int] = set()
        for step in body:
            match instructions[step]:
                case KernelCall(kernel, (whole, axis, index, part, *_)) if (
                    kernel == SELECT and index == counter and self._number(axis) == 0
                ):
                    sliced.append((whole, part))
                    selects.add(step)
                case KernelCall(kernel, (whole, _, index)) if (
                    kernel == COPY_INDEX and index == counter
                ):
                    stored.append(whole)
                    stores.add(step)
                case _:
                    continue
        wholes = {whole for whole, _ in sliced}
        plain = [step for step in body if step not in selects | stores]
        written = self.writes(plain).keys()
        used = self.reads(plain) | written | wholes
        sized = any(
            isinstance(i, KernelCall)
            and i.kernel == SIZE
            and len(i.args) == 3
            and i.args[2] == size
            and i.args[0] in wholes
            and self._number(i.args[1]) == 0
            for i in instructions[:start]
        )
        fixed = not written & wholes
        apart = not used & set(stored) and len(set(stored)) == len(stored)
        from_zero = counter not in used and self._number(counter) == 0
        if not (is_count and sliced and sized and fixed and apart and from_zero):
            raise self._refusal(end)
        taken, kept = tuple(sliced), tuple(stored)
        return CountedLoop(counter, size, taken, frozenset(selects), kept, body, end + 1)

    def _number(self, value: int) -> object:
        held = self.method.values[value]
        return held if isinstance(held, int | float) else None

    def _refusal(self, step: int) -> UnsupportedError:
        return UnsupportedError(
            "the jump is not part of a cond, while, map or scan",
            f"method {self.method.name}, instruction {step}",
            "only nested control flow can be expressed as regions",
        )

    # -- instructions --------------------------------------------------------------------------

    def _read(self, instruction: Instruction) -> Iterator[int]:
        match instruction:
            case KernelCall(_, args) | DelegateCall(_, args):
                written = set(self._positions(instruction)) - _read_and_written(instruction)
                for position, value in enumerate(args):
                    if position not in written:
                        yield from self._items(value)
            case Move(source, _):
                yield source
            case JumpFalse(condition, _):
                yield condition
            case _:
                return

    def _wrote(self, instruction: Instruction) -> Iterator[int]:
        match instruction:
            case KernelCall(_, args) | DelegateCall(_, args):
                for position in self._positions(instruction):
                    yield from self._items(args[position])
            case Move(_, target):
                yield target
            case _:
                return

    def _positions(self, call: KernelCall | DelegateCall) -> Sequence[int]:
        """Return the positions of the arguments that a call writes."""
        known = self._written(call)
        if known is not None or isinstance(call, DelegateCall):
            return known or ()
        last = len(call.args) - 1
        if call.kernel in _IN_PLACE:
            return (0,)
        if call.kernel == VIEW or call.kernel in SCALARS:
            return (last,)
        found = functional_of(call.kernel)
        if found is None:
            return (last,)
        arguments = found.signature.arguments
        outputs = [
            at for at, source in enumerate(arguments) if isinstance(source, Output | InPlace)
        ]
        return [*outputs, last]

    def _items(self, value: int) -> Iterator[int]:
        match self.method.values[value]:
            case TensorList(items) | OptionalTensorList(items) | IntList(items):
                yield from (item for item in items if item >= 0)
            case _:
                yield value


def _read_and_written(call: KernelCall | DelegateCall) -> set[int]:
    """Return the positions of the arguments that a call reads and then changes."""
    if isinstance(call, DelegateCall):
        return set()
    if call.kernel in _IN_PLACE:
        return {0}
    found = functional_of(call.kernel) if call.kernel.partition("::")[0] not in _OWN else None
    roles = found.signature.arguments if found is not None else ()
    return {at for at, role in enumerate(roles) if isinstance(role, InPlace)}


_OWN = frozenset({"aten", "executorch_prim", "dim_order_ops", "et_copy"})
"""Namespaces whose kernels change no argument that they read, except those in `_IN_PLACE`."""
