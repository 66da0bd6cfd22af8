"""Read a program from the bytes of a `.pte`."""
