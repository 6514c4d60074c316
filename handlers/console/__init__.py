"""The console: the page at /console, that shows what /interlock tells. `page.py` serves the other files here."""
