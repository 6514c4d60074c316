"""Pure functions between the wire, the model and the store: one module a direction, named for its target."""
