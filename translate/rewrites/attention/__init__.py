"""Attention: recognition, expansion, masks and heads."""
