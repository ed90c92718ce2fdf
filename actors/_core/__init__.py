"""The runtime's private half: the cell and what it is made of. Import from :mod:`actors` instead."""
