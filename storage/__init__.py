"""DuckDB: what was said, for as long as we promised."""
