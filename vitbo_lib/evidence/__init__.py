"""What is measured for each claim, one module a part of the book: setting, theory, regime, experiments."""
