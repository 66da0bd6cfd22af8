"""What an op says of itself: family, types, meaning, numerics, bounds."""
