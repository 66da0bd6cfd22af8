"""Rewrites, one file each, in one folder for each dialect they rewrite."""
