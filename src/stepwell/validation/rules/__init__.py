"""Rules as theorems: what a rule's text says stands before and after computes the same."""
