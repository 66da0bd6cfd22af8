"""Control-flow recovery: branches and loops of a `.pte` become regions.

A region has its own memory state. Values that it reads and did not write become arguments;
values that it writes and that are read later become results. A loop carries values from one
iteration to the next. Copies to the memory of results express this in a plan, and become no ops.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from stepwell.backends.executorch.container import Method, Planned, State, Storage, TensorValue
from stepwell.backends.executorch.reading.flow import Branch, CountedLoop, Flow, Loop
from stepwell.backends.executorch.reading.value_slots import Places
from stepwell.dialects.aten import CloneDefault
from stepwell.dialects.control import CondOp, MapOp, ScanOp, WhileLoopOp, YieldOp
from stepwell.dialects.sym import ConstantOp
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.types import dims, element, tensor


class Lifter(Protocol):
    """The interface of a method's reader that control-flow recovery calls."""

    method: Method
    places: Places

    def instruction(self, step: int) -> None:
        """Read one instruction of a `.pte`."""
        ...


class RegionPlaces(Places):
    """The memory state of a region; values that it has not written are captured from its parent.

    Attributes:
        written: the values written here, the last written last.
    """

    def __init__(self, parent: Places, *, counted: bool = False) -> None:
        super().__init__(parent.container, parent.method, parent.store, parent.external, Block())
        self.parent = parent
        self.ranges = parent.ranges
        self.captured: dict[SSAValue, BlockArgument] = {}
        self.written: dict[int, None] = {}
        self.stored = {} if counted else None

    def bind(self, index: int, type_: Attribute) -> None:
        """Bind value `index` of the method to a new argument of the region's block."""
        self.write(index, self.block.insert_arg(type_, len(self.block.args)))
        self.written.clear()

    def write(self, index: int, value: SSAValue) -> None:
        """Store a value in a slot (`Places.write`), and record that the slot was written."""
        super().write(index, value)
        self.written.pop(index, None)
        self.written[index] = None

    def assign(self, target: int, source: int) -> None:
        """Copy a slot to another (`Places.assign`), and record that the target was written."""
        super().assign(target, source)
        self.written.pop(target, None)
        self.written[target] = None

    def result(self, index: int) -> SSAValue:
        """Return the SSA value of value `index` at the end of the region."""
        if index in self.numbers:
            return self.add(ConstantOp(self.numbers[index]))
        return self.read(index)

    def defines(self, index: int) -> bool:
        """Whether value `index` has been written at the end of the region."""
        if super().defines(index) and not self._is_outside(index):
            return True
        return not self._is_touched(index) and self.parent.defines(index)

    def _is_outside(self, index: int) -> bool:
        declared = self.method.values[index]
        return isinstance(declared, TensorValue) and not isinstance(declared.storage, Planned)

    def _is_touched(self, index: int) -> bool:
        """Whether the region wrote to some of the bytes of a value."""
        place = self.place_of(index)
        if place is None:
            return False
        arena, start, end = place
        held = arena.read(start)
        if held is not None and self._is_readable_as(held.content, self.tensor(index)):
            return False
        return arena.touches(start, end)

    def _outer(self, index: int) -> SSAValue:
        if self._is_touched(index):
            raise UnsupportedError(
                f"value {index} reads bytes of which a branch or loop wrote only a part",
                f"method {self.method.name}",
            )
        return self._capture(self.parent.read(index))

    def _capture(self, value: SSAValue) -> SSAValue:
        if value not in self.captured:
            self.captured[value] = self.block.insert_arg(value.type, len(self.block.args))
        return self.captured[value]

    def _unwritten(self, index: int) -> SSAValue:
        return self._outer(index)

    def _undefined(self, index: int, declared: TensorValue) -> SSAValue:
        return self._outer(index)

    def _is_new(self, storage: Storage) -> bool:
        return False

    def _at_entry(self, index: int, declared: TensorValue, storage: Planned | State) -> SSAValue:
        return self._outer(index)

    def _number(self, index: int) -> Any:
        if index in self.numbers:
            return self.numbers[index]
        argument = self.parent.argument(index)
        return self._capture(argument) if isinstance(argument, SSAValue) else argument


class ControlLifter:
    """Reads a method whose instructions jump: branches and loops become regions."""

    def __init__(self, lifter: Lifter, flow: Flow) -> None:
        self.lifter = lifter
        self.flow = flow

    def run(self) -> None:
        """Read all instructions of a method."""
        values = self.flow.method.values
        kept = {i for i, v in enumerate(values) if _is_state(v)}
        last = frozenset({*self.flow.method.outputs, *kept})
        self._range(range(len(self.flow.method.instructions)), last)

    def _range(
        self, steps: range, after: frozenset[int], skipped: frozenset[int] = frozenset()
    ) -> None:
        parts = list(self.flow.parts(steps.start, steps.stop))
        for part, live in zip(parts, self.flow.live(parts, after), strict=True):
            match part:
                case Branch():
                    self._branch(part, live)
                case Loop():
                    self._loop(part, live)
                case CountedLoop():
                    self._counted(part, live)
                case _:
                    if part not in skipped:
                        self.lifter.instruction(part)

    def _region(
        self, region: RegionPlaces, steps: range, live: frozenset[int], skipped: Any = frozenset()
    ) -> RegionPlaces:
        """Read a range of instructions as the region of a branch or loop."""
        outer, self.lifter.places = self.lifter.places, region
        try:
            self._range(steps, live, skipped)
        finally:
            self.lifter.places = outer
        return region

    def _branch(self, branch: Branch, live: frozenset[int]) -> None:
        places = self.lifter.places
        condition = _held(places, branch.condition)
        regions = [
            self._region(RegionPlaces(places), steps, live) for steps in (branch.yes, branch.no)
        ]
        written = [*dict.fromkeys(value for region in regions for value in region.written)]
        defined = [
            value
            for value in self._needed(written, live)
            if all(region.defines(value) for region in regions)
        ]
        # Values that share bytes with used results, and with no others, are read as these.
        unsaid = live - set(defined)
        results = self._distinct(v for v in defined if v in live or self._needed([v], unsaid))
        given = [[region.result(value) for value in results] for region in regions]
        bodies = [_ended(r, values) for r, values in zip(regions, given, strict=True)]
        inputs = _shared(regions)
        types = [value.type for value in given[0]]
        if types != [value.type for value in given[1]]:
            raise self._refusal("the branches return numbers without a common form", branch.yes)
        op = CondOp.create(
            operands=[condition, *inputs],
            result_types=types,
            regions=bodies,
        )
        self._place(op, written, results)

    def _loop(self, loop: Loop, live: frozenset[int]) -> None:
        places, flow = self.lifter.places, self.flow
        at_head = flow.live_at(loop.head, live | {loop.condition} | flow.live_at(loop.body, live))
        first = flow.writes(loop.head)
        written = flow.writes([*loop.head, *loop.body])
        carried = self._carried(written, at_head | live)
        if set(self._needed(first, live)) - {loop.condition}:
            raise self._refusal(
                "what the condition of a loop computes is read after the loop", loop.head
            )
        initial = [_held(places, value) for value in carried]
        regions = [RegionPlaces(places), RegionPlaces(places)]
        for region in regions:
            for value, start in zip(carried, initial, strict=True):
                region.bind(value, start.type)
        head, body = regions
        self._region(head, loop.head, frozenset({loop.condition}))
        condition = _held(head, loop.condition)
        again = frozenset(carried)
        if self._needed(first, flow.live_at(loop.body, again)):
            self._region(body, loop.head, flow.live_at(loop.body, again))
        self._region(body, loop.body, again)
        results = [body.result(value) for value in carried]
        if [value.type for value in results] != [value.type for value in initial]:
            raise self._refusal("the loop carries a number, whose expression changes", loop.body)
        bodies = [_ended(head, [condition]), _ended(body, results)]
        additional = _shared(regions, len(carried))
        op = WhileLoopOp.build(
            operands=[initial, additional],
            result_types=[[value.type for value in initial]],
            regions=bodies,
        )
        self._place(op, list(written), carried)
        _drop_copies(op, len(initial))

    def _counted(self, loop: CountedLoop, live: frozenset[int]) -> None:
        places, flow = self.lifter.places, self.flow
        steps = [step for step in loop.body if step not in loop.slicing]
        slices = {part for _, part in loop.sliced}
        written = {v: None for v in flow.writes(steps) if v not in loop.stored}
        carried = self._carried(written, (flow.live_at(loop.body, live) | live) - slices)
        initial = [_held(places, value) for value in carried]
        sequences = [places.read(whole) for whole, _ in loop.sliced]
        body = RegionPlaces(places, counted=True)
        for value, start in zip(carried, initial, strict=True):
            body.bind(value, start.type)
        for sequence, (_, part) in zip(sequences, loop.sliced, strict=True):
            body.bind(part, tensor(dims(sequence.type)[1:], element(sequence.type)))
        self._region(body, loop.body, frozenset(carried), loop.slicing)
        assert body.stored is not None
        kept = [body.result(value) for value in carried]
        stored = [body.stored[value] for value in loop.stored]
        region = _ended(body, [*kept, *stored])
        additional = _shared([body], len(carried) + len(sequences))
        length = dims(sequences[0].type)[0]
        stacked = [tensor([length, *dims(v.type)], element(v.type)) for v in stored]
        op: Operation
        if carried:
            op = ScanOp.build(
                operands=[initial, sequences, additional],
                result_types=[[*(value.type for value in initial), *stacked]],
                regions=[region],
            )
        else:
            op = MapOp.build(
                operands=[sequences, additional], result_types=[stacked], regions=[region]
            )
        self._place(op, [*written, *slices], [*carried, *loop.stored])
        _drop_copies(op, len(carried))
        places.assign(loop.counter, loop.size)

    def _refusal(self, fact: str, steps: range) -> UnsupportedError:
        where = f"method {self.flow.method.name}, instruction {steps.start}"
        return UnsupportedError(fact, where)

    def _carried(self, written: dict[int, None], live: frozenset[int]) -> list[int]:
        """Return the values that are carried to the next iteration, or from the last one to later
        instructions.
        """
        places = self.lifter.places
        order = list(written)
        return self._distinct(
            value
            for at, value in enumerate(order)
            if self._needed([value], live)
            and places.defines(value)
            and not any(
                self.flow.overlaps(value, later) and not self._same_bytes(value, later)
                for later in order[at + 1 :]
            )
        )

    def _needed(self, values: Any, live: frozenset[int]) -> list[int]:
        """Return the values that later instructions read, directly or through shared bytes."""
        return [v for v in values if v in live or any(self.flow.overlaps(v, r) for r in live)]

    def _distinct(self, values: Iterable[int]) -> list[int]:
        """Return the last of several values that name the same bytes."""
        found = list(values)
        return [
            value
            for at, value in enumerate(found)
            if not any(
                self.flow.overlaps(value, later) and self._same_bytes(value, later)
                for later in found[at + 1 :]
            )
        ]

    def _same_bytes(self, first: int, second: int) -> bool:
        a, b = self.flow.method.values[first], self.flow.method.values[second]
        assert isinstance(a, TensorValue) and isinstance(b, TensorValue)
        return a.storage == b.storage and a.nbytes == b.nbytes

    def _place(self, op: Operation, written: Sequence[int], results: Sequence[int]) -> None:
        """Add an op, and store its results in memory."""
        places = self.lifter.places
        for value in results:
            if _is_state(places.method.values[value]):
                places.read(value)  # Marks it as state.
        places.block.add_op(op)
        for value in written:
            places.forget(value)
        for value, result in zip(results, op.results, strict=True):
            places.write(value, result)


def _is_state(value: Any) -> bool:
    return isinstance(value, TensorValue) and isinstance(value.storage, State)


def _held(places: Places, index: int) -> SSAValue:
    """Return the contents of a value, as an SSA value."""
    argument = places.argument(index)
    return argument if isinstance(argument, SSAValue) else places.add(ConstantOp(argument))


def _shared(regions: Sequence[RegionPlaces], first: int = 0) -> list[SSAValue]:
    """Give regions the same captured values as block arguments after `first`; return the values."""
    outer = [*dict.fromkeys(value for region in regions for value in region.captured)]
    for region in regions:
        block = region.block
        old = list(block.args[first:])
        for value in outer:
            new = block.insert_arg(value.type, len(block.args))
            if value in region.captured:
                region.captured[value].replace_all_uses_with(new)
        for argument in old:
            block.erase_arg(argument)
    return outer


def _ended(places: RegionPlaces, values: Sequence[SSAValue]) -> Region:
    last = YieldOp(*values)
    places.block.add_op(last)
    _drop_copies(last, len(values))
    return Region(places.block)


def _drop_copies(op: Operation, count: int) -> None:
    """Replace each of the first operands that is a copy by the copied value."""
    for index in range(count):
        copy = op.operands[index].owner
        if isinstance(copy, CloneDefault) and copy.arg("memory_format") is None:
            op.operands[index] = copy.operands[0]
            if not copy.results[0].uses:
                copy.detach()
                copy.erase()
