"""`stepwell.accuracy`: find the stage and the layer that lose accuracy, the cause, and a remedy."""
