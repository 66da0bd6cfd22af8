"""xDSL's private names."""
