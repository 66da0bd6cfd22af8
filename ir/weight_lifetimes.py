"""How long an emitter keeps derived weights: until every entry that needs them was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stepwell.ir.weight_bytes import dense_size
from stepwell.ir.weight_entries import Derived, Entry


@dataclass
class Lifetimes:
    """The tensors that were evaluated for an emitter, which reads each key of a program once.

    Attributes:
        used: the keys of the program; empty if unknown.
        emitted: those that were read.
        transient: entries that were evaluated for a reader.
    """

    used: set[str] = field(default_factory=set[str])
    emitted: set[str] = field(default_factory=set[str])
    transient: set[str] = field(default_factory=set[str])
    _readers: tuple[int, dict[str, list[str]]] = (-1, {})
    """The entries that have a key as a source, for this number of entries."""

    def begin(self, key: str, entries: Mapping[str, Entry]) -> None:
        """Record that an emitter reads a key; one that was read before begins another emission."""
        if key in self.emitted:
            self.emitted.clear()
        self.emitted.add(key)
        if self._readers[0] != len(entries):
            readers = dict[str, list[str]]()
            for name, entry in entries.items():
                for source in entry.sources if isinstance(entry, Derived) else ():
                    readers.setdefault(source, []).append(name)
            self._readers = len(entries), readers

    def release(self, fresh: Iterable[str], entries: Mapping[str, Entry]) -> int:
        """Drop tensors that no other entry needs, and return their size in bytes.

        Args:
            fresh: the keys of entries that were evaluated now.
            entries: the entries of the store.
        """
        self.transient.update(fresh)
        size = 0
        for name in [name for name in self.transient if not self._is_pending(name, entries)]:
            self.transient.remove(name)
            if isinstance(entry := entries.get(name), Derived):
                size += dense_size(entry.type)
                entry.tensor = None
        return size

    def others(self, key: str, reader: str, entries: Mapping[str, Entry]) -> list[str]:
        """Return the entries, except for one, that are still to be computed from a source."""
        readers = (name for name in self._readers[1].get(key, ()) if name != reader)
        return [name for name in readers if self._waits(name, entries)]

    def _waits(self, name: str, entries: Mapping[str, Entry]) -> bool:
        entry = entries[name]
        return (
            isinstance(entry, Derived) and entry.tensor is None and self._is_pending(name, entries)
        )

    def _is_pending(self, key: str, entries: Mapping[str, Entry]) -> bool:
        """Whether an emitter will read an entry, or one that is derived from it."""
        readers = self._readers[1].get(key, ())
        if key not in self.emitted and (key in self.used if self.used else not readers):
            return True
        return any(self._waits(name, entries) for name in readers)
