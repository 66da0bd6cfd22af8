"""Models by the thousand, without downloads: factories around the registries of libraries."""

from stepwell.zoo.catalogue import Entry, Made, find, select

__all__ = ["Entry", "Made", "find", "select"]
