"""What the specification's own document says, and what the official client's types say."""
