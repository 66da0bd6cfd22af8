"""`stepwell.accuracy`: which stage loses accuracy, which layer, why, and how to get it back."""
