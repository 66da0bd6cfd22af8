"""What all commands share: sources, outcomes, progress, completion."""
