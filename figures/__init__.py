"""Makers of the committed figures."""
