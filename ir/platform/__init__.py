"""Access to the process, the disk and optional packages."""
