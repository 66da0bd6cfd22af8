"""XNNPACK delegates: the payload in a `.pte`."""
