"""Constants: numbers among operands, and what is computed before a program runs."""
