"""Parts that the suites share: what a table is, how it is run, measured and shown."""
