"""The measurements quoted in the README: `python -m bench` makes them all and prints one table."""
