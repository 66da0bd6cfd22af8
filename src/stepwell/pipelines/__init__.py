"""The pass pipeline of each target: one literal tuple each."""
