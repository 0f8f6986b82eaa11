//! From messages to a prompt.
