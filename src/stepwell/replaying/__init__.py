"""`stepwell replay`: the same programs lowered by two commits, and what differs."""

from stepwell.replaying.replay import Replay, replay

__all__ = ["Replay", "replay"]
