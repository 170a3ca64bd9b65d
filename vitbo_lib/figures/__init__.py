"""Figures of the book: `style` holds the looks, every other module pure functions from a table to a figure."""
