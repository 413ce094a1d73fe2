"""Names and formats of the objects in a store: keys, the manifest, the identity."""
