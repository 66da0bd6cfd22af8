"""Programs mutated by rules that are proved, and how they are judged on each target."""
