"""A process that judges one history after another, as `random_programs.child` does."""

from ..random_programs.child import main

if __name__ == "__main__":
    main("tests.stateful")
