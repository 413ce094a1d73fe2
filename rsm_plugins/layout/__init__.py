"""Names and formats of what lies in a store: object keys, the manifest, the identity."""
