//! Integration tests of the engine: one module a subject.

mod sampling;
