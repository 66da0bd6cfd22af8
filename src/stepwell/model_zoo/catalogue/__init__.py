"""Models by the thousand, without downloads: factories around the registries of libraries."""

from stepwell.model_zoo.catalogue.models import Entry, Made, find, select

__all__ = ["Entry", "Made", "find", "select"]
