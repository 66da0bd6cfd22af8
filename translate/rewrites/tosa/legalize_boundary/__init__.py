"""What a target's profile allows: types of integers, ranges, the boundary."""
