"""Loaders: programs from models, files, factories and artifacts."""
