"""Deletes: reading delta logs, and looking up which rows they hit."""
