"""Code that all commands share: sources, outcomes, progress, completion."""
