"""From the bytes of a `.pte` back to a program."""
