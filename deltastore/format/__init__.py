"""What is on disk: keys, frames and the payloads inside them. Pure functions of bytes."""
