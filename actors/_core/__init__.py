"""The runtime's private half: the cell and its parts. Import from :mod:`actors` instead."""
