"""The arguments of the commands. Their implementations are in `commands/` and imported on
demand.
"""
