"""Access to xDSL's private names."""
