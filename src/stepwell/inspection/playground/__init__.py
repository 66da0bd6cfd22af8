"""`stepwell play`: a local page that shows a program at any level, its passes and its result."""

from stepwell.inspection.playground.playground import Playground
from stepwell.inspection.playground.server import Playing, play

__all__ = ["Playground", "Playing", "play"]
