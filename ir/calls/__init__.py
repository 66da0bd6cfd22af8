"""A caller's arguments on their way into a program, and results on theirs back."""
