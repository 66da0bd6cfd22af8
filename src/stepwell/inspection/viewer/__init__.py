"""`stepwell show`: programs as text, tables, one HTML page, Graphviz and Model Explorer graphs."""

from stepwell.inspection.viewer.graphs import to_dot, to_model_explorer
from stepwell.inspection.viewer.page import to_html
from stepwell.inspection.viewer.story import Story, tell

__all__ = ["Story", "tell", "to_dot", "to_html", "to_model_explorer"]
