//! Many sequences on one model.

mod stop;

pub use stop::{Released, StopFilter};
