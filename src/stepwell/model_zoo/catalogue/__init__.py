"""A catalogue of thousands of models without downloads, from the model registries of libraries."""

from stepwell.model_zoo.catalogue.models import Entry, Made, find, select

__all__ = ["Entry", "Made", "find", "select"]
