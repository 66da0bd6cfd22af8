"""`stepwell replay`: lower the same programs with two commits, and report what differs."""

from stepwell.model_zoo.regression.replay import Replay, replay

__all__ = ["Replay", "replay"]
