"""The API's own shapes, as msgspec Structs, and the frames they travel in."""
