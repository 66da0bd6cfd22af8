"""Rewrites of attention: recognize and expand it, fold its scale, apply its mask, share heads."""
