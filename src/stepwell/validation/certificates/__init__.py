"""Certificates: the evidence for each application of a lowering, verified from texts alone."""
