"""What a quantised program says between its casts, recognised once for all targets."""
