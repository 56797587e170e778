"""Configurations shipped with the package."""
