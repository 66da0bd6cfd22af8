"""Recognition of quantized layers and functions between casts, shared by all targets."""
