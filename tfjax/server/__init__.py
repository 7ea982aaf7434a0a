"""The HTTP server: OpenAI routes over one engine."""
