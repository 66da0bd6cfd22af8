"""Write a lowered program as the bytes of a `.pte`."""
