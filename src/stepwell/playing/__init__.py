"""`stepwell play`: a program at any level, its steps and what comes out, on one local page."""

from stepwell.playing.playground import Playground
from stepwell.playing.server import Playing, play

__all__ = ["Playground", "Playing", "play"]
