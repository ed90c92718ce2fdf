"""Does what we build install and run? ``check`` is run by the installed Python; ``__main__`` is ``make test-install``."""
