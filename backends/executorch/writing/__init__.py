"""From a lowered program to the bytes of a `.pte`."""
