"""A process that judges one history after another, as `strange.child` does."""

from ..strange.child import main

if __name__ == "__main__":
    main("tests.stateful")
