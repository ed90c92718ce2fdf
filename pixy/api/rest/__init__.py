"""The original's REST API on aiohttp."""
