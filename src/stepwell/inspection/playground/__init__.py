"""`stepwell play`: a local page with a program at any level, its passes and their result."""

from stepwell.inspection.playground.playground import Playground
from stepwell.inspection.playground.server import Playing, play

__all__ = ["Playground", "Playing", "play"]
