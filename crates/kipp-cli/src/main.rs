//! The program `kipp`.
fn main() {}
