"""Seeded weights and tokens that nobody needs to download, with circuits built by hand."""
