"""TOSA: what torch's operators are in its operators, a file for each family."""
