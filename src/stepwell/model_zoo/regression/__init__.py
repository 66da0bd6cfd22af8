"""`stepwell replay`: the same programs lowered by two commits, and what differs."""

from stepwell.model_zoo.regression.replay import Replay, replay

__all__ = ["Replay", "replay"]
