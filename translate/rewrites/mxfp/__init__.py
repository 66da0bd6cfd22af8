"""Block-scaled (MX) layers."""
