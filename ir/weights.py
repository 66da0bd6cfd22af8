"""The weight store: the IR contains keys, the store contains tensors.

A key names either a *given* tensor or a *derived* one. A given tensor is the program's own; import,
printing, cloning and structural rewriting never copy it. A derived tensor is a recipe over other
keys, which is evaluated once, when an emitter or the interpreter needs its bytes. The same recipe
with the same sources and parameters has the same key, so that derived constants are shared.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError, quoted
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.platform.weight_rows import SAMPLED, put_rows, row_blocks, samples, writer
from stepwell.ir.types import AnyTensor, dims, element, tensor_like
from stepwell.ir.weight_bytes import begin_digest, content_digest, dense_size, dense_view
from stepwell.ir.weight_entries import Derived, Entry, Given, UnknownValue, WeightCounts
from stepwell.ir.weight_lifetimes import Lifetimes

Recipe = Callable[..., "torch.Tensor"]
Rows = Literal["of the first", "of all"] | int
"""Which sources a recipe needs only some rows of, to compute the same rows of its result.

An integer means that the result is the rows of its only source from that index on.
"""

_RECIPES: dict[str, Recipe] = {}
_ROWS: dict[str, Rows | Callable[[Mapping[str, Any]], Rows | None] | None] = {}
_DERIVED_TYPES: dict[tuple[str, tuple[AnyTensor, ...], str], AnyTensor] = {}
_R = TypeVar("_R", bound=Recipe)
_WRITTEN = 1 << 19
"""The number of bytes of a tensor that are written at a time: they fit in the cache, and few calls
are needed.
"""
KEPT = 1 << 28
"""The bytes of derived tensors up to which `rows` keeps what it evaluates."""


def recipe(
    name: str, rows: Rows | Callable[[Mapping[str, Any]], Rows | None] | None = None
) -> Callable[[_R], _R]:
    """Register a function of tensors (and JSON-able keyword parameters) as a weight recipe.

    The function must be pure and accept meta tensors, by which the shape of a derived weight is
    inferred without data. It must return a new tensor or a view and must not write to its inputs.

    Args:
        name: the recipe's name in the IR.
        rows: whether the recipe computes some rows (a slice of the first axis) of its result from
            the same rows of the first source and all of the others, or from the same rows of all.
            It may depend on the parameters. Such weights are written a few rows at a time.
    """

    def register(function: _R) -> _R:
        if name in _RECIPES:
            raise StepwellError(f"weight recipe {name!r} is registered twice")
        _RECIPES[name] = function
        _ROWS[name] = rows
        return function

    return register


def is_recipe(name: str) -> bool:
    """Whether a weight recipe of this name is registered."""
    return name in _RECIPES


@dataclass
class WeightStore:
    """A map from keys to tensors. `child()` overlays a store: lowering never changes it."""

    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    counts: WeightCounts = field(default_factory=WeightCounts)
    facts: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])
    """What analyses computed from elements, by analysis and key."""
    _hashes: dict[str, str] = field(default_factory=dict[str, str])
    _numbers: dict[tuple[Any, ...], str] = field(default_factory=dict[tuple[Any, ...], str])
    _lifetimes: Lifetimes = field(default_factory=Lifetimes)

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def child(self) -> WeightStore:
        """Return a store with the same entries (shared, not copied) to which more can be added."""
        return WeightStore(dict(self.entries), self.counts, dict(self.facts), dict(self._hashes))

    def add(self, key: str, tensor: torch.Tensor, *, trainable: bool | None = None) -> str:
        """Add a tensor under a new key, or under a key that already names this same tensor.

        `trainable` is whether the parameter of the torch program requires a gradient, if known.
        """
        held = self.entries.get(key)
        if held is not None and not (isinstance(held, Given) and held.tensor is tensor):
            raise StepwellError(
                f"weight {quoted(key)} is in the store already",
                help="weights are immutable; derive a new one or choose another key",
            )
        held_as = tensor.detach() if tensor.requires_grad else tensor
        self.entries[key] = Given(held_as, trainable)
        return key

    def add_unknown(self, key: str, type_: AnyTensor) -> str:
        """Add a weight of which only the type is known; reading its elements raises an error."""
        shape = [d if isinstance(d, int) else 1 for d in dims(type_)]
        tensor = torch.empty(shape, dtype=torch_dtype(element(type_)), device="meta")
        self.entries[key] = Given(tensor, is_known=False)
        return key

    def is_known(self, key: str) -> bool:
        """Whether the elements of a key are available; a text may define the types only."""
        waiting, seen = [key], set[str]()
        while waiting:
            entry = self._entry(name := waiting.pop())
            if isinstance(entry, Given):
                if not entry.is_known or entry.tensor.is_meta:
                    return False
            elif entry.tensor is None and name not in seen:
                waiting += entry.sources
            seen.add(name)
        return True

    def is_trainable(self, key: str) -> bool | None:
        """Whether the tensor of a key required a gradient; None if unknown."""
        held = self.entries.get(key)
        return held.trainable if isinstance(held, Given) else None

    def constant(self, tensor: torch.Tensor, hint: str = "constant") -> str:
        """Add a small constant under a key that its content determines; equal constants share
        it.
        """
        key = f"{hint}#{content_digest(tensor)[:12]}"
        if key not in self.entries:
            self.entries[key] = Given(tensor)
        return key

    def number(self, value: float, dtype: torch.dtype, rank: int) -> str:
        """Add a number as a constant of shape [] or [1, …]; cached for repeated calls."""
        question = (type(value), str(value), dtype, rank)
        key = self._numbers.get(question)
        if key is None or key not in self.entries:
            tensor = torch.full((1,) * rank, value, dtype=dtype)
            key = self._numbers[question] = self.constant(tensor, "scalar")
        return key

    def derive(self, recipe_name: str, sources: tuple[str, ...] | list[str], **params: Any) -> str:
        """Return the key of `recipe_name(*sources, **params)`; only the shape is computed."""
        if recipe_name not in _RECIPES:
            raise StepwellError(f"the weight recipe {recipe_name!r} is not registered")
        for source in sources:
            self._entry(source)
        spelled = json.dumps([recipe_name, list(sources), params], sort_keys=True)
        digest = hashlib.sha256(spelled.encode()).hexdigest()[:12]
        base = sources[0].split("#")[0] if sources else recipe_name
        key = f"{base}#{recipe_name}.{digest}"
        if key not in self.entries:
            self.entries[key] = Derived(
                recipe_name,
                tuple(sources),
                tuple(sorted(params.items())),
                self._derived_type(recipe_name, sources, params),
            )
        return key

    def _derived_type(
        self, recipe_name: str, sources: Sequence[str], params: dict[str, Any]
    ) -> AnyTensor:
        """Infer the result type of a recipe for sources of these types on meta tensors; cached."""
        types = tuple(self.type_of(source) for source in sources)
        question = (recipe_name, types, json.dumps(params, sort_keys=True))
        derived_type = _DERIVED_TYPES.get(question)
        if derived_type is None:
            shapes = [self._meta(source) for source in sources]
            derived_type = tensor_like(_evaluated(recipe_name, shapes, params))
            _DERIVED_TYPES[question] = derived_type
        return derived_type

    def cannot_derive(
        self, recipe_name: str, sources: Sequence[str], **params: Any
    ) -> StepwellError | None:
        """Return why `derive` would fail, or None."""
        try:
            self._derived_type(recipe_name, sources, params)
        except StepwellError as error:
            return error
        return None

    def get(self, key: str) -> torch.Tensor:
        """Return the tensor of a key; a derived one is evaluated on first use and then kept."""
        self._evaluate(key)
        return self._ready(key)

    def read(self, key: str) -> torch.Tensor:
        """Return the tensor of a key to an emitter, which reads each key once.

        Derived tensors that are evaluated for it are kept until the other entries that need them
        were read, too.
        """
        self._lifetimes.begin(key, self.entries)
        return self._read(key)

    def _read(self, key: str) -> torch.Tensor:
        fresh = self._evaluate(key)
        held = self._ready(key)
        self.counts.kept -= self._lifetimes.release(fresh, self.entries)
        return held

    def rows(self, key: str) -> Iterator[torch.Tensor]:
        """Yield the rows of a tensor, some at a time.

        A derived tensor is kept until an emitter has read it, unless more than `KEPT` bytes would
        be in memory. It is then computed by rows, here and again by an emitter.
        """
        size = dense_size(self.type_of(key))
        if self._is_ready(key) or self.counts.kept + size <= KEPT:
            self._lifetimes.transient.update(self._evaluate(key))
            yield self._ready(key)
            return
        count, some_rows = dims(self.type_of(key))[0], self._by_rows(key)
        assert isinstance(count, int)
        for rows in row_blocks(count, size, _WRITTEN):
            yield some_rows(rows)

    def _evaluate(self, key: str) -> list[str]:
        """Evaluate a derived tensor and the sources that it needs; return the keys of all."""
        fresh, stack = list[str](), [key]
        while stack:
            entry = self._entry(stack[-1])
            if isinstance(entry, Given) or entry.tensor is not None:
                stack.pop()
                continue
            waiting = [s for s in entry.sources if not self._is_ready(s)]
            if waiting:
                stack.extend(waiting)
                continue
            sources = [self._ready(s) for s in entry.sources]
            with torch.no_grad():
                entry.tensor = _evaluated(entry.recipe, sources, dict(entry.parameters))
            self.counts.evaluated += 1
            self.counts.elements[stack[-1]] += entry.tensor.numel()
            self.counts.kept += dense_size(entry.type)
            fresh.append(stack.pop())
        return fresh

    def require_data(self) -> None:
        """Reject weights without data.

        Raises:
            StepwellError: a tensor of the program is on the device `meta`.
        """
        kept = self.entries.items()
        bare = [key for key, entry in kept if isinstance(entry, Given) and entry.tensor.is_meta]
        if bare:
            raise StepwellError(
                f"{len(bare)} weights have no data (device meta): {', '.join(bare[:3])}",
                help="load them before the export: model.to_empty(device='cpu'), load_state_dict",
            )

    def type_of(self, key: str) -> AnyTensor:
        """Return the tensor type of a key without evaluating it."""
        entry = self._entry(key)
        return tensor_like(entry.tensor) if isinstance(entry, Given) else entry.type

    def recipe_of(self, key: str) -> tuple[str, tuple[str, ...], dict[str, Any]] | None:
        """Return (recipe, sources, parameters) of a derived key, None for a given one."""
        entry = self._entry(key)
        if isinstance(entry, Given):
            return None
        return entry.recipe, entry.sources, dict(entry.parameters)

    def evaluated_on(self, key: str, sources: Sequence[torch.Tensor]) -> torch.Tensor:
        """Evaluate the recipe of a derived key on other sources; the result is not kept."""
        name, _, params = self.recipe_of(key) or ("", (), {})
        return _evaluated(name, sources, params)

    def content_hash(self, key: str) -> str:
        """Return the sha256 of the tensor's dense bytes, computed once."""
        found = self._hashes.get(key)
        if found is None:
            found = self._hashes[key] = content_digest(self.get(key))
            self.counts.hashed += 1
        return found

    def write(
        self,
        key: str,
        place: memoryview,
        pack: Callable[[torch.Tensor], torch.Tensor] | None = None,
        put: Callable[[int, memoryview], None] | None = None,
    ) -> str:
        """Write a tensor's dense bytes to `place` and return a hash of its content.

        Equal bytes have equal hashes. The hash of a large tensor is computed from samples to save
        time, so that different tensors may share it; a small tensor gets its `content_hash`.

        A derived tensor that was not evaluated before is computed in place and not kept. If its
        recipes work by rows, its sources are computed a few rows at a time, too.

        Args:
            key: the key of the tensor.
            place: memory of the tensor's size in bytes.
            pack: encodes some rows before they are written, each in equally many bytes.
            put: writes bytes at an offset of `place`, for a `place` that is read-only.
        """
        type_ = self.type_of(key)
        shape = [dim for dim in dims(type_) if isinstance(dim, int)]
        if not shape or not len(place):
            held = self.get(key)
            (put or writer(place))(0, dense_view(pack(held) if pack else held))
            return self.content_hash(key)
        is_sampled, size = len(place) > SAMPLED, len(place) // shape[0]
        dtype = torch_dtype(element(type_))
        digest = None if key in self._hashes and not is_sampled else begin_digest(dtype, shape)
        some_rows = self._by_rows(key)
        blocks = list(row_blocks(shape[0], math.prod(shape), _WRITTEN // dtype.itemsize))
        with torch.no_grad():
            for rows in blocks:
                begin, made = rows.start * size, some_rows(rows)
                if put is None:
                    written = place[begin : rows.stop * size]
                    put_rows(made, written, pack)
                else:
                    written = dense_view(pack(made) if pack else made)
                    put(begin, written)
                if digest is not None:
                    digest.update(samples(written, begin) if is_sampled else dense_view(made))
        if is_sampled:
            assert digest is not None
            return digest.hexdigest()
        if digest is not None:
            self._hashes[key] = digest.hexdigest()
            self.counts.hashed += 1
        return self._hashes[key]

    def _by_rows(self, key: str) -> Callable[[slice], torch.Tensor]:
        """Return a function that computes some rows of a tensor."""
        steps: list[tuple[str, Callable[[slice, torch.Tensor], torch.Tensor]]] = []
        begin, reader = 0, ""
        self._lifetimes.begin(key, self.entries)
        while isinstance(entry := self._entry(key), Derived) and entry.tensor is None:
            others = self._lifetimes.others(key, reader, self.entries) if reader else []
            if others and any(
                not isinstance(_rows(self._entry(n)), int) for n in (reader, *others)
            ):
                break  # They need the same rows.
            cut = _rows(entry)
            if cut is None:
                break
            reader, (key, *others) = key, entry.sources
            self.counts.evaluated += 1
            if isinstance(cut, int):
                begin += cut
            else:
                step = _step(entry, [self.get(other) for other in others], cut, begin)
                steps.append((reader, step))
        whole = self._read(key)

        def some_rows(rows: slice) -> torch.Tensor:
            made = whole[rows.start + begin : rows.stop + begin]
            for name, step in reversed(steps):
                made = step(rows, made)
                self.counts.elements[name] += made.numel()
            return made

        return some_rows

    def keep_only(self, keys: set[str]) -> None:
        """Remove every entry that none of `keys` needs, directly or as a recipe's source."""
        needed: set[str] = set()
        stack = [key for key in keys if key in self.entries]
        while stack:
            key = stack.pop()
            if key in needed:
                continue
            needed.add(key)
            entry = self.entries[key]
            if isinstance(entry, Derived):  # Its tensor may be dropped, and computed again.
                stack.extend(entry.sources)
        self._lifetimes.used = set(keys)
        self.entries = {key: entry for key, entry in self.entries.items() if key in needed}

    def forget_from(self, count: int) -> None:
        """Remove the entries that were added after the store had `count` entries."""
        while len(self.entries) > count:
            self.entries.popitem()

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return every key with its tensor; derived tensors are evaluated."""
        return {key: self.get(key) for key in self.entries}

    def _entry(self, key: str) -> Entry:
        try:
            return self.entries[key]
        except KeyError:
            raise StepwellError(
                f"weight {quoted(key)} is not in the store",
                help="parse or load the program together with the weights it was printed from",
            ) from None

    def _is_ready(self, key: str) -> bool:
        entry = self._entry(key)
        return isinstance(entry, Given) or entry.tensor is not None

    def _ready(self, key: str) -> torch.Tensor:
        entry = self._entry(key)
        if isinstance(entry, Given) and not entry.is_known:
            raise UnknownValue(
                f"the elements of weight {quoted(key)} are not known, only its type",
                help="keep the .safetensors file next to the .mlir",
            )
        assert entry.tensor is not None
        return entry.tensor

    def _meta(self, key: str) -> torch.Tensor:
        entry = self._entry(key)
        if isinstance(entry, Given):
            return torch.empty_like(entry.tensor, device="meta")
        shape = [d for d in dims(entry.type) if isinstance(d, int)]
        return torch.empty(shape, dtype=torch_dtype(element(entry.type)), device="meta")


def _evaluated(name: str, sources: Sequence[torch.Tensor], params: dict[str, Any]) -> torch.Tensor:
    """Compute the tensor of a weight that a recipe derives from others.

    Raises:
        StepwellError: torch cannot compute it; contains torch's message.
    """
    try:
        return _RECIPES[name](*sources, **params)
    except StepwellError:
        raise
    except Exception as error:  # Kernels raise any class.
        message = (str(error).splitlines() or [type(error).__name__])[0]
        what = params.get("op", name)
        raise StepwellError(
            f"a constant cannot be computed: {what}: {message}",
            help="run the model in PyTorch on this machine: the same call fails there",
        ) from error


def _rows(entry: Entry) -> Rows | None:
    """Return which rows of its sources a derived entry needs for the same rows of its own."""
    assert isinstance(entry, Derived)
    rows = _ROWS[entry.recipe]
    return rows(dict(entry.parameters)) if callable(rows) else rows


def _step(
    entry: Derived, others: Sequence[torch.Tensor], cut: Rows, begin: int
) -> Callable[[slice, torch.Tensor], torch.Tensor]:
    """Return a recipe as a function of some rows of its first source; `begin` is the first row."""
    function, parameters = _RECIPES[entry.recipe], dict(entry.parameters)

    def step(rows: slice, first: torch.Tensor) -> torch.Tensor:
        if cut == "of the first":
            return function(first, *others, **parameters)
        same = slice(rows.start + begin, rows.stop + begin)
        return function(first, *(other[same] for other in others), **parameters)

    return step
