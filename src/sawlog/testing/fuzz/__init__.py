"""The laws on changed files, for as long as one wants: `python -m sawlog.testing.fuzz MODULE:CLASS`."""
