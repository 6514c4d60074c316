"""The hands: HTTP, steps and mapping. The only room that knows the others."""
