"""What a lowering did, and why: reports, explanations, profiles."""
