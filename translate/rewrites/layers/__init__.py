"""Linear layers, convolutions and pools: canonical forms, and folding into their weights."""
