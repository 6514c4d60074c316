"""The commands that ask a running server, or show what is here, in a terminal."""
