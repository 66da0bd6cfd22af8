"""The arguments of the commands. `commands/` runs them, and is imported when one runs."""
