"""MLX: prompt in, pieces out. Knows no HTTP and no JSON of the API."""
