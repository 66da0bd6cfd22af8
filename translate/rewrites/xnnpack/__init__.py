"""aten → xnnpack: what XNNPACK runs, and how the rest is written with it."""
