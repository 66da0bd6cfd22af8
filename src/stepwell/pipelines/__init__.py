"""The order of the passes to each target, one literal tuple each."""
