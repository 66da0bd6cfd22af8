"""Linear layers, convolutions and pools: one form, and what folds into their weights."""
