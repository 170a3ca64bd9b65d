"""Placeholder."""
CLAIMS = ()
