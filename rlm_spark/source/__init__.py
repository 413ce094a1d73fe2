"""The data source as PySpark sees it: options, schema, batch and streaming readers."""
