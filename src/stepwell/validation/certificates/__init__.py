"""Certificates: what each application of a lowering rests on, checked again from texts alone."""
