"""The remote log over both sources: snapshots, views, positions, reads, lineage, losses."""
