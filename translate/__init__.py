"""In and out of torch, and the rewrites that walk a program down its levels."""
