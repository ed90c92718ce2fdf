"""Pages, run as they are printed."""
