"""Import from and export to PyTorch, and the rewrites that lower a program through its levels."""
