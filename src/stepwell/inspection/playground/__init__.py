"""`stepwell play`: a program at any level, its steps and what comes out, on one local page."""

from stepwell.inspection.playground.playground import Playground
from stepwell.inspection.playground.server import Playing, play

__all__ = ["Playground", "Playing", "play"]
