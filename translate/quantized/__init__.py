"""What a quantized program says between its casts, recognized once for all targets."""
