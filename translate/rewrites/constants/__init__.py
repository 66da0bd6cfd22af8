"""Constants: numbers among operands, and constant folding."""
