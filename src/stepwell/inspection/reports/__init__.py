"""Reports on a lowering: explanations and profiles."""
