"""Steps of pipelines: names, places, stages, and their text."""
