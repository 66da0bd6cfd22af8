"""What looks elements up by index, or orders them."""
