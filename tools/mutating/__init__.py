"""Programs mutated by proved rules, and the flows that judge them."""
