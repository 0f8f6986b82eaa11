//! From one artifact to a GGUF file.
