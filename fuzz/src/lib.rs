//! Fuzz bodies as plain functions: libFuzzer explores them (`fuzz_targets/`), `cargo test` runs each over its corpus.

mod gguf;
mod safetensors;
mod session;
mod template;
mod tokenizer;

pub use gguf::gguf;
pub use safetensors::safetensors;
pub use session::session;
pub use template::template;
pub use tokenizer::tokenizer;

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_body_survives_its_corpus() {
        type Body = fn(&[u8]);
        let bodies: [(&str, Body); 5] = [
            ("gguf", super::gguf),
            ("safetensors", super::safetensors),
            ("session", super::session),
            ("template", super::template),
            ("tokenizer", super::tokenizer),
        ];
        for (name, body) in bodies {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
            let mut files = 0;
            for entry in std::fs::read_dir(folder).unwrap() {
                body(&std::fs::read(entry.unwrap().path()).unwrap());
                files += 1;
            }
            assert!(files >= 8, "{name}: {files} files in the corpus");
        }
    }
}
