"""Private names of other packages, in one place a package."""
