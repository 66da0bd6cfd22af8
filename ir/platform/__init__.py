"""What is not ours: other packages' private names, the process, the disk."""
