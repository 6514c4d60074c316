"""The law: what may follow what, as tables, and the driver that follows them. No I/O, no other room."""
