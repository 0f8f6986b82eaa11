//! The Kipp engine as a library: files, tokenizer, chat, KV, forward pass, oracle, sampling. No async, no environment, no
//! printing, no exit; bad input is a typed error.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use kipp::backend::cpu::{CpuBackend, CpuOptions};
//! use kipp::model::{Forward, Model, ModelOptions};
//! use kipp::{artifact::Artifact, kv::{KvPool, KvScheme}, session::Session, tokenizer::Tokenizer};
//!
//! let artifact = Artifact::open("model.gguf")?;
//! let options = ModelOptions::for_one_sequence(KvScheme::Bf16, 2048, 512);
//! let backend = CpuBackend::new(CpuOptions::default())?;
//! let mut model = Model::load(&artifact, artifact.spec().clone(), backend, options, &mut |_, _| {})?;
//! let pool = KvPool::new(model.kv_blocks());
//! let mut session = Session::new(&mut model, &pool);
//! let logits = session.append(&[436, 450, 258, 410])?;
//! # let _ = logits; Ok(()) }
//! ```

mod answer;
pub mod artifact;
pub mod backend;
pub mod batch;
pub mod chat;
pub mod checkpoints;
pub mod convert;
pub mod engine;
pub mod gates;
pub mod kv;
pub mod model;
pub mod oracle;
pub mod perplexity;
pub mod sampling;
pub mod session;
pub mod spec;
pub mod speculate;
pub mod token;
pub mod tokenizer;

pub use kipp_kernels::Scheme;
pub use spec::ModelSpec;
pub use token::TokenId;
