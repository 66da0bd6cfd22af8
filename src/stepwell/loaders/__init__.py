"""Where programs come from: models, files, factories, artifacts."""
