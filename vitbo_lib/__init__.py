"""Benign overfitting in a one-layer vision transformer: the objects of the paper, one module each."""

from importlib.metadata import version

__version__ = version("vitbo")
