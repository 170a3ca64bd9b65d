"""Timings of the library against other ways of doing the same, as ratios within one run."""
