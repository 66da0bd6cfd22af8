"""An op becomes a node of XNNPACK's, or a few."""
