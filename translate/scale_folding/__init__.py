"""Constants of channels as an engine: scales and shifts go along axis maps into what takes them in.

A product or a sum with a constant for each channel (`constants.py`) follows its axis through what
moves whole channels (`rows.py`), until it meets a layer whose weights take it in. What those are is
a table (`layers.py`); a target adds rows for layers of its own.
"""
